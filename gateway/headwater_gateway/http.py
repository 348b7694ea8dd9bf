"""What the gateway shows: health, metrics, state as JSON, news as server-sent events; and what it is told
over its Unix socket: plans, parameters, new boards.

The page side listens on a loopback address. On any other it asks for a token: as `Authorization: Bearer`,
or once as a form, which sets a cookie; it never stands in a URL. Whoever may write to the socket's folder
may command the gateway: the folder is its owner's alone.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import json
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web
from prometheus_client import generate_latest

from . import Trouble, metrics
from .keys import write_secret
from .page import Page, login

if TYPE_CHECKING:
    from .service import Service

_log = logging.getLogger("headwater.http")

COOKIE = "headwater"
TOKEN_MIN = 16  # characters
QUEUE_MAX = 500  # news that wait for one listener; a slower one loses the oldest
PING_S = 15.0
BODY_MAX = 1 << 20

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def is_loopback(address: str) -> bool:
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class Web:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.config = service.config.http
        self.token = self._token()
        self.port = 0
        self._runners: list[web.AppRunner] = []
        self._socket = service.config.path(service.config.gateway.socket)
        self.registry = metrics.registry(service)

    def _token(self) -> str | None:
        """What must be shown; None where nothing must."""
        if is_loopback(self.config.bind):
            return None
        name = self.config.token_file
        path = self.service.config.path(name)
        try:
            token = path.read_text().strip()
        except OSError as error:
            raise Trouble(
                'http.bind = "%s" is no loopback address: a token is asked for, and http.token_file = "%s" '
                "cannot be read (%s): `hw gateway init` makes one" % (self.config.bind, name, error.strerror)
            )
        if len(token) < TOKEN_MIN:
            raise Trouble("%s: a token has at least %d characters" % (path, TOKEN_MIN))
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
            ]
        )
        Page(self.service).add_to(page)
        runner = await self._run(page)
        site = web.TCPSite(runner, self.config.bind, self.config.port)
        try:
            await site.start()
        except OSError as error:
            raise Trouble(
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
                web.post("/rollback", self._told(self._rollback)),
                web.post("/boards", self._told(self._boards)),
                web.post("/alarms", self._told(self._alarms)),
            ]
        )
        runner = await self._run(app)
        self._socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._socket.unlink(missing_ok=True)
        if len(str(self._socket)) > 100:
            raise Trouble("gateway.socket = %s: a socket's path has at most 100 characters" % self._socket)
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

    # ---- who may look

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.token is None or request.path in ("/health", "/login", "/page.css"):
            return await handler(request)
        shown = request.cookies.get(COOKIE, "")
        header = request.headers.get("Authorization", "")
        if header.startswith("Bearer "):
            shown = header[7:]
        if not hmac.compare_digest(shown.encode(), self.token.encode()):
            return login()
        return await handler(request)

    async def login(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        shown = str(form.get("token", ""))
        if self.token is None or not hmac.compare_digest(shown.encode(), self.token.encode()):
            await asyncio.sleep(1)
            return login(wrong=True)
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(COOKIE, self.token, httponly=True, samesite="Strict", max_age=30 * 86400)
        return answer

    # ---- what is shown

    async def health(self, request: web.Request) -> web.Response:
        """200 while frames can come in and become durable."""
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
        """News as they happen: events, what boards report, and with ?stream=NAME the elements of it."""
        streams = set(request.query.getall("stream", []))
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(QUEUE_MAX)

        def listen(news: dict[str, Any]) -> None:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(news)

        answer = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await answer.prepare(request)
        self.service.listeners.add(listen)
        stop = self.service.watch(streams, listen)
        try:
            while True:
                try:
                    news = await asyncio.wait_for(queue.get(), PING_S)
                    await answer.write(
                        b"event: %s\ndata: %s\n\n" % (news["kind"].encode(), json.dumps(news).encode())
                    )
                except TimeoutError:
                    await answer.write(b": still here\n\n")
        except ConnectionError:
            return answer  # the listener went
        finally:
            stop()
            self.service.listeners.discard(listen)

    # ---- what is told

    def _told(self, handler: Callable[[Any], Awaitable[dict[str, Any]]]) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            try:
                body = await request.json()
                if not isinstance(body, dict):
                    raise Trouble("a JSON object is wanted")
                answer = await handler(body)
                await self.service.db.flushed()
                return web.json_response(answer)
            except (ValueError, KeyError, TypeError) as error:
                return web.json_response({"error": "bad request: %r" % error}, status=400)
            except Trouble as trouble:
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

    async def _rollback(self, body: dict[str, Any]) -> dict[str, Any]:
        number = body.get("deployment")
        return await self.service.rollback(body["process"], None if number is None else int(number))

    async def _boards(self, body: dict[str, Any]) -> dict[str, Any]:
        board = self.service.boards.add(body["name"])
        return {"name": board.name, "number": board.number}

    async def _alarms(self, body: dict[str, Any]) -> dict[str, Any]:
        """Acknowledge or mute alarms; with nothing to do, what there is."""
        observer = self.service.observer
        for ident in body.get("ack", []):
            observer.acknowledge(str(ident))
        for ident in body.get("mute", []):
            observer.mute(str(ident), float(body["seconds"]))
        for ident in body.get("unmute", []):
            observer.unmute(str(ident))
        return self.service.alarms()


def make_token(path: Any) -> None:
    """A token; the one that is there stays."""
    import secrets

    if not path.exists():
        write_secret(path, secrets.token_urlsafe(24).encode() + b"\n")
