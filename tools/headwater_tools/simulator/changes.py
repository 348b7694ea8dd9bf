"""Histories in which the process changes: versions follow each other, earlier ones among them, under faults.

The parts of a change are real, on both sides: the deployment in a board's flash
(headwater.board.deployment), the program of a board as far as it talks to the gateway
(headwater.board.program), and the gateway's boards, numbers and steps of a change (headwater_gateway).
Simulated are the links, the gateway's database (SQLite in memory), and a person who deploys, rolls back and
undeploys at random, and sometimes cancels.

A process may also be undeployed, and deployed again or rolled back. Then its sources begin new incarnations.

Each deployment is a scenario with a world of its own, over the same machines. While boards switch, some run
in the world of the former version and some in that of the next. When the gateway puts a version into force,
everything that was accepted under the previous one must have had its effect in the lake: at that moment the
former world is judged.
"""

from __future__ import annotations

import heapq
import itertools
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from headwater.board import deployment
from headwater.board.program import Node as Program
from headwater.plan import model as plans
from headwater.plan.model import Plan, Vertex
from headwater.protocol.frames import Writer
from headwater.protocol.sessions import Peer
from headwater.protocol.site_link import REFUSED
from headwater.runtime.host import Host
from headwater.storage import reserve
from headwater.storage.keyspace import F_BOOT, F_FLOOR
from headwater.storage.log import Log
from headwater.testing.cut_flash import CutFlash, PowerCut
from headwater_gateway import UserError
from headwater_gateway.boards import FRAME_MAX, Boards
from headwater_gateway.deployments.history import History
from headwater_gateway.deployments.numbers import Numbers
from headwater_gateway.deployments.switching import Process, Switching, named
from headwater_gateway.hosted import HostedProcess
from headwater_gateway.keys import Keys

from .checkers import at_the_end
from .disasters import BATTERIES
from .outbox import Stream
from .recorder import Recorder
from .scenario import CALM_US, MOST, Result, Scenario
from .storm import Storm
from .world import MASTER, SECOND, SITE_US, TICK_US, Hardware, Node, Wall, World, received

SECTOR_BYTES = 4096
STATUS_S = 5
RESTART_US = SECOND // 5

TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER);
CREATE TABLE boards(
    number INTEGER, name TEXT PRIMARY KEY, seen INTEGER, log INTEGER, status BLOB, learn INTEGER, ran BLOB
);
CREATE TABLE leaving(board INTEGER PRIMARY KEY, plan BLOB);
CREATE TABLE logs(board INTEGER PRIMARY KEY, log INTEGER);
CREATE TABLE lost(board INTEGER, log INTEGER, at INTEGER);
CREATE TABLE revoked(number INTEGER PRIMARY KEY);
CREATE TABLE history(process TEXT, deployment INTEGER, plan BLOB, since INTEGER, until INTEGER);
"""
# Other histories draw these: a board that is lost permanently delays a change forever.
LOSSES = (
    "source board lost",
    "board declared lost",
    "flash of a source board erased",
    "flash of an operator's host erased",
    "gateway database lost",
    BATTERIES,
)


class Records:
    """The part of the gateway's database that deployments use."""

    def __init__(self) -> None:
        self.sql = sqlite3.connect(":memory:", isolation_level=None)
        self.sql.executescript(TABLES)
        self.processes: dict[str, tuple[Any, ...]] = {}

    def query(self, text: str, *values: Any) -> list[Any]:
        return self.sql.execute(text, values).fetchall()

    def execute(self, text: str, *values: Any) -> None:
        self.sql.execute(text, values)

    def drop_space(self, process: str, version: bytes) -> None:
        """What the host of a former version stored: its flash is not used again."""


class Gateway(Switching):
    """The gateway's service in one of its boots, as far as deployments go."""

    def __init__(self, changes: Changes) -> None:
        self.changes = changes
        self.db = changes.database
        self.records = changes.records
        self.keys = changes.keys
        self.by_board: dict[str, Process] = {}
        self.boards = Boards(
            changes.database, self.keys, changes.to_board, 1, changes.gateway.boots, self.site_us,
            lambda: changes.now / SECOND, changes.nonce,
        )  # fmt: skip
        self.numbers = Numbers(changes.database, lambda incarnation: False)
        self.history = History(changes.database)
        self.processes = {name: Process(*row) for name, row in self.records.processes.items()}
        for process in self.processes.values():
            self._seat(process)

    def site_us(self) -> int:
        return SITE_US + self.changes.now

    def event(self, kind: str, text: str) -> None:
        self.changes.note(text)

    def _settled(self, process: Process | None, hosts: list[str]) -> None:
        pass

    def _save(self, process: Process) -> None:
        row = process.name, process.plan, process.since_us, process.coming, process.step
        self.records.processes[process.name] = row

    def _seat(self, process: Process) -> None:
        version = self.changes.counts_now(plans.loads(process.plan))
        node = version.nodes[0]
        World.boot(version, node)
        if node.host is None:
            raise PowerCut("in the start of %s" % process.name)
        process.hosted = Place(version, node.host)  # type: ignore[assignment]
        for name in version.plan.hosts[1:]:
            self.by_board[name] = process
        self._want(process)

    def _switch(self, process: Process) -> None:
        self.changes.drained()
        super()._switch(process)

    def _gone(self, process: Process) -> None:
        del self.records.processes[process.name]
        self.changes.undeployed()

    def rollback(self, name: str) -> dict[str, Any]:
        """As `Service.rollback`."""
        return self.deploy(self.former(name).plan)

    def deploy(self, data: bytes) -> dict[str, Any]:
        """As `Service.deploy`."""
        plan = plans.loads(data)
        process = self.processes.get(plan.name)
        if process is not None:
            return self._change(process, plan, data)
        data = self.numbers.stamp(data)
        process = self.processes[plan.name] = Process(plan.name, data, self.site_us(), None, 0)
        self._save(process)
        self._seat(process)
        return {**named(data), "state": "deployed"}

    def tick(self) -> None:
        for process in list(self.processes.values()):
            self._advance(process)
        self.boards.tick()

    @property
    def changing(self) -> bool:
        leaving = any(board.leaving for board in self.boards.all.values())
        return leaving or not self.processes or any(process.step for process in self.processes.values())


class Place:
    """A process at the gateway: what `Switching` needs of a hosted process."""

    made = HostedProcess.made
    press = HostedProcess.press
    unsafe = HostedProcess.unsafe

    def __init__(self, version: Version, host: Host) -> None:
        self.plan = version.plan
        self.host = host
        self.outbox = version.outbox


class Board(Program):
    """The program of a board in one of its boots, without sensors and clock."""

    def __init__(self, changes: Changes, machine: Machine, store: Log) -> None:
        sensors: dict[str, Any] = {name: {} for name in changes.sources}
        super().__init__({"name": machine.name, "sensors": sensors, "sleep_s": 0}, SimpleNamespace(
            battery_mv=lambda: None, rssi=lambda: None
        ))  # fmt: skip
        self.changes = changes
        self.machine = machine
        self.store = store
        self.key = changes.keys.board(machine.number)
        client: Any = SimpleNamespace(send=partial(changes.from_board, machine), strange=0)
        self.client = client
        self.pressed_us = self.status_us = 0

    def mono(self) -> int:
        node = self.machine.node
        return node.mono() if node else self.changes.now

    def begin(self, host: Any) -> None:  # type: ignore[override]
        """As the original, after the deployment was read and the host, or None, started."""
        self.host = host
        self.deployed = self.machine.deployed
        self.next, draining = deployment.waiting(self.store)
        if host is not None:
            self.boot = host.boot_number
            self.writer = host.exchange.writer
        else:
            self.boot = int.from_bytes(self.store.get(F_BOOT) or b"", "little") + 1
            self.store.put(F_BOOT, self.boot.to_bytes(4, "little"))
            self.writer = Writer(FRAME_MAX)
        key = self.changes.keys.site(self.machine.number)
        nonce = self.changes.nonce
        self.peer = Peer(key, 1, self.store.log_number, self.boot, 0, bytes(8), nonce)
        if draining:
            self.drain(True)

    def turn(self) -> None:
        """What a board does beside its host."""
        now = self.changes.now
        if now >= self.status_us:
            self.status_us = now + STATUS_S * SECOND
            self._status(now // SECOND)
        if self.draining and now >= self.pressed_us:
            self.pressed_us = now + SECOND
            self._press()


class Machine:
    """A board, or the gateway's machine, with any version."""

    def __init__(self, name: str, number: int, drift_ppm: float) -> None:
        self.name = name
        self.number = number  # in the gateway's registry
        self.drift_ppm = drift_ppm
        self.flash: CutFlash
        self.boots = 0
        self.up = False
        self.node: Node | None = None  # while a host runs
        self.deployed: bytes | None = None
        self.keys: dict[int, bytes] = {}
        self.program: Board | None = None


class Version(World):
    """The world of one deployment, over the machines of all."""

    act: Act

    def __init__(self, changes: Changes, plan: Plan, before: Version | None) -> None:
        self.changes = changes
        now = changes.now
        super().__init__(plan, changes.seed, hardware=changes.hardware)
        self.now = now
        self.random = changes.random
        self.events = changes.events
        self.serial = changes.serial
        self.trace = changes.trace
        self.drawn = changes.drawn
        self.errors = changes.errors
        self.wall = changes.wall
        self.promised = changes.promised
        if before:
            self.loss, self.duplication = before.loss, before.duplication
            self.delay_us = before.delay_us
        self.found: dict[str, int] = {}
        self.start_sensors()

    def go_on(self, before: Version) -> None:
        """It is in force from now on. Sources that the former version has too keep their numbering, and so
        does the lake. A board that has never run another version may have run this one before."""
        for v in self.plan.vertices:
            for old in () if self.changes.stopped else before.plan.vertices:
                if self.place(v) == before.place(old) and not v.kind and not self.order.get(v.index):
                    self.order[v.index] = incs = before.order.get(old.index, [])
                    for inc in incs:
                        line = self.accepted[v.index, inc] = before.accepted[old.index, inc]
                        self.begun[v.index, inc] = len(line)
        known = self.changes.streams
        for edge, inc in before.outbox.streams:
            e = before.plan.edges[edge]
            if not before.plan.vertices[e.src].kind:
                known[e.lake, inc] = before.outbox.streams[edge, inc]
        for e in self.lake_edges():
            for (lake, inc), stream in known.items():
                if lake == e.lake and not self.plan.vertices[e.src].kind:
                    self.outbox.streams[e.index, inc] = stream
                    self.outbox.last[e.index] = inc
        streams = self.outbox.streams.values()
        self.found = {  # what an earlier version has counted
            "accepted": sum(self.begun.values()),
            "delivered": sum(len(s.rows) for s in streams),
            "gaps_declared": sum(len(s.gaps) for s in streams),
        }

    @property
    def now(self) -> int:
        return self.changes.now

    @now.setter
    def now(self, value: int) -> None:
        self.changes.now = value

    def place(self, v: Vertex) -> tuple[str, str, str, str]:
        return v.name, v.kind, v.outs[0].text, self.name(v.hosts[0])

    def made(self, number: int, sector_size: int, seed: int) -> Node:
        machine = self.changes.machines[self.name(number)]
        if not number:  # the gateway's database has a space for each version
            machine.flash = CutFlash(48 + reserve.sectors(self.plan, 0), 4 * sector_size, seed)
            Log.format(machine.flash, self.changes.nonce())
        node = Node(self, number, machine.flash)
        node.drift_ppm = machine.drift_ppm
        return node

    def keys(self, node: Node) -> dict[int, bytes]:
        if node.number:
            return self.changes.machines[self.name(node.number)].keys
        machines = self.changes.machines
        return {
            i: self.changes.keys.board(machines[name].number) for i, name in enumerate(self.plan.hosts) if i
        }

    def boot(self, node: Node) -> None:
        self.changes.boot(self.changes.machines[self.name(node.number)])

    def started(self, node: Node) -> Host:
        host = super().started(node)
        machine = self.changes.machines[self.name(node.number)]
        machine.node = node
        if node.number:
            self.changes.begins(machine, host.store, host)
        return host

    def checked(self, node: Node) -> None:
        """No board needs what is drained any more: some have deleted it already."""
        if not self.drained:
            super().checked(node)

    def crash(self, node: Node) -> None:
        machine = self.changes.machines[self.name(node.number)]
        if machine.node in (node, None):  # else it runs another version by now
            super().crash(node)
            self.changes.down(machine)

    def is_up(self, node: Node) -> bool:
        return self.changes.machines[self.name(node.number)].up

    def awake(self, node: Node) -> bool:
        program = self.changes.machines[self.name(node.number)].program
        return super().awake(node) and program is not None and not program.draining

    def deliver(self, sender: int, to: int, frame: bytes) -> None:
        node = self.changes.machines[self.name(to)].node
        if node and (sender, to) not in self.cut:
            node.world.call(node, lambda host: received(host, frame, node.mono()), "receive")


class Weather(Storm):
    """The faults of a version's time."""

    def special(self) -> dict[str, Callable[[], None]]:
        return {kind: fault for kind, fault in super().special().items() if kind not in LOSSES}


class Act(Scenario):
    """The time of one version."""

    def __init__(self, version: Version, changes: Changes) -> None:
        seconds = changes.storm_us // SECOND
        super().__init__(version.plan, changes.seed, seconds, True, changes.hardware, version)
        self.version = version
        self.changes = changes
        self.kills_max = 0

    def activate(self, v: int, away: int, to: int = -1) -> None:
        """Operators stay where they are during a change."""
        if not self.changes.changing:
            super().activate(v, away, to)

    def clash(self, v: int) -> None:
        if not self.changes.changing:
            super().clash(v)

    def can_lose(self, node: Node) -> bool:
        return False


class Changes:
    """A history. `versions` are processes of one name, with the same boards and sources, to choose from."""

    def __init__(self, versions: list[bytes], seed: int, seconds: int, faults: bool = True) -> None:
        self.versions = versions
        self.faults = faults
        self.seed = seed
        self.now = 0
        self.random = random.Random(seed)
        self.whims = random.Random(seed + 1)  # of the person
        self.storm_us = seconds * SECOND
        self.calm = False
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = itertools.count()
        self.trace: list[str] = []
        self.drawn: Counter[str] = Counter()
        self.errors: list[str] = []
        self.wall = Wall()
        self.promised: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.hardware = Hardware(mtu=self.random.choice((512, 1400)), pace=Host.PACE)
        self.keys = Keys(MASTER)
        self.records = Records()
        self.database: Any = self.records
        self.known: dict[bytes, Version] = {}  # by the hash of its plan
        self.were: set[bytes] = set()  # versions that have counted
        self.streams: dict[tuple[str, int], Stream] = {}  # what the gateway has of sources, of all versions
        self.act: Act | None = None
        self.recording = False
        self.recorder: Recorder | None = None
        self.stopped = False  # the process was undeployed
        self.service: Gateway | None = None
        loaded = [plans.loads(version) for version in versions]
        self.hashes = [plan.process_hash for plan in loaded]
        self.doubts = self.random.choice((0.0, 0.3))  # how often the person cancels a change
        self.name = loaded[0].name
        self.sources = sorted({v.name for plan in loaded for v in plan.vertices if not v.kind})
        self.machines: dict[str, Machine] = {}
        for name in sorted(loaded[0].hosts):
            self.machines[name] = self.machine(name, loaded)
        self.gateway = self.machines[loaded[0].hosts[0]]
        self.gateway.number = 0
        sql = "INSERT INTO boards VALUES(?, ?, 0, NULL, NULL, 0, NULL)"
        for board in self.boards():
            self.records.execute(sql, board.number, board.name)

    def machine(self, name: str, loaded: list[Plan]) -> Machine:
        number = 11 + self.random.randrange(3) + 7 * len(self.machines)
        machine = Machine(name, number, self.random.uniform(-60, 60))
        sectors = max(reserve.sectors(plan, plan.hosts.index(name)) for plan in loaded)
        machine.flash = CutFlash(sectors + 20 + self.random.randrange(16), SECTOR_BYTES, self.nonce())
        Log.format(machine.flash, self.nonce())
        log = Log(machine.flash)
        log.mount()
        log.put(F_FLOOR, (SITE_US - 20 * SECOND).to_bytes(8, "little"))
        return machine

    def boards(self) -> list[Machine]:
        return [machine for machine in self.machines.values() if machine is not self.gateway]

    # ---- a history

    def record(self) -> None:
        """Keep what a timeline shows."""
        self.recording = True

    def run(self) -> Result:
        for machine in self.machines.values():
            self.after(self.random.randrange(SECOND // 2), partial(self.boot, machine))
        self.after(SECOND // 2, self.begin)
        self.after(TICK_US, self.tick)
        self.after(self.random.randrange(2 * SECOND, 6 * SECOND), self.person)
        self.until(SECOND)
        self.until(self.storm_us)
        self.peace()
        end = self.now + CALM_US
        while self.now < end and not self.errors and not self.settled():
            if self.service and not self.service.processes:
                self.deploy(self.service)
            self.until(self.now + SECOND)
        self.all_run()
        assert self.act is not None
        self.act.storm_us = self.now
        result = self.act.finish()
        self.add(self.act.world, result.counts)
        result.counts = {**result.counts, **self.counts} if result.counts else {}
        for version in self.known.values():
            if version is not self.act.version:
                for name, count in version.act.stats().items():
                    both = (result.stats[name], count)
                    result.stats[name] = max(both) if name in MOST else sum(both)
        result.stats["boots"] = sum(machine.boots for machine in self.machines.values())
        return result

    def begin(self) -> None:
        """The first deployment."""
        assert self.service is not None
        self.service.deploy(self.versions[0])

    def peace(self) -> None:
        self.calm = True
        for version in self.known.values():
            version.loss = version.duplication = 0.0
            version.delay_us = (1_000, 10_000)
            version.cut.clear()
        if self.act:
            self.act.peace()

    def settled(self) -> bool:
        """No change is under way, and every board runs what counts."""
        service = self.service
        if service is None or service.changing or self.act is None:
            return False
        return all(m.node is not None and m.node.world is self.act.world for m in self.machines.values())

    def all_run(self) -> None:
        if self.errors or self.settled():
            return
        self.errors.append("a change does not come to an end")
        for board in self.boards():
            if board.program and self.service:
                known = self.service.boards.all[board.name]
                what = "drains, %d not safe" % board.program.unsafe() if board.program.draining else "runs"
                self.errors.append("  %s %s; the gateway knows %r" % (board.name, what, known.state))

    # ---- who deploys

    def person(self) -> None:
        if self.calm:
            return
        if self.service and self.act:
            if self.stopped or not self.service.changing:
                self.change(self.service)
            elif self.random.random() < self.doubts or self.refused():
                self.cancel(self.service)
        self.after(SECOND + int(self.random.expovariate(1.0) * 3 * SECOND), self.person)

    def change(self, service: Gateway) -> None:
        chance = self.whims.random()
        if chance < 0.2 and not self.stopped:
            service.undeploy(self.name)
            self.note("the process is undeployed")
        elif chance < 0.4 and self.name in service.history.of:
            self.roll_back(service)
        else:
            self.deploy(service)

    def roll_back(self, service: Gateway) -> None:
        try:
            answer = service.rollback(self.name)
        except UserError as trouble:
            self.note("not rolled back: %s" % trouble)
        else:
            self.draw("process rolled back")
            self.note("deployment %d goes back: %s" % (answer["deployment"], answer["state"]))

    def deploy(self, service: Gateway) -> None:
        number = self.chosen()
        try:
            answer = service.deploy(self.versions[number])
        except UserError as trouble:
            self.note("version %d is not deployed: %s" % (number, trouble))
            return
        self.note(
            "version %d is deployed: deployment %d, %s" % (number, answer["deployment"], answer["state"])
        )

    def chosen(self) -> int:
        """Any version; often one that has counted before, where there is one besides the one that counts."""
        assert self.act is not None
        now = self.act.version.plan.process_hash
        former = [i for i, made in enumerate(self.hashes) if made in self.were and made != now]
        if former and self.random.random() < 0.8:
            return self.random.choice(former)
        return self.random.randrange(len(self.versions))

    def cancel(self, service: Gateway) -> None:
        try:
            service.cancel(self.name)
        except UserError as trouble:
            self.note("not cancelled: %s" % trouble)
        else:
            self.draw("change of the process cancelled")

    def refused(self) -> bool:
        service = self.service
        return service is not None and any(board.state == REFUSED for board in service.boards.all.values())

    # ---- versions

    def counts_now(self, plan: Plan) -> Version:
        """The version in force at the gateway from now on, or again after a restart."""
        version = self.version(plan)
        if self.act and self.act.version is version:
            return version
        if version.drained:
            self.errors.append("deployment %d has counted before: the lake has its streams" % plan.deployment)
        if self.act:
            before = self.act.version
            World.crash(before, before.nodes[0])
            self.gateway.node = None
            version.go_on(before)
            self.draw("process deployed after it was undeployed" if self.stopped else "process changed")
            self.stopped = False
            if plan.process_hash in self.were:
                self.draw("process changed back")
        self.were.add(plan.process_hash)
        self.act = version.act
        if self.recorder:
            self.recorder.follow(version)
        elif self.recording:
            self.recorder = Recorder(version)
        if self.recorder:
            self.recorder.switched("deployment %d" % plan.deployment)
        if self.faults and not self.calm:
            Weather(self.act).start()
        return version

    def version(self, plan: Plan) -> Version:
        if plan.hash not in self.known:
            version = self.known[plan.hash] = Version(self, plan, self.act.version if self.act else None)
            version.act = Act(version, self)
        return self.known[plan.hash]

    def drained(self) -> None:
        """The gateway reports that all of the former version is safe."""
        assert self.act is not None
        world = self.act.version
        world.drained = True
        world.sampling = False
        self.add(world, at_the_end(world, self.act.place, True))

    def undeployed(self) -> None:
        """The gateway has no process any more."""
        assert self.act is not None
        self.stopped = True
        World.crash(self.act.version, self.act.version.nodes[0])
        self.gateway.node = None
        self.draw("process undeployed")

    def add(self, world: World, counts: dict[str, int]) -> None:
        """Add the counts of a version to those of the history."""
        self.counts.update(counts)
        if isinstance(world, Version):
            self.counts.subtract(world.found)

    @property
    def changing(self) -> bool:
        return self.service is None or self.stopped or self.service.changing

    # ---- machines

    def boot(self, machine: Machine) -> None:
        if machine.up:
            return
        machine.up = True
        machine.boots += 1
        try:
            if machine is self.gateway:
                self.service = Gateway(self)
            else:
                self.load(machine)
        except PowerCut:
            self.cut_off(machine)

    def load(self, machine: Machine) -> None:
        """As the program of a board begins."""
        machine.flash.revive()
        log = Log(machine.flash)
        log.mount()
        found = deployment.load(log, self.keys.board(machine.number), machine.name, self.nonce)
        machine.deployed = found[0] if found else None
        if found is None or not found[1].vertices:
            self.begins(machine, log, None)
            return
        _, plan, me, machine.keys = found
        version = self.version(plan)
        World.boot(version, version.nodes[me])

    def begins(self, machine: Machine, store: Log, host: Host | None) -> None:
        machine.program = Board(self, machine, store)
        machine.program.begin(host)

    def cut_off(self, machine: Machine) -> None:
        """Power went while no host of a version ran."""
        if machine.up:
            self.note("%s loses power in a flash operation" % machine.name)
            self.down(machine)
            self.after(self.random.randrange(SECOND // 10, 3 * SECOND), partial(self.boot, machine))

    def down(self, machine: Machine) -> None:
        machine.up = False
        machine.node = None
        machine.program = None
        if machine is self.gateway:
            self.service = None

    def tick(self) -> None:
        if self.service:
            try:
                self.service.tick()
            except PowerCut:
                self.cut_off(self.gateway)
        for board in self.boards():
            if board.program:
                self.guard(board, board.program.turn)
        self.after(TICK_US, self.tick)

    def guard(self, machine: Machine, action: Callable[[], object]) -> None:
        """Let the program of a board do something beside its host."""
        node = machine.node
        if node:
            node.world.call(node, lambda host: action(), "the program")
        else:
            try:
                action()
            except PowerCut:
                self.cut_off(machine)
        if machine.program and machine.program.again:
            if machine.node:
                machine.node.world.crash(machine.node)
            else:
                self.down(machine)
            self.after(RESTART_US, partial(self.boot, machine))

    # ---- the site link

    def from_board(self, machine: Machine, kind: str, frame: bytes) -> None:
        frame = bytes(frame)

        def arrives() -> None:
            if self.service:
                self.service.boards.receive(machine.name, frame)

        self.send(machine, True, arrives)

    def to_board(self, name: str, frame: bytes) -> None:
        machine = self.machines[name]

        def arrives() -> None:
            program = machine.program
            if program:
                self.guard(machine, lambda: program._site(frame))

        self.send(machine, False, arrives)

    def send(self, machine: Machine, up: bool, arrives: Callable[[], Any]) -> None:
        if self.act is None:
            return
        world = machine.node.world if machine.node else self.act.version
        number = world.plan.hosts.index(machine.name)
        way = (number, 0) if up else (0, number)

        def arrive() -> None:
            if way not in world.cut:
                arrives()

        for _ in range(1 + (self.random.random() < world.duplication)):
            if self.random.random() >= world.loss:
                self.after(self.random.randint(*world.delay_us), arrive)

    # ---- events

    def until(self, when: int) -> None:
        if self.act:
            self.act.world.run(when)
            return
        while self.act is None and self.events:
            self.now, _, action = heapq.heappop(self.events)
            action()

    def after(self, delay: int, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + delay, next(self.serial), action))

    def note(self, text: str) -> None:
        self.trace.append("%9.3f s  %s" % (self.now / SECOND, text))

    def draw(self, kind: str) -> None:
        self.drawn[kind] += 1
        if self.recorder:
            self.recorder.mark(kind, kind)
        self.note(kind)

    def nonce(self) -> int:
        return self.random.getrandbits(64)
