"""Receivers of notices, the heartbeat, and streams that must not be silent."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from headwater.process import Process, Threshold
from headwater_tools import environment

environment.ensure("gateway")
from headwater_gateway import UserError, config, provision  # noqa: E402
from headwater_gateway.monitoring import site_alarms  # noqa: E402
from headwater_gateway.monitoring.alarms import (  # noqa: E402
    CRITICAL,
    Facts,
    Limits,
    ReceiverFacts,
    StreamFacts,
    judge,
)
from headwater_gateway.monitoring.silence import FIRST_S, SETTLE_S, Silence, ways  # noqa: E402
from headwater_gateway.notices import topics, webhook  # noqa: E402
from headwater_gateway.notices.heartbeat import Heart, Pulse  # noqa: E402
from headwater_gateway.notices.watch import Watcher  # noqa: E402


def problems(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    try:
        config.read(file)
    except config.ConfigError as trouble:
        return trouble.problems
    return []


# ---- configuration


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('url = "ftp://x/y"', 'use an address like "https://example.org/alarms"'),
        ('url = "https://"', 'use an address like "https://example.org/alarms"'),
        ('url = "https://example.org:99999999/"', 'use an address like "https://example.org/alarms"'),
        ('url = "https://a:b@example.org/"', "put it into the file of webhook.secret_file"),
        ('header = "X: y"', "use letters, digits and -"),
        ('header = "Content-Type"', "the gateway sets that header itself"),
        ('secret_file = "s"', "need an address"),
        ('url = "http://example.org/"\nsecret_file = "s"', "use an address with https"),
        ("retry_max_s = 0", "use 1 to 86400"),
    ],
)
def test_a_webhook_that_cannot_be_is_told_in_a_sentence(tmp_path: Path, text: str, problem: str) -> None:
    (said,) = problems(tmp_path, "[webhook]\n" + text + "\n")
    assert said.startswith("webhook.") and problem in said


def test_a_webhook_that_can_be_is_accepted(tmp_path: Path) -> None:
    for url in ("http://127.0.0.1:80/x", "https://example.org/a?b=c"):
        assert problems(tmp_path, '[webhook]\nurl = "%s"\nsecret_file = "s"\n' % url) == []
    assert "use 10 to 1e+07, or 0" in problems(tmp_path, "[notices]\nrepeat_s = 3\n")[0]


def test_a_secret_is_one_line_and_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    text = '[webhook]\nurl = "https://example.org/"\nsecret_file = "secret"\n'
    assert problems(tmp_path, text) == []
    read = config.read(tmp_path / "gateway.toml")
    with pytest.raises(UserError, match="write the value of the header Authorization into it"):
        webhook.Webhook(read)
    file.write_text("Bearer x\n")
    file.chmod(0o644)
    with pytest.raises(UserError, match="chmod 600"):
        webhook.Webhook(read)
    file.chmod(0o600)
    assert webhook.secret(file) == "Bearer x"
    for bad in ("", "a\r\nX-Other: b", "ü"):
        file.write_text(bad)
        with pytest.raises(UserError, match="one line of ASCII"):
            webhook.Webhook(read)


def test_an_answer_accepts_refuses_or_asks_for_patience() -> None:
    def what(status: int, after: str = "") -> tuple[str, float]:
        outcome = webhook.judged(status, after)
        return outcome.what, outcome.after_s

    assert {what(status)[0] for status in (200, 201, 202, 204)} == {"delivered"}
    assert {what(status)[0] for status in (301, 307, 400, 401, 403, 404, 410, 422)} == {"refused"}
    assert {what(status)[0] for status in (408, 429, 500, 502, 503)} == {"failed"}
    assert what(429, "120") == ("failed", 120) and what(503, "Wed, 21 Oct") == ("failed", 0)


class Quiet(BaseHTTPRequestHandler):
    """Sends every request on to another address, and notes what it was shown."""

    seen: list[tuple[str, str | None]] = []

    def do_POST(self) -> None:
        self.seen.append((self.path, self.headers["X-Key"]))
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(307 if self.path == "/moved" else 200)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


class Calm(HTTPServer):
    def handle_error(self, *words: object) -> None:
        """A client that does not trust the certificate hangs up."""


def test_only_a_server_whose_certificate_is_good_is_shown_the_secret(tmp_path: Path) -> None:
    provision.site(tmp_path, "localhost", 8883)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls" / "broker.crt", tmp_path / "tls" / "broker.key")
    server = Calm(("127.0.0.1", 0), Quiet)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "secret").write_text("4f1c")
    Quiet.seen.clear()

    def send(path: str, ca: str) -> str:
        text = '[webhook]\nurl = "https://localhost:%d/%s"\nsecret_file = "secret"\n'
        text += 'header = "X-Key"\nca = "%s"\n'
        (tmp_path / "gateway.toml").write_text(text % (server.server_port, path, ca))
        hook = webhook.Webhook(config.read(tmp_path / "gateway.toml"))
        outcome = asyncio.run(hook.send({"id": "1"}))
        assert "4f1c" not in outcome.why
        return outcome.what + ": " + outcome.why

    try:
        assert send("a", "").startswith("failed: its certificate was not accepted (")
        assert Quiet.seen == []
        assert send("a", "tls/ca.crt") == "delivered: "
        assert "307, a redirect" in send("moved", "tls/ca.crt")
        assert Quiet.seen == [("/a", "4f1c"), ("/moved", "4f1c")]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert send("a", "tls/ca.crt").startswith("failed: no connection (")


# ---- alarms about receivers


def test_a_receiver_that_does_not_answer_or_refuses_is_an_alarm() -> None:
    def found(facts: Facts) -> list[str]:
        return [alarm.id for alarm in judge(facts, Limits()).alarms]

    away = ReceiverFacts("webhook", 3, 90, "it answers with HTTP status 503")
    facts = Facts(receivers=(away,))
    (alarm,) = judge(facts, Limits()).alarms
    assert (alarm.id, alarm.severity) == ("receiver.failing/webhook", CRITICAL)
    assert "HTTP status 503. 3 notices wait there." in alarm.text
    assert found(Facts(receivers=(replace(away, failing_s=20),))) == []
    refuses = replace(away, failing_s=None, waiting=0, refused=1, refused_why="HTTP status 404")
    (alarm,) = judge(Facts(receivers=(refuses,)), Limits()).alarms
    assert alarm.id == "receiver.refused/webhook" and "--retry webhook" in alarm.do
    # One cause, one alarm; and what was so before a restart is so until an attempt has ended.
    mqtt = replace(away, name="mqtt")
    assert found(Facts(receivers=(mqtt,), broker_up=False)) == ["broker"]
    verdict = judge(Facts(receivers=(replace(away, failing_s=None, tried=False),)), Limits())
    assert verdict.alarms == [] and verdict.unsure == {"receiver.failing/webhook"}


def test_the_terminal_says_what_waits_for_whom_since_when_and_why() -> None:
    receiver = {
        "name": "webhook", "waiting": 2, "since_us": 10**15, "failing_since_us": 10**15,
        "why": "no connection", "next_s": 7, "refused": 1, "refused_why": "HTTP status 404",
        "delivered": 5, "merged": 3,
    }  # fmt: skip
    line = site_alarms._receiver(receiver)
    assert re.fullmatch(
        r"receiver webhook: 2 notices wait, the oldest of 2001-.*; no answer since 2001-.*: no connection; "
        r"next attempt in 7 s; 1 notice was refused: HTTP status 404; 3 notices were merged since the start",
        line,
    )


# ---- heartbeat


def heart(boot: int = 1) -> Heart:
    made = Heart("hw", 7, boot, 10)
    made.will()
    return made


def test_three_periods_without_a_heartbeat_are_a_dead_gateway() -> None:
    pulse, h = Pulse(0), heart()
    for now in range(0, 100, 10):
        pulse.take(h.beat(now, {}), False, now)
        assert pulse.dead(now + 30) == ""
    assert pulse.dead(90 + 31) == "The gateway is dead: no heartbeat for 31 s, three of its periods."
    never = Pulse(0)
    assert never.dead(30) == "" and "No gateway speaks" in never.dead(31)


def test_what_the_broker_remembers_is_no_sign_of_life() -> None:
    pulse, h = Pulse(0), heart()
    pulse.take(h.beat(1, {}), True, 0)
    assert not pulse.heard and pulse.dead(31) != ""
    gone = Pulse(0)
    gone.take(heart().will(), True, 0)
    assert gone.dead(10) == ""  # a later connection may speak yet
    assert gone.dead(31) == "The gateway is gone, as the broker remembers."


def test_a_last_will_and_a_farewell_are_told_at_once_unless_they_are_old() -> None:
    pulse, h = Pulse(0), heart()
    will = h.will()
    pulse.take(h.beat(1, {}), False, 1)
    pulse.take(will, False, 2)
    assert pulse.dead(2) == "The gateway is gone: the broker has lost its connection."
    again = heart(boot=2)
    pulse.take(again.beat(3, {}), False, 3)
    pulse.take(will, False, 4)  # of the former boot
    assert pulse.dead(4) == ""
    pulse.take(again.farewell(5), False, 5)
    assert pulse.dead(5) == "The gateway was stopped."


def test_what_is_no_heartbeat_is_none() -> None:
    pulse = Pulse(0)
    good = json.loads(heart().beat(1, {}))
    other = json.dumps({**good, "boot": "x"}).encode()
    for bad in (b"", b"{", b"[]", b"null", b"7", b'{"format": 2}', other):
        pulse.take(bad, False, 20)
    assert not pulse.heard and pulse.dead(31) != ""
    pulse.take(json.dumps({**good, "period_s": 1e300}).encode(), False, 20)
    assert pulse.period_s == 10


def test_a_folder_that_is_no_watchers_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="copy the folder `watcher` here"):
        Watcher(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="is not the configuration of a watcher"):
        Watcher(tmp_path)


def test_a_site_of_an_earlier_version_gets_the_rights_and_the_watcher(tmp_path: Path) -> None:
    provision.site(tmp_path, "pi.example", 8883)
    acl = tmp_path / "mosquitto" / "acl"
    new = acl.read_text()
    assert provision.site(tmp_path, "pi.example", 8883) == [] and provision.acl_lacks(tmp_path) == []
    for former in (provision.ACL, provision.FORMER_ACL, provision.FORMER_ACL + provision.ACL_WATCHER):
        acl.write_text(former.format(site="hw"))
        assert provision.site(tmp_path, "pi.example", 8883) == [str(acl)]
        assert acl.read_text() == new
    acl.write_text("# mine\n" + (provision.FORMER_ACL + provision.ACL_WATCHER).format(site="hw"))
    assert provision.acl_lacks(tmp_path) == ["user gateway", "topic readwrite hw/+/+"]
    acl.write_text("# mine\n" + provision.ACL.format(site="hw"))
    assert provision.site(tmp_path, "pi.example", 8883) == []
    assert "topic readwrite hw/w/g/#" in provision.acl_lacks(tmp_path)
    Watcher(tmp_path)


def test_topics_name_an_alarm_whatever_its_id_is() -> None:
    for ident in ("broker", "stream.stuck/cardio/ecg", "board.link/a+b#c"):
        topic = topics.state("hw", ident)
        assert topics.alarm_of("hw", topic) == ident and not set("+#") & set(topic)
    assert topics.alarm_of("hw", "hw/g/chest") is None


# ---- streams with within_ms


def silent(frost_host: str = "vent") -> tuple[Silence, object]:
    p = Process("greenhouse", checkpoints="ecoc", every=60)
    air = p.source("air", "centi_c:i16", rate_hz=10, on="vent")
    frost = air >> Threshold(high=400, low=200).named("frost").on(frost_host)
    p.lake("greenhouse/air", air)
    p.lake("greenhouse/frost", frost, within_ms=5000)
    return Silence(), p.plan()


class Greenhouse:
    """A board that reports every five seconds; the stream that is watched has an element now and then."""

    def __init__(self) -> None:
        self.silence, self.plan = silent()
        self.reports = self.silence.of(self.plan, 0)  # type: ignore[arg-type]
        (self.way,) = ways(self.plan)  # type: ignore[arg-type]
        self.now = 0.0
        self.air = self.safe = self.frost = self.durable = 0
        self.quiet: float | None = None

    def run(self, seconds: int, board: bool = True, samples: bool = True, steps: bool = True) -> None:
        for _ in range(seconds):
            self.now += 1
            if board and samples:
                self.air += 10
            if board and steps and self.now % 6 == 0:
                self.safe = self.air
            if board and self.now % 5 == 0:
                rows = [[0, self.air, self.safe], [8, self.frost, self.durable]]
                self.reports.report("vent", rows, self.now)
            hosts = {v: "vent" for v in self.way.vertices}
            self.quiet = self.silence.quiet_s(self.way, self.reports, hosts, self.durable, False, self.now)

    def alarms(self) -> list[str]:
        facts = StreamFacts(
            "greenhouse/frost", "greenhouse", within_s=self.way.within_s,
            report_s=self.reports.period_s(), quiet_s=self.quiet,
        )  # fmt: skip
        return [alarm.id for alarm in judge(Facts(streams=(facts,)), Limits()).alarms]


def test_a_stream_without_elements_is_not_silent_while_its_hosts_report_that_none_is_due() -> None:
    g = Greenhouse()
    assert (g.way.stream, g.way.within_s, g.way.sources, g.way.inner) == ("greenhouse/frost", 5.0, (0,), (0,))
    for _ in range(300):
        g.run(1)
        assert g.alarms() == []
    assert g.quiet is not None and g.quiet <= 5


@pytest.mark.parametrize(
    ("fault", "noticed_s"),
    [("board", 12), ("samples", 18), ("steps", SETTLE_S + 40)],
)
def test_a_board_a_sensor_or_an_operator_that_stops_is_an_alarm(fault: str, noticed_s: float) -> None:
    g = Greenhouse()
    g.run(60)
    for second in range(200):
        g.run(1, **{fault: False})
        if g.alarms():
            assert second <= noticed_s
            break
    assert g.alarms() == ["stream.silent/greenhouse/frost"]
    g.run(20)
    assert g.alarms() == []


def test_an_element_is_a_sign_and_one_that_the_board_holds_is_none() -> None:
    g = Greenhouse()
    g.run(60)
    g.frost = 1  # put out, and not here
    g.run(30)
    assert g.alarms() == ["stream.silent/greenhouse/frost"]
    g.durable = 1
    g.run(1)
    assert g.alarms() == []


def test_a_source_that_has_not_sampled_yet_says_nothing() -> None:
    g = Greenhouse()
    g.run(15, samples=False)
    assert g.quiet is None and g.alarms() == []
    for _ in range(60):
        g.run(1)
        assert g.alarms() == []
    never = Greenhouse()
    never.run(int(FIRST_S) + 2, samples=False)
    assert never.alarms() == ["stream.silent/greenhouse/frost"]


def test_a_start_knows_nothing_until_something_comes_or_the_time_has_passed() -> None:
    g = Greenhouse()
    g.run(int(FIRST_S), board=False)
    assert g.quiet is None and g.alarms() == []
    g.run(2, board=False)
    assert g.alarms() == ["stream.silent/greenhouse/frost"]
