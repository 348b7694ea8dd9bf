"""Estimates for validation: rates, latencies, and what a process needs of buffers, flash and heap.
A board never imports this module; it only computes, and reports nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeGuard

from ..data.alphabet import Alphabet
from ..data.block import longest
from ..offboard.interfaces import Params, Rates
from ..plan import model as plans
from ..plan.alarms import Alarm
from ..plan.reader import DELAY_US_MAX, DURABLE, POLICIES
from ..runtime.operator import Operator, fields

if TYPE_CHECKING:
    from .builder import Declared, Host, Process, Signal, Wire

# What a board needs beside the buffers that the process decides: interpreter, runtime, link.
RUNTIME_KB = 75  # with MQTT over TLS
MOVES_KB = 22  # ... and while operators come or go; docs/boards.md has the measurements
SECTOR_BYTES = 4096
BEAT_MS = 5000  # between two reports of a host
STEP_MS = 2000  # in which a message normally reaches everybody
SAFE_MS = 400  # the lake sink delays a Safe this long
LAKE_MS = 2000  # a quick lake has something durable after this long; many take longer
CHECKPOINT_MAX_BYTES = 98304  # what a host takes in from elsewhere


class Vertex:
    """A declared vertex and what the check finds out about it."""

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self.where = declared.where
        self.source = not declared.kind
        self.name = ""
        self.label = ""
        self.cls = declared.cls
        self.inputs: dict[int, Wire] = {}  # port -> its first wire
        self.outputs: dict[int, list[Wire]] = {}  # port -> wires
        self.params: Params = {}
        self.bound = self.source  # parameters are right
        self.ins: tuple[Alphabet | None, ...] = ()  # alphabets; None for a disabled port
        self.outs: tuple[Alphabet, ...] | None = None  # alphabets; None if they cannot be known
        self.most_hz: float | None = None  # limit of the rate of its outputs; None: unknown
        self.exact_hz: float | None = None  # rate of its outputs, where it is exact
        self.irregular = False
        self.interval = 1  # most elements between two checkpoints
        self.interval_s: float | None = None
        self.state_bytes = 0
        self.changed_bytes = 0  # of its parameters, where all of them were changed
        self.floats = False
        self.host: int | None = None
        self.hosts: tuple[int, ...] = ()


class Sizing:
    """A process with its vertices in order, as the check fills them in."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.vertices = [Vertex(d) for d in process.vertices]
        self.of = {id(v.declared): v for v in self.vertices}
        self.hosts: list[Host] = []
        self.order: list[Vertex] = []
        self.strategy: int | None = None
        self.level: int | None = None
        self.sized = False  # every, batch, batch_ms and link_ms are valid numbers

    def producer(self, wire: Wire) -> Vertex:
        return self.of[id(wire.stream.vertex)]

    def consumer(self, wire: Wire) -> Vertex:
        return self.of[id(wire.vertex)]

    def forward(self) -> Iterator[Wire]:
        """Inner edges without feedback that are the one edge of their port."""
        for v in self.vertices:
            for port in sorted(v.inputs):
                if v.inputs[port].delay_ms is None:
                    yield v.inputs[port]

    def inner(self) -> Iterator[Wire]:
        for v in self.vertices:
            for port in sorted(v.inputs):
                yield v.inputs[port]

    def path(self, start: Vertex, end: Vertex, wires: Sequence[Wire]) -> list[Vertex] | None:
        """Vertices of a shortest path from `start` to `end`, both included, or None."""
        before: dict[int, Vertex | None] = {id(start): None}
        seen = [start]
        for v in seen:
            if v is end:
                out = []
                at: Vertex | None = v
                while at is not None:
                    out.append(at)
                    at = before[id(at)]
                return out[::-1]
            for wire in wires:
                if self.producer(wire) is v and id(self.consumer(wire)) not in before:
                    before[id(self.consumer(wire))] = v
                    seen.append(self.consumer(wire))
        return None

    def filled(self, v: Vertex) -> Params:
        assert v.cls is not None
        return filled(v.cls, v.params)

    # -- rates and latencies -------------------------------------------------------------------------
    #
    # Estimates for validation. The rate of a source is its rate_hz, or at most most_hz. A type
    # that is ONE_TO_ONE passes the rate on; any other gives at most one output for each element of
    # its inputs without feedback, and one more for each timer that an element arms. The types that
    # `sparing` knows give fewer.
    #
    # interval: most elements of a stream between two checkpoints, `every` for a source. interval_s:
    # the longest time between them, None if a source is irregular.
    #
    #   latency(edge) = wait + link
    #   wait = min(batch_ms, batch / rate) where the rate is exact, else batch_ms; 0 between two
    #          operators that can only ever run on one host
    #   link = link_ms, 0 where both ends can only ever run on one host

    def rates(self) -> None:
        every = self.process.every if self.sized else 1
        for v in self.order:
            if v.source:
                rate, most = v.declared.rate_hz, v.declared.most_hz
                v.exact_hz = rate if is_number(rate) and rate > 0 else None
                v.most_hz = v.exact_hz if rate is not None else most if is_number(most) else None
                v.irregular = rate is None
                v.interval = every
                v.interval_s = every / v.exact_hz if v.exact_hz else None
                continue
            wires = [v.inputs[port] for port in sorted(v.inputs) if v.inputs[port].delay_ms is None]
            feeders = [self.producer(wire) for wire in wires]
            v.irregular = True
            if v.cls is not None and v.cls.ONE_TO_ONE and len(feeders) == 1:
                v.exact_hz = feeders[0].exact_hz
                v.irregular = feeders[0].irregular
            per, us = self.sparing(v)
            timed = v.cls is not None and v.cls.TIMED
            inputs = [(u.most_hz, u.interval, u.interval_s) for u in feeders]
            v.most_hz, v.interval, v.interval_s = flow(inputs, timed, per, us)

    def taken_hz(self, v: Vertex) -> float:
        """Elements a second that a vertex takes at most, or accepts, if it is a source; 0 where unknown."""
        if v.source:
            return v.most_hz or 0
        return sum([self.producer(wire).most_hz or 0 for wire in v.inputs.values()])

    def carried(self, v: Vertex, port: int) -> tuple[float, float]:
        """(bytes, batches) a second of a stream, at most; 0 where unknown. Bytes are those of the longest
        blocks: what the codec saves depends on the values."""
        rate = v.most_hz or 0
        if not rate or v.outs is None or port >= len(v.outs):
            return 0, 0
        n = min(self.process.batch, max(1, math.floor(rate * self.process.batch_ms / 1000)))
        return rate / n * longest(v.outs[port], n, v.irregular), rate / n

    def sparing(self, v: Vertex) -> tuple[int, int]:
        if v.cls is None or not v.bound:
            return 1, 0
        return sparing(v.declared.kind, self.filled(v))

    def latency_ms(self, wire: Wire) -> int:
        p = self.process
        x = self.producer(wire)
        ends = set(x.hosts) | (set(self.consumer(wire).hosts) if wire.vertex is not None else {-1})
        if len(ends) == 1 and not x.source:
            return 0
        wait = p.batch_ms
        if x.exact_hz:
            wait = min(wait, math.ceil(1000 * p.batch / x.exact_hz))
        return wait + (p.link_ms if len(ends) > 1 else 0)

    def longest_ms(self, start: Vertex, end: Vertex) -> int | None:
        """Latency of the slowest way from `start` to `end` without feedback, or None."""
        best = {id(start): 0}
        for v in self.order:
            if id(v) not in best:
                continue
            for port in sorted(v.outputs):
                for wire in v.outputs[port]:
                    if wire.vertex is not None and wire.delay_ms is None:
                        y = self.consumer(wire)
                        best[id(y)] = max(best.get(id(y), 0), best[id(v)] + self.latency_ms(wire))
        return best.get(id(end))

    # -- buffers: one checkpoint interval, and the batch that is under way ---------------------------

    def need(self, wire: Wire) -> int:
        """The smallest cap of an edge. A lake edge: a batch on its way and one being made; if an
        operator waits for the lake itself, also what it puts out until then, or it can never keep up.
        Inside: what arrives between two checkpoints, and a batch. `uncoordinated`: every consumer
        checkpoints each `every` elements that it takes; `ecoc`, `extended`: a request comes with
        each `every` elements of a source, and a merge brings those of all its inputs."""
        p = self.process
        if wire.vertex is None or self.strategy == plans.UNSAFE:
            return 2 * p.batch + self.until_lake(wire)
        if self.strategy == plans.UNCOORDINATED:
            return p.every + p.batch
        return self.producer(wire).interval + p.batch

    def until_lake(self, wire: Wire) -> int:
        """Elements that arrive while the lake stores earlier ones. A source's elements are in its log."""
        v = self.producer(wire)
        if wire.vertex is not None or wire.durable != "lake" or v.source or not v.most_hz:
            return 0
        return math.ceil(v.most_hz * LAKE_MS / 1000)

    def cap(self, wire: Wire) -> int:
        if wire.cap is not None:
            return wire.cap
        need = self.need(wire)
        if wire.vertex is None:
            need = max(need, min(self.process.every, self.producer(wire).interval))
        if wire.delay_ms is not None:
            need = max(need, self.feedback_need(wire) or 0)
        return need + self.process.batch + self.late(wire)

    def late(self, wire: Wire) -> int:
        """What arrives while the Safe of a checkpoint is awaited, if extensions bridge the wait: the lake's,
        and round a loop that of entries taken after the delay. A buffer full before that costs a checkpoint
        at once. A loop takes half of its delay at most; where operators run does not matter here."""
        rate = self.producer(wire).most_hz
        if wire.vertex is None or self.strategy != plans.EXTENDED or not rate:
            return 0
        delays = [w.delay_ms for w in self.process.wires if is_number(w.delay_ms)]
        delays = [ms for ms in delays if 0 < ms <= DELAY_US_MAX // 1000]
        return math.ceil(rate * (max(delays or [0]) * 3 / 2 + SAFE_MS) / 1000)

    # -- feedback ------------------------------------------------------------------------------------
    #
    #   loop = latency(feedback edge) + slowest way from its consumer back to its producer
    #   D   >= 2 * loop
    #   cap >= rate * (D + latency(feedback edge)) + one interval + a batch

    def loop_ms(self, wire: Wire) -> int:
        way = self.longest_ms(self.consumer(wire), self.producer(wire))
        if way is None:
            # closed by other feedback edges only: all edges of the cycle at once
            wires = list(self.inner())
            way = 0
            back = self.path(self.consumer(wire), self.producer(wire), wires)
            if back is not None:
                inside = [
                    w for w in wires if w is not wire and self.path(self.consumer(w), self.producer(w), wires)
                ]
                way = sum([self.latency_ms(w) for w in inside])
        return self.latency_ms(wire) + way

    def feedback_need(self, wire: Wire) -> int | None:
        rate = self.producer(wire).most_hz
        if rate is None or not is_number(wire.delay_ms):
            return None
        return math.ceil(rate * (wire.delay_ms + self.latency_ms(wire)) / 1000) + self.need(wire)

    # -- inputs without which an operator goes on ------------------------------------------------------

    def pause_ms(self, v: Vertex) -> int:
        """The longest pause of a stream in good times: from one element or boundary of its sources to the
        next, and the way from there. A source with a rate promises nothing between its samples."""
        longest = 0
        for u in self.vertices:
            way = self.longest_ms(u, v) if u.source else None
            if way is not None:
                pause = math.ceil(1000 / u.exact_hz) if u.exact_hz else 1000
                longest = max(longest, way + max(pause, self.process.batch_ms))
        return longest

    def dead_ms(self) -> int:
        """How long a host must be silent, at least, before its operators start elsewhere."""
        return max(3 * max(BEAT_MS, self.process.batch_ms), 2 * STEP_MS)

    def absent_least(self, wire: Wire) -> int:
        """The least time after which an operator may go on without an input: twice the longest pause."""
        return 2 * (self.pause_ms(self.producer(wire)) + self.latency_ms(wire))

    # -- logs, heap ------------------------------------------------------------------------------------
    #
    #   flash        >= what storage/reserve.py says
    #   heap         >= runtime + buffers of what it runs, and of any one operator that it backs up

    def runtime_kb(self, host: int) -> int:
        """Heap of a host beside buffers: with what a move takes, where operators may come or go."""
        moves = any(host in v.hosts and len(v.hosts) > 1 and not v.source for v in self.vertices)
        return RUNTIME_KB + MOVES_KB if moves else RUNTIME_KB

    def port_caps(self, v: Vertex) -> Iterator[tuple[Alphabet, int]]:
        for port, alphabet in enumerate(v.outs or ()):
            caps = [self.cap(wire) for wire in v.outputs.get(port, ())]
            yield alphabet, max([c for c in caps if isinstance(c, int)] or [self.process.batch])

    def buffer_bytes(self, v: Vertex, host: int) -> int:
        """Heap of a vertex on a host: its own, and queues of remote inputs."""
        total = self.own_bytes(v)
        for port in sorted(v.inputs):
            if self.producer(v.inputs[port]).host != host:
                total += self.queue_bytes(v.inputs[port])
        return total

    def taken_bytes(self, v: Vertex, host: int) -> int:
        """Heap of an operator that comes to a host: as it is read from its checkpoint, its state is there
        twice more. The rest of a large checkpoint is in flash."""
        return self.buffer_bytes(v, host) + 2 * v.state_bytes

    def own_bytes(self, v: Vertex) -> int:
        """Heap of a vertex wherever it runs: state, a batch per output, rings."""
        caps = [(alphabet.width, cap) for alphabet, cap in self.port_caps(v)]
        return own_bytes(self.process.batch, v.state_bytes, caps, v.source, v.irregular)

    def queue_bytes(self, wire: Wire) -> int:
        """Heap of the queue of an input whose producer runs on another host."""
        x = self.producer(wire)
        if not x.outs or wire.stream.port >= len(x.outs):
            return 0
        return queue_bytes(self.process.batch, x.outs[wire.stream.port].width, x.irregular)

    def log_bytes(self, v: Vertex) -> int:
        assert v.outs is not None
        return (self.process.every + self.process.batch) * (v.outs[0].width + 4)

    def written(self) -> plans.Plan | None:
        """The process as a plan, still without its bytes; None if too little of it is known."""
        p = self.process
        ordered = len(self.order) == len(self.vertices)
        if not (self.sized and ordered) or self.strategy is None or self.level is None:
            return None
        vertices = []
        for i, v in enumerate(self.order):
            if not v.hosts or v.outs is None or (not v.source and v.ins is None):
                return None
            rate = v.declared.rate_hz if v.source else None
            vertices.append(
                plans.Vertex(
                    i,
                    v.name,
                    v.declared.kind,
                    v.cls.VERSION if v.cls else 0,
                    v.params,
                    v.ins,
                    v.outs,
                    round(rate * 1000) if is_number(rate) else 0,
                    v.hosts,
                    v.declared.log_kb * 1024 if isinstance(v.declared.log_kb, int) else 0,
                    v.state_bytes,
                    v.changed_bytes,
                    v.declared.give_up_s or 0,
                )
            )
        edges = []
        for wire in p.wires:
            lake = wire.vertex is None
            if not isinstance(self.cap(wire), int):
                return None
            edges.append(
                plans.Edge(
                    0,
                    self.order.index(self.producer(wire)),
                    wire.stream.port,
                    plans.OUTSIDE if lake else self.order.index(self.consumer(wire)),
                    0 if lake else wire.port,
                    round(wire.delay_ms * 1000) if is_number(wire.delay_ms) else 0,
                    self.cap(wire),
                    POLICIES.index(wire.policy) if wire.policy in POLICIES else 0,
                    wire.lake,
                    DURABLE.index(wire.durable) if lake and wire.durable in DURABLE else 0,
                    wire.within_ms if lake else 0,
                    False,
                    wire.absent_ms or 0,
                    bool(wire.absent_ms and wire.local),
                )
            )
        edges.sort(key=lambda e: (e.src, e.sport, e.dst == plans.OUTSIDE, e.dst, e.dport, e.lake))
        names = tuple([host.name for host in self.hosts])
        alarms = [self.alarm(i, signal) for i, signal in enumerate(p.signals)]
        if None in alarms:
            return None
        return plans.Plan(
            p.name,
            self.strategy,
            p.every,
            self.level,
            p.batch,
            vertices,
            edges,
            (),
            names,
            b"",
            p.batch_ms,
            alarms=[alarm for alarm in alarms if alarm],
        )

    def alarm(self, index: int, signal: Signal) -> Alarm | None:
        """An alarm of the plan; None where the check reports that something is wrong with it."""
        v = self.of[id(signal.stream.vertex)]
        names = [host.name for host in self.hosts]
        fields = v.outs[signal.stream.port].names if v.outs and signal.stream.port < len(v.outs) else ()
        if signal.host not in names or signal.field is not None and signal.field not in fields:
            return None
        return Alarm(
            index,
            signal_name(index, signal),
            self.order.index(v),
            signal.stream.port,
            names.index(signal.host),
            signal.driver,
            signal.silent_ms,
            -1 if signal.field is None else fields.index(signal.field),
        )


def own_bytes(
    batch: int, state_bytes: int, ports: Sequence[tuple[int, int]], source: bool, irregular: bool
) -> int:
    """Heap of a vertex wherever it runs; `ports`: of each output the width of its elements, and its cap."""
    total = state_bytes
    for width, cap in ports:
        cap = min(cap, 4 * batch) if source else cap
        chunks = min(cap, 8 + 2 * cap // max(1, min(batch, 16)))
        total += batch * (width + 4) + cap * (width + 4 * irregular) + 24 * chunks
    return total


def queue_bytes(batch: int, width: int, irregular: bool) -> int:
    """Heap of the queue of an input whose producer runs on another host."""
    return 5 * batch * (width + 4 * irregular)


def signal_name(index: int, signal: Signal) -> str:
    """The name of an alarm: the author's, or one of its own."""
    return signal.name if signal.name is not None else "alarm%d" % (index + 1)


def flow(inputs: Sequence[Rates], timed: bool, per: int, us: int) -> Rates:
    """(most_hz, interval, interval_s) of what an operator gives, from those of its inputs but feedback."""
    most = [hz for hz, _, _ in inputs if hz is not None]
    times = [s for _, _, s in inputs if s is not None]
    timers = 2 if timed else 1
    most_hz = sum(most) * timers / per if most and len(most) == len(inputs) else None
    interval = max(1, math.ceil(sum([n for _, n, _ in inputs]) * timers / per))
    interval_s = max(times) if times and len(times) == len(inputs) else None
    if us:
        most_hz = 1000000 / us
        if interval_s is not None:
            interval = math.ceil(interval_s * most_hz) + 1
    return most_hz, interval, interval_s


def filled(cls: type[Operator], params: Params) -> Params:
    """These parameters, and the defaults of the others."""
    params = dict(params)
    for name, kind, _, default in fields(cls.PARAMS):
        if name not in params and default is not None:
            params[name] = default if kind in ("text", "expr", "ints") else int(default)
    return params


def sparing(kind: str, params: Params) -> tuple[int, int]:
    """(inputs for each output, time from one output to the next in us or 0) of an operator type with these
    parameters."""
    if kind == "Decimate":
        return max(1, params["k"]), 0
    if kind == "Qrs":
        return max(1, params["hz"] // 5), 0  # no two beats within 200 ms
    if kind == "Tumbling":
        return max(1, params["count"]), params["us"]
    if kind == "Sliding":
        return max(1, params["step"]), params["step_us"]
    if kind == "Rate":
        return 1, params["us"]
    return 1, 0


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def kb(size_bytes: int) -> int:
    return -(-size_bytes // 1024)
