"""A virtual board of a site: `hw board run`, and the boards of `hw up`.

It is the program of a board with the image that every virtual board has, and its folder is `virtual/NAME` in
the site: the flash in a file, so that a board that is started again goes on where its power went.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.data.alphabet import Alphabet

from ..errors import UserError
from ..site.place import Place, answers
from . import energy, recording
from .virtual import VirtualBoard

HEAP = "128k"
PROGRAM = ("board_site",)
LOCAL = ("localhost", "127.0.0.1", "::1")
# A board that is there sends its status every 5 s; a gateway that has just started takes each for present.
LIVE_S = 6.0
FULL_MV, EMPTY_MV = 4150, 2800


def make(
    place: Place,
    name: str,
    recordings: Mapping[str, Path],
    once: bool = False,
    battery_s: float | None = None,
    on_line: Callable[[str], None] | None = None,
) -> VirtualBoard:
    """The board, without power yet. UserError where a file does not fit its source. `battery_s`: it reports
    so
    often that the end of its battery can be seen coming."""
    home = place.known(name)
    folder = place.virtual(name)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    config = _read(home / "config.json")
    (folder / "ca.der").write_bytes((home / "ca.der").read_bytes())
    config["broker"] = broker(place, config["broker"])
    config["sensors"] = _sensors(place, name, folder, recordings, once)
    if battery_s is not None:
        config["status_s"] = max(1, min(config.get("status_s", 5), int(battery_s / 20)))
        config["energy"] = _draws(battery_s)
    began = folder / "began"
    if not began.exists():
        began.write_text(str(time.time_ns() // 1000))
    key = (home / "board.key").read_bytes()
    return VirtualBoard(name, folder, config, key, HEAP, on_line=on_line, program=PROGRAM)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise UserError("%s is no JSON (%s): correct it" % (path, error))
    if not isinstance(found, dict) or not isinstance(found.get("broker"), dict):
        raise UserError("%s has no object `broker`: correct it, or provision the board again" % path)
    return found


def broker(place: Place, settings: Mapping[str, Any]) -> dict[str, Any]:
    """How a board on this machine reaches the broker: by loopback where it is the site's own."""
    found = {**settings, "retry_s_max": 5}
    own = place.folder / "mosquitto" / "mosquitto.conf"
    if settings["host"] in LOCAL or own.is_file() and answers("127.0.0.1", settings["port"]):
        # Every certificate that `hw gateway init` makes names localhost.
        found |= {"host": "127.0.0.1", "name": "localhost"}
    return found


def must_answer(place: Place, name: str) -> None:
    """UserError where no broker listens for this board."""
    settings = broker(place, _read(place.known(name) / "config.json")["broker"])
    if not answers(settings["host"], settings["port"]):
        raise UserError(
            "no broker listens on %s:%d: start that of the site with `hw broker run %s`, or the whole site "
            "with `hw up %s`" % (settings["host"], settings["port"], place.shown, place.shown)
        )


def must_be_alone(place: Place, name: str) -> None:
    """UserError where the gateway hears this board already."""
    end = time.monotonic() + LIVE_S
    first = None
    while True:
        state = place.state() or {"boards": {}}
        board = state["boards"].get(name, {"link": "never seen", "seen_us": 0})
        if board["link"] != "up":
            return
        first = board["seen_us"] if first is None else first
        if board["seen_us"] > first:
            raise UserError(
                "board %s is connected already, from a real board or another folder: two with one key push "
                "each other off the broker. Switch that one off first, or give this one a name of its own "
                "(`hw provision NAME %s`)" % (name, place.shown)
            )
        if time.monotonic() > end:
            return
        time.sleep(0.2)


# ---- sensors


def _sensors(
    place: Place, name: str, folder: Path, recordings: Mapping[str, Path], once: bool
) -> dict[str, dict[str, Any]]:
    """Settings of the sensors that play a file; all others are synthetic."""
    if not recordings:
        return {}
    found = {}
    known = sources(place, name)
    for source, path in recordings.items():
        if source not in known:
            raise UserError(
                "--sensor %s=%s: board %s has no source %s in the process of %s, which has %s"
                % (source, path, name, source, place.shown, ", ".join(known) or "none there")
            )
        target = folder / (source + ".rows")
        recording.pack(path, Alphabet(known[source]), source, target, once)
        target.with_name(target.name + ".began").unlink(missing_ok=True)
        found[source] = {"driver": "recording", "path": target.name, "ledger": None}
    return found


def sources(place: Place, name: str) -> dict[str, str]:
    """Source of this board -> its alphabet: in the process that is deployed, or else in the site's file."""
    state = place.state() or {"processes": {}}
    for process in state["processes"].values():
        if name in process["hosts"]:
            return _deployed(process, name)
    report = place.checked()
    if report is None:
        return {}
    if report.decoded is None:
        raise UserError(
            "%s has mistakes, so which sources board %s has is not known: `hw check %s` shows them"
            % (place.process, name, place.process)
        )
    plan = report.decoded
    return {v.name: v.outs[0].text for v in plan.vertices if not v.kind and plan.hosts[v.hosts[0]] == name}


def _deployed(process: Mapping[str, Any], name: str) -> dict[str, str]:
    found = {}
    for edge in process["edges"]:
        vertex = process["vertices"][edge["from"]]
        if vertex["kind"] == "source" and vertex["host"] == name:
            found[vertex["name"]] = edge["alphabet"]
    return found


def parsed(words: list[str]) -> dict[str, Path]:
    """--sensor SOURCE=FILE, as often as it was given."""
    found: dict[str, Path] = {}
    for word in words:
        source, equals, path = word.partition("=")
        if not (source and equals and path):
            raise UserError("--sensor %s: write SOURCE=FILE, like ecg=ecg.csv" % word)
        if source in found:
            raise UserError("--sensor %s is given twice: a source has one sensor" % source)
        found[source] = Path(path)
    return found


# ---- battery


def seconds(text: str) -> float:
    """90, 90s, 2m or 1.5h."""
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
    try:
        value = float(text[:-1] if unit else text) * (unit or 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e7:
        raise UserError("--battery %s: give a time like 60s, 5m or 2h" % text)
    return value


def _draws(battery_s: float) -> dict[str, Any]:
    """What the board is told of a battery that is empty after this time: an ESP32, its capacity scaled."""
    board = energy.board(energy.ASSUMED)
    assert board is not None
    linear = replace(board, discharge=((EMPTY_MV, 0), (FULL_MV, 100)))
    return energy.given(linear, max(1, int(board.awake_ua * battery_s / 1000)))


def voltage(passed_s: float, whole_s: float) -> int:
    """Millivolts of a battery that is empty after `whole_s`."""
    return round(FULL_MV - (FULL_MV - EMPTY_MV) * min(1.0, passed_s / whole_s))
