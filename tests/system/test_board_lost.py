"""A person declares a board lost: its operator starts elsewhere at once, its stream ends, and it comes back
with an erased flash alone."""

from __future__ import annotations

import json
import signal
import time

import pyarrow.parquet as pq
from gateway_site import Site, until

PROCESS = """
from headwater.process import Affine, Process, Union
p = Process("pair", checkpoints="ecoc", every=50, level="peer", batch=25)
for name in ("chest", "wrist", "ankle"):
    p.host(name, heap_kb=256)
accel = p.source("accel", "x:i16 y:i16", rate_hz=50, on="wrist")
press = p.source("press", "x:i16 y:i16", rate_hz=10, on="chest")
doubled = accel >> Affine(num=2).named("doubled").on("chest", backup=["wrist", "gateway"])
both = Union().named("both").on("ankle", backup=["wrist"])(doubled, press)
p.lake("pair/accel", accel)
p.lake("pair/press", press)
p.lake("pair/doubled", doubled)
p.lake("pair/both", both)
"""


def test_a_board_that_is_declared_lost(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    chest = site.wave_board("chest", "press")
    wrist = site.wave_board("wrist", "accel")
    ankle = site.board("ankle", {})
    for board in (chest, wrist, ankle):
        board.start()
    (site.folder / "pair.py").write_text(PROCESS)
    site.hw("deploy", "pair.py", "--wait", "120")
    until(lambda: site.stream("pair/both")["durable"] >= 200)

    refused = site.command("board", "lost", "chest")
    assert refused.returncode == 2 and "--yes" in refused.stderr
    assert "operator doubled starts on wrist or gateway" in refused.stdout
    assert "`hw deploy --close both.press`" in refused.stdout
    assert site.state()["boards"]["chest"]["link"] == "up"  # type: ignore[index]

    # It is alive, and only counts as lost: its last samples are taken no more.
    answer = json.loads(site.hw("board", "lost", "chest", "--yes", "--json").splitlines()[-1])
    assert answer["declared"] and answer["inputs"] == [{"operator": "both", "input": "press"}]
    assert [s["stream"] for s in answer["sources"]] == ["pair/press"] and answer["sources"][0]["xi"] >= 1
    if not answer["broker_told"] and site.broker:
        site.broker.send_signal(signal.SIGHUP)
    again = site.command("board", "lost", "chest", "--yes")
    assert again.returncode == 2 and "declared lost already" in again.stderr

    def place() -> str:
        state = site.state()
        vertices = state["processes"]["pair"]["vertices"] if state else []
        return next((v["host"] for v in vertices if v["name"] == "doubled"), "")

    until(lambda: place() in ("wrist", "gateway"))
    until(lambda: all(one["settled"] for one in site.state()["processes"]["pair"]["lost"]))  # type: ignore[index]
    ended = site.stream("pair/press")["durable"]
    time.sleep(3)
    assert site.stream("pair/press")["durable"] == ended
    events = [event["text"] for event in site.state()["events"]]  # type: ignore[index]
    assert any("board chest lost: pair/press ends; lost from xi" in text for text in events)
    assert "declared lost" in site.hw("board", "list")

    # The join waits for it until a person closes the input, and in time so does what feeds the join.
    site.hw("deploy", "--close", "both.press")
    done = site.stream("pair/both")["durable"], site.stream("pair/doubled")["durable"]
    until(lambda: site.stream("pair/both")["durable"] > done[0] + 200)
    until(lambda: site.stream("pair/doubled")["durable"] > done[1] + 200)

    # Its flash is erased, and it is provisioned again.
    chest.kill()
    assert "a new key: the former key is refused" in site.hw("provision", "chest", "--renew")
    if site.broker:
        site.broker.send_signal(signal.SIGHUP)
    renewed = json.loads((site.folder / "boards" / "chest" / "config.json").read_text())
    settings = json.loads((chest.folder / "config.json").read_text())
    settings["broker"]["password"] = renewed["broker"]["password"]
    (chest.folder / "config.json").write_text(json.dumps(settings))
    key = (site.folder / "boards" / "chest" / "board.key").read_bytes()
    assert key != (chest.folder / "board.key").read_bytes()
    (chest.folder / "board.key").write_bytes(key)
    chest.start()
    until(lambda: "was declared lost" in site.consoles())  # with its old flash it is refused
    chest.kill()
    (chest.folder / "flash.bin").unlink()
    chest.start()
    former = site.stream("pair/press")["incarnation"]
    until(lambda: site.stream("pair/press")["incarnation"] != former, 90)
    until(lambda: site.stream("pair/press")["durable"] >= 50)
    assert site.state()["boards"]["chest"]["link"] == "up"  # type: ignore[index]
    site.hw("deploy", "--reopen", "both.press")
    joined = site.stream("pair/both")["durable"]
    until(lambda: site.stream("pair/both")["durable"] > joined + 50)
    rows: dict[int, list[int]] = {}
    for row in site.rows("pair/doubled"):
        assert rows.setdefault(row["xi"], row["ints"]) == row["ints"]
    # For the keys that they share with it now, the other boards have restarted: their sources tell of a hole.
    footers = [json.loads(pq.read_metadata(path).metadata[b"headwater"]) for path in site.segments()]
    gaps = [gap for footer in footers if footer["stream"] == "pair/doubled" for gap in footer["gaps"]]
    assert all(gap[2] == "hole" and gap[0] == gap[1] for gap in gaps), gaps
    assert sorted({*rows, *(gap[0] for gap in gaps)}) == list(range(1, max(rows) + 1))


def test_a_change_waits_for_a_lost_board_no_more_and_may_leave_it_out(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    boards = [site.wave_board("chest", "press"), site.wave_board("wrist", "accel"), site.board("ankle", {})]
    for board in boards:
        board.start()
    (site.folder / "pair.py").write_text(PROCESS)
    site.hw("deploy", "pair.py", "--wait", "120")
    until(lambda: site.stream("pair/both")["durable"] >= 100)
    boards[0].kill()
    without = PROCESS.replace('"chest", "wrist"', '"wrist"').replace(
        'on("chest", backup=["wrist", "gateway"])', 'on("wrist")'
    )
    without = without.replace('press = p.source("press", "x:i16 y:i16", rate_hz=10, on="chest")\n', "")
    without = without.replace("Union()", "Affine(num=3)").replace("(doubled, press)", "(doubled)")
    (site.folder / "pair.py").write_text(without.replace('p.lake("pair/press", press)\n', ""))
    refused = site.command("deploy", "pair.py")
    assert refused.returncode == 2 and "leaves out chest" in refused.stderr

    site.hw("board", "lost", "chest", "--yes")
    site.hw("deploy", "--close", "both.press")
    done = site.stream("pair/doubled")["durable"]
    until(lambda: site.stream("pair/doubled")["durable"] > done + 100, 90)
    taken = site.stream("pair/accel")["durable"]
    site.hw("deploy", "pair.py")

    def runs() -> bool:
        state = site.state()
        found = state["processes"]["pair"] if state else {}
        return bool(found) and (found["deployment"], found["step"]) == (2, "runs")

    until(runs, 120)
    # Nothing of the former version is missing: what was taken before the change has its result.
    rows = {row["xi"] for row in site.rows("pair/doubled")}
    assert rows >= set(range(1, taken // 2))
    assert "chest" not in site.state()["processes"]["pair"]["hosts"]  # type: ignore[index]
    site.hw("board", "remove", "chest")
