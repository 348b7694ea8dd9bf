"""The service: boards, processes, database, segments, broker and HTTP as one thing that starts and stops.

Everything but cutting and committing happens on one asyncio loop, so no state here needs a lock.

The site's time is in `site_clock.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable
from typing import Any

from headwater.data import block
from headwater.data.batch import Batch
from headwater.offboard import encryption
from headwater.plan import model as plans
from headwater.plan.model import OUTSIDE, Plan, Vertex
from headwater.plan.reader import BATCH_MAX, DURABLE, LEVELS, STRATEGIES
from headwater.protocol.site_link import DRAIN, DRAINED, DRAINING, REFUSED, RUNS, STORED, WANTED
from headwater.storage.keyspace import F_FLOOR

from . import UserError, board_link, refused, registry
from .bluetooth.ways import Ways
from .board_link import Link
from .boards import Board, Boards
from .config import Config
from .database.engine import READ_ERRORS, Database, damaged, signed, unsigned
from .database.outbox import OutboxStream, OutboxStreams
from .deployments import operator_moves, parameters, progress, rebuild
from .deployments.history import History
from .deployments.numbers import Numbers
from .deployments.rebuild import Learning
from .deployments.switching import Process, Switching, being_changed, named
from .hosted import HostedProcess
from .keys import load
from .losses import Losses
from .monitoring import operators, stranded
from .monitoring.alarms import StreamFacts, headline
from .monitoring.observer import Observer, host_of
from .notices.notifier import Notifier
from .segments.planner import CutterGone, CutterProcess, Segments
from .site_clock import Machine, SiteClock, mono_us

_log = logging.getLogger("headwater")

TICK_S = 0.25
PUMP_S = 0.02  # what became durable is announced within this
EVENTS_SHOWN = 200
MOVES_SHOWN = 50
INCARNATIONS_SHOWN = 16  # of one stream; and as many older ones that still wait for the lake
NO_PARAMETERS: dict[str, Any] = {"changes": [0, 0], "parameters": {}, "open": [], "refused": None}
SOURCE: dict[str, Any] = {"candidates": [], "moved": None, "since_us": None, "does": "", "waits": ""}
LAKE_NAME_TAKEN = "the stream %s in the lake belongs to process %s: give it another name"


class Service(Switching):
    def __init__(self, config: Config, again: bool = False) -> None:
        """`again`: a lost database is rebuilt from what boards and lake know."""
        self.config = config
        self.started = time.monotonic()
        self.stopping = asyncio.Event()
        self.listeners: set[Callable[[dict[str, Any]], None]] = set()
        self.strange: dict[str, int] = {}  # reason -> frames that belong to no known board
        self._tasks: list[asyncio.Task[None]] = []

        board_link.check(config)
        self.keys = load(config.path(config.gateway.secrets) / "master.key")
        data = config.path(config.gateway.data)
        try:
            data.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UserError("gateway.data = %s: %s" % (data, error.strerror))
        if not again:
            rebuild.check(config)
        self.db = Database(rebuild.database(config), self.site_us, config.store.max_bytes)
        try:
            if again and self.db.query("SELECT 1 FROM boards LIMIT 1"):
                self.db.rewrite(rebuild.learn_again)
            self._open(again)
        except READ_ERRORS as error:
            self.db.abandon()
            raise damaged(self.db.path, error)
        except BaseException:
            self.db.abandon()
            raise

    def _open(self, again: bool) -> None:
        config = self.config
        self._begin_time()
        registry.finish(config, dict(self.db.query("SELECT name, number FROM boards")))
        rebuild.agree(self.db, config.folder, self.keys, again, self.site_us())
        self.ends = OutboxStreams(self.db)
        self.cutter = CutterProcess(
            self.db.path, _place(config, config.lake.landing), _place(config, config.lake.acks),
            config.lake.compression_level,
        )  # fmt: skip
        self.segments = Segments(self.db, self.ends, config, self.cutter)
        encryption.use()
        log, boot = self._life()
        bare = config.bluetooth.enabled
        self.boards = Boards(self.db, self.keys, self._publish_site, log, boot, self.site_us, bare=bare)
        self.numbers = Numbers(self.db, self.segments.knows)
        self.history = History(self.db)
        self.learning = Learning(self)
        self.notifier = Notifier(config, self.db, log, boot)
        self.observer = Observer(self)
        moves = self.observer.moves
        self.segments.tell_moves(lambda end: moves.of_stream(end.process, end.version, end.lake))
        self.losses = Losses(self)
        self.boards.on_status.append(self._on_status)
        self.boards.on_deployment.append(self.learning.on_deployment)
        self.processes: dict[str, Process] = {}
        for row in self.db.query("SELECT name, plan, since, next, step, learn FROM processes ORDER BY name"):
            self.processes[row[0]] = Process(*row)
        self.by_board: dict[str, Process] = {}
        site = config.gateway.site
        self._from_site = "%s/s/" % site
        self._from_host = "%s/g/" % site
        self._to = {}  # type: dict[tuple[str, str], str]
        self.link: Link | None = None
        self.ways: Ways | None = None

    # ---- time

    def _begin_time(self) -> None:
        kept = self.db.query("SELECT value FROM meta WHERE key = 'time'")
        # Databases of earlier versions remember it by process, and ahead of the time.
        floor = max((unsigned(int.from_bytes(row[0], "little")) for row in self.db.query(
            "SELECT value FROM facts WHERE key = ?", F_FLOOR)), default=0)  # fmt: skip
        machine = Machine(self.config.gateway.clock)
        self.clock = SiteClock(machine.read, kept[0][0] if kept else None, floor)
        self.db.keep_time = lambda: self.clock.keep(mono_us())

    def site_us(self) -> int:
        return int(self.clock.site(mono_us()))

    def _note_time(self, board: Board) -> None:
        """Note how far a board's time is ahead of the site's. It does not move that: a broken or hostile
        board would change it permanently."""
        told = board.status.get("time")
        board.ahead_us = told - self.site_us() if isinstance(told, int) else 0

    def _life(self) -> tuple[int, int]:
        """Log number and boot of the site links."""
        known = dict(self.db.query("SELECT key, value FROM meta"))
        log = unsigned(known["log"]) if "log" in known else secrets.randbits(64) or 1
        boot = known.get("boot", 0) + 1
        self.db.execute("INSERT OR REPLACE INTO meta VALUES('log', ?)", signed(log))
        self.db.execute("INSERT OR REPLACE INTO meta VALUES('boot', ?)", boot)
        return log, boot

    # ---- start and end

    async def start(self) -> None:
        """Everything that can fail at the start fails here. UserError says what, and what to do."""
        self.db.commit()
        try:
            try:
                await self.segments.open({*self.processes, *(end.process for end in self.ends.all.values())})
                for process in self.processes.values():
                    self._seat(process)
                self.db.commit()
            except READ_ERRORS as error:
                raise damaged(self.db.path, error)
            from .web import http

            notifier = self.notifier
            topics = [self._from_site + "+", self._from_host + "+", *notifier.topics]
            self.link = Link(
                self.config, topics, self._take, self._drained, notifier.will, notifier.connected
            )
            notifier.use(self.link)
            self.ways = Ways(
                self.config.bluetooth, self.keys, self.link, self._topic, self.boards, self._take_host,
                self._drained, self._pump_all,
            )  # fmt: skip
            self.web = http.Web(self)
            await self.web.start()
        except BaseException:
            await self.cutter.close()
            self.db.abandon()
            raise
        self.db.on_commit.append(self._on_commit)
        self._tasks = [
            asyncio.create_task(self.db.run(self.config.store.commit_ms / 1000), name="commit"),
            asyncio.create_task(self.segments.run(self._with_entries), name="segments"),
            asyncio.create_task(self._ticks(), name="ticks"),
            asyncio.create_task(self.link.run(), name="link"),
            asyncio.create_task(self.ways.run(), name="bluetooth"),
            *(asyncio.create_task(runs, name=name) for name, runs in self.notifier.runs()),
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)
        self.event("start", "the gateway runs")

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            _log.critical("task %s ended", task.get_name(), exc_info=task.exception())
            self.stopping.set()

    async def run(self) -> int:
        """From start to stop; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stopping.set)
        await self.start()
        _notify("READY=1")
        await self.stopping.wait()
        _notify("STOPPING=1")
        failed = any(task.done() and not task.cancelled() and task.exception() for task in self._tasks)
        await self.stop()
        return 1 if failed else 0

    async def stop(self) -> None:
        _log.info("stopping")
        await self.web.stop()
        await self.notifier.stop(self.site_us())
        await self.observer.proposals.close()
        for task in reversed(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.cutter.close()
        self.db.close()
        _log.info("stopped")

    async def _ticks(self) -> None:
        while True:
            if self.clock.tick(mono_us()):
                self.db.keep()
            for process in list(self.processes.values()):
                if process.hosted:
                    process.hosted.tick()
                    self.hear(process.hosted)
                    self.losses.look(process)
                self._advance(process)
            self.boards.tick()
            if self.ways:
                self.ways.tick()
            self.observer.tick()
            self.notifier.tick(self.site_us(), self.observer.watch.counts())
            self._look_at_disk()
            await asyncio.sleep(TICK_S)

    def _on_commit(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._pump_due:
            self._pump_due = True
            loop.call_later(PUMP_S, self._pump_all)

    _pump_due = False

    def _with_entries(self) -> list[str]:
        """Processes whose acknowledgements count: what was undeployed may still be on its way to the lake."""
        late = {end.process for end in self.ends.all.values() if end.acked < end.taken}
        return sorted(late | self.processes.keys())

    def _pump_all(self) -> None:
        self._pump_due = False
        for process in self.processes.values():
            if process.hosted:
                process.hosted.pump()

    # ---- frames

    def _take(self, topic: str, frame: bytes) -> None:
        assert self.ways is not None
        if topic.startswith(self._from_host):
            self.ways.came("g", topic[len(self._from_host) :], frame)
        elif topic.startswith(self._from_site):
            self.ways.came("s", topic[len(self._from_site) :], frame)
        elif not self.notifier.takes(topic, frame):
            _, _, names = topic.partition("/")
            to, _, sender = names.partition("/")
            if not self.ways.passes_on(to, sender, frame):
                self._strange(refused.TOPIC)

    def _take_host(self, board: str, frame: bytes, bare: bool) -> bool:
        """A frame for the process that this board has a part of. Whether it is genuine."""
        process = self.by_board.get(board)
        if process is not None and process.hosted is not None:
            return process.hosted.receive(frame, bare)
        self._strange(refused.NO_PROCESS)
        return False

    def _strange(self, reason: str) -> None:
        self.strange[reason] = self.strange.get(reason, 0) + 1

    def _drained(self) -> None:
        for process in self.processes.values():
            if process.hosted is not None:
                process.hosted.settle()

    def _topic(self, board: str, kind: str) -> str:
        key = (board, kind)
        if key not in self._to:
            self._to[key] = "%s/%s/%s" % (self.config.gateway.site, board, kind)
        return self._to[key]

    def _publish(self, board: str, frame: bytes) -> None:
        if self.ways:
            self.ways.send(board, frame)

    def _publish_site(self, board: str, frame: bytes) -> None:
        def send() -> None:
            if self.ways:
                self.ways.send(board, frame, "s")

        self.db.after_commit(send)

    def _room(self, board: str) -> int:
        return self.ways.room(board) if self.ways else 0

    # ---- processes

    def _seat(self, process: Process) -> None:
        """Run the present plan of a process here, and want it on its boards."""
        plan = plans.loads(process.plan)
        process.hosted = HostedProcess(
            self.db, self.ends, self.keys, process.plan, self.boards.numbers, self._publish, self.clock,
            self.segments.high, process.learn == plan.deployment,
            self._room if self.config.bluetooth.enabled else None,
        )  # fmt: skip
        for name in plan.hosts[1:]:
            self.by_board[name] = process
        self.losses.seat(process)
        self._want(process)

    async def deploy(self, data: bytes) -> dict[str, Any]:
        """Accept a plan, or raise UserError."""
        try:
            plan = plans.loads(data)
        except plans.PlanError as error:
            raise UserError("this is not a plan: %s" % error)
        if not plan.vertices:
            raise UserError("nothing runs in this plan: to stop a process, `hw undeploy %s`" % plan.name)
        self._acceptable(plan)
        try:
            await self.segments.look(plan.name)
        except (UserError, CutterGone) as error:
            raise UserError(
                "%s. What the lake knows of %s cannot be read, and without it a deployment could get a "
                "number that was used before: see lake.acks, then deploy again" % (error, plan.name)
            )
        self._acceptable(plan)  # another command may have deployed meanwhile
        process = self.processes.get(plan.name)
        if process is None:
            data = self.numbers.stamp(data)
            process = self.processes[plan.name] = Process(plan.name, data, self.site_us(), None, 0)
            self._save(process)
            self._seat(process)
            self.event("deploy", "process %s is deployed to %s" % (plan.name, ", ".join(plan.hosts[1:])))
            return {**named(data), "state": "deployed"}
        return self._change(process, plan, data)

    async def rollback(self, name: str, number: int | None) -> dict[str, Any]:
        """Deploy an earlier version of a process, under a new number."""
        former = self.former(name, number)
        return {**await self.deploy(former.plan), "former": former.deployment}

    def _acceptable(self, plan: Plan) -> None:
        for name in plan.hosts[1:]:
            if name not in self.boards.all:
                raise UserError("board %s is not registered: `hw provision %s` makes it" % (name, name))
        self._settled(self.processes.get(plan.name), list(plan.hosts))
        self.check_free(plan)

    def _settled(self, process: Process | None, hosts: list[str]) -> None:
        """UserError while it is not known yet what runs there."""
        why = self.learning.waits(process, hosts)
        if why:
            raise UserError(why)

    def check_free(self, plan: Plan) -> None:
        """UserError if a board or a stream belongs to another process."""
        for name in plan.hosts[1:]:
            other = self.by_board.get(name)
            if other is not None and other.name != plan.name:
                raise UserError(
                    "board %s runs process %s already, and a board runs one: put both into one process file"
                    % (name, other.name)
                )
        streams = {e.lake for e in plan.edges if e.dst == OUTSIDE}
        for end in self.ends.all.values():
            # An undeployed process frees its names: another process writes other incarnations.
            if end.lake in streams and end.process != plan.name and end.process in self.processes:
                raise UserError(LAKE_NAME_TAKEN % (end.lake, end.process))

    def adopt(self, plan: Plan, data: bytes, process: Process | None) -> None:
        """Adopt a plan that boards run, or wait to switch to, and that a lost database knew."""
        if process is None:
            process = self.processes[plan.name] = Process(
                plan.name, data, self.site_us(), None, 0, plan.deployment
            )
            self._save(process)
            self._seat(process)
            text = "process %s is known again: its boards run deployment %d"
        else:
            process.coming = data
            process.learn = plan.deployment
            self.complete(process, DRAIN)
            text = "process %s: a switch to deployment %d was under way and goes on"
        self.event("rebuild", text % (plan.name, plan.deployment))

    def _save(self, process: Process) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO processes VALUES(?, ?, ?, ?, ?, ?)",
            process.name, process.plan, process.since_us, process.coming, process.step, process.learn,
        )  # fmt: skip

    def _unplaced(self, process: Process) -> list[str]:
        return self.losses.unplaced(process)

    def _gone(self, process: Process) -> None:
        self.db.execute("DELETE FROM processes WHERE name = ?", process.name)

    def configure(self, process: str | None, operator: str, values: dict[str, Any]) -> dict[str, Any]:
        """Change parameters of a running operator."""
        name = process or self._only()
        found = self._process(name)
        self._settled(found, [])
        hosted = found.hosted
        assert hosted is not None
        try:
            vertex = hosted.operator(operator)
        except KeyError:
            known = ", ".join(v.name for v in hosted.plan.vertices if v.kind)
            raise UserError("process %s has no operator %s; it has %s" % (name, operator, known))
        if found.coming is not None:
            # It would end with the deployment that is drained: the next one begins with its plan's values.
            raise UserError(being_changed(found))
        try:
            change = parameters.translated(hosted.host, vertex, values)
            parameters.judge(hosted.host, vertex, change)
            number = hosted.configure(operator, change)
        except (ValueError, KeyError, TypeError) as error:
            text = error.args[0] if error.args else type(error).__name__
            raise UserError("operator %s (%s): %s" % (vertex.name, vertex.kind, text))
        self.event("config", "%s.%s: %s" % (name, operator, ", ".join("%s=%r" % kv for kv in values.items())))
        waits = self._waits_for(found, vertex)
        return {"process": name, "operator": operator, "number": number, "values": change, "waits": waits}

    async def move(self, process: str | None, operator: str, host: str) -> dict[str, Any]:
        """Have an operator run on another host."""
        return await operator_moves.move(self.open_to_change(process)[1], operator, host)

    def _waits_for(self, process: Process, vertex: Vertex) -> str:
        """The board for which a change of an operator waits, in a sentence; empty if none is away."""
        hosted = process.hosted
        assert hosted is not None
        for number in parameters.around(hosted.plan, hosted.host.where, vertex.index):
            if number:
                standing = self.standing(self.boards.all[hosted.plan.hosts[number]])
                if standing.word not in (progress.RUNNING, progress.IS_DRAINED):
                    return standing.text
        return ""

    def _parameters(self, process: Process, vertex: Vertex) -> dict[str, Any]:
        """Parameters of an operator: those in force, and changes that wait, each with what it waits for."""
        assert process.hosted is not None
        found = parameters.shown(process.hosted.host, vertex)
        if found["open"]:
            waits = self._waits_for(process, vertex)
            found["open"] = [{**change, "waits": waits} for change in found["open"]]
        return found

    def rename_board(self, name: str, new: str) -> dict[str, Any]:
        """A board that no process names has another name from now on."""
        number = registry.rename(self.db, name, new)
        self.boards.rename(name, new)
        self.event("board", "board %s is called %s now" % (name, new))
        return {"name": new, "number": number}

    def remove_board(self, name: str) -> dict[str, Any]:
        """A board that no process names is unknown from now on."""
        number = registry.remove(self.db, name)
        self.boards.remove(name)
        self.event("board", "board %s is removed: its key is refused" % name)
        return {"name": name, "number": number}

    # ---- watching

    def waits(self, process: Process) -> str:
        """What a rebuilt database has not learned about a process yet; empty if all is known."""
        return self.learning.waits(process, [])

    def _on_status(self, board: Board) -> None:
        self._note_time(board)
        self.learning.on_status(board)
        self.observer.on_status(board)
        self.tell({"kind": "board", "name": board.name, **self._board(board)})

    def hear(self, hosted: HostedProcess) -> None:
        """Frames of the process show too that a board is alive."""
        for name, taken in hosted.heard():
            board = self.boards.all[name]
            if taken != board.frames:
                if board.revoked:
                    self.losses.spoke(board)
                board.frames = taken
                board.seen_us = self.site_us()
                board.link_lost = False

    def link_of(self, board: Board) -> str:
        """The state of a board by its silence: up, silent, lost, gone or never seen; or declared lost."""
        if board.is_lost:
            return "declared lost"
        if not board.seen_us:
            return "never seen"
        # What was sent while this gateway was not running is unknown.
        up_s = time.monotonic() - self.started
        silent_s = min((self.site_us() - board.seen_us) / 1e6, up_s)
        if silent_s >= self.config.boards.gone_s:
            return "gone"
        if silent_s >= self.config.boards.silent_s:
            return "lost"
        return "silent" if board.link_lost else "up"

    def standing(self, board: Board) -> progress.Standing:
        """The state of a board with respect to its wanted deployment."""
        silent_s = max(0, self.site_us() - board.seen_us) / 1e6
        return progress.of_board(board, self.link_of(board), silent_s)

    def _look_at_disk(self) -> None:
        free = shutil.disk_usage(self.db.path.parent).free
        self.db.short = free < self.config.store.min_free_bytes

    # ---- for the page

    def event(self, kind: str, text: str) -> None:
        self.tell({"kind": "event", "event": self.observer.journal.event(kind, text, self.site_us())})

    def tell(self, news: dict[str, Any]) -> None:
        for listener in list(self.listeners):
            listener(news)

    def watch(self, streams: set[str], listener: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        """Give a listener the elements of these streams as they become durable; the result ends that."""
        if not streams:
            return lambda: None
        told = {end.id: end.durable for end in self.ends.all.values()}

        def look() -> None:
            for end in self.ends.all.values():
                if end.lake in streams and end.durable > told.get(end.id, 0):
                    told[end.id] = end.durable
                    points = decoded(end, end.last_block) if end.last_block else []
                    if points:
                        listener({"kind": "stream", "stream": end.lake, "points": points})

        self.db.on_commit.append(look)
        return lambda: self.db.on_commit.remove(look)

    def snapshot(self) -> dict[str, Any]:
        """The whole state, for the status page and for machines."""
        assert self.link is not None
        processes = {name: self._state(p) for name, p in self.processes.items()}
        return {
            "now_us": self.site_us(),
            "up_s": round(time.monotonic() - self.started, 1),
            "clock": self.clock.view(mono_us()),
            "broker": {"up": self.link.up, "problem": self.link.problem, "connects": self.link.connects},
            "bluetooth": self.ways.view() if self.ways else None,
            "database": {
                "bytes": self.db.size_bytes,
                "max_bytes": self.config.store.max_bytes,
                "full": self.db.full,
                "commits": self.db.commits,
                "commit_ms": round(1000 * self.db.commit_s, 2),
            },
            "segments": {
                "cut": self.segments.cut_count,
                "bytes": self.segments.cut_bytes,
                "cut_again": self.segments.recut,
                "vanished": self.segments.vanished,
                "problem": self.segments.problem,
            },
            "boards": {name: self._board(board) for name, board in self.boards.all.items()},
            "processes": processes,
            "waiting": operators.waiting(processes),
            "moves": self.observer.moves.view(MOVES_SHOWN),
            "undeployed": {
                name: progress.earlier(entries)
                for name, entries in self.history.of.items()
                if name not in self.processes
            },
            "streams": self._streams(),
            "sink": self._sink(),
            **self.alarms(),
            "limits": dict(vars(self.observer.limits)),
            "dropped": self.dropped(),
        }

    def alarms(self) -> dict[str, Any]:
        """The headline, the alarms that are on, what is muted, receivers of notices, the latest events."""
        watch = self.observer.watch
        return {
            "headline": headline(watch),
            "alarms": watch.shown(),
            "mutes": dict(watch.mutes),
            "receivers": self.notifier.view(self.site_us()),
            "events": list(self.observer.journal.events)[-EVENTS_SHOWN:],
        }

    def dropped(self) -> dict[str, int]:
        """Frames that were refused, by reason."""
        hosted = [p.hosted.dropped() for p in self.processes.values() if p.hosted]
        return refused.summed([self.strange, self.boards.dropped, *hosted])

    def _board(self, board: Board) -> dict[str, Any]:
        process = self.by_board.get(board.name)
        status = {k: v.hex() if isinstance(v, bytes) else v for k, v in board.status.items()}
        return {
            "number": board.number,
            "link": self.link_of(board),
            "via": self.ways.via(board.name) if self.ways and board.heard else None,
            "seen_us": board.seen_us,
            "process": process.name if process else None,
            "plan": None if board.wanted is None or board.state is None else _STATES[board.state],
            "why": board.why,
            "learning": board.learn,
            "leaving": plans.loads(board.leaving.content).name if board.leaving else None,
            "unsafe": board.unsafe,
            "energy": operators.energy(board.status),
            "status": status,
        }

    def _state(self, process: Process) -> dict[str, Any]:
        hosted = process.hosted
        assert hosted is not None
        plan, host = hosted.plan, hosted.host
        coming = plans.loads(process.coming).hash.hex() if process.coming else None
        standings = {board.name: self.standing(board) for board in self._of(process.name)}
        step, waits = progress.of_process(process, standings)
        safe = self.observer.safe(process)
        return {
            "hash": plan.hash.hex(),
            "version": plan.process_hash.hex(),
            "deployment": plan.deployment,
            "learning": self.learning.waits(process, []),
            "since_us": process.since_us,
            "coming": coming,
            "step": step,
            "waits": waits,
            "lost": self.losses.shown(process),
            "boards": {name: standing.word for name, standing in standings.items()},
            "earlier": progress.earlier(self.earlier(process.name)),
            "strategy": STRATEGIES[plan.strategy],
            "level": LEVELS[plan.level],
            "hosts": list(plan.hosts),
            "alarms": stranded.shown(self, process),
            "late": stranded.late(plan),
            "proposal": self.observer.proposals.shown(process),
            "vertices": [
                {
                    "name": v.name,
                    "kind": v.kind or "source",
                    "host": host_of(process, v.index),
                    "epoch": host.where[v.index][0] if v.kind else 0,
                    "backups": [plan.hosts[h] for h in v.hosts[1:]],
                    "checkpoint": operators.covered(host, v.index, safe) if v.kind else None,
                    **(operators.shown(self, process, v) if v.kind else SOURCE),
                    **(self._parameters(process, v) if v.kind else NO_PARAMETERS),
                }
                for v in plan.vertices
            ],
            "edges": [
                {
                    "from": e.src,
                    "port": e.sport,
                    "to": e.dst if e.dst != OUTSIDE else None,
                    "lake": e.lake or None,
                    "durable": DURABLE[e.durable] if e.lake else None,
                    "alphabet": plan.vertices[e.src].outs[e.sport].text,
                }
                for e in plan.edges
            ],
        }

    def _streams(self) -> list[dict[str, Any]]:
        """Of every stream its newest incarnations, and what else still waits for the lake."""
        facts = {fact.stream: fact for fact in self.observer.streams()}
        by_stream: dict[str, list[OutboxStream]] = {}
        for end in self.ends.all.values():
            by_stream.setdefault(end.lake, []).append(end)
        rows = []
        for name, fact in facts.items():
            ends = by_stream.get(name, [])
            if not ends:
                rows.append(_empty(fact))
            old, new = ends[:-INCARNATIONS_SHOWN], ends[-INCARNATIONS_SHOWN:]
            waiting = [end for end in old if end.durable > end.acked][-INCARNATIONS_SHOWN:]
            rows += [self._stream(end, fact, end is ends[-1]) for end in waiting + new]
        return rows

    def _stream(self, end: OutboxStream, fact: StreamFacts, newest: bool) -> dict[str, Any]:
        ts, values = last_of(end)
        arrived = self.observer.lags.arrived_us(end)
        return {
            "process": end.process,
            "stream": end.lake,
            "incarnation": "%016x" % end.incarnation,
            "alphabet": end.alphabet,
            "within_ms": end.within_ms,
            "durable": end.durable,
            "cut": end.cut,
            "acked": end.acked,
            "backlog": end.durable - end.acked,
            "lag_s": None if arrived is None else max(0.0, round((self.site_us() - arrived) / 1e6, 1)),
            "on_board": fact.on_board if newest else 0,
            "on_board_s": _tenths(fact.on_board_s) if newest else None,
            "last_ts_us": ts,
            "last": values,
            "ended": self.losses.given_up.ended(end),
        }

    def _sink(self) -> dict[str, Any]:
        """What is known about the sink."""
        sink = self.observer.sink()
        acked = [fact.acked_s for fact in self.observer.streams() if fact.acked_s is not None]
        return {
            "seen_s": _tenths(sink.silent_s),
            "stopped": sink.stopped,
            "elsewhere": sink.elsewhere or None,
            "acked_s": _tenths(min(acked, default=None)),
        }


def _empty(fact: StreamFacts) -> dict[str, Any]:
    """A stream of which nothing has arrived yet."""
    return {
        "process": fact.process, "stream": fact.stream, "incarnation": None, "alphabet": None,
        "ended": None, "within_ms": None, "durable": 0, "cut": 0, "acked": 0, "backlog": 0, "lag_s": None,
        "on_board": fact.on_board, "on_board_s": _tenths(fact.on_board_s), "last_ts_us": None, "last": None,
    }  # fmt: skip


def _tenths(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


_STATES = {
    WANTED: "sending",
    STORED: "stored",
    RUNS: "runs",
    DRAINING: "drains",
    DRAINED: "drained",
    REFUSED: "refused",
}


def last_of(end: OutboxStream) -> tuple[int | None, dict[str, Any] | None]:
    """Time and payload of the newest element that arrived since this start."""
    rows = decoded(end, end.last_block) if end.last_block else []
    return (rows[-1][0], rows[-1][1]) if rows else (None, None)


def decoded(end: OutboxStream, data: bytes) -> list[tuple[int, dict[str, Any]]]:
    """The elements of a block, for plots: time and fields. A hole, or what cannot be read, has none."""
    from headwater.data.alphabet import Alphabet

    alphabet = Alphabet(end.alphabet)
    try:
        _, n = block.peek(data)
        batch = Batch(alphabet, min(n, BATCH_MAX))
        block.decode(data, 0, len(data), batch)
    except block.BlockError:
        return []
    if batch.hole:
        return []
    return [(batch.ts_of(i), dict(zip(alphabet.names, batch.row(i), strict=True))) for i in range(batch.n)]


def _place(config: Config, where: str) -> str:
    return where if "://" in where else str(config.path(where))


def _notify(state: str) -> None:
    """Notify systemd, if it started us."""
    import socket

    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
