"""The gateway as a service, with real parts: Mosquitto with TLS, virtual boards, database and segments.

The sink is played by a file of acknowledgements where one is needed; everything else is the real thing.
"""

from __future__ import annotations

import http.client
import json
import secrets
import signal
import ssl
import struct
import time
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pyarrow.parquet as pq
from gateway_site import Site, alive, until
from headwater.protocol import frames
from headwater.protocol.sessions import Peer
from headwater_gateway.command import register as provision
from headwater_gateway.segments.names import split
from headwater_tools.boards.on_board.board_sensors import wave
from headwater_tools.boards.virtual import VirtualBoard

PROCESS = """
from headwater.process import Affine, Average, Process
p = Process("one", checkpoints="ecoc", every=100, batch=50)
accel = p.source("accel", "x:i16 y:i16", rate_hz=100, on="wrist")
mean = accel >> Affine(num=2) >> Average(field="x", count=%d)
p.lake("one/accel", accel)
p.lake("one/mean", mean)
%s
"""


def deploy(site: Site, count: int = 10, more: str = "") -> None:
    (site.folder / "one.py").write_text(PROCESS % (count, more))
    site.hw("deploy", "one.py", "--wait", "30")


def rows_of(site: Site, stream: str) -> dict[int, dict[int, dict[str, Any]]]:
    """incarnation -> xi -> row, of all segments; a row twice must be the same twice."""
    out: dict[int, dict[int, dict[str, Any]]] = {}
    for row in site.rows(stream):
        known = out.setdefault(row["incarnation"], {})
        assert known.setdefault(row["xi"], row) == row
    return out


def holes_of(site: Site, stream: str) -> set[int]:
    """The ξ of a stream that stand in the segments as holes."""
    found = set()
    for path in site.segments():
        footer = json.loads(pq.read_metadata(path).metadata[b"headwater"])
        if footer["stream"] == stream:
            assert all(gap[2] == "hole" and gap[0] == gap[1] for gap in footer["gaps"])
            found |= {gap[0] for gap in footer["gaps"]}
    return found


def complete(site: Site, board: VirtualBoard, stream: str, source: str, last: int) -> int:
    """Every sample accepted up to ξ `last` stands in the segments, once, as it was measured; how many."""
    rows = rows_of(site, stream)
    count = 0
    for batch in board.accepted():
        assert batch.source == source
        for i in range(min(batch.n, last + 1 - batch.xi)):
            row = rows[batch.incarnation][batch.xi + i]
            assert row["ints"] == [wave(batch.first + i, k, 3) for k in range(2)]
            assert row["ts_us"] == batch.ts + i * batch.dt
            count += 1
    return count


def test_every_sample_reaches_a_segment_through_kills_of_gateway_broker_and_board(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    board = site.wave_board()
    board.start()
    deploy(site)
    until(lambda: site.stream("one/accel")["durable"] >= 300)
    site.kill_gateway()
    time.sleep(1)
    site.start_gateway()
    before = site.stream("one/accel")["durable"]
    until(lambda: site.stream("one/accel")["durable"] >= before + 200)
    site.stop_broker()
    until(lambda: any(alarm["id"] == "broker" for alarm in site.state()["alarms"]))  # type: ignore[index]
    site.start_broker()
    board.kill()
    time.sleep(0.5)
    site.kill_gateway()
    board.start()
    time.sleep(1)
    site.start_gateway()
    before = site.stream("one/accel")["durable"]
    until(lambda: site.stream("one/accel")["durable"] >= before + 200)
    samples = ["board.samples/wrist"]  # a machine that is too slow for its board: no matter here
    site.ask("/alarms", {"mute": samples, "seconds": 86_400})
    until(lambda: site.command("gateway", "state").returncode == 0)
    board.kill()
    last = max(a.xi + a.n - 1 for a in board.accepted())
    board.start()
    until(lambda: site.stream("one/accel")["cut"] >= last)
    until(lambda: site.stream("one/mean")["cut"] >= last - 100)
    assert site.gateway is not None
    pid = site.gateway.pid
    cutter = int(Path("/proc/%d/task/%d/children" % (pid, pid)).read_text().split()[0])
    assert site.kill_gateway(signal.SIGTERM) == 0
    assert not alive(cutter)
    assert complete(site, board, "one/accel", "accel", last) >= 700
    means = rows_of(site, "one/mean")
    (mean,) = means.values()
    assert sorted([*mean, *holes_of(site, "one/mean")]) == list(range(1, max(mean) + 1))


def test_a_board_whose_flash_was_lost_is_told_so_and_goes_on(site: Site) -> None:
    """Its source begins anew; the operator that it runs for another board goes on where it was kept."""
    site.start_broker()
    site.start_gateway()
    board = site.wave_board()
    ankle = site.board("ankle", {"other": {"driver": "wave", "t0_us": time.time_ns() // 1000, "seed": 4}})
    board.start()
    ankle.start()
    deploy(
        site,
        more="""
other = p.source("other", "x:i16 y:i16", rate_hz=100, on="ankle")
p.lake("one/doubled", other >> Affine(num=2).named("doubled").on("wrist"))
""",
    )
    until(lambda: site.stream("one/doubled")["durable"] >= 250)
    board.kill()
    time.sleep(1)  # what it had sent is taken in
    first, doubled = site.stream("one/accel"), site.stream("one/doubled")
    (board.folder / "flash.bin").unlink()
    board.start()
    until(lambda: site.stream("one/accel")["incarnation"] != first["incarnation"])
    until(lambda: site.stream("one/accel")["durable"] >= 300)
    until(lambda: site.stream("one/doubled")["durable"] >= doubled["durable"] + 300)
    board.kill()  # power goes in the ordinary way: it knows by itself now what it runs
    inc = board.accepted()[-1].incarnation
    last = board.accepted()[-1].xi + board.accepted()[-1].n - 1
    board.start()
    until(lambda: site.stream("one/accel")["cut"] > last)
    made = ankle.accepted()[-1].xi
    until(lambda: site.stream("one/doubled")["cut"] >= made)

    rows = rows_of(site, "one/accel")
    assert sorted(rows) == sorted([int(first["incarnation"], 16), inc])
    again = [batch for batch in board.accepted() if batch.incarnation == inc and batch.xi <= last]
    assert again[0].xi == 1
    for batch in again:
        for i in range(batch.n):
            assert rows[inc][batch.xi + i]["ints"] == [wave(batch.first + i, k, 3) for k in range(2)]
    (results,) = rows_of(site, "one/doubled").values()
    assert len({batch.incarnation for batch in ankle.accepted()}) == 1 and not holes_of(site, "one/doubled")
    for batch in ankle.accepted():
        for i in range(batch.n):
            if batch.xi + i <= made:
                row = results[batch.xi + i]
                assert row["ints"] == [2 * wave(batch.first + i, k, 4) for k in range(2)]
                assert row["ts_us"] == batch.ts + i * batch.dt


def acks(site: Site, high: int) -> None:
    folder = site.folder / "lake" / "acks"
    folder.mkdir(parents=True, exist_ok=True)
    inc = site.stream("one/accel")["incarnation"]
    text = {"format": 1, "process": "one", "generation": 0, "unreadable": []}
    new = folder / "new"
    new.write_text(json.dumps({**text, "streams": {"one/accel": {inc: {"high": high, "ranges": []}}}}))
    new.rename(folder / "one.json")


def test_parameters_change_and_a_process_gets_another_version_while_it_runs(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    board = site.wave_board()
    board.start()
    unknown = site.folder / "unknown.py"
    unknown.write_text((PROCESS % (10, "")).replace('"wrist"', '"ankle"'))
    refused = site.command("deploy", str(unknown))
    assert refused.returncode == 2 and "hw provision ankle" in refused.stderr
    deploy(site)
    until(lambda: site.stream("one/accel")["durable"] >= 200)
    high = site.stream("one/accel")["cut"]
    acks(site, high)
    until(lambda: site.stream("one/accel")["acked"] == high)
    until(lambda: not any(split(p.name).last <= high for p in site.segments() if "accel" in p.name))  # type: ignore[union-attr]

    wrong = site.command("deploy", "--set", "average.cuont=5")
    assert wrong.returncode == 2 and "cuont" in wrong.stderr and "Traceback" not in wrong.stderr
    right = site.command("deploy", "--set", "affine.num=3")
    assert right.returncode == 0 and "change number 1" in right.stdout, right.stderr
    until(lambda: site.state()["processes"]["one"]["vertices"][1]["changes"] == [1, 1])  # type: ignore[index]
    first = site.state()["processes"]["one"]["hash"]  # type: ignore[index]
    deploy(site, 20)
    state = until(lambda: (s := site.state()) and s["processes"]["one"]["step"] == "runs" and s)
    assert state["processes"]["one"]["hash"] != first
    versions = [s for s in state["streams"] if s["stream"] == "one/mean"]
    assert [s["incarnation"] for s in versions] == [first, state["processes"]["one"]["hash"]]
    assert len([s for s in state["streams"] if s["stream"] == "one/accel"]) == 1
    before = site.stream("one/accel")["durable"]
    until(lambda: site.stream("one/accel")["durable"] >= before + 200)
    until(lambda: site.stream("one/mean")["durable"] >= 5)


def refused(site: Site) -> dict[str, int]:
    state = site.state()
    return dict(state["dropped"]) if state else {}


def client(site: Site, name: str) -> mqtt.Client:
    """A stranger with a board's password."""
    settings = json.loads((site.folder / "boards" / name / "config.json").read_text())["broker"]
    made = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    made.username_pw_set(settings["user"], settings["password"])
    made.tls_set(str(site.folder / "tls" / "ca.crt"), tls_version=ssl.PROTOCOL_TLS_CLIENT)
    made.connect("localhost", site.port)
    made.loop_start()
    until(made.is_connected)
    return made


def test_garbage_forgeries_and_wrong_keys_change_nothing_and_are_counted(site: Site) -> None:
    site.start_broker()
    site.start_gateway()
    board = site.wave_board()
    site.board("evil", {})
    board.start()
    deploy(site)
    evil = client(site, "evil")
    try:
        forged = Peer(secrets.token_bytes(32), 1, 77, 9, 0, bytes(8), lambda: secrets.randbits(64))
        writer = frames.Writer(512)
        junk = [b"", b"\0", bytes(16384), b"\xff" * 40]
        junk += [secrets.token_bytes(n) for n in (5, 20, 50, 200, 512)]
        for _ in range(5):
            forged.begin(writer)
            writer.put(frames.STATUS, b"\xc0")
            junk.append(bytes(forged.seal(writer)))
            if forged.reply:
                junk.append(bytes(forged.reply))
        names = ("g/evil", "s/evil", "s/wrist", "g/wrist", "g/\u00e9", "x/evil", "g/evil/more")
        for topic in ["other", *("hw/" + name for name in names)]:
            for frame in junk:
                evil.publish(topic, frame, 0)
        dropped = until(lambda: (d := refused(site)) and d.get("seal: wrong seal") and d)
        assert dropped["of a board without a process"] > 0
        before = site.stream("one/accel")["durable"]
        until(lambda: site.stream("one/accel")["durable"] >= before + 200)
    finally:
        evil.loop_stop()
        evil.disconnect()
    state = site.state()
    assert state and state["boards"]["evil"]["link"] == "never seen"
    until(lambda: site.stream("one/accel")["cut"] >= before + 150)
    site.kill_gateway(signal.SIGTERM)
    assert "Traceback" not in site.log.read_text()
    assert site.folder.stat().st_mode & 0o077 == 0


def test_a_broker_that_is_full_is_told_and_tried_until_it_has_room(site: Site) -> None:
    conf = site.folder / "mosquitto" / "mosquitto.conf"
    conf.write_text(conf.read_text() + "max_connections 1\n")
    provision(site.config_file, "evil")
    site.start_broker()
    first = client(site, "evil")
    try:
        site.start_gateway()
        until(lambda: any(alarm["id"] == "broker" for alarm in site.state()["alarms"]))  # type: ignore[index]
    finally:
        first.disconnect()
        first.loop_stop()
    until(lambda: site.state()["broker"]["up"])  # type: ignore[index]
    assert site.log.read_text().count("trying again") <= 6


def test_start_up_errors_are_sentences_with_exit_code_2(site: Site) -> None:
    def refused(text: str = "") -> str:
        site.config_file.write_text(original + text)
        done = site.command("gateway", "run", ".")
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
        return done.stderr

    original = site.config_file.read_text()
    assert "did you mean level?" in refused('[log]\nlevle = "info"\n')
    site.config_file.write_text(original)
    site.start_gateway()  # without a broker it runs, tries on, and says so
    assert "another gateway" in refused()
    assert site.kill_gateway(signal.SIGTERM) == 0
    assert "Connection refused" in site.log.read_text()
    (site.folder / "landing").rmdir()
    (site.folder / "landing").write_text("")
    assert "lake.landing" in refused()
    (site.folder / "secrets" / "master.key").chmod(0o644)
    assert "chmod 600" in refused()


def get(port: int, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def test_beyond_loopback_a_token_is_asked_for(tmp_path: Path) -> None:
    site = Site(tmp_path / "site")
    text = site.config_file.read_text()
    port = struct.unpack("<H", secrets.token_bytes(2))[0] % 10000 + 40000
    site.config_file.write_text(text.replace("port = 0", 'port = %d\nbind = "0.0.0.0"' % port))
    try:
        site.start_broker()
        site.start_gateway()
        until(lambda: get(port, "/health")[0] == 200)
        for path in ("/metrics", "/api/state"):
            assert get(port, path)[0] == 401
            assert get(port, path, Authorization="Bearer wrong" + "x" * 20)[0] == 401
        token = (site.folder / "secrets" / "token").read_text().strip()
        status, body = get(port, "/metrics", Authorization="Bearer " + token)
        assert status == 200 and "headwater_broker_up 1.0" in body
        assert get(port, "/api/state", Authorization="Bearer " + token)[0] == 200
        site.kill_gateway(signal.SIGTERM)
        assert token not in site.log.read_text()
    finally:
        site.close()
