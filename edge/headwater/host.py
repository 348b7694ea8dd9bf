# The host: one board, one Pi, one simulated machine. It ties the parts together and does no I/O.
#
# In go samples, frames and times; out come frames (through `send`) and durable writes (through
# `store`). Nothing here knows a socket, a file, a clock or a source of randomness.
#
# This is the face of the runtime to the program around it. What neighbours say goes through the exchange, the
# order in which operators run is the scheduler's, and code that is needed rarely is loaded by the verb that
# needs it (activate, stop, fetch ..): the modules that hold it import this one nowhere.

from . import block, wire
from .batch import Batch
from .const import const
from .exchange import Exchange
from .instance import WAITING
from .keyspace import F_FLOOR
from .once import let_go
from .ports import RETRY_US
from .scheduler import Scheduler

_BEAT_US = const(5000000)


class Host:
    # plan, me (number in it), store (mounted), keys (host number -> key of the link),
    # clock (clock.Clock), send(host number, frame), nonce() -> 64 random bits,
    # outbox: where a gateway's edges to the lake end, else None.
    def __init__(self, plan, me, store, keys, clock, send, nonce, outbox=None, mtu=1400):
        self.plan = plan
        self.me = me
        self.store = store
        self.clock = clock
        self.outbox = outbox
        self.now = 0
        self.exchange = Exchange(self, send, mtu)
        self.scheduler = Scheduler(self)
        self.floor = None  # the clock.Floor of the sources here, from `start` on
        self.boot_number = 0
        widest = 256
        for v in plan.vertices:
            if not v.kind and v.hosts[0] == me:
                widest = max(widest, block.bound(v.outs[0], plan.batch))
        self.scratch = bytearray(widest)
        self.packed = None  # (port, xi, n, end): the entries whose block lies in scratch
        self.batches = {}  # alphabet text -> batch to decode into
        self.ports = {}  # (vertex, port) -> OutPort
        self.instances = {}  # vertex -> Instance
        self.inputs = {}  # edge -> InEdge, of everything that consumes here
        self.ends = []  # LakeEnds
        self.sources = {}  # vertex -> Source
        self.pushes = {}  # checkpoints on their way to holders (transfer.py)
        self.late = {}  # holder that did not confirm in time -> when it is asked again
        self.incoming = {}  # vertex -> [pos, size, buffer, got]: checkpoints on their way here
        self.largest = {}  # vertex -> bytes of a checkpoint that is kept here, at most
        self.again = b""  # what F_AGAIN says
        self.unlearned = []  # operators of which this gateway does not know yet what was decided
        # ... -> [since when it is being learned, host -> decisions that it says were granted, hosts that have
        # said all they know]
        self.stood = {}
        self.ask_us = 0  # when the gateway asks next how operators stand
        self.where = [(1, v.hosts[0], v.hosts[0]) for v in plan.vertices]  # epoch number, host; place
        self.dropped = {}  # reason (refusals.py) -> how often
        self.keys = keys
        self.nonce = nonce
        self.beat_us = 0
        self.tick_us = 0
        self.due = False  # frames came since `pump`
        self.quiet = False  # sources promise nothing: what is drained stays so

    # ---- life

    # Start, or start again: everything comes from the store. again: this host has lost its store, and the
    # others know more than it. A gateway's clock runs already: it is the site's, and not of one process.
    def start(self, now, again=False):
        # Operators come first: while their code is made is when the most room is needed.
        from . import operators

        made = {}
        for v in self.plan.vertices:
            if v.kind and v.hosts[0] == self.me:
                made[v.index] = operators.find(v.kind)(v.params, v.ins, v.outs, self.plan.batch)
        from . import starting

        starting.start(self, now, made, again)
        made = starting = None  # else they stay while this runs
        let_go(
            "starting",
            "hosting",
            "restoring",
            "lifecycle",
            "wiring",
            "reserve",
            "checkpoint_file",
            "packread",
        )
        self.pump()

    # Run operator v here from now on, under a new epoch.
    def activate(self, v, number, now):
        from . import moving

        self.now = now
        moving.activate(self, v, number)
        self.pump()

    # A newer epoch of an operator runs elsewhere: this one says and takes nothing any more.
    def stop(self, inst, epoch):
        from . import moving

        moving.stop(self, inst, epoch)

    # A producer or a keeper named a checkpoint further than this operator stands.
    def fetch(self, inst):
        from . import transfer

        transfer.fetch(self, inst)

    def site(self):
        return self.clock.site(self.now)

    # Let boundaries go up to ts: where the floor in flash is too low, log a higher one.
    def raise_floor(self, ts):
        floor = self.floor.need(ts, self.clock.ahead_us(self.now))
        if floor:
            self.store.put(F_FLOOR, floor.to_bytes(8, "little"))
            self.floor.sealed(floor)

    # No sensor of this host is read before `wake` of its clock: joins need not wait for it till then.
    # To be called last before a sleep; the promise is in the flash before it leaves.
    def sleep(self, now, wake):
        self.now = now
        if self.clock.synced:
            self.promise(self.clock.at(wake))
        self.pump()

    # No source of this host gives anything below ts from now on, in any boot.
    def promise(self, ts):
        if ts > self.floor.flash_us:
            self.store.put(F_FLOOR, ts.to_bytes(8, "little"))
            self.floor.sealed(ts)
        for s in self.sources.values():
            s.promise(ts)

    def batch(self, alphabet):
        b = self.batches.get(alphabet.text)
        if b is None:
            b = self.batches[alphabet.text] = Batch(alphabet, self.plan.batch)
        return b

    # The scratch buffer, with room for a block of n entries. What sources log always fits; of the rest
    # a block is hardly ever as long as a batch may be.
    def room(self, alphabet, n):
        size = block.bound(alphabet, n)
        if size > len(self.scratch):
            self.packed = None
            self.scratch = bytearray(size)
        return self.scratch

    # ---- samples

    # A batch of samples of source v, whose first was taken at `mono` of this host's clock. What
    # comes back is the number accepted: all, or none where the log is full.
    def sample(self, v, batch, mono):
        source = self.sources[v]
        n = source.take(batch, mono)
        self.pump()
        source.port.ring.tail = None
        return n

    # ---- running

    # Run all operators until none can make progress, then send what is to be said.
    def pump(self):
        self.due = False
        self.scheduler.run()
        self.exchange.flush()

    # To be called at least every RETRY_US / 2.
    def tick(self, now):
        self.now = now
        if not self.quiet:
            for s in self.sources.values():
                s.tick()
        for inst in list(self.instances.values()):
            if inst.status == WAITING and now >= inst.wait_us:
                from . import lifecycle

                lifecycle.expire(inst)
        if now - self.tick_us >= RETRY_US // 2:
            self.tick_us = now
            self.exchange.retry()
            self.store.idle()
        if now - self.beat_us >= _BEAT_US:
            self.beat_us = now
            self.exchange.say_state()
            self.exchange.ask_time()
        self.pump()

    # ---- where operators run

    # Operator v runs at `place` under this epoch, as somebody said.
    def heard_where(self, v, epoch, place):
        if v < len(self.where) and epoch > self.where[v][:2]:
            from . import moving

            moving.on_where(self, v, epoch, place)

    def tell_where(self, to, v, epoch, place):
        if to == self.me:
            self.heard_where(v, epoch, place)
        else:
            self.exchange.say(to, wire.WHERE, v, v, epoch, place)

    # A number that differs where two hosts know of different places.
    def state(self):
        total = 0
        for w in self.where:
            total = total * 31 + w[0] * 7 + w[1] & 0xFFFFFFF
        return total

    # ---- decisions, at the gateway. ValueError says why a change cannot be made, or not now.

    # Change parameters of an operator while it runs.
    def configure(self, v, params):
        from . import decisions, operators

        vertex = self.plan.vertices[v]
        # What it refuses here, with all changes that are made already, it would refuse later.
        op = operators.find(vertex.kind)(vertex.params, vertex.ins, vertex.outs, 1)
        decisions.follow(self, v, op)
        op.configure(params)
        return decisions.config(self, v, ["set", params])

    # Let a join go on without an input whose producer is dead, and take it back.
    def close(self, v, port):
        return self._config(v, ["close", port])

    def reopen(self, v, port, inc, from_ts):
        return self._config(v, ["open", port, inc, from_ts])

    def _config(self, v, content):
        from . import decisions

        return decisions.config(self, v, content)

    # True while it is not known of every operator what was decided.
    @property
    def learning(self):
        return bool(self.unlearned)

    # ---- frames

    def count(self, reason):
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    # A frame arrived from somewhere. Whatever it is, it never raises. `settle` does what follows:
    # frames that come together are answered together.
    def receive(self, frame, now):
        self.now = now
        if self.exchange.receive(frame):
            self.due = True

    # Do what follows from the frames that were received.
    def settle(self):
        if self.due:
            self.pump()
