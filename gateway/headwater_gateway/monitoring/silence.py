"""Streams that must not be silent: edges to the lake with `within_ms`.

A stream shows that it goes on by an element that became durable here, or by a *boundary*: a sign that
nothing was due. The core sends no boundaries on edges to the lake, so the gateway concludes them from what
the hosts of the stream report. A boundary holds at the time of the oldest of these reports, if

- every board that takes part, from the sources to the producer of the stream, has reported that it runs the
  process, and every operator at the gateway runs;
- the producer's host has put out nothing that is not durable here;
- every source with a rate has taken samples since the report before (one without a rate may be silent);
- no stream on the way has entries that its consumers leave unsafe for too long: twice the checkpoint
  interval, and a minute at least. That is how an operator is noticed that stands although its sources go
  on.

So silence is noticed after `within_ms` and one interval of reports; an operator that stands on a board, a
minute or two intervals later. After a start, and while a process changes, nothing is known until something
has arrived or the time has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headwater.plan.model import OUTSIDE, Plan
from headwater.storage.keyspace import stream_key, stream_of

REPORT_S = 5.0  # between two reports of a board, until two have come,
REPORT_MAX_S = 60.0  # and not more than this, however rare they are
FIRST_S = 120.0  # for the first element of a deployment: boards fetch it, and start
SETTLE_S = 60.0  # in which entries become safe, at least


@dataclass(frozen=True)
class Way:
    """How a stream of the lake comes about."""

    stream: str
    within_s: float
    key: int  # of the stream at its producer
    producer: int  # vertex
    vertices: tuple[int, ...]  # from the sources to the producer
    sources: tuple[int, ...]  # keys of the sources' streams that have a rate
    inner: tuple[int, ...]  # keys of all streams between these vertices
    settle_s: float


def ways(plan: Plan) -> list[Way]:
    """Of every edge to the lake with `within_ms`."""
    found = []
    for edge in plan.edges:
        if edge.dst != OUTSIDE or not edge.within_ms:
            continue
        vertices = _above(plan, edge.src)
        rates = [plan.vertices[v].rate_mhz for v in vertices if not plan.vertices[v].kind]
        slowest = min([rate for rate in rates if rate], default=0)
        interval_s = plan.every * 1000 / slowest if slowest else 0.0
        found.append(
            Way(
                stream=edge.lake,
                within_s=edge.within_ms / 1000,
                key=stream_key(edge.src, edge.sport),
                producer=edge.src,
                vertices=tuple(vertices),
                sources=tuple(
                    stream_key(v, 0)
                    for v in vertices
                    if not plan.vertices[v].kind and plan.vertices[v].rate_mhz
                ),
                inner=tuple(
                    sorted(
                        {
                            stream_key(e.src, e.sport)
                            for e in plan.edges
                            if e.dst in vertices and e.src in vertices
                        }
                    )
                ),
                settle_s=max(SETTLE_S, 2 * interval_s),
            )
        )
    return found


def _above(plan: Plan, vertex: int) -> list[int]:
    """This vertex, and all from which it gets entries."""
    found = {vertex}
    todo = [vertex]
    while todo:
        v = todo.pop()
        for edge in plan.edges:
            if edge.dst == v and edge.src not in found:
                found.add(edge.src)
                todo.append(edge.src)
    return sorted(found)


@dataclass
class Port:
    """One stream of a process, as the host that produces it reports it."""

    last: int
    safe: int
    moved: float | None  # when `last` last rose; None: there is no entry yet
    settled: float  # when everything was safe, or more became safe


@dataclass
class Reports:
    """What the hosts of one deployment have reported."""

    since: float
    ways: dict[str, Way] = field(default_factory=dict)  # stream -> its way
    ports: dict[int, Port] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)  # board -> its last report
    before: dict[str, float] = field(default_factory=dict)  # ... and the one before
    heard: dict[str, tuple[int, float]] = field(default_factory=dict)  # stream -> durable, and when it rose
    known: dict[str, float] = field(default_factory=dict)  # stream -> its newest sign

    def note(self, key: int, last: int, safe: int, now: float) -> None:
        port = self.ports.get(key)
        if port is None or last < port.last or safe < port.safe:
            self.ports[key] = Port(last, safe, now if last else None, now)
            return
        if last > port.last:
            port.moved = now
        if safe > port.safe or safe >= last or port.safe >= port.last:
            port.settled = now
        port.last, port.safe = last, safe

    def report(self, board: str, rows: Iterable[list[int]], now: float) -> None:
        """The status of a board that runs the deployment."""
        if board in self.last:
            self.before[board] = self.last[board]
        self.last[board] = now
        for key, last, safe in rows:
            self.note(key, last, safe, now)

    def period_s(self) -> float:
        spans = [at - self.before[board] for board, at in self.last.items() if board in self.before]
        return min(REPORT_MAX_S, max(spans, default=REPORT_S))


class Silence:
    """For how long the streams with `within_ms` have been silent. Times are of a monotone clock."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[int, Reports]] = {}

    def of(self, plan: Plan, now: float) -> Reports:
        """The reports of a deployment; those of another one of the process are forgotten."""
        found = self._reports.get(plan.name)
        if found is None or found[0] != plan.deployment:
            reports = Reports(now, {way.stream: way for way in ways(plan)})
            found = self._reports[plan.name] = (plan.deployment, reports)
        return found[1]

    def keep(self, processes: Iterable[str]) -> None:
        """Forget the processes that are not among these."""
        self._reports = {name: self._reports[name] for name in processes if name in self._reports}

    def quiet_s(
        self,
        way: Way,
        reports: Reports,
        hosts: Mapping[int, str],
        durable: int,
        stalled: bool,
        now: float,
    ) -> float | None:
        """For how long there was no sign of a stream; None: not known yet.

        `hosts`: vertex -> the board where it runs, "" for the gateway; `durable`: the stream's last element
        here; `stalled`: something of it at the gateway does not run."""
        heard = reports.heard.get(way.stream)
        first = heard is None
        if heard is None or durable > heard[0]:
            reports.heard[way.stream] = (durable, now)
        if heard is not None and durable > heard[0]:
            reports.known[way.stream] = now
        at = None if stalled else self._boundary(way, reports, hosts, durable, now)
        if at is not None:
            reports.known[way.stream] = max(at, reports.known.get(way.stream, at))
        sign = reports.known.get(way.stream)
        if sign is not None:
            return now - sign
        quiet = now - reports.since
        return None if first or quiet <= max(FIRST_S, way.within_s) else quiet

    def _boundary(
        self, way: Way, reports: Reports, hosts: Mapping[int, str], durable: int, now: float
    ) -> float | None:
        """Until when it is known that nothing of the stream was due."""
        boards = {hosts[v] for v in way.vertices} - {""}
        if any(board not in reports.before for board in boards):
            return None
        port = reports.ports.get(way.key)
        if port is None or port.last > durable:
            return None
        at = min((reports.last[board] for board in boards), default=now)
        for key in way.sources:
            source = reports.ports.get(key)
            if source is None or source.moved is None:
                return None
            board = hosts[stream_of(key)[0]]
            since = reports.before[board] if board else now - max(SETTLE_S, way.within_s)
            if source.moved <= since:
                at = min(at, source.moved)
        for key in way.inner:
            inner = reports.ports.get(key)
            if inner is None:
                return None
            if inner.safe < inner.last and now - inner.settled > way.settle_s:
                at = min(at, inner.settled)
        return at
