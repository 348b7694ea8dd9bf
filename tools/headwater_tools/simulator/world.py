"""The simulated world: hosts with flash, clocks and sensors, links between them, and one heap of events.

One seed decides everything that happens. The hosts are the real ones (headwater.runtime.host) on the
real log (headwater.storage.log) over CutFlash; only time, links and sensors are simulated.
"""

from __future__ import annotations

import heapq
import itertools
import random
import traceback
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.data import block
from headwater.data.batch import Batch
from headwater.offboard.interfaces import Readable
from headwater.offboard.reasons import because
from headwater.plan.model import OUTSIDE, UNSAFE, Plan, Vertex
from headwater.protocol.clock import Clock
from headwater.protocol.position import further, newer
from headwater.protocol.sessions import pair_key
from headwater.runtime.gateway_host import GatewayHost
from headwater.runtime.host import Host
from headwater.storage import checkpoint_file, reading, reserve
from headwater.storage.keyspace import (
    F_FLOOR,
    F_INC,
    HELD,
    LEFT,
    PERMANENT,
    checkpoint_key,
    checkpoint_of,
    stream_key,
    stream_of,
)
from headwater.storage.log import Log
from headwater.testing.cut_flash import CutFlash, PowerCut
from headwater_gateway.site_clock import Reading, SiteClock

from .batteries import Battery, known_to
from .decided import Decided, WatchedInstances
from .outbox import Outbox
from .replay_counter import Taken, WatchedInputs

if TYPE_CHECKING:
    from .air import Air
    from .recorder import Recorder

SECOND = 1_000_000
TICK_US = SECOND // 4
SITE_US = 1_700_000_000 * SECOND  # the site's time when the simulation starts
MASTER = b"\x5a" * 32

# Why an operator moved without a plan.
TAKEN_OVER = "taken over"
TAKEN_BLIND = "taken over, no producer answered"
MISTAKEN = "started elsewhere by mistake"
STANDS_STILL = "source in a loop whose clock stands still"  # it takes no samples

Place = tuple[tuple[int, int], list[int]]  # epoch that keeps a checkpoint, and its position
Entry = tuple[Any, ...]  # ts, unsync, then the payload; of a hole (ts, unsync, "hole", reason, back)


def entry(batch: Batch, i: int) -> Entry:
    """Entry i of a batch as something that can be compared."""
    if batch.hole:
        return (batch.ts, batch.unsync, "hole", batch.hole, batch.back)
    return (batch.ts_of(i), batch.unsync, *[c[i] for c in batch.cols])


def received(host: Host, frame: bytes, mono: int, bare: bool = False) -> None:
    host.receive(frame, mono, bare)
    host.settle()


def whole_checkpoint(key: int) -> tuple[int, int] | None:
    """(vertex, slot) of a blob that is a permanent checkpoint, kept here or for another host."""
    found = checkpoint_of(key)
    return found if found and found[1] in (PERMANENT, HELD) else None


@dataclass(frozen=True)
class Hardware:
    """What the hosts of a history are made of."""

    sectors: dict[int, int] = field(default_factory=dict)  # of the log, by host; if missing: plenty
    mtu: int = 1400
    drift_ppm: float = 60.0  # clocks go wrong by this at most
    noise: bool = False  # sensors give values that cannot be compressed
    # How often hosts report, after which silence one is taken for dead, how long a message takes (Host.pace):
    # quicker than real ones, so that seconds of a history hold many takeovers.
    pace: tuple[int, int, int] = (SECOND, 5 * SECOND, SECOND)
    bare: frozenset[int] = frozenset()  # hosts whose links do not encrypt themselves


@dataclass
class Wall:
    """What the clock of the gateway's machine shows."""

    off_us: int = 0  # against the true time
    error_us: int | None = 0  # None: it has no time from the network
    most_us: int = 0  # the furthest that it was ever ahead
    kept: str | None = None  # what the gateway's database has of the site's clock

    def jump(self, off_us: int, error_us: int | None = 0) -> None:
        self.off_us = off_us
        self.error_us = error_us
        self.most_us = max(self.most_us, off_us)

    def right(self) -> None:
        self.jump(0)


class Store(Log):
    """The log of a simulated host, which the world may inspect: what sources accepted, what is held."""

    world: World
    number: int

    def append_run(self, stream: int, xi: int, n: int, ts_last: int, body: Any) -> bool:
        ok: bool = super().append_run(stream, xi, n, ts_last, body)
        vertex = self.world.plan.vertices[stream_of(stream)[0]]
        if ok and not vertex.kind:
            self.world.accepted_block(vertex, self.world.incarnation(self, vertex), body)
        return ok

    def put_blob(
        self,
        key: int,
        data: Readable | Iterable[Readable],
        size: int = -1,
        buf: bytearray | None = None,
    ) -> None:
        found = whole_checkpoint(key)
        vertex: Any = self.world.plan.vertices[found[0]] if found else None
        held = checkpoint_file.place(vertex, self, key) if found else None
        super().put_blob(key, data, size, buf)
        if found:
            blobs = self.world.nodes[self.number].blobs
            src = reading.given(self.get_blob(key) or b"")
            if checkpoint_file.read_permanent(vertex, src) is None:
                self.world.error(
                    "%s stores a checkpoint of %s that it cannot read" % (self.name(), vertex.name)
                )
            place: Any = checkpoint_file.place(vertex, self, key)
            if found[1] == HELD and held and newer(held, place):
                self.world.error("%s held %r, and put %r in its place" % (self.name(), held, place))
            most = reserve.checkpoint_bytes(self.world.plan, vertex)
            if src.size > most:
                self.world.error(
                    "%s: a checkpoint of %s has %d bytes, the reserve of the log has room for %d"
                    % (self.name(), vertex.name, src.size, most)
                )
            blobs[key] = place

    def name(self) -> str:
        return self.world.name(self.number)

    def checkpoints(self) -> dict[int, Place]:
        """The positions of the checkpoints in this flash: a cut write may have succeeded all the same."""
        found: dict[int, Place] = {}
        for key in self.blob_keys():
            of = whole_checkpoint(key)
            if of:
                place: Any = checkpoint_file.place(self.world.plan.vertices[of[0]], self, key)
                found[key] = place
        return found

    def rename_blob(self, src: int, dst: int) -> None:
        super().rename_blob(src, dst)
        blobs = self.world.nodes[self.number].blobs
        if src in blobs:
            blobs[dst] = blobs.pop(src)

    def drop_blob(self, key: int) -> None:
        super().drop_blob(key)
        self.world.nodes[self.number].blobs.pop(key, None)


class Node:
    """One simulated machine."""

    def __init__(self, world: World, number: int, flash: CutFlash) -> None:
        self.world = world
        self.number = number
        self.flash = flash
        self.host: Host | None = None
        self.dead = False  # permanently
        self.log = 0  # log number of its present flash
        self.revoked = 0  # ... with which a person declared it lost
        self.booted_us = 0
        self.drift_ppm = 0.0
        self.mono_base = 0
        self.boots = 0
        self.again = False  # its flash was erased: it returns to a process that it was part of
        self.erasures = 0  # how often
        self.blobs: dict[int, Place] = {}  # positions of the checkpoints in its flash
        self.battery: Battery | None = None  # on mains; otherwise what a battery monitor of the host reads

    def mono(self) -> int:
        """The host's own clock: starts again at every boot, and drifts."""
        gone = self.world.now - self.booted_us
        return self.mono_base + gone + int(gone * self.drift_ppm) // 1_000_000

    @property
    def up(self) -> bool:
        return self.host is not None

    @property
    def lost(self) -> bool:
        """It is dead, or counts as dead: what it does has no effect any more."""
        return self.dead or (self.revoked == self.log and self.log != 0)


class World:
    settle_us = 0  # after faults stop: until every host has heard every other one again

    def __init__(
        self, plan: Plan, seed: int, sector_size: int = 4096, hardware: Hardware | None = None
    ) -> None:
        self.plan = plan
        self.hardware = hardware or Hardware()
        self.random = random.Random(seed)
        self.now = 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = itertools.count()
        self.trace: list[str] = []
        self.drawn: Counter[str] = Counter()  # kind of fault -> how often it was drawn
        self.cuts: set[tuple[int, int]] = set()  # (host, boot) that ended in a flash operation
        self.lost: set[tuple[int, int]] = set()  # (source, incarnation) whose log is gone
        self.gone: dict[int, int] = {}  # host -> when its flash was gone last
        self.databases_lost = 0
        self.refusing: dict[int, int] = {}  # source -> since when its log accepts nothing
        self.decided = Decided(lambda: self.now)
        self.accepted: dict[tuple[int, int], list[Entry]] = {}  # (source, incarnation) -> entries
        self.order: dict[int, list[int]] = {}  # source -> incarnations, in order
        self.begun: dict[tuple[int, int], int] = {}  # ... -> entries that an earlier version handled
        self.wall = Wall()
        self.promised: dict[str, int] = {}  # host -> when, on its clock, it promised to wake
        self.drained = False  # nothing more arrives, and everything that was accepted has been used
        self.outbox = Outbox(self)
        self.spoiled: set[tuple[int, int, int]] = set()  # (edge, incarnation, xi): its board packed nonsense
        self.taken = Taken(self.begun)
        self.nodes: list[Node] = []
        self.loss = 0.0
        self.duplication = 0.0
        self.delay_us = (2_000, 30_000)
        self.cut: set[tuple[int, int]] = set()  # links that are down, by direction
        self.frames = 0
        self.bytes = 0
        self.sampling = True
        self.heard_us: dict[int, int] = {}  # host -> when a frame reached it last
        self.asleep: set[int] = set()  # hosts whose sensors are not read
        self.mute_until: dict[int, int] = {}  # host -> until when its sensors give nothing, unannounced
        self.dozing: set[int] = set()  # hosts that sleep so deeply that they forget what is not in flash
        self.checks: list[Callable[[Node], None]] = []
        self.left: set[int] = set()  # hosts that count as keepers of nothing any more
        self.on_left: list[Callable[[int], None]] = []
        self.on_takeover: list[Callable[[Node, int, bool], None]] = []
        self.on_taken_over: list[Callable[[Node, int], None]] = []  # another host handed it over
        self.on_empty: list[Callable[[Node], None]] = []  # the battery of a host is empty
        self.on_peace: list[Callable[[], None]] = []  # called when faults stop
        self.broker_us = 0  # when the broker is back, or was back, after it was gone for every host
        self.recorder: Recorder | None = None  # for a timeline
        self.errors: list[str] = []
        self.air: Air | None = None
        if self.hardware.bare:
            from .air import Air

            self.air = Air(self.hardware.bare, self.error)
        self.patterns: dict[int, Callable[[int, Batch, int], None]] = {}
        for number in range(len(plan.hosts)):
            self.nodes.append(self.made(number, sector_size, seed))

    def made(self, number: int, sector_size: int, seed: int) -> Node:
        """A machine that has just been provisioned."""
        sectors = 16 + reserve.sectors(self.plan, number) + self.random.randrange(16)
        sectors = self.hardware.sectors.get(number, sectors)
        # The gateway's log replaces its database, in which small values may take any space.
        size = sector_size if number else 4 * sector_size
        node = Node(self, number, CutFlash(sectors, size, seed * 97 + number))
        Log.format(node.flash, self.random.getrandbits(64))
        self.provision(node)
        node.drift_ppm = self.random.uniform(-1, 1) * self.hardware.drift_ppm
        return node

    def provision(self, node: Node) -> None:
        """A board learns the time when it is provisioned: its first floor."""
        log = Log(node.flash)
        log.mount()
        log.put(F_FLOOR, (SITE_US + (self.now or -20 * SECOND)).to_bytes(8, "little"))

    # ---- events

    def at(self, when: int, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (when, next(self.serial), action))

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def run(self, until: int) -> None:
        while self.events and self.events[0][0] <= until and not self.errors:
            when, _, action = heapq.heappop(self.events)
            self.now = when
            action()
        self.now = max(self.now, until)

    def note(self, text: str) -> None:
        self.trace.append("%9.3f s  %s" % (self.now / SECOND, text))

    def draw(self, kind: str, text: str = "") -> None:
        """A fault of this kind happens now."""
        self.drawn[kind] += 1
        if self.recorder:
            self.recorder.mark(kind, text)
        if text:
            self.note(text)

    def is_up(self, node: Node) -> bool:
        return node.up

    def name(self, number: int) -> str:
        return str(self.plan.hosts[number])

    # ---- hosts

    def boot(self, node: Node) -> None:
        if node.dead or node.up:
            return
        node.boots += 1
        node.booted_us = self.now
        node.mono_base = self.random.randrange(0, 5 * SECOND)
        node.flash.revive()
        try:
            host = self.started(node)
        except PowerCut:
            self.power_cut(node)
            return
        except Exception as error:
            self.raised(node, "start", error)
            return
        self.note("%s boots (%d)" % (self.name(node.number), host.boot_number))
        self.checked(node)
        life = node.boots
        self.after(self.random.randrange(TICK_US), lambda: self.tick(node, life))

    def started(self, node: Node) -> Host:
        """The host of a node, from what its flash holds."""
        store = Store.__new__(Store)
        store.world = self
        store.number = node.number
        Log.__init__(store, node.flash)
        store.mount()
        self.recover(store, node)
        node.blobs = store.checkpoints()
        node.log = store.log_number
        outbox = self.outbox if node.number == 0 else None
        host = (GatewayHost if outbox else Host)(
            self.plan,
            node.number,
            store,
            self.keys(node),
            self.clock(node) if outbox else Clock(),
            lambda to, frame: self.send(node.number, to, bytes(frame)),
            lambda: self.random.getrandbits(64),
            outbox,
            self.hardware.mtu,
        )
        host.inputs = WatchedInputs(self.taken)
        host.instances = WatchedInstances(self.decided)
        host.pace = self.hardware.pace
        host.takeover = partial(self.takeover, node, host.takeover)  # type: ignore[method-assign]
        host.take_over = partial(self.take_over, node, host.take_over)  # type: ignore[method-assign]
        host.knows(known_to(host, node.battery))
        node.host = host
        self.linked(node, host)
        if node.number in self.hardware.bare:
            for number in range(len(self.nodes)):
                host.exchange.hide(number, True)
        host.start(node.mono(), node.again)
        return host

    def take_over(self, node: Node, begin: Callable[..., None], v: int, number: int, why: int) -> None:
        """An operator that was handed over begins."""
        self.note(
            "%s begins %s, which was handed over" % (self.name(node.number), self.plan.vertices[v].name)
        )
        if self.recorder and node.host and node.host.taking:
            self.recorder.moved(v, node.host.taking.giver, node.number, because(why))
        begin(v, number, why)
        for look in self.on_taken_over:
            look(node, v)

    def takeover(self, node: Node, begin: Callable[..., None], v: int, number: int, blind: bool) -> None:
        """A host has decided to take over an operator."""
        how = ", blind" if blind else ""
        if self.recorder and node.host:
            self.recorder.moved(v, node.host.where[v][2], node.number, TAKEN_BLIND if blind else TAKEN_OVER)
        self.note("%s takes over %s%s" % (self.name(node.number), self.plan.vertices[v].name, how))
        for look in self.on_takeover:
            look(node, v, blind)
        begin(v, number, blind)

    def clock(self, node: Node) -> SiteClock:
        """The gateway's, in this boot of its machine."""

        def read() -> Reading:
            mono = node.mono()
            wall = SITE_US + self.now + self.wall.off_us
            return Reading(mono, wall, mono, self.wall.error_us, boot)

        boot = "%d %d" % (node.booted_us, node.mono_base)
        return SiteClock(read, self.wall.kept)

    def keys(self, node: Node) -> dict[int, bytes]:
        """The keys that a host shares with the others."""
        return {n: pair_key(MASTER, node.number, n) for n in range(len(self.nodes))}

    def tick(self, node: Node, life: int) -> None:
        if node.up and node.boots == life:
            clock = node.host.clock if node.host else None
            if isinstance(clock, SiteClock):
                clock.tick(node.mono())
                self.wall.kept = clock.keep(node.mono())  # there is a commit in every quarter of a second
            self.call(node, lambda host: host.tick(node.mono()), "tick")
            self.after(TICK_US, lambda: self.tick(node, life))

    def call(self, node: Node, action: Callable[[Any], Any], what: str = "call") -> Any:
        """Let a host do something; a power cut in one of its flash operations ends its boot. It has no
        other way to fail: any exception is an error of the history."""
        assert node.host is not None
        try:
            result = action(node.host)
        except PowerCut:
            self.power_cut(node)
            return None
        except Exception as error:
            self.raised(node, what, error)
            return None
        self.checked(node)
        return result

    def raised(self, node: Node, what: str, error: Exception) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = "%s:%s in %s" % (frame.filename.rpartition("/")[2], frame.lineno, frame.name)
        last = traceback.format_exception_only(error)[-1].strip()
        self.error("%s: %s raises %s (%s)" % (self.name(node.number), what, last, where))
        self.crash(node)

    def checked(self, node: Node) -> None:
        if node.number == 0 and node.host is not None:
            for number, (_, state) in node.host.lost.items():
                if state == LEFT and number not in self.left:
                    self.has_left(number)
        if node.lost:
            return
        if node.host is not None:
            self.taken.look(node.host)
        for check in self.checks:
            check(node)

    def power_cut(self, node: Node) -> None:
        self.note("%s loses power in a flash operation" % self.name(node.number))
        self.cuts.add((node.number, node.boots))
        self.crash(node)
        self.after(self.random.randrange(SECOND // 10, 3 * SECOND), lambda: self.boot(node))

    def crash(self, node: Node) -> None:
        node.host = None
        if node.number == 0:
            self.outbox.lost_power()

    def kill(self, node: Node) -> None:
        self.note("%s dies for good" % self.name(node.number))
        self.crash(node)
        self.flash_gone(node)
        node.dead = True

    def erase(self, node: Node) -> None:
        """Its flash is blank, and it has been provisioned again."""
        self.note("the flash of %s is erased" % self.name(node.number))
        self.crash(node)
        self.flash_gone(node)
        node.log = 0
        node.flash.revive()
        Log.format(node.flash, self.random.getrandbits(64))
        self.provision(node)
        node.again = True
        node.erasures += 1
        if node.number == 0:
            self.databases_lost += 1
            self.outbox.lost_database()
            self.wall.kept = None

    def declare(self, node: Node) -> None:
        """A person declares a board lost: what it has counts no more, whether it is dead or not."""
        if not node.lost:
            self.flash_gone(node)
        node.revoked = node.log

    def replace(self, node: Node) -> None:
        """A board that was declared lost is provisioned afresh."""
        self.erase(node)
        node.dead = False

    def has_left(self, number: int) -> None:
        self.left.add(number)
        self.note("%s has left the keepers" % self.name(number))
        for look in self.on_left:
            look(number)

    def flash_gone(self, node: Node) -> None:
        if not node.lost:
            self.gone[node.number] = self.now
        node.blobs = {}
        for v in self.plan.vertices:
            if not v.kind and v.hosts[0] == node.number and self.order.get(v.index):
                self.lost.add((v.index, self.order[v.index][-1]))

    # ---- links

    def parted(self, a: int, b: int) -> bool:
        """Two hosts do not reach each other, at least one way, while the broker is there."""
        return (a, b) in self.cut or (b, a) in self.cut

    def linked(self, node: Node, host: Host) -> None:
        """A host begins, and sends nothing yet."""

    def send(self, sender: int, to: int, frame: bytes) -> None:
        if self.air and not self.air.passes(sender, to, frame):
            return
        host = self.nodes[sender].host
        if host is not None and not self.nodes[sender].lost:
            self.taken.look(host)
        self.frames += 1
        self.bytes += len(frame)
        battery = self.nodes[sender].battery
        if battery:
            battery.frame(len(frame), True)
        copies = 1 + (self.random.random() < self.duplication)
        for _ in range(copies):
            if self.random.random() < self.loss:
                continue
            self.after(self.random.randint(*self.delay_us), lambda: self.deliver(sender, to, frame))

    def deliver(self, sender: int, to: int, frame: bytes) -> None:
        node = self.nodes[to]
        if (
            node.up
            and (sender, to) not in self.cut
            and self.now >= self.broker_us
            and not self.nodes[sender].dead
        ):
            self.heard_us[to] = self.now
            if node.battery:
                node.battery.frame(len(frame), False)
            bare = to in self.hardware.bare
            self.call(node, lambda host: received(host, frame, node.mono(), bare), "receive")

    # ---- sensors

    def start_sensors(self) -> None:
        for v in self.plan.vertices:
            if not v.kind:
                self.after(self.random.randrange(SECOND), partial(self.sample, v, 0))

    def sample(self, v: Vertex, taken: int) -> None:
        """The next batch of a sensor; the sensor's values continue while its board is down."""
        if not self.sampling:
            return
        node = self.nodes[v.hosts[0]]
        if node.dead:
            self.after(SECOND, lambda: self.sample(v, taken))  # another board may take its place
            return
        if v.rate_mhz:
            n = max(1, min(self.plan.batch, v.rate_mhz * self.plan.batch_ms // 1_000_000))
            n = self.random.choice((n, n, max(1, n // 2)))
            dt = max(1, 1_000_000_000 // v.rate_mhz)
            pause = n * dt
        else:
            n, dt = 1, -1
            pause = int(self.random.expovariate(1.0) * SECOND * 0.7) + 1000
        if node.up and node.host and not node.host.revoked and self.awake(node):
            batch = Batch(v.outs[0], max(n, 1))
            batch.n = n
            batch.dt = dt
            self.fill(v, batch, taken)
            mono = node.mono() - (pause if v.rate_mhz else 0)
            took = self.call(node, lambda host: host.sample(v.index, batch, mono), "sample")
            self.offered(v, took)
        self.after(pause, lambda: self.sample(v, taken + n))

    def awake(self, node: Node) -> bool:
        """The sensors of a host are read."""
        return node.number not in self.asleep and self.now >= self.mute_until.get(node.number, 0)

    def offered(self, v: Vertex, took: int | None) -> None:
        if took:
            self.refusing.pop(v.index, None)
        elif took == 0 and v.index not in self.refusing:
            self.refusing[v.index] = self.now
            host = self.nodes[v.hosts[0]].host
            source = host.sources.get(v.index) if host else None
            if host and source and source.last_ts > host.clock.at(host.now) + SECOND // 10:
                self.draw(STANDS_STILL, "%s: the clock stands still" % v.name)
            else:
                self.draw("logs that filled up", "%s: the log takes nothing more" % v.name)

    def fill(self, v: Vertex, batch: Batch, taken: int) -> None:
        pattern = self.patterns.get(v.index)
        if pattern:
            pattern(v.index, batch, taken)
            return
        for k, column in enumerate(batch.cols):
            bits = {"b": 7, "B": 8, "h": 12, "H": 12}.get(v.outs[0].codes[k], 16)
            for i in range(batch.n):
                x = (taken + i) * 2654435761 + v.index * 97 + k * 131
                if self.hardware.noise:
                    column[i] = _noise(x, column.typecode)
                    continue
                wave = ((taken + i) * (3 + k) % 64 - 32) * ((1 << bits) // 160)
                noise = (x >> 7) % max(2, (1 << bits) // 16)
                value = wave + noise
                column[i] = (
                    abs(value) % (1 << bits)
                    if column.typecode in "BHIQ"
                    else max(-(1 << bits - 1), min(value, (1 << bits - 1) - 1))
                )

    # ---- what was accepted

    def incarnation(self, store: Store, v: Vertex) -> int:
        data = store.get(F_INC + v.index)
        return int.from_bytes(data, "little") if data else store.log_number

    def accepted_block(self, v: Vertex, inc: int, body: Any) -> None:
        known = self.accepted.setdefault((v.index, inc), [])
        if inc not in self.order.setdefault(v.index, []):
            self.order[v.index].append(inc)
        batch = Batch(v.outs[0], self.plan.batch)
        block.decode(body, 0, len(body), batch)
        for i in range(batch.n):
            what = entry(batch, i)
            xi = batch.xi + i
            if xi <= len(known):
                if known[xi - 1] != what:
                    self.error("source %s accepted xi %d twice with different content" % (v.name, xi))
            elif xi == len(known) + 1:
                known.append(what)
            else:
                self.error("source %s jumped from xi %d to %d" % (v.name, len(known), xi))

    def recover(self, store: Store, node: Node) -> None:
        """The content of a cut record that is found after the restart was accepted too."""
        body = bytearray(65536)
        for v in self.plan.vertices:
            if v.kind or v.hosts[0] != node.number:
                continue
            inc = self.incarnation(store, v)
            known = self.accepted.setdefault((v.index, inc), [])
            last = store.tail(stream_key(v.index))[0]
            if last < len(known):
                self.error("source %s: tail went back from %d to %d" % (v.name, len(known), last))
            while len(known) < last and not self.errors:
                size = store.read_run(stream_key(v.index), len(known) + 1, body)
                if not size:
                    self.error("source %s: entry %d is not in the log" % (v.name, len(known) + 1))
                    break
                self.accepted_block(v, inc, memoryview(body)[:size])

    def error(self, text: str) -> None:
        self.errors.append("%.3f s: %s" % (self.now / SECOND, text))

    def held(self, node: Node, v: int) -> list[int] | None:
        """Position of the furthest checkpoint of operator v in the flash of a host that is not lost."""
        best: list[int] | None = None
        if not node.lost:
            for slot in (PERMANENT, HELD):
                place = node.blobs.get(checkpoint_key(v, slot))
                if place and (best is None or further(place[1], best)):
                    best = place[1]
        return best

    def decisions(self) -> dict[int, list[tuple[list[int], Any]]]:
        """What operators have decided, in order, in the course that counts."""
        return {v: self.decided.course(v, self.many(v)) for v in self.decided.known}

    def many(self, v: int) -> int:
        """How many decisions the newest epoch of an operator counts; where it runs nowhere, its newest
        checkpoint."""
        found: list[tuple[tuple[int, int], int]] = []
        for node in self.nodes:
            inst = node.host.instances.get(v) if node.host else None
            if inst:
                found.append((inst.epoch, inst.decided))
        for node in () if found or self.plan.strategy == UNSAFE else self.nodes:
            blobs = [node.blobs.get(checkpoint_key(v, slot)) for slot in (PERMANENT, HELD)]
            found += [(place[0], place[1][-1]) for place in blobs if place and not node.lost]
        return max(found)[1] if found else 0

    def current(self, edge: int, src: int = -1) -> int:
        """The present incarnation of the stream on an edge, or of a source."""
        src = self.plan.edges[edge].src if src < 0 else src
        if self.plan.vertices[src].kind:
            return self.incarnations(src)[-1]
        incs = self.order.get(src, [])
        return incs[-1] if incs and not self.plan.vertices[src].kind else 0

    def lost_beyond(self, v: int, since: int = -1) -> bool:
        """Whether more keepers of an operator have lost what they held, later than that, than its level
        covers."""
        gone = [h for h in self.plan.keepers(v) if self.gone.get(h, since) > since]
        return len(gone) > self.plan.level_of(v)

    def incarnations(self, v: int) -> list[int]:
        """Those of an operator's outputs, in order: another one begins when it gives up."""
        course = self.decided.course(v, self.many(v)) if v in self.decided.known else []
        return [0, *[content[1] for _, content in course if content[0] == "anew"]]

    def past(self, src: int, inc: int) -> bool:
        """Nothing more of this incarnation can come: it was lost, or the source has begun another."""
        if self.plan.vertices[src].kind:
            return False
        incs = self.order.get(src, [])
        # A board that does not know yet that it was declared lost may begin its stream afterwards.
        revoked = self.nodes[self.plan.vertices[src].hosts[0]].revoked == inc
        return (src, inc) in self.lost or revoked or not incs or incs[-1] != inc

    # ---- end

    def lake_edges(self) -> list[Any]:
        return [e for e in self.plan.edges if e.dst == OUTSIDE]


def _noise(x: int, code: str) -> int:
    """A value of a column that depends on x alone, spread over all that the column holds."""
    bits = 8 * array(code).itemsize
    x = (x * 0x9E3779B97F4A7C15 ^ x >> 7) & (1 << 64) - 1
    value = (x ^ x >> 29) * 0xBF58476D1CE4E5B9 >> 20 & (1 << min(bits, 48)) - 1
    return value if code in "BHILQ" else value - (1 << min(bits, 48) - 1)
