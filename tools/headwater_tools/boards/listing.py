"""What `hw board` shows of the boards of a site, and changes in its registry."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headwater.process.proposal import life
from headwater_gateway.status import ENERGY

from ..errors import UserError
from ..site.place import NotRunning, Place

HEAD = ("board", "link", "over", "last heard", "process", "plan", "battery", "version", "boot", "runs here")
NONE = "-"


# ---- list


def show(place: Place) -> tuple[int, dict[str, Any]]:
    """`hw board list`: a line for each board."""
    state = place.ask("/state")
    found = [_row(place, name, board, state) for name, board in state["boards"].items()]
    if not found:
        print("no board is registered: `hw provision NAME %s` registers one" % place.shown)
    else:
        for line in table([HEAD, *(_texts(row) for row in found)]):
            print(line)
        for row in found:
            if row["why"]:
                print("%s: %s" % (row["name"], row["why"]))
    return 0, {"site": str(place.shown), "boards": found}


def _row(place: Place, name: str, board: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    status = board["status"]
    crash = status.get("crash")
    why = board["why"]
    if not why and crash and status.get("boot") == crash[0] + 1:
        why = "crashed: %s" % crash[1]
    return {
        "name": name,
        "number": board["number"],
        "link": board["link"],
        "via": board["via"],
        "heard_s": round((state["now_us"] - board["seen_us"]) / 1e6, 1) if board["seen_us"] else None,
        "process": board["process"],
        "leaving": board["leaving"],
        "plan": board["plan"],
        "battery_mv": status.get("battery"),
        "energy": dict(zip(ENERGY, status["energy"], strict=True)) if status.get("energy") else None,
        "version": status.get("version"),
        "boot": status.get("boot"),
        "up_s": status.get("up"),
        "rssi": status.get("rssi"),
        "free_bytes": status.get("free"),
        "why": why,
        "virtual": place.running(name) or None,
    }


def _texts(row: dict[str, Any]) -> tuple[str, ...]:
    mv = row["battery_mv"]
    process = row["process"] or NONE
    if row["leaving"]:
        process = "%s stops" % row["leaving"]
    return (
        row["name"],
        row["link"],
        row["via"] or NONE,
        NONE if row["heard_s"] is None else ago(row["heard_s"]),
        process,
        row["plan"] or NONE,
        NONE if mv is None else "%.2f V%s" % (mv / 1000, _charge(row["energy"])),
        row["version"] or NONE,
        NONE if row["boot"] is None else str(row["boot"]),
        "process %d" % row["virtual"] if row["virtual"] else NONE,
    )


def _charge(energy: dict[str, int] | None) -> str:
    """What a battery has left, and for how long."""
    return "" if energy is None else ", %d %%, %s" % (energy["percent"], life(energy["left_s"]))


def ago(seconds: float) -> str:
    """A time that has passed, in the unit that fits it."""
    if seconds < 1:
        return "now"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return "%d %s ago" % (seconds // size, unit)
    return "%d s ago" % seconds


def table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Rows of texts in columns."""
    every = list(rows)
    widths = [max(len(row[k]) for row in every) for k in range(len(every[0]))]
    return ["  ".join("%-*s" % pair for pair in zip(widths, row, strict=True)).rstrip() for row in every]


# ---- logs


def logs(place: Place, name: str, lines: int) -> tuple[int, dict[str, Any]]:
    """`hw board logs`: what the gateway has of a board, and its console where it is virtual."""
    console = place.virtual(name) / "console.log"
    last = _last(console, lines)
    try:
        state = place.ask("/state")
    except NotRunning as trouble:
        if not last:
            raise
        print("%s" % trouble)
        _console(console, last)
        return 0, {"board": name, "console": last}
    board = state["boards"].get(name)
    if board is None:
        raise UserError(
            "board %s is not registered in %s, which has %s"
            % (name, place.shown, ", ".join(state["boards"]) or "none")
        )
    events = [event for event in state["events"] if about(event["text"], name)][-lines:]
    alarms = [alarm for alarm in state["alarms"] if alarm["id"].endswith("/" + name)]
    for line in _reported(name, board, state["now_us"]):
        print(line)
    for alarm in alarms:
        print("alarm: %s %s" % (alarm["text"], alarm["do"]))
    for event in events:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["at_us"] / 1e6))
        print("%s  %s" % (at, event["text"]))
    if last:
        _console(console, last)
    answer = {"board": name, **board, "alarms": alarms, "events": events, "console": last}
    return 0, answer


def about(text: str, name: str) -> bool:
    """Whether an event is about this board."""
    return re.search(r"\b[Bb]oard %s\b" % re.escape(name), text) is not None


def _reported(name: str, board: dict[str, Any], now_us: int) -> list[str]:
    status = board["status"]
    if not board["seen_us"]:
        return ["board %s has never reported" % name]
    heard = ago((now_us - board["seen_us"]) / 1e6)
    if board["via"]:
        heard += " over " + board["via"]
    lines = ["board %s, number %d: %s, last heard %s" % (name, board["number"], board["link"], heard)]
    known = [
        (key, status.get(key))
        for key in ("version", "boot", "up", "free", "battery", "rssi", "refused", "dropped")
    ]
    words = ", ".join("%s %s" % pair for pair in known if pair[1] is not None)
    if words:
        lines.append("its last status: " + words)
    if status.get("log"):
        lines.append("its log: %d of %d bytes free" % tuple(status["log"]))
    if status.get("crash"):
        lines.append("its last crash, in boot %d: %s" % tuple(status["crash"]))
    if board["why"]:
        lines.append("it refuses its plan: " + board["why"])
    return lines


def _last(path: Path, lines: int) -> list[str]:
    """The last lines of a file; none where there is no file."""
    try:
        with open(path, "rb") as log:
            log.seek(max(0, log.seek(0, 2) - 400 * max(1, lines)))
            text = log.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:] if lines > 0 else []


def _console(path: Path, lines: list[str]) -> None:
    print("%s:" % path)
    for line in lines:
        print("  " + line)


# ---- rename and remove


def rename(place: Place, name: str, new: str) -> tuple[int, dict[str, Any]]:
    from headwater_gateway import UserError as GatewayTrouble
    from headwater_gateway import broker, registry

    _not_here(place, name)
    try:
        home = registry.renamed(place.config, name, new)
        told = broker.reload(place.folder)
    except GatewayTrouble as trouble:
        raise UserError(str(trouble))
    print("board %s is called %s now, with the same key: %s" % (name, new, home))
    print("a real board needs its new config.json; its former name is refused from now on")
    _print_told(told)
    return 0, {"board": new, "former": name, "folder": str(home), "broker_told": bool(told)}


def remove(place: Place, name: str) -> tuple[int, dict[str, Any]]:
    from headwater_gateway import UserError as GatewayTrouble
    from headwater_gateway import broker, registry

    _not_here(place, name)
    try:
        registry.removed(place.config, name)
        told = broker.reload(place.folder)
    except GatewayTrouble as trouble:
        raise UserError(str(trouble))
    shutil.rmtree(place.virtual(name), ignore_errors=True)
    print("board %s is removed: its key is refused, and its number is given to no other board" % name)
    _print_told(told)
    return 0, {"board": name, "broker_told": bool(told)}


def _not_here(place: Place, name: str) -> None:
    process = place.running(name)
    if process:
        raise UserError(
            "board %s runs here, as process %d: end that first; nothing was changed" % (name, process)
        )


def _print_told(process: int) -> None:
    if process:
        print("the broker (process %d) has been told to read its passwords again" % process)
    else:
        print(
            "a broker that runs must be told to read its passwords again: `systemctl reload "
            "headwater-broker`, or a SIGHUP to Mosquitto"
        )
