"""What the gateway shows: health, metrics, state as JSON, server-sent events; and the commands that its Unix
socket accepts: plans, parameters, new boards.

The page side listens on a loopback address. On any other it requires a token, which is never in a URL; see
access.py. It changes nothing but sessions: commands are accepted over the socket alone. Write access to the
socket's folder is access to all commands, so only its owner has it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web
from prometheus_client import generate_latest

from .. import UserError
from ..deployments import rebuild
from ..keys import write_secret
from . import metrics, stream
from .access import (
    COOKIE,
    SESSION_S,
    Failures,
    Names,
    Sessions,
    Streams,
    address_of,
    is_loopback,
    same,
    shown_token,
)
from .page import Page, login

if TYPE_CHECKING:
    from ..service import Service

_log = logging.getLogger("headwater.http")

TOKEN_MIN = 16  # characters
QUEUE_MAX = 500  # events that wait for one listener; a slower one loses the oldest
PING_S = 15.0
BODY_MAX = 1 << 20

FORM_MAX = 4096
OPEN = ("/health", "/login", "/page.css")  # without a token

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Web:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.config = service.config.http
        self.token = self._token()
        self.port = 0
        self._runners: list[web.AppRunner] = []
        self._socket = service.config.path(service.config.gateway.socket)
        self.registry = metrics.registry(service)
        self.names = Names(self.config.bind, self.config.names)
        self.sessions = Sessions(service.db, self.token or secrets.token_hex())
        self.failures = Failures()
        self.streams = Streams()

    def _token(self) -> str | None:
        """The required token; None if there is none."""
        if is_loopback(self.config.bind):
            return None
        name = self.config.token_file
        path = self.service.config.path(name)
        try:
            token = path.read_text().strip()
        except OSError as error:
            raise UserError(
                'http.bind = "%s" is not a loopback address: a token is required, and http.token_file = "%s" '
                "cannot be read (%s): `hw gateway init` makes one" % (self.config.bind, name, error.strerror)
            )
        if len(token) < TOKEN_MIN:
            raise UserError("%s: a token has at least %d characters" % (path, TOKEN_MIN))
        return token

    async def start(self) -> None:
        page = web.Application(middlewares=[self._guard])
        page.add_routes(
            [
                web.get("/health", self.health),
                web.get("/metrics", self.metrics),
                web.get("/api/state", self.state),
                web.get("/api/events", self.events),
                web.post("/login", self.login),
                web.post("/logout", self.logout),
            ]
        )
        Page(self.service, self.stream).add_to(page)
        runner = await self._run(page)
        site = web.TCPSite(runner, self.config.bind, self.config.port)
        try:
            await site.start()
        except OSError as error:
            raise UserError(
                'http.bind = "%s", http.port = %d: %s; another program may have it: choose another port'
                % (self.config.bind, self.config.port, error.strerror)
            )
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        _log.info("http://%s:%d", self.config.bind, self.port)
        await self._control()

    async def _control(self) -> None:
        app = web.Application(client_max_size=BODY_MAX)
        app.add_routes(
            [
                web.get("/state", self.state),
                web.post("/deploy", self._told(self._deploy)),
                web.post("/set", self._told(self._set)),
                web.post("/cancel", self._told(self._cancel)),
                web.post("/undeploy", self._told(self._undeploy)),
                web.post("/move", self._told(self._move)),
                web.post("/rollback", self._told(self._rollback)),
                web.post("/boards", self._told(self._boards)),
                web.post("/boards/rename", self._told(self._rename)),
                web.post("/boards/remove", self._told(self._remove)),
                web.post("/boards/lost", self._told(self._lose)),
                web.post("/close", self._told(self._close)),
                web.post("/give-up", self._told(self._give_up)),
                web.post("/alarms", self._told(self._alarms)),
            ]
        )
        runner = await self._run(app)
        self._socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._socket.unlink(missing_ok=True)
        if len(str(self._socket)) > 100:
            raise UserError("gateway.socket = %s: a socket's path has at most 100 characters" % self._socket)
        old = os.umask(0o177)
        try:
            await web.UnixSite(runner, str(self._socket)).start()
        finally:
            os.umask(old)

    async def _run(self, app: web.Application) -> web.AppRunner:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        return runner

    async def stop(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        self._socket.unlink(missing_ok=True)

    # ---- access

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        shown = shown_token(request.headers.get("Authorization", ""))
        refusal = self._refusal(request, shown)
        if refusal is not None:
            return refusal
        try:
            return await handler(request)
        except UnicodeError:
            return web.Response(status=400, text="bad request: it contains bytes that are not text\n")

    def _refusal(self, request: web.Request, shown: str | None) -> web.StreamResponse | None:
        """The answer to a request that is refused; None if it is allowed."""
        token = self.token
        known = token is not None and shown is not None and same(shown, token)
        if not known and not self.names.fits(request.headers.get("Host", "")):
            return web.Response(
                status=421,
                text="This gateway is not known by that name. If the name is its own, put it into http.names "
                "in gateway.toml and restart the gateway.\n",
            )
        if request.method == "POST" and not _own_origin(request):
            return web.Response(status=403, text="the page of another site sent this\n")
        if token is None or request.path in OPEN:
            return None
        if shown is not None:
            return self._by_token(request, known)
        return None if self.sessions.holds(self._cookie(request)) else login()

    def _by_token(self, request: web.Request, known: bool) -> web.StreamResponse | None:
        address = address_of(request)
        wait_s = self.failures.wait_s(address)
        if wait_s:
            return _later(wait_s)
        if known:
            return None
        self.failures.note(address)
        return login()

    def _cookie(self, request: web.Request) -> str:
        return request.cookies.get(COOKIE, "") if self.token is not None else ""

    async def login(self, request: web.Request) -> web.StreamResponse:
        address = address_of(request)
        wait_s = self.failures.wait_s(address)
        if wait_s:
            return _later(wait_s)
        if (request.content_length or FORM_MAX + 1) > FORM_MAX:
            return web.Response(status=413, text="a form has at most %d bytes\n" % FORM_MAX)
        try:
            form = await request.post()
        except (ValueError, LookupError):
            return web.Response(status=400, text="this form cannot be read\n")
        if self.token is None or not same(str(form.get("token", "")), self.token):
            self.failures.note(address)
            await asyncio.sleep(1)
            return login("This is not the token of this gateway.")
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(
            COOKIE, self.sessions.begin(), httponly=True, samesite="Strict", secure=request.secure,
            max_age=SESSION_S,
        )  # fmt: skip
        return answer

    async def logout(self, request: web.Request) -> web.StreamResponse:
        cookie = self._cookie(request)
        if cookie:
            self.sessions.end(cookie)
            self.streams.end(cookie)
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.del_cookie(COOKIE, httponly=True, samesite="Strict")
        return answer

    async def stream(
        self, request: web.Request, talk: Callable[[stream.Send, bool], Awaitable[None]]
    ) -> web.StreamResponse:
        """An event stream. `talk(send, session)` sends; `session`: it belongs to one, which can be ended."""
        cookie = self._cookie(request)
        session = bool(cookie) and self.sessions.holds(cookie)

        def holds() -> bool:
            return not session or self.sessions.holds(cookie)

        return await stream.serve(request, self.streams, holds, lambda send: talk(send, session), cookie)

    # ---- what is shown

    async def health(self, request: web.Request) -> web.Response:
        """200 while frames can arrive and become durable."""
        service = self.service
        problems = []
        if service.link is None or not service.link.up:
            problems.append("broker")
        if service.db.full:
            problems.append("database")
        if service.segments.problem:
            problems.append("segments")
        body = {"ok": not problems, "problems": problems}
        return web.json_response(body, status=503 if problems else 200)

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self.registry), content_type="text/plain")

    async def state(self, request: web.Request) -> web.Response:
        return web.json_response(self.service.snapshot())

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Events as they happen, reports of boards, and with ?stream=NAME its elements."""
        streams = set(request.query.getall("stream", []))
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(QUEUE_MAX)

        def listen(news: dict[str, Any]) -> None:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(news)

        async def talk(send: stream.Send, session: bool) -> None:
            self.service.listeners.add(listen)
            stop = self.service.watch(streams, listen)
            try:
                while True:
                    try:
                        async with asyncio.timeout(PING_S):
                            news = await queue.get()
                    except TimeoutError:
                        await send(b": still here\n\n")
                        continue
                    await send(
                        b"event: %s\ndata: %s\n\n" % (news["kind"].encode(), json.dumps(news).encode())
                    )
            finally:
                stop()
                self.service.listeners.discard(listen)

        return await self.stream(request, talk)

    # ---- commands

    def _told(self, handler: Callable[[Any], Awaitable[dict[str, Any]]]) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            try:
                body = await request.json()
                if not isinstance(body, dict):
                    raise UserError("a JSON object is required")
                answer = await handler(body)
                await self.service.db.flushed()
                return web.json_response(answer)
            except (ValueError, KeyError, TypeError) as error:
                return web.json_response({"error": "bad request: %r" % error}, status=400)
            except UserError as trouble:
                return web.json_response({"error": str(trouble)}, status=409)

        return handle

    async def _deploy(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            plan = base64.b64decode(body["plan"], validate=True)
        except binascii.Error as error:
            raise ValueError(str(error))
        return await self.service.deploy(plan)

    async def _set(self, body: dict[str, Any]) -> dict[str, Any]:
        return self.service.configure(body.get("process"), body["operator"], dict(body["values"]))

    async def _cancel(self, body: dict[str, Any]) -> dict[str, Any]:
        return self.service.cancel(body["process"])

    async def _undeploy(self, body: dict[str, Any]) -> dict[str, Any]:
        return self.service.undeploy(body["process"])

    async def _move(self, body: dict[str, Any]) -> dict[str, Any]:
        return await self.service.move(body.get("process"), str(body["operator"]), str(body["host"]))

    async def _rollback(self, body: dict[str, Any]) -> dict[str, Any]:
        number = body.get("deployment")
        return await self.service.rollback(body["process"], None if number is None else int(number))

    async def _boards(self, body: dict[str, Any]) -> dict[str, Any]:
        name, renew = body["name"], bool(body.get("renew"))
        known = name in self.service.boards.all
        rebuild.may_register(self.service.config, name, known, renew)
        board = self.service.boards.add(name)
        if board.revoked:
            self.service.losses.readmit(board)
            await self.service.db.flushed()
        return {"name": board.name, "number": board.number}

    async def _rename(self, body: dict[str, Any]) -> dict[str, Any]:
        await self.service.db.flushed()  # the registry is asked what is committed
        return self.service.rename_board(str(body["name"]), str(body["new"]))

    async def _remove(self, body: dict[str, Any]) -> dict[str, Any]:
        await self.service.db.flushed()
        return self.service.remove_board(str(body["name"]))

    async def _lose(self, body: dict[str, Any]) -> dict[str, Any]:
        await self.service.db.flushed()
        return self.service.losses.declare(str(body["name"]), bool(body.get("sure")))

    async def _close(self, body: dict[str, Any]) -> dict[str, Any]:
        return self.service.losses.close(
            body.get("process"), str(body["operator"]), str(body["input"]), bool(body.get("reopen"))
        )

    async def _give_up(self, body: dict[str, Any]) -> dict[str, Any]:
        given_up = self.service.losses.given_up
        return await given_up.give(body.get("process"), str(body["operator"]), bool(body.get("sure")))

    async def _alarms(self, body: dict[str, Any]) -> dict[str, Any]:
        """Acknowledge or mute alarms, or send refused notices again; without any, the present ones."""
        observer = self.service.observer
        for ident in body.get("ack", []):
            observer.acknowledge(str(ident))
        for ident in body.get("mute", []):
            observer.mute(str(ident), float(body["seconds"]))
        for ident in body.get("unmute", []):
            observer.unmute(str(ident))
        for name in body.get("retry", []):
            self.service.notifier.retry(str(name))
        return self.service.alarms()


def _own_origin(request: web.Request) -> bool:
    """A form that a browser sends names the site of its page: it must be this one."""
    origin = request.headers.get("Origin")
    return origin is None or origin.partition("://")[2].lower() == request.headers.get("Host", "").lower()


def _later(wait_s: float) -> web.Response:
    answer = login("Too many wrong tokens came from your address. Try again in %d s." % (wait_s + 1), 429)
    answer.headers["Retry-After"] = "%d" % (wait_s + 1)
    return answer


def make_token(path: Any) -> None:
    """Make a token; an existing one stays."""
    if not path.exists():
        write_secret(path, secrets.token_urlsafe(24).encode() + b"\n")
