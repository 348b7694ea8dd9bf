"""The status page: what a person wants to know of a site, kept up to date by server-sent events.

The page itself is three files that load nothing from elsewhere (`page/`). Its content is made here, once for
all viewers and only while there are any: the service's snapshot, turned into sections, of which a browser
gets those that changed. This never takes more than a twentieth of the gateway's time: if it takes longer,
the page is updated less often. Plots show what became durable, thinned out to what a screen can show.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web
from headwater.storage.keyspace import stream_of

from .stream import Send

if TYPE_CHECKING:
    from ..database.outbox import OutboxStream
    from ..service import Service

FILES = Path(__file__).parent / "static"
KINDS = {"page.css": "text/css", "page.js": "text/javascript"}
VIEW_S = 1.0  # a view is at least this old before there is a new one,
SHARE = 20  # and at least this many times as old as making it took
POINTS_S = 0.5  # between two portions of points
PLOTS_MAX = 6  # streams that one of them plots
FIELDS_MAX = 4  # of a stream, that are plotted
FEEDS_MAX = 24  # streams whose points are kept for all of them
BLOCKS_MAX = 24  # of a stream in one portion: more are left out of the plot
THIN = 150  # steps of time in one portion; a step keeps the extremes of every field
HISTORY = 2000  # points that a reloaded page finds
KEPT_S = 600.0  # after the last viewer who plotted it
CHECKPOINTS_MAX = 40
AWAKE_S = 8.0  # a board that sleeps between its reports does so if it is silent for this long
CLOCK_SET_US = 1_577_836_800_000_000  # 2020: an earlier stamp is from a board that did not know the time yet
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with none at all browsers hide the origin of a form too
}

Points = list[tuple[int, tuple[float, ...]]]


def login(wrong: str = "", status: int = 401) -> web.Response:
    """The form for the token. `wrong`: a sentence about the one that was given."""
    text = (FILES / "login.html").read_text(encoding="utf-8").replace("{{wrong}}", wrong)
    headers = {**HEADERS, "WWW-Authenticate": "Bearer", "Cache-Control": "no-store"}
    return web.Response(status=status, headers=headers, content_type="text/html", charset="utf-8", text=text)


class Page:
    def __init__(self, service: Service, stream: Callable[..., Awaitable[web.StreamResponse]]) -> None:
        """`stream(request, talk)` serves an event stream (http.py)."""
        self.service = service
        self.stream = stream
        self.feeds: dict[str, Feed] = {}
        self.checkpoints: deque[dict[str, Any]] = deque(maxlen=CHECKPOINTS_MAX)
        self._positions: dict[tuple[str, str], list[int]] = {}  # checkpoints as the last view had them
        self._sections: dict[str, str] = {}
        self._made = -1e9
        self._age_s = VIEW_S

    def add_to(self, app: web.Application) -> None:
        app.add_routes(
            [
                web.get("/", self._file),
                web.get("/{name:page\\.(?:css|js)}", self._file),
                web.get("/page/events", self._events),
            ]
        )

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info.get("name", "index.html")
        kind = KINDS.get(name, "text/html") + "; charset=utf-8"
        return web.FileResponse(FILES / name, headers={**HEADERS, "Content-Type": kind})

    # ---- events

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """`you`: whether there is a session. `view`: sections that changed, all of them at first. `points`:
        of the streams in the query."""
        names = list(dict.fromkeys(request.query.getall("stream", [])))[:PLOTS_MAX]

        async def talk(send: Send, session: bool) -> None:
            await send(b"event: you\ndata: %s\n\n" % json.dumps({"session": session}).encode())
            feeds = [feed for feed in map(self._feed, names) if feed is not None]
            try:
                await self._tell(send, feeds)
            finally:
                for feed in feeds:
                    feed.plotters -= 1
                    feed.left = time.monotonic()

        return await self.stream(request, talk)

    async def _tell(self, send: Send, feeds: list[Feed]) -> None:
        known: dict[str, str] = {}
        seen = dict.fromkeys((feed.stream for feed in feeds), -1)
        while True:
            sections = self.sections()
            changed = {name: text for name, text in sections.items() if known.get(name) != text}
            if changed:
                known.update(changed)
                body = ",".join('"%s":%s' % item for item in changed.items())
                await send(b"event: view\ndata: {%s}\n\n" % body.encode())
            for feed in feeds:
                feed.take_in()
                points, seen[feed.stream] = feed.since(seen[feed.stream])
                if points:
                    body = json.dumps(portion(feed, points), separators=(",", ":"))
                    await send(b"event: points\ndata: %s\n\n" % body.encode())
            await asyncio.sleep(POINTS_S)

    def _feed(self, name: str) -> Feed | None:
        """The feed of a stream; None if too many streams are plotted already."""
        now = time.monotonic()
        for old in [f for f in self.feeds.values() if not f.plotters and now - f.left > KEPT_S]:
            self.feeds.pop(old.stream).close()
        if name not in self.feeds:
            if len(self.feeds) >= FEEDS_MAX:
                idle = min(self.feeds.values(), key=lambda f: (f.plotters, f.left))
                if idle.plotters:
                    return None
                self.feeds.pop(idle.stream).close()
            self.feeds[name] = Feed(self.service, name)
        feed = self.feeds[name]
        feed.plotters += 1
        return feed

    # ---- the view

    def sections(self) -> dict[str, str]:
        """Name and JSON of every section of the present view."""
        now = time.monotonic()
        if now - self._made >= self._age_s:
            # After a time without a view, its news did not happen just now.
            fresh = now - self._made < 10 * self._age_s
            view = make_view(self.service.snapshot(), self._ports())
            self._note_checkpoints(view, fresh)
            view["checkpoints"] = list(self.checkpoints)
            view["site"] = {
                "name": self.service.config.gateway.site,
                "folder": str(self.service.config.folder),
                "started_us": view["now_us"] - view.pop("up_us"),
            }
            self._sections = {k: json.dumps(v, separators=(",", ":")) for k, v in view.items()}
            self._made = time.monotonic()
            self._age_s = max(VIEW_S, SHARE * (self._made - now))
        return self._sections

    def _ports(self) -> dict[tuple[str, int], tuple[int, int]]:
        """(process, key of a stream) -> last and safe, of what runs at the gateway itself."""
        found = {}
        for name, process in self.service.processes.items():
            for port in process.hosted.host.ports.values() if process.hosted else ():
                last = port.ring.last
                found[(name, port.stream)] = (last, min((r.safe for r in port.readers), default=last))
        return found

    def _note_checkpoints(self, view: dict[str, Any], fresh: bool) -> None:
        now: dict[tuple[str, str], list[int]] = {}
        for process in view["processes"]:
            for node in process["nodes"]:
                at = view["positions"][process["name"]][node["id"]].get("checkpoint")
                if at is None:
                    continue
                key = (process["name"], node["name"])
                now[key] = at
                if fresh and self._positions.get(key) not in (None, at):
                    self.checkpoints.appendleft(
                        {
                            "process": process["name"],
                            "operator": node["name"],
                            "host": node["host"],
                            "at": at,
                            "at_us": view["now_us"],
                        }
                    )
        self._positions = now


def make_view(snapshot: Mapping[str, Any], own: Mapping[tuple[str, int], tuple[int, int]]) -> dict[str, Any]:
    """The sections of the page, from a snapshot of the service and the ports that run at the gateway."""
    ports = dict(own)
    for board in snapshot["boards"].values():
        for stream, last, safe in board["status"].get("backlog") or ():
            ports[(board["process"], stream)] = (last, safe)
    processes = snapshot["processes"]
    return {
        "now_us": snapshot["now_us"],
        "up_us": int(snapshot["up_s"] * 1e6),
        "gateway": {name: snapshot[name] for name in ("broker", "clock", "database", "segments", "dropped")},
        **{name: snapshot[name] for name in ("headline", "alarms", "mutes", "receivers", "sink", "limits")},
        **{name: snapshot[name] for name in ("waiting", "moves")},
        "bluetooth": _bluetooth(snapshot["bluetooth"]),
        "hosts": [_host(name, board, snapshot["now_us"]) for name, board in snapshot["boards"].items()],
        "processes": [_process(name, process) for name, process in processes.items()],
        "positions": {name: _positions(name, process, ports) for name, process in processes.items()},
        "streams": _streams(snapshot),
        "events": snapshot["events"][::-1],
    }


def _bluetooth(view: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Of the gateway's adapter, what changes when something happens: advertisements come all the time."""
    if view is None:
        return None
    now = ("adapter", "problem", "connected", "waiting", "away", "slots")
    keys = (*now, "connects", "paired", "unpaired", "relayed", "dropped")
    counts = {key: {why: n for why, n in view[key].items() if n} for key in ("ended", "failures")}
    return {**{key: view[key] for key in keys}, **counts}


def _host(name: str, board: Mapping[str, Any], now_us: int) -> dict[str, Any]:
    status = board["status"]
    quiet_s = (now_us - board["seen_us"]) / 1e6
    asleep = board["link"] in ("up", "silent") and status.get("sleep") and quiet_s > AWAKE_S
    log = status.get("log") or (None, None)
    return {
        "name": name,
        "link": "asleep" if asleep else board["link"],
        "via": board["via"],
        "seen_us": board["seen_us"] // 1_000_000 * 1_000_000,
        "process": board["process"],
        "plan": board["plan"],
        "why": board["why"],
        "battery_mv": status.get("battery"),
        **_energy(board["energy"]),
        "rssi": status.get("rssi"),
        "boot": status.get("boot"),
        "crash": status["crash"][1] if status.get("crash") else None,
        "up_s": status.get("up"),
        "heap_free": status.get("free"),
        "log_free": log[0],
        "log_size": log[1],
        "unsafe": sum(max(0, last - safe) for _, last, safe in status.get("backlog") or ()),
        "refused": status.get("refused"),
        "clock_us": status.get("sync"),
    }


def _energy(known: Mapping[str, int] | None) -> dict[str, int | None]:
    """Charge and time left of a battery, so coarse that the page does not change with every second."""
    if known is None:
        return {"percent": None, "left_s": None}
    return {"percent": known["percent"], "left_s": known["left_s"] // 60 * 60}


def _process(name: str, process: Mapping[str, Any]) -> dict[str, Any]:
    nodes = [
        {
            "id": i,
            "name": v["name"],
            "kind": v["kind"],
            "host": v["host"],
            "backups": v["backups"],
            "epoch": v["epoch"],
            **{key: v[key] for key in ("candidates", "moved", "since_us", "does", "waits")},
            "parameters": v["parameters"],
            "open": [{"what": c["what"], "waits": c["waits"]} for c in v["open"]],
        }
        for i, v in enumerate(process["vertices"])
    ]
    keys = ("hash", "step", "strategy", "level", "coming", "edges", "alarms", "late", "proposal")
    return {"name": name, "nodes": nodes, **{key: process[key] for key in keys}}


def _positions(
    name: str, process: Mapping[str, Any], ports: Mapping[tuple[str, int], tuple[int, int]]
) -> list[dict[str, Any]]:
    """Of every vertex: the last element it put out, up to where consumers are safe, and its permanent
    checkpoint: the ξ of every input that it covers."""
    found = []
    for i, v in enumerate(process["vertices"]):
        outs = [ports[key] for key in sorted(ports) if key[0] == name and stream_of(key[1])[0] == i]
        position: dict[str, Any] = {}
        if outs:
            position = {"last": outs[0][0], "safe": outs[0][1]}
        if v["checkpoint"]:
            position["checkpoint"] = v["checkpoint"][:-2]
        found.append(position)
    return found


def _streams(snapshot: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a stream: the newest incarnation, and what older ones still have to bring to the lake."""
    rows: dict[str, dict[str, Any]] = {}
    for end in snapshot["streams"]:
        former = rows.get(end["stream"])
        older = former["older"] + former["durable"] - former["acked"] if former else 0
        lags = [lag for lag in (end["lag_s"], former["lag_s"] if former else None) if lag is not None]
        keys = ("stream", "process", "alphabet", "durable", "cut", "acked", "last_ts_us", "last")
        row = rows[end["stream"]] = {**{key: end[key] for key in keys}, "older": older}
        row["lag_s"] = int(max(lags)) if lags else None
        row["board"] = end["on_board"]  # put out, and not durable here; None: unknown
        row["board_s"] = None if end["on_board_s"] is None else int(end["on_board_s"])
        row["clock_set"] = (row["last_ts_us"] or 0) >= CLOCK_SET_US
        row["last"] = {k: _short(v) for k, v in (row["last"] or {}).items()}
    return list(rows.values())


# ---- plots


class Feed:
    """The newest points of one stream, while a viewer plots it and a while longer."""

    def __init__(self, service: Service, stream: str) -> None:
        self.service = service
        self.stream = stream
        self.fields: tuple[str, ...] = ()
        self.plotters = 0
        self.left = 0.0
        self.points: deque[tuple[int, tuple[float, ...]]] = deque(maxlen=HISTORY)
        self.count = 0  # points so far; the last one in `points` is number `count`
        self._blocks: deque[tuple[OutboxStream, bytes]] = deque(maxlen=BLOCKS_MAX)
        self._durable: dict[int, int] = {}
        self._look()
        service.db.on_commit.append(self._look)

    def close(self) -> None:
        self.service.db.on_commit.remove(self._look)

    def _look(self) -> None:
        """After a commit: its entries are decoded later, with those that arrive until then."""
        for end in self.service.ends.all.values():
            if end.lake == self.stream and end.last_block and end.durable > self._durable.get(end.id, 0):
                self._durable[end.id] = end.durable
                self._blocks.append((end, end.last_block))

    def take_in(self) -> None:
        from ..service import decoded

        rows: Points = []
        while self._blocks:
            end, data = self._blocks.popleft()
            for ts, values in decoded(end, data):
                if ts < CLOCK_SET_US:
                    continue
                self.fields = tuple(values)[:FIELDS_MAX]
                rows.append((ts, tuple(float(values[name]) for name in self.fields)))
        rows = thinned(rows, THIN)
        self.points.extend(rows)
        self.count += len(rows)

    def since(self, seen: int) -> tuple[Points, int]:
        """The points after number `seen`, and the number of the last."""
        fresh = min(self.count - max(seen, 0), len(self.points))
        return list(self.points)[len(self.points) - fresh :], self.count


def thinned(points: Points, steps: int) -> Points:
    """At most `steps` stretches of points, each left with its extremes in every field, in order."""
    if len(points) <= 2 * steps:
        return points
    out: Points = []
    for s in range(steps):
        part = points[s * len(points) // steps : (s + 1) * len(points) // steps]
        keep = set()
        for k in range(len(part[0][1])):
            order = sorted(range(len(part)), key=lambda i, k=k, part=part: part[i][1][k])  # type: ignore[misc]
            keep |= {order[0], order[-1]}
        out += [part[i] for i in sorted(keep)]
    return out


def portion(feed: Feed, points: Points) -> dict[str, Any]:
    """Points as a browser gets them: microseconds of the first, milliseconds after it, a column a field."""
    start = points[0][0]
    return {
        "stream": feed.stream,
        "t0_us": start,
        "ms": [(ts - start) // 1000 for ts, _ in points],
        "fields": {name: [_short(values[k]) for _, values in points] for k, name in enumerate(feed.fields)},
    }


def _short(value: float) -> float | None:
    """A number for JSON: null if it is not a number, or infinite."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) else round(value, 6)
