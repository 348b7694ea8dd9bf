"""The builder: a process as its author writes it. A board never imports this module.

    from headwater.process import Process, Fir, Qrs, HeartRate

    p = Process("cardio", checkpoints="ecoc", every=500)
    ecg = p.source("ecg", "mV:i16", rate_hz=360, on="chest")
    rate = ecg >> Fir(BANDPASS).named("clean") >> Qrs() >> HeartRate(seconds=10)
    p.lake("cardio/rate", rate, within_ms=20000)

Every operator type of the library can be imported from here by its name; `operator` makes one of a
class of your own. A builder only records each statement, with its file and line: headwater.process.check
reports every mistake in them at once, and numbers them into a plan.

Defaults that are worth knowing: an operator without `on` runs where its first input is produced;
its backups are the gateway first, then the other hosts in the order in which they were declared,
as many as the checkpoint level requires and one to spare. A process that declares no host has
those that its vertices name.
"""

import difflib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .. import operators
from ..data import msgpack
from ..offboard.interfaces import Params
from ..plan import model, reader
from ..runtime.operator import Operator, OperatorError

GATEWAY = "gateway"
# What a host's `bluetooth` means: its links, as energy profiles name them.
LINKS = {"off": ("wifi",), "on": ("ble", "wifi"), "only": ("ble",)}
FLASH_KB = 512
HEAP_KB = 128  # an ESP32 begins with 64 and grows while its C heap has room
BATCH = 60
BATCH_MS = 1000
LINK_MS = 250

Place = tuple[str, int]  # file and line of the author
Backup = str | Sequence[str] | None


class ProcessError(ValueError):
    """A statement that cannot be recorded at all, or a process that does not pass its check."""


def _here() -> Place:
    """File and line of the author: the innermost frame outside this module."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def near(word: object, words: Iterable[object]) -> str:
    """', did you mean x?' where one of `words` resembles `word`, else ''."""
    found = difflib.get_close_matches(str(word), [str(w) for w in words], 1, 0.6)
    return ": did you mean '%s'?" % found[0] if found else ""


class Host:
    """A host as declared: what it has. `board`, `battery_mah`, `awake_percent` and `bluetooth` say how long
    its battery lasts and by which links it speaks; they are no part of the plan."""

    def __init__(
        self,
        name: str,
        flash_kb: int,
        heap_kb: int,
        floats: int,
        where: Place,
        board: str | None = None,
        battery_mah: int | None = None,
        awake_percent: int = 100,
        bluetooth: str = "off",
    ) -> None:
        self.name = name
        self.flash_kb = flash_kb
        self.heap_kb = heap_kb
        self.floats = floats
        self.where = where
        self.board = board
        self.battery_mah = battery_mah  # None: as this kind of board has; 0: on mains
        self.awake_percent = awake_percent
        self.bluetooth = bluetooth
        self.sound = True  # until the check finds that one of these is not

    @property
    def links(self) -> tuple[str, ...]:
        """By which it speaks, as energy profiles name them."""
        return LINKS.get(self.bluetooth, LINKS["off"])


class Wire:
    """An edge as declared. `stream` is its producer's port; `vertex` is None at the lake."""

    def __init__(
        self,
        stream: "Stream",
        vertex: "Declared | None",
        port: int,
        where: Place,
        delay_ms: float | None = None,
    ) -> None:
        self.stream = stream
        self.vertex = vertex
        self.port = port
        self.where = where
        self.delay_ms = delay_ms  # not None: a feedback edge
        self.cap = stream._cap
        self.policy = stream._policy
        self.absent_ms = stream._absent_ms  # None: its consumer waits for it
        self.local = stream._local
        self.lake: str = ""
        self.durable = "gateway"
        self.within_ms = 0
        self.accept_loss = False


class Signal:
    """An alarm as declared, which a board raises itself."""

    def __init__(
        self,
        name: str | None,
        stream: "Stream",
        host: str,
        driver: str,
        silent_ms: int,
        field: str | None,
        where: Place,
    ) -> None:
        self.name = name
        self.stream = stream
        self.host = host
        self.driver = driver
        self.silent_ms = silent_ms
        self.field = field
        self.where = where


class Declared:
    """A vertex as declared: a source (kind "") or an operator."""

    def __init__(self, process: "Process", kind: str, cls: type[Operator] | None, where: Place) -> None:
        self.process = process
        self.kind = kind
        self.cls = cls
        self.where = where
        self.name: str | None = None  # the author's, or None
        self.args: tuple[Any, ...] = ()
        self.params: Params = {}
        self.host: str | None = None
        self.backups: tuple[str, ...] | None = None  # None: the default
        self.unused: set[int] = set()  # output ports that are disabled
        self.disabled: set[int] = set()  # input ports that are disabled
        self.alphabet = ""
        self.rate_hz: float | None = None
        self.most_hz: float | None = None
        self.log_kb: int | None = None
        self.give_up_s: int | None = None  # None: a person decides


class Stream:
    """One output port of a vertex. `stream >> Type(...)` connects it to the first input of a new
    operator and is that operator's first output."""

    def __init__(
        self, vertex: Declared, port: int = 0, cap: int | None = None, policy: str | None = None
    ) -> None:
        self.vertex = vertex
        self.port = port
        self._cap = cap
        self._policy = policy
        self._absent_ms: int | None = None
        self._local = False

    def __rshift__(self, spec: "Spec | Type") -> "Stream":
        if isinstance(spec, Type):
            spec = spec()
        if not isinstance(spec, Spec):
            return NotImplemented
        return spec(self)

    def out(self, port: int) -> "Stream":
        """Another output port of the same operator."""
        return Stream(self.vertex, port)

    def __iter__(self) -> "Iterator[Stream]":
        """All output ports: `low, high = level >> Route(...)`."""
        from . import check

        return iter([Stream(self.vertex, i) for i in range(len(check.outputs(self.vertex)))])

    def named(self, name: str) -> "Stream":
        """Give the vertex its name: part of the identity of its streams."""
        self.vertex.name = name
        return self

    def on(self, host: str, backup: Backup = None, give_up_after: int | None = None) -> "Stream":
        """Place the operator; `backup` is a host or several, best first. `give_up_after`: if more hosts are
        lost than the level covers, it goes on by itself after so many seconds, with a new incarnation of its
        outputs; otherwise a person decides that (`hw give-up`)."""
        _place(self.vertex, host, backup, give_up_after)
        return self

    def unused(self, *ports: int) -> "Stream":
        """Disable output ports: nothing is connected to them, on purpose."""
        self.vertex.unused.update(ports)
        return self

    def buffered(self, cap: int | None = None, on_full: str | None = None) -> "Stream":
        """This stream for the edges made from the result: `ecg.buffered(2000) >> Fir(...)`. `cap` is
        the limit of the transfer state in elements, `on_full` is "block" or "spill"."""
        return self._as(cap, on_full, self._absent_ms, self._local)

    def absent_after(self, ms: int, local: bool = False) -> "Stream":
        """This stream for the joins made from the result: `Hold()(a, b.absent_after(30000))` goes on without
        b when it was silent for 30 s, and with it when it speaks again. `local`: the host of the join decides
        that alone; otherwise the gateway does."""
        return self._as(self._cap, self._policy, ms, local)

    def _as(self, cap: int | None, policy: str | None, absent_ms: int | None, local: bool) -> "Stream":
        made = Stream(self.vertex, self.port, cap, policy)
        made._absent_ms = absent_ms
        made._local = local
        return made

    def otherwise(self, other: "Stream", after_ms: int, local: bool = False) -> "Stream":
        """This stream while it lives, and `other`, of the same alphabet, when it was silent for after_ms."""
        return operator("Otherwise")()(self.absent_after(after_ms, local), other)


def _place(vertex: Declared, host: str, backup: Backup, give_up_after: int | None = None) -> None:
    vertex.host = host
    vertex.give_up_s = give_up_after
    vertex.process._mention(host)
    if backup is not None:
        vertex.backups = (backup,) if isinstance(backup, str) else tuple(backup)
        for name in vertex.backups:
            vertex.process._mention(name)


class Spec:
    """An operator type with its parameters, not yet connected. Call it with its inputs, in the
    order of its ports; None disables one."""

    def __init__(
        self, kind: str, cls: type[Operator] | None, args: tuple[Any, ...], params: Params, where: Place
    ) -> None:
        self._spec = (kind, cls, args, params, where)
        self._name: str | None = None
        self._on: tuple[str, Backup, int | None] | None = None
        self._unused: tuple[int, ...] = ()

    def _with(
        self,
        name: str | None = None,
        on: "tuple[str, Backup, int | None] | None" = None,
        unused: tuple[int, ...] = (),
    ) -> "Spec":
        other = Spec(*self._spec)
        other._name = name if name is not None else self._name
        other._on = on or self._on
        other._unused = self._unused + unused
        return other

    def named(self, name: str) -> "Spec":
        return self._with(name=name)

    def on(self, host: str, backup: Backup = None, give_up_after: int | None = None) -> "Spec":
        return self._with(on=(host, backup, give_up_after))

    def unused(self, *ports: int) -> "Spec":
        return self._with(unused=ports)

    def __call__(self, *inputs: Stream | None) -> Stream:
        kind, cls, args, params, where = self._spec
        streams = [s for s in inputs if s is not None]
        if not streams:
            raise ProcessError(
                "%s(...) is connected to nothing: give it a stream, as in ecg >> %s(...)" % (kind, kind)
            )
        for i, s in enumerate(inputs):
            if s is not None and not isinstance(s, Stream):
                raise ProcessError(
                    "input %d of %s is %s, not a stream: connect a source or an operator's output"
                    % (i, kind, type(s).__name__)
                )
        process = streams[0].vertex.process
        for s in streams:
            if s.vertex.process is not process:
                raise ProcessError("the inputs of %s come from two processes; connect streams of one" % kind)
        v = Declared(process, kind, cls, where)
        v.args, v.params = args, params
        v.name = self._name
        v.unused.update(self._unused)
        process.vertices.append(v)
        for i, s in enumerate(inputs):
            if s is None:
                v.disabled.add(i)
            else:
                process.wires.append(Wire(s, v, i, where))
        if self._on:
            _place(v, *self._on)
        return Stream(v)


class Type:
    """An operator type for the builder: call it with parameters. `cls` is None for a type that the
    library does not have; the check reports it."""

    def __init__(self, kind: str, cls: type[Operator] | None) -> None:
        self.kind = kind
        self.cls = cls

    def __call__(self, *args: Any, **params: Any) -> Spec:
        return Spec(self.kind, self.cls, args, params, _here())


class Process:
    """A stream process.

    checkpoints  "unsafe", "uncoordinated", "ecoc", "extended"
    every        checkpoint interval in elements
    level        where a checkpoint must be stored to be permanent: "local", "peer", "peers=2"
    batch        most elements in a batch; one that is not full waits at most batch_ms
    link_ms      worst latency of a link in good times: what feedback delays are checked against
    allow_drift  operators that compute in floats may move between float widths
    strict       a level without a spare host is an error: there a host that is away stops the process
    """

    def __init__(
        self,
        name: str,
        checkpoints: str = "extended",
        every: int = 500,
        level: str = "peer",
        batch: int = BATCH,
        batch_ms: int = BATCH_MS,
        link_ms: int = LINK_MS,
        allow_drift: bool = False,
        strict: bool = False,
    ) -> None:
        self.name = name
        self.checkpoints = checkpoints
        self.every = every
        self.level = level
        self.batch = batch
        self.batch_ms = batch_ms
        self.link_ms = link_ms
        self.allow_drift = allow_drift
        self.strict = strict
        self.where = _here()
        self.hosts: list[Host] = []  # as declared by `host`
        self.mentioned: list[str] = []  # as named by `on` and `backup`
        self.vertices: list[Declared] = []
        self.wires: list[Wire] = []
        self.signals: list[Signal] = []

    def host(
        self,
        name: str,
        flash_kb: int = FLASH_KB,
        heap_kb: int = HEAP_KB,
        floats: int = 32,
        board: str | None = None,
        battery_mah: int | None = None,
        awake_percent: int = 100,
        bluetooth: str = "off",
    ) -> str:
        """Declare a host: its log partition, its heap, and the width of its floats. The gateway
        needs no declaration. `board` is its kind (`hw image` lists them), `battery_mah` its battery (0: on
        mains), `awake_percent` the share of the time in which it does not sleep, `bluetooth` what
        `hw provision --bluetooth` gave it ("on", "only" or "off"): `hw check --explain` tells from these
        how long it lasts."""
        host = Host(
            name, flash_kb, heap_kb, floats, _here(), board, battery_mah, awake_percent, bluetooth
        )  # fmt: skip
        self.hosts.append(host)
        return name

    def _mention(self, name: str) -> None:
        if name not in self.mentioned:
            self.mentioned.append(name)

    def source(
        self,
        name: str,
        alphabet: str,
        rate_hz: float | None = None,
        on: str | None = None,
        log_kb: int | None = None,
        most_hz: float | None = None,
    ) -> Stream:
        """A sensor and its log. No rate_hz: irregular, like a button; most_hz then limits it.
        log_kb limits the flash that its log may fill."""
        v = Declared(self, "", None, _here())
        v.name = name
        v.alphabet = alphabet
        v.rate_hz = rate_hz
        v.most_hz = most_hz
        v.log_kb = log_kb
        if on is not None:
            _place(v, on, None)
        self.vertices.append(v)
        return Stream(v)

    def lake(
        self,
        name: str,
        stream: Stream,
        durable: str = "gateway",
        within_ms: int = 0,
        on_full: str | None = None,
        cap: int | None = None,
        accept_loss: bool = False,
    ) -> None:
        """Send a stream to the lake's table stream `name`. `durable`: where an element must be stored
        to be safe; `within_ms`: the required delay; `on_full`: "block", "spill",
        "drop_oldest" or "drop_newest"."""
        if not isinstance(stream, Stream):
            raise ProcessError("lake stream '%s' is given %s, not a stream" % (name, type(stream).__name__))
        self._owns(stream)
        wire = Wire(stream, None, 0, _here())
        wire.lake = name
        wire.durable = durable
        wire.within_ms = within_ms
        wire.policy = on_full or stream._policy
        wire.cap = cap or stream._cap
        wire.accept_loss = accept_loss
        self.wires.append(wire)

    def alarm(
        self,
        stream: Stream,
        silent_ms: int = 0,
        on: str = "",
        driver: str = "buzzer",
        field: str | None = None,
        name: str | None = None,
    ) -> None:
        """A board sounds an alarm itself, also while the gateway is dead: where nothing was heard of the
        stream for silent_ms, or while `field` of its newest element is not 0. `on` is the board, `driver` the
        actuator that its settings describe: "buzzer" or "led"."""
        if not isinstance(stream, Stream):
            raise ProcessError("an alarm is given %s, not a stream" % type(stream).__name__)
        self._owns(stream)
        if isinstance(on, str) and on:
            self._mention(on)
        self.signals.append(Signal(name, stream, on, driver, silent_ms, field, _here()))

    def connect(
        self, stream: Stream, consumer: Stream, port: int, cap: int | None = None, on_full: str | None = None
    ) -> None:
        """One more edge, to an operator that exists already."""
        self._late(stream, consumer, port, None, cap, on_full)

    def feedback(
        self,
        stream: Stream,
        consumer: Stream,
        port: int,
        delay_ms: float,
        cap: int | None = None,
        on_full: str | None = None,
    ) -> None:
        """A feedback edge: silent (it changes the consumer's state and causes no output), and
        effective at ts + delay_ms."""
        self._late(stream, consumer, port, delay_ms, cap, on_full)

    def _late(
        self,
        stream: Stream,
        consumer: Stream,
        port: int,
        delay_ms: float | None,
        cap: int | None,
        on_full: str | None,
    ) -> None:
        for s in (stream, consumer):
            if not isinstance(s, Stream):
                raise ProcessError(
                    "%s is not a stream: give the results of p.source(...) or of >>" % type(s).__name__
                )
            self._owns(s)
        wire = Wire(stream, consumer.vertex, port, _here(), delay_ms)
        wire.cap = cap or stream._cap
        wire.policy = on_full or stream._policy
        self.wires.append(wire)

    def _owns(self, stream: Stream) -> None:
        if stream.vertex.process is not self:
            raise ProcessError(
                "the stream is of process '%s', not of '%s'" % (stream.vertex.process.name, self.name)
            )

    def encode(self) -> bytes:
        """The plan's bytes. ProcessError, with every problem in its text, where the check fails."""
        from . import check

        report = check.check(self)
        if report.plan is None:
            raise ProcessError("\n".join([str(problem) for problem in report.problems]))
        return report.plan

    def plan(self) -> model.Plan:
        """The plan as a host loads it."""
        return model.loads(self.encode())


def _alphabets(vertices: Iterable[model.Vertex]) -> list[str]:
    texts = []
    for v in vertices:
        for a in v.ins + v.outs:
            if a is not None and a.text not in texts:
                texts.append(a.text)
    return texts


def _flat(tree: Sequence[Any]) -> list[Any]:
    out = []
    for item in tree:
        if isinstance(item, (list, tuple)):
            out += [False, len(item)] + _flat(item)
        else:
            out.append(item)
    return out


def dumps(p: model.Plan) -> bytes:
    """The canonical encoding of a plan.Plan."""
    texts = _alphabets(p.vertices)
    rows = []
    for v in p.vertices:
        ins = [-1 if a is None else texts.index(a.text) for a in v.ins]
        outs = [texts.index(a.text) for a in v.outs]
        params = {
            name: _flat(value) if isinstance(value, list) else value for name, value in v.params.items()
        }
        row = [v.name, v.kind, v.version, params, ins, outs, v.rate_mhz, v.log_bytes]
        rows.append(row + [v.state_bytes, v.changed_bytes] + ([v.give_up_s] if v.give_up_s else []))
    links = []
    for e in p.edges:
        links.append(
            [e.src, e.sport, e.dst, e.dport, e.delay_us, e.cap, e.policy, e.lake, e.durable, e.within_ms]
        )
        if e.absent_ms:
            links[-1] += [e.absent_ms, int(e.local)]
    fields = [p.name, p.strategy, p.every, p.level, p.batch, p.batch_ms, list(p.hosts), texts, rows, links]
    if p.alarms:
        fields.append([[a.name, a.src, a.sport, a.host, a.driver, a.silent_ms, a.field] for a in p.alarms])
    process = msgpack.dumps(fields)
    return msgpack.dumps([reader.FORMAT, process, [list(v.hosts) for v in p.vertices], p.deployment])


def library() -> list[str]:
    """The names of the library's operator types."""
    return sorted(operators.kinds())


def operator(of: str | type[Operator]) -> Type:
    """The builder's form of an operator class of your own, or of the library's type of that name."""
    if isinstance(of, str):
        return Type(of, operators.find(of) if of in operators.kinds() else None)
    if not (isinstance(of, type) and issubclass(of, Operator)):
        raise ProcessError(
            "operator(%r): give a class derived from headwater.runtime.operator.Operator" % (of,)
        )
    had = operators._own.get(of.__name__)
    if had is not None and _file(had) == _file(of):
        del operators._own[of.__name__]  # its file is loaded again
    try:
        return Type(of.__name__, operators.register(of))
    except OperatorError as e:
        raise ProcessError(str(e)) from None


def _file(cls: type[Operator]) -> str:
    return cls.run.__code__.co_filename


_OWN = ["Process", "ProcessError", "Stream", "operator"]


def __getattr__(name: str) -> Type:
    # Types of the library, made when first asked for. An unknown type is let through, so that the
    # check can name it together with everything else.
    if not name[:1].isupper():
        raise AttributeError("module 'headwater.process' has no attribute '%s'" % name)
    if name not in operators.kinds() and difflib.get_close_matches(name, _OWN, 1, 0.6):
        raise ImportError("headwater.process has no '%s'%s" % (name, near(name, _OWN)))
    made = globals()[name] = operator(name)
    return made
