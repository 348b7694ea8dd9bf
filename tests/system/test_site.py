"""A site without hardware, as its user runs it: `hw new`, `hw up`, Ctrl-C; and a board whose battery ends."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from gateway_site import Site
from headwater_tools import environment
from headwater_tools.proof import landed
from hw_command import Command
from site_gateway import until

pytestmark = [pytest.mark.broker]

PROCESS = """
from headwater.process import Process
p = Process("count", checkpoints="ecoc", every=60)
number = p.source("number", "n:u32 twice:i64", rate_hz=50, on="counter")
p.lake("count/number", number)
"""
GONE = re.compile(r"Board counter (has lost its link|is lost: silent)")


def rows(lake: Path, stream: str) -> int:
    """Rows of a stream in the lake, by delta-rs."""
    try:
        table = DeltaTable(str(lake / "elements")).to_pyarrow_table(columns=["stream"])
    except Exception:
        return 0  # the table is not there yet
    return table.column("stream").to_pylist().count(stream)


def hw(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "headwater_tools", *words],
        env=environment.variables(), cwd=folder, capture_output=True, text=True, timeout=120,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.spark
@pytest.mark.slow
def test_a_new_site_brings_rows_to_the_lake_and_ends_in_order(
    tmp_path: Path, command: Callable[..., Command]
) -> None:
    made = hw(tmp_path, "new", "home")
    assert made.returncode == 0 and "next: hw up home" in made.stdout, made.stdout + made.stderr
    again = hw(tmp_path, "new", "home")
    assert again.returncode == 2 and "home exists already" in again.stderr
    port = int(re.findall(r"\nport = (\d+)", (tmp_path / "home" / "gateway.toml").read_text())[-1])
    with socket.create_server(("127.0.0.1", port)):
        refused = hw(tmp_path, "up", "home")
    assert refused.returncode == 2 and "port %d of the status page is taken" % port in refused.stderr
    one = command("up", "home")
    one.until(lambda: rows(tmp_path / "home" / "lake", "greenhouse/air"))
    one.until(lambda: "hw lake show home greenhouse/" in one.said())

    listed = hw(tmp_path, "board", "list", "home", "--json")
    boards = {row["name"]: row for row in json.loads(listed.stdout.splitlines()[-1])["boards"]}
    assert sorted(boards) == ["door", "vent"]
    assert all(row["link"] == "up" and row["plan"] == "runs" and row["virtual"] for row in boards.values())
    shown = hw(tmp_path, "lake", "show", "home", "greenhouse/air", "--last", "3", "--json")
    assert shown.returncode == 0, shown.stderr
    values = [int(row["centi_c"]) for row in json.loads(shown.stdout.splitlines()[-1])["rows"]]
    assert len(values) == 3 and all(1500 <= value <= 2500 for value in values)
    for words, answer in (
        (("up", "home"), "home is up already, by process "),
        (("board", "run", "vent", "home"), "board vent runs already, as process "),
        (("board", "remove", "vent", "home"), "board vent runs here, as process "),
    ):
        refused = hw(tmp_path, *words)
        assert refused.returncode == 2 and answer in refused.stderr, refused.stderr
        assert len(refused.stderr.splitlines()) == 1

    # A part that dies is reported and started again.
    (gateway,) = [pid for pid, line in one.left().items() if "-m headwater_gateway /" in line]
    os.kill(gateway, signal.SIGKILL)
    one.until(lambda: "gateway   up again: status page http://" in one.said())
    assert "gateway   ended; it starts again in 1 s (home/logs/gateway.log):" in one.said()

    assert one.interrupt() == 0, one.said()
    one.nothing_left()
    said = one.said()
    took = re.search(r"everything has stopped, after ([\d.]+) s", said)
    assert took and float(took[1]) < 30, said
    assert "Traceback" not in said and "Exception" not in said, said
    # Broker, gateway and boards are gone, so the ports are free and the locks as well.
    assert hw(tmp_path, "board", "list", "home").returncode == 2


@pytest.mark.spark
def test_ctrl_c_while_a_site_starts_leaves_nothing(tmp_path: Path, command: Callable[..., Command]) -> None:
    assert hw(tmp_path, "new", "home").returncode == 0
    one = command("up", "home")
    one.until(lambda: "broker    Mosquitto on port" in one.said())
    assert one.interrupt() == 0, one.said()
    one.nothing_left()
    assert "everything has stopped" in one.said() and "Traceback" not in one.said(), one.said()


def write_csv(path: Path, count: int) -> None:
    with open(path, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["twice", "note", "n"])
        out.writerows([2 * i, "row %d" % i, i] for i in range(count))


def start(site: Site, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "headwater_tools", "board", "run", "counter", str(site.folder), *words],
        env=environment.variables(), cwd=site.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def numbers(site: Site) -> dict[int, int | None]:
    """ξ -> first field, of all rows in the segments; None for a hole. Each ξ is there once."""
    rows = landed.rows(site.folder / "landing").get("count/number", [])
    found = {xi: field for _, xi, field in rows}
    assert len(found) == len(rows)
    return found


def test_a_dead_battery_is_reported_and_loses_nothing(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    site.hw("provision", "counter", ".")
    (site.folder / "process.py").write_text(PROCESS)
    write_csv(site.folder / "numbers.csv", 400)
    wrong = site.hw("board", "run", "counter", ".", "--sensor", "nummber=numbers.csv", code=2)
    assert "has no source nummber" in wrong and "which has number" in wrong
    site.hw("deploy", "process.py", "--gateway", ".")

    board = start(site, "--sensor", "number=numbers.csv", "--battery", "15s")
    out, _ = board.communicate(timeout=180)
    assert board.returncode == 0 and "the battery is empty after 15 s" in out, out
    before = site.stream("count/number")["durable"]
    assert before > 50, out
    until(lambda: "up" != _board(site)["link"], why="the dead board is still shown as up")
    # It was below the limit at its end, so a person was warned, and knows that it is gone.
    until(lambda: any(GONE.match(event["text"]) for event in _events(site)), why=site.consoles)
    low = re.compile("Board counter: the battery is (low|nearly empty)")
    assert any(low.match(event["text"]) for event in _events(site))
    logs = site.hw("board", "logs", "counter", ".")
    assert "board counter, number 1: silent" in logs or "board counter, number 1: lost" in logs
    assert "console.log:" in logs and GONE.search(logs)

    # With a new battery it goes on with what its flash holds; the file begins at its first row.
    board = start(site, "--sensor", "number=numbers.csv")
    try:
        until(lambda: site.stream("count/number")["durable"] > before + 100, 120, site.consoles)
        board.send_signal(signal.SIGINT)
        out, _ = board.communicate(timeout=60)
        assert board.returncode == 0 and "board counter is off" in out, out
    finally:
        board.kill()
    durable = site.stream("count/number")["durable"]
    until(lambda: max(numbers(site), default=0) >= durable)
    found = numbers(site)
    assert set(found) == set(range(1, max(found) + 1))
    # Up to the death nothing is missing, and after it a hole stands for the time without power.
    holes = [xi for xi, value in found.items() if value is None]
    assert len(holes) <= 2 and all(xi > before for xi in holes)
    assert found[1] == 0
    # Next to each other in ξ are neighbours in the file, which begins again after its last row.
    first_run = [found[xi] for xi in range(1, min(holes))]
    assert {(b - a) % 400 for a, b in zip(first_run, first_run[1:]) if a is not None and b is not None} == {1}
    assert all(row["ints"][1] == 2 * row["ints"][0] for row in site.rows("count/number"))


def _board(site: Site) -> dict[str, Any]:
    state = site.state()
    assert state is not None
    board: dict[str, Any] = state["boards"]["counter"]
    return board


def _events(site: Site) -> list[dict[str, Any]]:
    state = site.state()
    return state["events"] if state else []


def test_a_board_is_renamed_and_removed_and_the_broker_knows_it(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    site.hw("provision", "one", ".")
    site.hw("provision", "counter", ".")
    (site.folder / "process.py").write_text(PROCESS)
    site.hw("deploy", "process.py", "--gateway", ".")
    number = _number(site, "one")
    for words in (("rename", "counter", "other"), ("remove", "counter")):
        refused = site.hw("board", *words, ".", code=2)
        assert "board counter belongs to process count" in refused and "hw undeploy count" in refused
    assert "is not registered" in site.hw("board", "remove", "nobody", ".", code=2)
    assert "counter is there already" in site.hw("board", "rename", "one", "counter", ".", code=2)

    key = (site.folder / "boards" / "one" / "board.key").read_bytes()
    former = json.loads((site.folder / "boards" / "one" / "config.json").read_text())["broker"]
    assert accepts(site, "one", former["password"])
    site.hw("board", "rename", "one", "two", ".")
    config = json.loads((site.folder / "boards" / "two" / "config.json").read_text())
    assert (config["name"], config["broker"]["user"]) == ("two", "two")
    assert (site.folder / "boards" / "two" / "board.key").read_bytes() == key
    assert _number(site, "two") == number
    until(lambda: not accepts(site, "one", former["password"]))
    assert accepts(site, "two", config["broker"]["password"])

    site.hw("board", "remove", "two", ".")
    until(lambda: not accepts(site, "two", config["broker"]["password"]))
    assert not (site.folder / "boards" / "two").exists()
    state = site.state()
    assert state is not None and list(state["boards"]) == ["counter"]
    # Its number is not given again, whether the gateway runs or not.
    site.kill_gateway(signal.SIGTERM)
    site.hw("provision", "two", ".")
    site.hw("board", "rename", "two", "three", ".")
    site.start_gateway()
    assert _number(site, "three") > max(number, _number(site, "counter"))


def _number(site: Site, name: str) -> int:
    state = site.state()
    assert state is not None
    return int(state["boards"][name]["number"])


def accepts(site: Site, user: str, password: str) -> bool:
    """Whether the broker lets this user in."""
    import paho.mqtt.client as mqtt
    from paho.mqtt.enums import CallbackAPIVersion

    answered = threading.Event()
    codes: list[bool] = []
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="probe%d" % os.getpid())
    client.tls_set(str(site.folder / "tls" / "ca.crt"), cert_reqs=ssl.CERT_REQUIRED)
    client.username_pw_set(user, password)

    def connected(client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        codes.append(not reason.is_failure)
        answered.set()

    client.on_connect = connected
    client.connect("localhost", site.port, 10)
    client.loop_start()
    try:
        assert answered.wait(120)
    finally:
        client.disconnect()
        client.loop_stop()
    time.sleep(0.05)
    return codes[0]
