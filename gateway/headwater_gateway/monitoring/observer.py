"""The observer: gathers the facts about the site, and keeps its alarms and events.

Every `LOOK_S` it takes the facts from the service, passes them to `alarms.judge`, and records in the journal
what began or ended. It remembers what a fact needs of the past: how often a board crashed lately, how many
samples it refused, when an acknowledgement last advanced.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.protocol.site_link import LEFT_OUT, REFUSED, RUNS
from headwater.runtime.instance import RUNNING
from headwater.storage.keyspace import stream_key, stream_of

from .. import UserError
from ..bluetooth.ways import BLUETOOTH, BROKER
from ..boards import Board
from ..segments.planner import beyond
from ..site_clock import mono_us
from . import alarms, stranded
from .alarms import BoardFacts, Change, Facts, Limits, SinkFacts, StreamFacts, Watch
from .journal import Journal
from .lags import Lag, Lags
from .moves import Moves
from .proposals import Proposals
from .silence import Silence

if TYPE_CHECKING:
    from ..deployments.switching import Process
    from ..service import Service

LOOK_S = 1.0
WINDOW_S = 600.0  # "lately", for crashes,
REFUSED_S = 120.0  # and for refused samples
CRASHES_MAX = 100  # of one board that are remembered


class Recent:
    """What one board did lately."""

    def __init__(self) -> None:
        self.crashes: deque[float] = deque(maxlen=CRASHES_MAX)
        self.refused: deque[tuple[float, int]] = deque(maxlen=CRASHES_MAX)
        self._crash: Any = None  # as in the previous status
        self._refused: int | None = None
        self._first = True

    def note(self, status: dict[str, Any], now: float) -> None:
        crash, boot, up_s = status.get("crash"), status.get("boot"), status.get("up")
        if crash is None:
            new = False
        elif self._first:
            # It may be old: it counts if the present start is the one after it, and recent.
            new = boot is not None and crash[0] == boot - 1 and (up_s or 0) < WINDOW_S
        else:
            new = crash != self._crash
        if new:
            self.crashes.append(now - (min(up_s, WINDOW_S) if self._first and up_s else 0))
        self._crash = crash
        refused = status.get("refused")
        if refused is not None:
            before = self._refused if self._refused is not None else refused
            # It counts from the start of the board: after a restart all of it is new.
            more = refused - before if refused >= before else refused
            if more:
                self.refused.append((now, more))
            self._refused = refused
        self._first = False

    def crashes_since(self, then: float) -> int:
        return sum(1 for at in self.crashes if at >= then)

    def refused_since(self, then: float) -> int:
        return sum(n for at, n in self.refused if at >= then)


@dataclass(frozen=True)
class Producer:
    """Where the elements of a stream of the lake come from."""

    process: str
    number: int  # key of the stream
    host: str


class Observer:
    def __init__(self, service: Service) -> None:
        self.service = service
        config = service.config.alarms
        self.limits = Limits(
            unacknowledged_s=config.unacknowledged_s,
            board_backlog_s=config.board_backlog_s,
            battery_low_mv=config.battery_low_mv,
            clock_ms=config.clock_ms,
        )
        self.journal = Journal(service.db)
        self.lags = Lags(service.db, service.ends)
        self.silence = Silence()
        self.moves = Moves(service.db, service.event)
        self.proposals = Proposals(service)
        self._recent: dict[str, Recent] = {}
        self._since: dict[str, float] = {}  # link -> it has worked since then
        self._due = 0.0

    @property
    def watch(self) -> Watch:
        return self.journal.watch

    # ---- what happens

    def on_status(self, board: Board) -> None:
        self._recent.setdefault(board.name, Recent()).note(board.status, time.monotonic())
        self.proposals.on_status(board)
        process = self.service.by_board.get(board.name)
        backlog = board.status.get("backlog")
        if process is not None and backlog:
            here = {p.number for p in self.producers().values() if p.host == board.name}
            rows = [row for row in backlog if row[0] in here]
            self.lags.report(process.name, rows, self.service.site_us())
        if _runs(board) and process is not None and process.hosted is not None:
            reports = self.silence.of(process.hosted.plan, time.monotonic())
            if reports.ways:
                reports.report(board.name, backlog or (), time.monotonic())

    def tick(self) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + LOOK_S
            self.look()
            self.proposals.tick()

    def look(self) -> None:
        link, ways = self.service.link, self.service.ways
        works = {
            BROKER: link is not None and link.up,
            BLUETOOTH: ways is not None and ways.radio is not None and not ways.problem,
        }
        now = time.monotonic()
        self._since = {name: self._since.get(name, now) for name, up in works.items() if up}
        now_us = self.service.site_us()
        for change in self.watch.update(now_us, alarms.judge(self.facts(), self.limits)):
            self._tell(change)
        stranded.quieten(self.service)
        hosted = [process.hosted for process in self.service.processes.values()]
        self.moves.look([one.host for one in hosted if one is not None], now_us)
        self.journal.save()
        self.service.notifier.look(self.watch, now_us)

    def _tell(self, change: Change) -> None:
        if change.what == "over":
            self.service.event("alarm over", "Over: " + change.alarm.text)
        elif change.alarm.id not in self.watch.mutes:
            self.service.event("alarm", change.alarm.text)

    # ---- what a person does

    def acknowledge(self, ident: str) -> None:
        self._on(ident)
        self.watch.acknowledge(ident, self.service.site_us())
        self._done("acknowledged: " + ident)

    def mute(self, ident: str, seconds: float) -> None:
        if not alarms.good_id(ident):
            raise UserError(
                "no alarm can have the id %s: it is KIND/SUBJECT, as `hw gateway alarms` shows it; "
                "kinds are %s" % (ident, ", ".join(alarms.KINDS))
            )
        if not 0 < seconds <= alarms.MUTE_MAX_S:
            raise UserError("an alarm is muted for a time of up to 30 days, like 2h")
        if len(self.watch.mutes) >= alarms.MUTES_MAX and ident not in self.watch.mutes:
            raise UserError("%d alarms are muted already: unmute one first" % alarms.MUTES_MAX)
        self.watch.mute(ident, self.service.site_us() + int(seconds * 1e6))
        self._done("muted for %s: %s" % (alarms.span(seconds), ident))

    def unmute(self, ident: str) -> None:
        if ident not in self.watch.mutes:
            muted = ", ".join(sorted(self.watch.mutes)) or "none"
            raise UserError("the alarm %s is not muted; muted are: %s" % (ident, muted))
        self.watch.unmute(ident)
        self._done("no longer muted: " + ident)

    def _on(self, ident: str) -> None:
        if ident not in self.watch.open:
            known = ", ".join(sorted(self.watch.open)) or "none"
            raise UserError("there is no alarm %s; on are: %s" % (ident, known))

    def _done(self, text: str) -> None:
        self.journal.save()
        self.service.notifier.look(self.watch, self.service.site_us())
        self.service.event("operator", "Alarm " + text)

    # ---- facts

    def facts(self) -> Facts:
        service = self.service
        now, up_s = time.monotonic(), time.monotonic() - service.started
        segments, db, link = service.segments, service.db, service.link
        maximum = service.config.store.max_bytes
        clock = service.clock.view(mono_us())
        return Facts(
            folder=str(service.config.folder),
            up_s=up_s,
            broker_up=link is None or link.up,
            broker_problem=link.problem if link else "",
            bluetooth_problem=service.ways.problem if service.ways else "",
            database_failed=db.failed,
            database_full=db.full,
            database_share=db.size_bytes / maximum if maximum else 0.0,
            segments_problem=segments.problem,
            segments_damaged=segments.damaged,
            learning=tuple((p.name, why) for p in service.processes.values() if (why := service.waits(p))),
            adopting=tuple((ident.hex(), why) for ident, why in service.learning.refused.items()),
            clock_problem=clock["problem"],
            ahead_s=clock["ahead_us"] / 1e6,
            right_in_s=clock["right_in_s"],
            boards=tuple(self._board(board, now, up_s) for board in service.boards.all.values()),
            streams=tuple(self.streams()),
            sink=self.sink(),
            sounds=tuple(stranded.sounds(service)),
            nowhere=tuple(stranded.nowhere(service, lambda board: self._deaf(now, board))),
            receivers=service.notifier.facts(),
            on={ident: o.alarm.severity for ident, o in self.watch.open.items()},
        )

    def sink(self) -> SinkFacts:
        service = self.service
        known = time.monotonic() - service.started > self.limits.unacknowledged_s
        return service.segments.sink.facts(known, bool(service.segments.acks))

    def _board(self, board: Board, now: float, up_s: float) -> BoardFacts:
        service, status = self.service, board.status
        process = service.by_board.get(board.name)
        recent = self._recent.get(board.name, Recent())
        crash = status.get("crash")
        now_us = service.site_us()
        silent_s = service.config.boards.silent_s
        spoke = bool(board.heard or board.frames)
        return BoardFacts(
            name=board.name,
            process=process.name if process else None,
            link=service.link_of(board),
            silent_s=max(0.0, (now_us - board.seen_us) / 1e6) if board.seen_us else 0.0,
            wanted_s=max(0.0, (now_us - process.since_us) / 1e6) if process else 0.0,
            refuses=board.why if board.state == REFUSED else "",
            crash=crash[1] if crash else "",
            crashes=recent.crashes_since(now - WINDOW_S),
            window_s=WINDOW_S,
            young=self._deaf(now, board.name) or bool(board.seen_us) and not spoke and up_s < silent_s,
            told=bool(status),
            left_out=status.get("state") == LEFT_OUT,
            battery_mv=status.get("battery"),
            clock_us=status.get("sync"),
            ahead_s=board.ahead_us / 1e6,
            up_s=status.get("up"),
            refused_lately=recent.refused_since(now - REFUSED_S),
            refused_s=REFUSED_S,
        )

    def _deaf(self, now: float, board: str) -> bool:
        """Whether the silence of this board means nothing: the link by which it was heard last is away at
        this end, or has just returned."""
        if self.service.link is None:
            return False
        ways = self.service.ways
        since = self._since.get((ways.via(board) if ways else None) or BROKER)
        return since is None or now - since < self.service.config.boards.silent_s

    def producers(self) -> dict[str, Producer]:
        """Stream in the lake -> where it comes from."""
        found = {}
        for name, process in self.service.processes.items():
            hosted = process.hosted
            assert hosted is not None
            for e in hosted.plan.edges:
                if e.lake:
                    host = host_of(process, e.src)
                    found[e.lake] = Producer(name, stream_key(e.src, e.sport), host)
        return found

    def safe(self, process: Process) -> dict[int, int]:
        """Key of a stream of a process -> what all its consumers have made safe, as reported by the hosts
        that produce it."""
        hosted = process.hosted
        assert hosted is not None
        found = {}
        for port in hosted.host.ports.values():
            found[port.stream] = min((reader.safe for reader in port.readers), default=0)
        for vertex in range(len(hosted.plan.vertices)):
            board = self.service.boards.all.get(host_of(process, vertex))
            for stream, _, safe in (board.status.get("backlog") or ()) if board else ():
                if stream_of(stream)[0] == vertex:
                    found[stream] = safe
        return found

    def streams(self) -> Iterable[StreamFacts]:
        """Every stream that a process has, or that still waits for the lake."""
        service = self.service
        now_us = service.site_us()
        lags = {lag.stream: lag for lag in self.lags.look(now_us, beyond(service.segments.acks))}
        producers = self.producers()
        quiet = self._quiet(lags)
        for name in [*lags, *(name for name in producers if name not in lags)]:
            producer = producers.get(name)
            lag = lags.get(name) or Lag(name, producer.process if producer else "")
            held, held_us = self._held(producer, lag, now_us)
            yield StreamFacts(
                stream=name,
                process=lag.process,
                lag_s=None if lag.arrived_us is None else max(0.0, (now_us - lag.arrived_us) / 1e6),
                waiting=lag.waiting,
                acked_s=None if lag.acked_us is None else (now_us - lag.acked_us) / 1e6,
                beyond=lag.beyond,
                host=producer.host if producer else "",
                on_board=held,
                on_board_s=None if held_us is None else held_us / 1e6,
                **quiet.get(name, {}),
            )

    def _quiet(self, lags: Mapping[str, Lag]) -> dict[str, dict[str, Any]]:
        """Of every stream with `within_ms`: for how long it has been silent."""
        found: dict[str, dict[str, Any]] = {}
        now = time.monotonic()
        self.silence.keep(self.service.processes)
        for process in self.service.processes.values():
            hosted = process.hosted
            if hosted is None:
                continue
            reports = self.silence.of(hosted.plan, now)
            if not reports.ways:
                continue
            for port in hosted.host.ports.values():
                last = port.ring.last
                reports.note(port.stream, last, min((r.safe for r in port.readers), default=last), now)
            own = hosted.plan.hosts[0]
            for name, way in reports.ways.items():
                where = {v: host_of(process, v) for v in way.vertices}
                hosts = {v: "" if host == own else host for v, host in where.items()}
                stalled = any(not host and not _steps(process, v) for v, host in hosts.items())
                newest = lags[name].newest if name in lags else None
                durable = newest.durable if newest else 0
                quiet_s = self.silence.quiet_s(way, reports, hosts, durable, stalled, now)
                found[name] = {
                    "within_s": way.within_s,
                    "report_s": reports.period_s(),
                    # While the process changes, its sources pause.
                    "quiet_s": None if process.coming is not None or process.step else quiet_s,
                }
        return found

    def _held(self, producer: Producer | None, lag: Lag, now_us: int) -> tuple[int | None, int | None]:
        """What the producer's host has and the gateway not, and its age; None: unknown."""
        if producer is None:
            return 0, None
        durable = lag.newest.durable if lag.newest else 0
        hosted = self.service.processes[producer.process].hosted
        assert hosted is not None
        if producer.host == hosted.plan.hosts[0]:
            ports = [p for p in hosted.host.ports.values() if p.stream == producer.number]
            return (max(0, ports[0].ring.last - durable) if ports else 0), None
        board = self.service.boards.all[producer.host]
        ways = self.service.ways
        backlog = board.status.get("backlog")
        if (
            ways is None
            or not ways.listens(board.name)
            or self.service.link_of(board) != "up"
            or backlog is None
        ):
            return None, None
        last = next((row[1] for row in backlog if row[0] == producer.number), 0)
        age = self.lags.on_board_us(producer.process, producer.number, durable, now_us)
        return max(0, last - durable), age if last > durable else None


def _runs(board: Board) -> bool:
    """Whether its last report is that of a board that runs its deployment."""
    wanted = board.wanted
    return (
        board.state == RUNS
        and board.status.get("state") == RUNS
        and wanted is not None
        and board.status.get("plan") == wanted.id
    )


def _steps(process: Process, vertex: int) -> bool:
    """Whether a vertex runs at the gateway."""
    hosted = process.hosted
    assert hosted is not None
    if not hosted.plan.vertices[vertex].kind:
        return vertex in hosted.host.sources
    instance = hosted.host.instances.get(vertex)
    return instance is not None and instance.status == RUNNING


def host_of(process: Process, vertex: int) -> str:
    """Where a vertex runs now."""
    hosted = process.hosted
    assert hosted is not None
    v = hosted.plan.vertices[vertex]
    return str(hosted.plan.hosts[hosted.host.where[vertex][2] if v.kind else v.hosts[0]])
