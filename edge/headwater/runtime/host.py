# The host: one board, one Pi, one simulated machine. It ties the parts together and does no I/O.
#
# In go samples, frames and times; out come frames (through `send`) and durable writes (through
# `store`). Nothing here knows a socket, a file, a clock or a source of randomness.
#
# This is the face of the runtime to the program around it. The exchange handles what neighbours send, the
# scheduler decides in which order operators run, and code that is needed rarely is loaded by the verb that
# needs it (activate, stop, fetch ..): no module that holds it imports this one.

from ..board.unload import unload
from ..data import block
from ..data.batch import Batch
from ..data.scratch import Scratch
from ..offboard.compat import TYPE_CHECKING
from ..protocol import frames
from ..protocol.clock import Floor
from ..protocol.moves import GIVEN_UP
from ..protocol.position import EPOCH_MAX
from ..storage.keyspace import F_FLOOR
from .exchange import Exchange
from .instance import RUNNING, WAITING
from .outputs import RETRY_US
from .scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..data.alphabet import Alphabet
    from ..offboard.interfaces import Epoch
    from ..plan.model import Plan
    from ..protocol.clock import Clock
    from ..storage.log import Log
    from .inputs import InEdge
    from .instance import Instance
    from .lake_sink import LakeSink
    from .meter import Meter
    from .outputs import OutPort
    from .source import Source


class Host:
    # How often a host reports at least, for how long one has to be silent before its operators start
    # elsewhere, and the time in which a message normally reaches everybody over MQTT.
    PACE = (5000000, 30000000, 2000000)

    # plan, me (number in it), store (mounted), keys (host number -> key of the link),
    # clock (clock.Clock), send(host number, frame), nonce() -> 64 random bits,
    # outbox: where a gateway's edges to the lake end, otherwise None.
    def __init__(
        self,
        plan: "Plan",
        me: int,
        store: "Any",
        keys: dict[int, bytes],
        clock: "Clock",
        send: "Callable[[int, Any], object]",
        nonce: "Callable[[], int]",
        outbox: "Any" = None,
        mtu: int = 1400,
    ) -> None:
        self.plan = plan
        self.me = me
        self.store: "Log" = store  # at a gateway its database, which has the same verbs
        self.clock = clock
        self.outbox = outbox
        self.now = 0
        self.exchange = Exchange(self, send, mtu)
        self.scheduler = Scheduler(self)
        self.floor = Floor()  # of the sources here; flash knows it, from `start` on
        self.boot_number = 0
        # Of each vertex: epoch number, its host; the host where it runs.
        self.where: list[tuple[int, int, int]] = []
        widest = 256
        for v in plan.vertices:
            self.where.append((1, v.hosts[0], v.hosts[0]))
            if not v.kind and v.hosts[0] == me:
                widest = max(widest, block.bound(v.outs[0], plan.batch))
        self.scratch = Scratch(widest)  # what sources log always fits; of the rest a block is rarely so long
        self.batches: dict[str, Batch] = {}  # alphabet text -> batch to decode into
        self.ports: "dict[tuple[int, int], OutPort]" = {}  # by vertex and port
        self.instances: "dict[int, Instance]" = {}  # by vertex
        self.inputs: "dict[int, InEdge]" = {}  # by edge, of everything that consumes here
        self.ends: "list[LakeSink]" = []
        self.sources: "dict[int, Source]" = {}  # by vertex
        # checkpoints on their way to holders (checkpoint_transfer.py)
        self.pushes: "dict[int, list[Any]]" = {}
        self.late: dict[int, int] = {}  # holder that did not confirm in time -> when it is asked again
        # Vertex -> checkpoint on its way here: see storage/arrival.py.
        self.incoming: "dict[int, list[Any]]" = {}
        self.largest: dict[int, int] = {}  # vertex -> bytes of a checkpoint that is kept here, at most
        self.again = bytearray()  # what F_AGAIN holds
        self.unlearned: list[int] = []  # operators of which this gateway does not know what changes have set
        self.given_up: list[int] = []  # operators of which this gateway does not know what they have given up
        self.ask_us = 0  # when the gateway asks next how operators stand
        # Vertex -> why its operator moved last (protocol/moves.py), and when, in seconds of the site's time.
        # One that has not moved is not here, nor one of which that is not known yet.
        self.moves: dict[int, tuple[int, int]] = {}
        self.giving: "Any" = None  # a moving.Move, while an operator is handed over to another host;
        self.taking: "Any" = None  # ... a taking.Offer, while another host hands one over to this one
        # Vertex -> [number, host, outcome] of the last move that this host was asked for, or asked for.
        self.asked: dict[int, list[int]] = {}
        self.refused_by: dict[int, int] = {}  # vertex * 256 + host -> until when it is not asked to take it
        self.energy: "Meter | None" = None  # what it knows of its battery; None: it is on mains
        self.changed: "Callable[[Instance], None] | None" = None  # called when an operator changes its status
        self.pace = self.PACE
        self.absence: "Any" = None  # an Absence, where an operator of this process may go on without an input
        self.signals: "Any" = None  # a Signals, where an alarm of a board concerns this host
        self.words: "Any" = None  # a Words, where an operator with a backup concerns this host
        # Number of a host that was declared lost -> [its log number, state]: see losses.py.
        self.lost: "dict[int, list[int]]" = {}
        self.without: dict[int, dict[int, list[int]]] = {}  # at the gateway: lost host -> answers of others
        self.revoked = False  # this host was, under its present log number
        self.dropped: dict[int, int] = {}  # reason (protocol/refusals.py) -> how often
        self.keys = keys
        self.nonce = nonce
        self.beat_us = 0
        self.tick_us = 0
        self.due = False  # frames came since `pump`
        self.quiet = False  # sources promise nothing: what is drained stays so

    # ---- life

    # Start, or start again: everything comes from the store. again: this host has lost its store, and the
    # others know more than it. A gateway's clock runs already: it is the site's, and not of one process.
    def start(self, now: int, again: bool = False) -> None:
        self.now = now
        # Operators come first: while their code is made is when the most room is needed.
        from .. import operators

        made = {}
        for v in self.plan.vertices:
            if v.kind and v.hosts[0] == self.me:
                made[v.index] = operators.find(v.kind)(v.params, v.ins, v.outs, self.plan.batch)
        from . import startup

        startup.start(self, now, made, again)
        if not self.revoked:
            self._listen()
        for e in self.plan.edges:
            if e.absent_ms and self.plan.may_run(e.dst, self.me):
                from . import absence

                self.absence = absence.Absence(self)
                break
        for a in self.plan.alarms:
            if self.me in (0, a.host) or self.plan.may_run(a.src, self.me):
                from . import signals

                self.signals = signals.Signals(self)
                break
        made = startup = None  # type: ignore[assignment]  # or they stay while this runs
        unload("runtime.startup")
        self.rest()
        self.pump()

    # Hosts may take over from each other here.
    def _listen(self) -> None:
        from . import relations

        operators = relations.operators(self.plan, self.me)
        hosts = relations.hosts(self.plan, self.me, operators)
        relations = None  # type: ignore[assignment]
        unload("runtime.relations")
        if operators:
            from . import words

            self.words = words.Words(self, operators, hosts)
            unload("runtime.recoveries", "runtime.sleeping")

    # What startup.py found: the number of this boot, what F_AGAIN holds, and see the fields.
    def booted(self, number: int, again: bytearray, unlearned: list[int]) -> None:
        assert number > self.boot_number, "a boot has the number of an earlier one"
        self.boot_number = number
        self.again = again
        self.unlearned = unlearned

    # Run operator v here from now on, under a new epoch.
    def activate(self, v: int, number: int, now: int) -> None:
        from . import relocation

        self.now = now
        relocation.activate(self, v, number)
        self.pump()

    # The same for an operator that was found to run nowhere. blind: no producer could be asked.
    def takeover(self, v: int, number: int, blind: bool) -> None:
        from . import relocation

        relocation.activate(self, v, number, True, blind)

    # The same for one that another host has handed over.
    def take_over(self, v: int, number: int, why: int) -> None:
        from . import relocation

        relocation.activate(self, v, number, True, False, why)

    # A newer epoch of an operator runs elsewhere: this one tells and takes nothing any more.
    def stop(self, inst: "Instance", epoch: "Epoch") -> None:
        from . import relocation

        relocation.stop(self, inst, epoch)

    # A producer or a keeper named a checkpoint further than this operator stands.
    def fetch(self, inst: "Instance") -> None:
        from . import incoming

        incoming.fetch(self, inst)

    # It knows what it draws and what its battery has left, from now on.
    def knows(self, energy: "Meter") -> None:
        self.energy = energy
        self.exchange.count_by(energy)

    # Have `changed` called whenever an operator here changes its status.
    def shows(self, changed: "Callable[[Instance], None]") -> None:
        self.changed = changed

    # How often this host reports: no more often than its batches leave.
    @property
    def period_us(self) -> int:
        return max(self.pace[0], 1000 * self.plan.batch_ms)

    # The site's time.
    def site(self) -> int:
        return self.clock.site(self.now)

    # Let boundaries go up to ts: where the floor in flash is too low, log a higher one.
    def raise_floor(self, ts: int) -> None:
        floor = self.floor.need(ts, self.clock.ahead_us(self.now))
        if floor:
            self.store.put(F_FLOOR, floor.to_bytes(8, "little"))
            self.floor.sealed(floor)

    # No sensor of this host is read before `wake` of its clock: joins need not wait for it until then.
    # To be called last before a sleep; the promise is in flash before it is sent.
    def sleep(self, now: int, wake: int) -> None:
        self.now = now
        if self.clock.synced:
            self.promise(self.clock.at(wake))
        if self.words:
            from . import sleeping

            sleeping.sleep(self.words, wake - now)
        if self.energy:
            self.energy.open().sleep(wake - now)
        self.pump()

    # No source of this host gives anything below ts from now on, in any boot.
    def promise(self, ts: int) -> None:
        if ts > self.floor.flash_us:
            self.store.put(F_FLOOR, ts.to_bytes(8, "little"))
            self.floor.sealed(ts)
        for s in self.sources.values():
            s.promise(ts)

    # on: sources promise nothing by themselves from now on. What is drained stays so.
    def hush(self, on: bool) -> None:
        self.quiet = on

    # The batch of this host for an alphabet. It holds nothing between two calls.
    def batch(self, alphabet: "Alphabet") -> Batch:
        b = self.batches.get(alphabet.text)
        if b is None:
            b = self.batches[alphabet.text] = Batch(alphabet, self.plan.batch)
        return b

    # ---- samples

    # A batch of samples of source v, whose first was taken at `mono` of this host's clock. now: the time on
    # that clock, where it is later than in the last call. Returns the number accepted: all, or none where the
    # log is full.
    def sample(self, v: int, batch: Batch, mono: int, now: int = 0) -> int:
        if now:
            self.now = now
        if self.revoked:
            return 0
        source = self.sources[v]
        n = source.take(batch, mono)
        self.pump()
        source.port.ring.stale()  # the caller writes into that batch again
        return n

    # ---- running

    # Run all operators until none can make progress, then send pending messages.
    def pump(self) -> None:
        self.due = False
        self.scheduler.run()
        self.exchange.flush()

    # To be called at least every RETRY_US / 2.
    def tick(self, now: int) -> None:
        self.now = now
        if not self.quiet:
            for s in self.sources.values():
                s.tick()
        for inst in list(self.instances.values()):
            if inst.status == WAITING and now >= inst.wait_us:
                from . import lifecycle

                lifecycle.expire(inst)
        if self.giving:
            self.giving.tick()
        if self.taking:
            self.taking.tick()
        if now - self.tick_us >= RETRY_US // 2:
            self.tick_us = now
            self.exchange.retry()
            if self.words:
                self.words.tick()
            if self.absence:
                self.absence.tick()
            if self.signals:
                self.signals.tick()
            self.store.idle()
        if now - self.beat_us >= self.period_us:
            self.beat_us = now
            self.rest()
            self.exchange.say_state()
            self.exchange.ask_time()
            if self.words:
                self.words.say()
            if self.energy:
                self.energy.tick()
        if self.moving:
            self.rest()  # each step of a move needs other modules
        self.pump()

    # Unload what is needed now and then only.
    def rest(self) -> None:
        unload(
            "runtime.lifecycle",
            "runtime.routing",
            "runtime.relocation",
            "runtime.hosting",
            "runtime.restore",
            "runtime.gaps",
            "runtime.incoming",
            "runtime.judging",
            "runtime.decisions",
            "runtime.losses",
            "runtime.blockwise",
            "runtime.transfer_state",
            "storage.arrival",
            "storage.checkpoint_file",
            "storage.reading",
            "storage.reserve",
            "data.msgpack_reader",
        )
        if self.words and not self.words.suspects:
            unload("runtime.watching")
        if self.energy:
            self.energy.rest()

    # ---- where operators run

    # Operator v runs at `place` under this epoch, as another host told.
    def heard_where(self, v: int, epoch: "Epoch", place: int) -> None:
        if v < len(self.where) and epoch > self.where[v][:2]:
            from . import relocation

            relocation.on_where(self, v, epoch, place)

    # Tell a host, which may be this one, where operator v runs as far as this one knows. epoch: another one.
    def tell_where(self, to: int, v: int, epoch: "Epoch | None" = None) -> None:
        w = self.where[v]
        if to != self.me:
            why, since = self.moves.get(v, (0, 0))
            age = min(EPOCH_MAX, max(0, self.site() // 1000000 - since)) if why else 0
            self.exchange.say(to, frames.WHERE, v, v, epoch or w[:2], w[2], why, age)
        elif epoch:
            self.heard_where(v, epoch, w[2])

    # Why operator v moved to where it runs, `age` seconds ago. None: that is not known yet.
    def note_why(self, v: int, why: int | None, age: int = 0) -> None:
        if why is None:
            self.moves.pop(v, None)
        else:
            self.moves[v] = (why, self.site() // 1000000 - age)
            self.gave_up(v, why == GIVEN_UP)

    # At the gateway: operator v may have given up changes that it had taken; or it has told since.
    def gave_up(self, v: int, so: bool) -> None:
        if so and self.outbox is not None and v not in self.given_up:
            self.given_up.append(v)
        elif not so and v in self.given_up:
            self.given_up.remove(v)

    # Operators here that do not run, or are being handed over: see standing.py.
    def waits(self) -> "list[list[Any]]":
        if not self.giving:
            for inst in self.instances.values():
                if inst.status != RUNNING or inst.stuck():
                    break
            else:
                return []
        from . import standing

        found = standing.rows(self)
        unload("runtime.standing")
        return found

    # A number that differs where two hosts know of different places, or one does not know why.
    def state(self) -> int:
        total = 0
        if self.lost:
            for h in range(len(self.plan.hosts)):
                if h in self.lost:
                    total = total * 31 + h * 7 + self.lost[h][1] + self.lost[h][0] % 999983 & 0xFFFFFFF
        for v in range(len(self.where)):
            w = self.where[v]
            why = self.moves[v][0] if v in self.moves else 0
            total = total * 31 + w[0] * 7 + w[1] + why * 3 & 0xFFFFFFF
        return total

    # ---- planned moves: see moving.py, and protocol/moves.py for the numbers

    # Hand operator v, which runs here, over to another host; to the one that fits best, where `to` is -1. OK
    # where that has begun.
    def move(self, v: int, to: int, why: int, now: int) -> int:
        from . import moving

        self.now = now
        refused = moving.begin(self, v, to, why)
        self.pump()
        return refused

    # A host hands operator v over, or not any more; the same where it takes one.
    def gives(self, move: "Any") -> None:
        self.giving = move

    def takes(self, offer: "Any") -> None:
        self.taking = offer

    # This host must not sleep now: another one hands an operator over to it, or it does to another one.
    @property
    def handing(self) -> bool:
        return self.giving is not None or self.taking is not None

    # An operator is about to end here, or has begun here and is not as far as it was elsewhere.
    @property
    def moving(self) -> bool:
        return self.handing or (self.words is not None and self.words.recovery is not None)

    # ---- hosts that are lost

    # This host was declared lost: it does nothing any more. What it has in its flash stays there.
    def revoke(self) -> None:
        self.revoked = True
        for found in (self.instances, self.inputs, self.ports, self.sources, self.pushes, self.incoming):
            found.clear()
        self.words = self.giving = self.taking = None
        self.exchange.leave()
        self.scheduler.arrange([])

    # ---- decisions

    # Let an operator that runs here decide something by itself. True where it did: not where it does not run
    # here, or may not decide now; then ask again.
    def decide(self, v: int, content: "list[Any]") -> bool:
        from . import decisions

        inst = self.instances.get(v)
        return inst is not None and decisions.take(self, inst, content, inst.given)

    # The gateway has just asked how operators stand, and waits this long before it asks again.
    def ask_later(self, us: int) -> None:
        self.ask_us = self.now + us

    # ---- frames

    # Something was refused (protocol/refusals.py).
    def count(self, reason: int) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    # A frame arrived from somewhere. Whatever it is, it never raises. `settle` does what follows:
    # frames that come together are answered together.
    def receive(self, frame: "Any", now: int, bare: bool = False) -> bool:
        self.now = now
        genuine = self.exchange.receive(frame, bare)
        if genuine:
            self.due = True
        return genuine

    # Do what follows from the frames that were received.
    def settle(self) -> None:
        if self.due:
            self.pump()
