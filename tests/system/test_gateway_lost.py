"""A gateway whose database is lost: it says so, and with --rebuild it goes on where boards and lake are.

Broker, gateway, cutter and boards are real; the sink is played by a file of acknowledgements.
"""

from __future__ import annotations

import json
import signal
import time
import zlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from gateway_site import Site, until
from headwater_cloud import segment as sink
from headwater_cloud.decide import decide
from headwater_gateway import keys
from headwater_gateway.command import register as provision
from headwater_gateway.segments.names import split
from headwater_tools.boards.on_board.board_sensors import wave

ONE = """
from headwater.process import Affine, Process
p = Process("one", checkpoints="ecoc", every=50, batch=25)
accel = p.source("accel", "x:i16 y:i16", rate_hz=50, on="wrist")
p.lake("one/accel", accel)
p.lake("one/scaled", accel >> Affine(num=%d))
"""
OTHER = """
other = p.source("other", "x:i16 y:i16", rate_hz=50, on="ankle")
p.lake("one/other", other)
"""
TWO = ONE + OTHER


def write(site: Site, text: str, num: int) -> None:
    (site.folder / "one.py").write_text(text % num)


def deploy(site: Site, text: str, num: int) -> None:
    write(site, text, num)
    site.hw("deploy", "one.py", "--wait", "60")


def process(site: Site) -> dict[str, Any]:
    state = site.state()
    return dict(state["processes"].get("one", {})) if state else {}


def runs(site: Site, deployment: int) -> None:
    """Wait until every board runs this deployment, and all about it is known."""

    def so() -> bool:
        found = process(site)
        wanted = {"deployment": deployment, "step": "runs", "learning": ""}
        return {key: found.get(key) for key in wanted} == wanted

    until(so, why=site.consoles())


def acknowledge(site: Site, high: dict[str, int]) -> None:
    """The lake has these streams up to there."""
    streams = {}
    for name, n in high.items():
        streams[name] = {site.stream(name)["incarnation"]: {"high": n, "ranges": []}}
    text = {"format": 1, "process": "one", "generation": 0, "unreadable": [], "streams": streams}
    folder = site.folder / "lake" / "acks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "new").write_text(json.dumps(text))
    (folder / "new").rename(folder / "one.json")


def lose(site: Site) -> None:
    """The gateway dies, and its database with it."""
    site.kill_gateway(signal.SIGKILL)
    for path in (site.folder / "data").glob("gateway.db*"):
        # Its cutter ends a moment later. As the last one to close the database, it deletes these files
        # itself.
        path.unlink(missing_ok=True)


class Stream:
    """What the segments hold of one stream: its newest incarnation, and everything once."""

    def __init__(self, site: Site, name: str) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.holes: set[int] = set()
        self.gaps: list[tuple[int, int, str]] = []
        self.first = 0
        place = site.stream(name).get("incarnation")
        runs = []
        for path in site.segments():
            parts = split(path.name)
            assert parts is not None
            if parts.stream == name.replace("/", ".") and "%016x" % parts.incarnation == place:
                runs.append((parts.first, parts.last, path))
        at = None
        for first, last, path in sorted(runs):
            assert at is None or first == at + 1, "%s begins behind %s" % (path, at)
            at = last
            self.first = self.first or first
            footer = json.loads(pq.read_metadata(path).metadata[b"headwater"])
            for begin, end, kind, reason, *_ in footer["gaps"]:
                if kind == "gap":
                    self.gaps.append((begin, end, reason))
                else:
                    self.holes |= set(range(begin, end + 1))
            for row in pq.read_table(path).to_pylist():
                assert row["xi"] not in self.rows
                self.rows[row["xi"]] = row
        self.last = at or 0


def test_a_lost_database_is_told_and_rebuilt_from_boards_and_lake(site: Site) -> None:
    original = site.config_file.read_text()
    site.config_file.write_text(original.replace("segment_s = 0.5", "segment_s = 3600"))  # nothing is cut yet
    site.start_broker()
    site.start_gateway()
    wrist = site.wave_board()
    provision(site.config_file, "spare")  # a board that never came
    wrist.start()
    deploy(site, ONE, 2)
    until(lambda: site.stream("one/scaled")["durable"] >= 150, why=site.consoles())
    acknowledge(site, {"one/accel": 100, "one/scaled": 90})
    until(lambda: site.stream("one/scaled")["acked"] == 90)
    before = site.stream("one/accel")["durable"]
    until(lambda: site.stream("one/accel")["durable"] >= before + 100, why=site.consoles())
    lose(site)
    at_loss = wrist.accepted()[-1].xi + 25

    for words in (("gateway", "run", "."), ("provision", "another")):
        refused = site.command(*words)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr, refused.stderr
        assert "gateway.db is missing" in refused.stderr and "--rebuild" in refused.stderr, refused.stderr
        assert "spare, wrist" in refused.stderr
    assert not (site.folder / "data" / "gateway.db").exists()
    time.sleep(2)  # what the board accepts meanwhile stays in its flash
    site.config_file.write_text(original)
    site.start_gateway("--rebuild")
    runs(site, 1)
    state = site.state()
    assert state is not None
    assert {name: b["number"] for name, b in state["boards"].items()} == {"wrist": 1, "spare": 2}

    accepted = wrist.accepted()
    last = accepted[-1].xi + accepted[-1].n - 1
    assert last > at_loss
    until(lambda: site.stream("one/accel")["cut"] >= last, why=site.consoles())
    until(lambda: site.stream("one/scaled")["cut"] >= last - 100, why=site.consoles())
    for name, begin, factor in (("one/accel", 101, 1), ("one/scaled", 91, 2)):
        stream = Stream(site, name)
        assert stream.first == begin
        ((first, end, reason),) = stream.gaps
        assert (first, reason) == (begin, "gateway lost") and end < at_loss
        known = stream.rows.keys() | stream.holes | set(range(first, end + 1))
        assert known == set(range(begin, stream.last + 1))
        by_ts = {round(row["ts"].timestamp() * 1e6): row["ints"] for row in stream.rows.values()}
        for batch in accepted:
            for i in range(batch.n):
                ts = batch.ts + i * batch.dt
                if ts in by_ts:
                    assert by_ts[ts] == [factor * wave(batch.first + i, k, 3) for k in range(2)]
    held = Stream(site, "one/accel")
    for batch in accepted:
        for xi in range(batch.xi, batch.xi + batch.n):
            assert xi <= held.gaps[0][1] or xi in held.rows

    assert site.command("deploy", "--set", "affine.num=5").returncode == 0
    deploy(site, ONE, 3)
    runs(site, 2)
    until(lambda: site.stream("one/scaled")["durable"] >= 50, why=site.consoles())
    home = provision(site.config_file, "another")
    master = keys.load(site.folder / "secrets" / "master.key")
    assert (home / "board.key").read_bytes() == master.board(3)
    site.kill_gateway(signal.SIGTERM)
    site.start_gateway()  # it is an ordinary gateway again
    runs(site, 2)
    site.kill_gateway(signal.SIGTERM)
    assert "Traceback" not in site.log.read_text()


def judged(site: Site, stream: str) -> Any:
    """What a sink knows of the newest incarnation of a stream, when it has read the whole landing zone."""
    found = []
    for path in sorted(site.segments(), key=lambda path: path.stat().st_mtime_ns):
        data = path.read_bytes()
        footer = int.from_bytes(data[-8:-4], "little") + 8
        found.append(sink.read(path.name, len(data), zlib.crc32(data), data[-footer:]))
    numberings: dict[Any, Any] = {}
    for segment in found:  # one batch each, in the order in which they came
        numberings.update(decide([segment], numberings).changed)
    # What the board had not trimmed yet comes again, and must be the same.
    payloads: dict[tuple[Any, ...], Any] = {}
    for path in site.segments():
        for row in pq.read_table(path).to_pylist():
            key = (row["stream"], row["incarnation"], row["xi"])
            assert payloads.setdefault(key, (row["ts"], row["ints"])) == (row["ts"], row["ints"])
    inc = int(site.stream(stream)["incarnation"], 16)
    (numbering,) = [n for key, n in numberings.items() if key[0] == stream and key[1] % (1 << 64) == inc]
    return numbering


def test_segments_that_the_lake_had_not_read_yet_are_no_loss(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    wrist = site.wave_board()
    wrist.start()
    deploy(site, ONE, 2)
    until(lambda: site.stream("one/scaled")["cut"] >= 150, why=site.consoles())
    cut = site.stream("one/accel")["cut"]
    lose(site)
    for _ in range(3):  # it is killed while it learns, too
        site.start_gateway("--rebuild")
        time.sleep(0.2)
        site.kill_gateway(signal.SIGKILL)
    site.start_gateway()
    runs(site, 1)
    accepted = wrist.accepted()
    last = accepted[-1].xi + accepted[-1].n - 1
    until(lambda: site.stream("one/accel")["cut"] >= last, why=site.consoles())
    until(lambda: site.stream("one/scaled")["cut"] >= last - 100, why=site.consoles())
    numbering = judged(site, "one/accel")
    assert numbering.known[0] == (1, cut) or numbering.known[0][1] > cut
    missing = sum(end - begin + 1 for begin, end in numbering.gaps)
    assert (
        all(begin > cut for begin, _ in numbering.gaps) and missing <= 100
    )  # what half a second had gathered
    known = sum(end - begin + 1 for begin, end in numbering.known)
    assert known + missing >= last
    judged(site, "one/scaled")


def test_a_switch_that_was_under_way_is_brought_to_its_end(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    wrist, ankle = site.wave_board(), site.wave_board("ankle", "other")
    wrist.start()
    ankle.start()
    deploy(site, TWO, 2)
    until(lambda: site.stream("one/scaled")["durable"] >= 50, why=site.consoles())
    ankle.kill()
    write(site, TWO, 3)
    assert "draining" in site.command("deploy", "one.py").stdout
    until(lambda: site.state()["boards"]["wrist"]["plan"] == "drained", why=site.consoles())  # type: ignore[index]
    lose(site)
    site.start_gateway("--rebuild")
    until(lambda: process(site).get("step") == "drains", why=site.consoles())
    # The other board is off: what it runs nobody knows, so nothing may be changed.
    write(site, TWO, 4)
    for words in (("deploy", "one.py"), ("deploy", "--set", "affine.num=5"), ("deploy", "--cancel", "one")):
        refused = site.command(*words)
        assert refused.returncode == 2 and "what runs on ankle is not known" in refused.stderr, refused.stderr
    until(lambda: any("ankle" in alarm["text"] for alarm in site.state()["alarms"]))  # type: ignore[index]
    site.kill_gateway(signal.SIGKILL)
    site.start_gateway()  # what it has learned it keeps
    ankle.start()
    runs(site, 2)
    until(lambda: site.stream("one/scaled")["durable"] >= 50, why=site.consoles())
    before = site.stream("one/other")["durable"]
    until(lambda: site.stream("one/other")["durable"] >= before + 50, why=site.consoles())
    deploy(site, TWO, 4)
    runs(site, 3)


GATED = """
from headwater.process import Affine, Decimate, Process
p = Process("one", checkpoints="ecoc", every=50, batch=25)
accel = p.source("accel", "x:i16 y:i16", rate_hz=50, on="wrist")
p.lake("one/accel", accel)
p.lake("one/scaled", (accel >> Affine(num=%d)).on("wrist", backup=["gateway"]))
p.lake("one/mean", (accel >> Decimate(k=10)).on("gateway", backup=["wrist"]))
"""


def shown(site: Site) -> dict[str, list[int]]:
    """Numbers of the changes of each operator: asked for, and taken."""
    return {v["name"]: v["changes"] for v in process(site).get("vertices", ()) if v["kind"] != "source"}


def in_force(site: Site) -> dict[str, dict[str, Any]]:
    """The parameters of each operator."""
    return {v["name"]: v["parameters"] for v in process(site).get("vertices", ()) if v["kind"] != "source"}


def told(site: Site) -> str:
    return "%s\n%s" % (json.dumps(site.state(), indent=1), site.consoles())


def test_an_old_backup_goes_on_where_boards_and_lake_are(site: Site, tmp_path: Path) -> None:
    """The backup is made while the gateway runs; after it come entries, a change of a parameter, another
    version of the process, and the loss of the gateway's disk. Nothing is lost but what only that disk had,
    and that is told; nothing comes twice, and no number is given again."""
    site.start_broker()
    site.start_gateway()
    wrist = site.wave_board()
    wrist.start()
    deploy(site, GATED, 2)
    until(lambda: site.stream("one/mean")["durable"] >= 20, 90, lambda: told(site))
    archive = tmp_path / "backup"
    done = site.command("gateway", "backup", ".", str(archive))
    assert done.returncode == 0 and "boards wrist; processes one" in done.stdout, done.stdout + done.stderr
    at_backup = site.stream("one/accel")["durable"]

    assert site.command("deploy", "--set", "affine.num=5").returncode == 0
    until(lambda: shown(site)["affine"][1] >= 1, 90, lambda: told(site))
    deploy(site, GATED, 3)
    runs(site, 2)
    for name in ("one/scaled", "one/mean"):  # of this version
        until(lambda name=name: site.stream(name).get("incarnation") == process(site)["hash"], 90)  # type: ignore[misc]
    assert site.command("deploy", "--set", "affine.num=7").returncode == 0
    until(lambda: shown(site)["affine"][1] >= 1, 90, lambda: told(site))
    until(lambda: site.stream("one/scaled")["durable"] >= 100, 90, lambda: told(site))
    until(lambda: site.stream("one/mean")["durable"] >= 20, 90, lambda: told(site))
    in_lake = {name: site.stream(name)["cut"] for name in ("one/accel", "one/scaled", "one/mean")}
    acknowledge(site, in_lake)
    incarnations = {site.stream(name)["incarnation"] for name in in_lake}
    until(lambda: site.stream("one/accel")["acked"] >= in_lake["one/accel"])
    site.kill_gateway(signal.SIGKILL)
    site.stop_broker()
    at_loss = wrist.accepted()[-1].xi + 25
    assert at_backup < in_lake["one/accel"] < at_loss

    # The disk is gone; landing zone and lake are elsewhere.
    new = tmp_path / "new"
    done = site.command("gateway", "restore", str(archive), str(new))
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("landing", "lake"):
        (site.folder / name).rename(new / name)
    site.folder.rename(tmp_path / "gone")
    wrist.kill()
    wrist.folder = tmp_path / "gone" / "virtual" / "wrist"
    wrist.ledger = wrist.folder / wrist.ledger.name
    wrist.start()
    site.move(new)
    site.start_broker()
    site.start_gateway()
    runs(site, 2)
    assert {site.stream(name)["incarnation"] for name in in_lake} == incarnations
    last = wrist.accepted()[-1].xi
    assert last > at_loss - 50
    until(lambda: site.stream("one/accel")["cut"] >= last, 120, lambda: told(site))
    until(lambda: site.stream("one/scaled")["cut"] > in_lake["one/scaled"] + 100, 120, lambda: told(site))
    until(lambda: site.stream("one/mean")["cut"] > in_lake["one/mean"] + 10, 120, lambda: told(site))

    # Every accepted entry is in the lake, in a segment, or in the gap of what only the lost disk had.
    for name, high in in_lake.items():
        numbering = judged(site, name)
        known = {xi for first, end in numbering.known for xi in range(first, end + 1)}
        gaps = {xi for first, end in numbering.gaps for xi in range(first, end + 1)} - known
        end = last if name == "one/accel" else max(known)
        assert known | gaps | set(range(1, high + 1)) >= set(range(1, end + 1)), name
        assert all(high < xi <= at_loss for xi in gaps), name
        assert name == "one/accel" or len(gaps) < 100  # what was not cut yet, and nothing made since

    # The change of before the loss holds. The gateway counts the next ones from 1, under its own log number.
    until(lambda: in_force(site)["affine"]["num"] == 7, 90, lambda: told(site))
    assert site.command("deploy", "--set", "affine.num=9").returncode == 0
    until(lambda: shown(site)["affine"] == [1, 1], 90, lambda: told(site))
    assert in_force(site)["affine"]["num"] == 9
    deploy(site, GATED, 3 + 1)
    runs(site, 3)
    until(lambda: site.stream("one/scaled")["durable"] >= 50, 90, lambda: told(site))
    home = provision(site.config_file, "another")
    assert (home / "board.key").read_bytes() != keys.load(new / "secrets" / "master.key").board(2)
    assert "Traceback" not in site.log.read_text()
