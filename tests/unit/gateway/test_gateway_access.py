"""The page's port: who may look, under which name, for how long; and nobody can keep others out."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from bare_gateway import configured, running
from headwater_tools import environment

environment.ensure("gateway")
import aiohttp  # noqa: E402
from headwater_gateway import UserError, config, refused  # noqa: E402
from headwater_gateway.database.engine import Database  # noqa: E402
from headwater_gateway.service import Service  # noqa: E402
from headwater_gateway.web import access  # noqa: E402
from headwater_gateway.web.access import (  # noqa: E402
    FAILURES,
    FAILURES_S,
    IDLE_S,
    SESSION_S,
    SESSIONS_MAX,
    Failures,
    Names,
    Sessions,
    Streams,
    host_of,
    shown_token,
)

# ---- names


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:8010", "localhost"), ("GW.example.", "gw.example"), ("[::1]:80", "::1"), ("[::1]", "::1"),
        ("10.0.0.7", "10.0.0.7"), ("", None), (":80", None), ("a:b", None), ("[::1", None), ("[::1]x", None),
    ],
)  # fmt: skip
def test_a_host_header_names_a_host_or_none(header: str, name: str | None) -> None:
    assert host_of(header) == name


def test_on_loopback_only_loopback_and_configured_names_fit() -> None:
    names = Names("127.0.0.1", "gw.example proxy", machine="pi")
    for good in ("localhost", "localhost:8010", "127.0.0.1:8010", "127.0.0.2", "[::1]:1", "GW.example:443"):
        assert names.fits(good), good
    for bad in ("evil.example", "evil.localhost.example", "10.0.0.7", "pi", "", "gw.example.evil", "a b"):
        assert not names.fits(bad), bad


def test_beyond_loopback_addresses_and_the_machines_own_names_fit_too() -> None:
    names = Names("0.0.0.0", "gw.example", machine="Pi.lan")
    for good in ("10.0.0.7:8010", "[fe80::1]", "pi", "pi.lan", "pi.local", "gw.example", "localhost"):
        assert names.fits(good), good
    assert not names.fits("evil.example:8010")


def test_names_in_the_configuration_are_names(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('[http]\nnames = "https://gw.example"\n')
    with pytest.raises(UserError, match="use names without port"):
        config.read(file)


# ---- tokens, sessions, guesses


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_a_token_is_taken_as_bearer_and_as_the_password_of_basic() -> None:
    assert (
        shown_token("Bearer abc")
        == shown_token("bearer  abc")
        == shown_token(basic("prometheus:abc"))
        == "abc"
    )
    assert shown_token(basic(":a:c")) == "a:c"
    for none in ("", "Digest x", "abc"):
        assert shown_token(none) is None
    for bad in ("Basic !!!", "Basic ", basic("no colon")):
        assert shown_token(bad) == ""
    assert not access.same("\udcff\udcfe", "abc")


def test_a_session_is_not_the_token_and_ends(tmp_path: Path) -> None:
    db = Database(tmp_path / "db", lambda: 0)
    clock = [1000.0]
    sessions = Sessions(db, "the token", lambda: clock[0])
    cookie = sessions.begin()
    assert "the token" not in cookie and sessions.holds(cookie)
    assert not sessions.holds("") and not sessions.holds("x" + cookie) and not sessions.holds("\udcff")
    db.commit()
    stored = db.query("SELECT id FROM sessions")
    assert cookie not in str(stored)  # a thief of the database has no cookie
    again = Sessions(db, "the token", lambda: clock[0])
    assert again.holds(cookie)
    assert not Sessions(db, "another token", lambda: clock[0]).holds(cookie)
    again.end(cookie)
    assert not again.holds(cookie)
    used = sessions.begin()
    idle = sessions.begin()
    for _ in range(SESSION_S // 86_400):
        clock[0] += 86_400 - 1
        assert sessions.holds(used)
    clock[0] += 86_400
    assert not sessions.holds(used)
    assert IDLE_S < SESSION_S and not sessions.holds(idle)
    db.close()


def test_sessions_are_bounded_and_the_one_that_was_not_used_goes(tmp_path: Path) -> None:
    db = Database(tmp_path / "db", lambda: 0)
    clock = [1000.0]
    sessions = Sessions(db, "t", lambda: clock[0])
    first = sessions.begin()
    for _ in range(3 * SESSIONS_MAX):
        clock[0] += 4000
        assert sessions.holds(first)
        sessions.begin()
    assert len(sessions) == SESSIONS_MAX
    db.commit()
    assert db.query("SELECT count(*) FROM sessions") == [(SESSIONS_MAX,)]
    db.close()


def test_an_address_that_guesses_has_to_wait_and_others_have_not() -> None:
    clock = [0.0]
    failures = Failures(lambda: clock[0])
    for _ in range(FAILURES):
        assert failures.wait_s("1.2.3.4") == 0
        failures.note("1.2.3.4")
        clock[0] += 1
    assert 0 < failures.wait_s("1.2.3.4") <= FAILURES_S
    assert failures.wait_s("1.2.3.5") == 0
    clock[0] += FAILURES_S
    assert failures.wait_s("1.2.3.4") == 0
    for n in range(5000):
        failures.note("10.0.%d.%d" % divmod(n, 256))
    assert len(failures._all) <= access.ADDRESSES_MAX


# ---- streams


def test_there_is_always_room_for_one_more_stream_and_who_has_most_gives_way() -> None:
    streams = Streams(10, 6)
    mine = streams.enter("operator")
    hers = [streams.enter("attacker") for _ in range(50)]
    assert len([s for s in hers if not s.ended.is_set()]) == 6 and not mine.ended.is_set()
    assert not hers[-1].ended.is_set() and hers[0].ended.is_set()  # the oldest go
    others = [streams.enter("attacker %d" % (n % 3)) for n in range(50)]
    assert len(streams.open) == 10 and not mine.ended.is_set()
    for stream in [mine, *hers, *others]:
        streams.leave(stream)
    assert streams.open == []
    one, two = streams.enter("a", "cookie"), streams.enter("a", "another")
    streams.end("cookie")
    assert one.ended.is_set() and not two.ended.is_set()


# ---- of a real service


def life(folder: Path, text: str, what: Callable[[Service, aiohttp.ClientSession], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running(configured(folder, "port = 1\n[http]\nport = 0\n" + text)) as made:
            base = "http://127.0.0.1:%d" % made.web.port
            jar = aiohttp.CookieJar(unsafe=True)
            async with aiohttp.ClientSession(base, cookie_jar=jar) as client:
                await what(made, client)

    asyncio.run(main())


async def raw(made: Service, data: bytes) -> tuple[int, str]:
    """The status and the rest of what is answered to these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", made.web.port)
    writer.write(data)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return int(answer.split()[1]), answer.decode(errors="replace")


EVERYWHERE = 'bind = "0.0.0.0"\n'


def test_a_page_of_a_stranger_does_not_reach_a_gateway_on_loopback(tmp_path: Path) -> None:
    async def what(made: Service, client: aiohttp.ClientSession) -> None:
        for path in ("/", "/api/state", "/metrics", "/page/events"):
            async with client.get(path, headers={"Host": "rebound.evil.example"}) as answer:
                assert answer.status == 421 and "http.names" in await answer.text()
        for host in ("localhost:1", "gw.example"):
            async with client.get("/api/state", headers={"Host": host}) as answer:
                assert answer.status == 200

    life(tmp_path, 'names = "gw.example"\n', what)


def test_bytes_that_are_no_text_are_bad_requests_and_no_errors(tmp_path: Path) -> None:
    async def what(made: Service, client: aiohttp.ClientSession) -> None:
        head = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%s\r\n"
        bad = b"\xff\xfe\x80"
        assert (await raw(made, head % (b"/api/state", b"Authorization: Bearer " + bad + b"\r\n")))[0] == 401
        assert (await raw(made, head % (b"/api/state", b"Authorization: Basic " + bad + b"\r\n")))[0] == 401
        assert (await raw(made, head % (b"/api/state", b"Cookie: headwater=" + bad + b"\r\n")))[0] in (
            400,
            401,
        )
        assert (await raw(made, head % (b"/api/state", b'Cookie: headwater="\\377"\r\n')))[0] == 401
        assert (await raw(made, head % (b"/" + bad, b"")))[0] in (400, 401)
        named = b"GET / HTTP/1.1\r\nHost: " + bad + b"\r\nConnection: close\r\n\r\n"
        assert (await raw(made, named))[0] in (400, 421)
        post = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 9\r\n"
        form = b"Content-Type: application/x-www-form-urlencoded%s\r\n\r\ntoken=" + bad
        for charset in (b"", b"; charset=utf-8", b"; charset=bogus", b"; charset=" + bad):
            assert (await raw(made, post + form % charset))[0] in (400, 401)
        multipart = b"Content-Type: multipart/form-data\r\n\r\ntoken=abc"
        assert (await raw(made, post + multipart))[0] == 400

    life(tmp_path, EVERYWHERE, what)


def test_a_session_begins_with_the_token_and_ends_with_a_click(tmp_path: Path) -> None:
    async def what(made: Service, client: aiohttp.ClientSession) -> None:
        token = made.web.token
        assert token is not None
        for path in ("/", "/page.js", "/page/events", "/api/state", "/api/events", "/metrics"):
            async with client.get(path) as answer:
                assert answer.status == 401
        async with client.post("/login", data={"token": token}, headers={"Origin": "http://evil"}) as answer:
            assert answer.status == 403
        async with client.post("/login", data={"token": token}, allow_redirects=False) as answer:
            assert answer.status == 303
            cookie = answer.cookies["headwater"]
        assert token not in cookie.OutputString()
        assert cookie["httponly"] and cookie["samesite"] == "Strict" and int(cookie["max-age"]) == SESSION_S
        for path in ("/", "/api/state", "/metrics"):
            async with client.get(path) as answer:
                assert answer.status == 200
        async with client.get("/page/events") as stream:
            assert json.loads((await frame(stream))["you"]) == {"session": True}
            async with client.post("/logout", headers={"Origin": "http://evil"}) as answer:
                assert answer.status == 403
            async with client.post("/logout", allow_redirects=False) as answer:
                assert answer.status == 303
            while "closed" not in await frame(stream):
                pass  # what was open under the session ends with it
        client.cookie_jar.clear()
        async with client.get("/api/state", headers={"Cookie": "headwater=" + cookie.value}) as answer:
            assert answer.status == 401  # the cookie that was stolen before is worth nothing now

    life(tmp_path, EVERYWHERE, what)


async def frame(stream: aiohttp.ClientResponse) -> dict[str, str]:
    """The next event; its kind and its data."""
    kind, data = "", ""
    while True:
        line = (await asyncio.wait_for(stream.content.readline(), 60)).decode().rstrip("\n")
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            data = line[6:]
        elif not line and kind:
            return {kind: data}


def test_prometheus_logs_in_by_basic_and_a_guesser_has_to_wait(tmp_path: Path) -> None:
    async def what(made: Service, client: aiohttp.ClientSession) -> None:
        token = made.web.token
        assert token is not None
        auth = basic("prometheus:" + token)
        async with client.get("/metrics", headers={"Host": "any.name", "Authorization": auth}) as answer:
            text = await answer.text()
            assert answer.status == 200
        for line in (
            'headwater_frames_refused_total{reason="seal: wrong seal"} 0.0',
            'headwater_alarms_by_kind{kind="sink.idle"} 0.0',
            'headwater_alarms{severity="critical"} 0.0',
        ):
            assert line in text
        assert "headwater_process_cpu_seconds_total" in text
        statuses = []
        for _ in range(FAILURES + 3):
            async with client.get("/metrics", headers={"Authorization": "Bearer guess"}) as answer:
                statuses.append(answer.status)
        assert statuses == FAILURES * [401] + 3 * [429]
        async with client.post("/login", data={"token": token}) as answer:
            assert answer.status == 429 and int(answer.headers["Retry-After"]) <= FAILURES_S + 1
            assert "Try again in" in await answer.text()

    life(tmp_path, EVERYWHERE, what)


def test_a_session_is_not_shut_out_by_a_guesser_at_its_address(tmp_path: Path) -> None:
    async def what(made: Service, client: aiohttp.ClientSession) -> None:
        async with client.post("/login", data={"token": made.web.token}) as answer:
            assert answer.status == 200
        for _ in range(FAILURES + 1):
            made.web.failures.note("127.0.0.1")
        async with client.get("/api/state") as answer:
            assert answer.status == 200

    life(tmp_path, EVERYWHERE, what)


def test_streams_that_nobody_reads_keep_nobody_out(tmp_path: Path) -> None:
    async def what(made: Service, client: aiohttp.ClientSession) -> None:
        writers = []
        for n in range(access.STREAMS_MAX + 40):
            _, writer = await asyncio.open_connection("127.0.0.1", made.web.port)
            path = b"/api/events" if n % 2 else b"/page/events"
            writer.write(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
            writers.append(writer)
        async with client.get("/page/events") as stream:
            while "view" not in await frame(stream):
                pass
        assert len(made.web.streams.open) <= access.STREAMS_PER_ADDRESS
        for writer in writers:
            writer.close()

    life(tmp_path, "", what)


def test_what_is_refused_is_counted_by_a_closed_set_of_reasons(tmp_path: Path) -> None:
    async def what(made: Service, client: aiohttp.ClientSession) -> None:
        import random

        made.boards.add("evil")
        random.seed(7)
        for n in range(3000):
            data = random.randbytes(random.choice((0, 1, 2, 9, 30, 100, 511)))
            for topic in ("hw/s/evil", "hw/g/evil", "hw/s/x%d" % n, "hw/%d/y" % n, "other"):
                made._take(topic, data)
        made.strange["words of a stranger"] = 3
        found = made.dropped()
        assert set(found) <= set(refused.ALL) and found[refused.OTHER] == 3
        assert sum(found.values()) > 3000
        async with client.get("/metrics") as answer:
            lines = [line for line in (await answer.text()).splitlines() if "frames_refused_total{" in line]
        assert len(lines) == len(refused.ALL)

    life(tmp_path, "", what)


def test_alarms_are_told_over_the_socket_and_not_over_the_page(tmp_path: Path) -> None:
    async def what(made: Service, client: aiohttp.ClientSession) -> None:
        for path in ("/alarms", "/deploy", "/set", "/boards"):
            async with client.post(path, json={}) as answer:
                assert answer.status == 404
        socket = aiohttp.UnixConnector(str(tmp_path / "data" / "gateway.sock"))
        async with aiohttp.ClientSession("http://localhost", connector=socket) as control:
            answer_of: Any = {}
            for body, status in (
                ({"mute": ["broker"], "seconds": 60}, 200),
                ({"unmute": ["broker"]}, 200),
                ({"unmute": ["broker"]}, 409),
                ({"ack": ["nothing"]}, 409),
                ({"mute": ["broker"]}, 400),
            ):
                async with control.post("/alarms", json=body) as answer:
                    answer_of = await answer.json()
                    assert answer.status == status, answer_of
        assert "error" in answer_of

    life(tmp_path, "", what)
