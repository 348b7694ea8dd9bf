"""Validation: reports every mistake of a process at once, each with its place and a suggested fix.
A board never imports this module.

`check(process)` applies the rules in the order of this file. Each records what it finds and leaves
the rest to the others, so that one mistake is reported once and hides none of the others.
Errors refuse the process; warnings tell what the author should know. If there is no error, the
report holds the plan.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from . import plan as plans
from . import planread, reserve, sensible
from . import process as builder
from .alphabet import TYPES, Alphabet, AlphabetError, is_name
from .interfaces import Params
from .log import table_max
from .operator import Operator, OperatorError, fields
from .operators.arguments import arguments, other_units
from .process import GATEWAY, Host, near
from .sizing import CHECKPOINT_MAX_BYTES, RUNTIME_KB, SECTOR_BYTES, Sizing, Vertex, is_number, kb

At = Vertex | builder.Wire | Host | builder.Process  # what is wrong, or what a warning is about

ERROR, WARNING = "error", "warning"

GATEWAY_HEAP_KB = 262144
INTS_MAX = 1024
TEXT_MAX = 256
LEVEL_HOLDERS = (0, 1, 2)


class Problem:
    """One thing that is wrong: where (file, line, and in words), what, and what to do."""

    def __init__(self, severity: str, place: builder.Place, where: str, what: str, cure: str) -> None:
        self.severity = severity
        self.file, self.line = place
        self.where = where
        self.what = what
        self.cure = cure

    def __str__(self) -> str:
        warning = "warning: " if self.severity == WARNING else ""
        what = self.what if self.what.endswith("?") else self.what + "."
        return "%s:%d: %s%s: %s %s." % (self.file, self.line, warning, self.where, what, self.cure)


class Report:
    """What the check found. `plan` (bytes) and `hash` are None if there is an error."""

    def __init__(
        self, name: str, problems: list[Problem], plan: bytes | None, decoded: plans.Plan | None
    ) -> None:
        self.name = name
        self.problems = problems
        self.plan = plan
        self.decoded = decoded
        self.hash = decoded.process_hash.hex() if decoded else None

    def errors(self) -> list[Problem]:
        return [p for p in self.problems if p.severity == ERROR]

    def warnings(self) -> list[Problem]:
        return [p for p in self.problems if p.severity == WARNING]


def check(process: builder.Process) -> Report:
    return _Check(process).run()


def outputs(declared: builder.Declared) -> tuple[Alphabet, ...]:
    """The alphabets of a vertex's output ports, while the process is still being written."""
    work = _Check(declared.process)
    work.names()
    work.settings()
    work.connections()
    work.order_vertices()
    work.types()
    for v in work.vertices:
        if v.declared is declared and v.outs is not None:
            return v.outs
    raise builder.ProcessError(
        "the outputs of %s are not known yet: name them with .out(0), .out(1), ..." % declared.kind
    )


class Needs:
    """The least that validation asks of a process: `cap` of each wire, `delay_ms` of each feedback
    wire, `flash_kb` of each host by name."""

    def __init__(self, process: builder.Process) -> None:
        work = _Check(process)
        work.names()
        work.settings()
        work.connections()
        work.order_vertices()
        work.types()
        work.placement()
        work.rates()
        self.cap: dict[builder.Wire, int] = {}
        self.delay_ms: dict[builder.Wire, int] = {}
        for wire in process.wires:
            self.cap[wire] = work.need(wire)
            if wire.delay_ms is not None:
                self.delay_ms[wire] = 2 * work.loop_ms(wire)
                self.cap[wire] = work.feedback_need(wire) or self.cap[wire]
        self.flash_kb: dict[str, int] = {}
        written = work.written()
        for h, host in enumerate(work.hosts):
            if h and written:
                deployment = reserve.deployment_bytes(len(builder.dumps(written)), len(written.hosts))
                self.flash_kb[host.name] = kb(reserve.sectors(written, h, deployment) * SECTOR_BYTES)


class _Check(Sizing):
    def __init__(self, process: builder.Process) -> None:
        Sizing.__init__(self, process)
        self.problems: list[Problem] = []

    def run(self) -> Report:
        self.names()
        self.settings()
        self.connections()
        self.order_vertices()
        self.types()
        self.unused_outputs()
        self.edges()
        self.placement()
        self.rates()
        self.buffers()
        self.feedback()
        self.lake_delays()
        self.floats()
        self.resources()
        self.advice()
        if not self.wrong():
            return self.number()
        return Report(self.process.name, self.sorted(), None, None)

    def sorted(self) -> list[Problem]:
        return sorted(self.problems, key=lambda p: (p.file, p.line, p.severity != ERROR))

    def wrong(self) -> list[Problem]:
        return [p for p in self.problems if p.severity == ERROR]

    def error(self, at: At, what: str, cure: str, where: str | None = None) -> None:
        """`at`: the vertex, wire, host or process that is wrong; `where` instead of its own words."""
        self.problems.append(Problem(ERROR, at.where, where or self.words(at), what, cure))

    def warn(self, at: At, what: str, cure: str) -> None:
        self.problems.append(Problem(WARNING, at.where, self.words(at), what, cure))

    def words(self, at: At) -> str:
        if isinstance(at, Vertex):
            return at.label
        if isinstance(at, builder.Wire):
            return self.port(at)
        if isinstance(at, Host):
            return "host '%s'" % (at.name,)
        return "process"

    def port(self, wire: builder.Wire) -> str:
        """The words for an edge: where it ends, or for the lake what it is called there."""
        if wire.vertex is None:
            return "lake stream '%s'" % wire.lake
        return "%s, port %s" % (self.of[id(wire.vertex)].label, wire.port)

    # -- names ---------------------------------------------------------------------------------

    def names(self) -> None:
        p = self.process
        if not (isinstance(p.name, str) and is_name(p.name)):
            self.error(p, "%r is not a valid name" % (p.name,), NAME_CURE)
        taken: dict[str, Vertex] = {}
        for v in self.vertices:
            name = v.declared.name
            if name is None:
                continue
            v.name = name
            v.label = "vertex '%s'" % (name,)
            if not (isinstance(name, str) and is_name(name)):
                self.error(v, "%r is not a valid name" % (name,), NAME_CURE)
            elif name in taken:
                self.error(
                    v,
                    "the name is already used on line %d" % taken[name].where[1],
                    "Give one of the two another name",
                )
            else:
                taken[name] = v
        for v in self.vertices:
            if v.declared.name is None:
                base = v.declared.kind.lower()[:28]
                count = 1
                while (base if count == 1 else base + str(count)) in taken:
                    count += 1
                v.name = base if count == 1 else base + str(count)
                taken[v.name] = v
                v.label = "vertex '%s'" % v.name
        lakes: dict[str, builder.Wire] = {}
        for wire in p.wires:
            if wire.vertex is not None:
                continue
            if not (isinstance(wire.lake, str) and planread.is_lake_name(wire.lake)):
                self.error(wire, "not a name", LAKE_NAME_CURE, "lake stream %r" % (wire.lake,))
            elif wire.lake in lakes:
                self.error(
                    wire,
                    "the name is already used on line %d" % lakes[wire.lake].where[1],
                    "Give each stream in the lake its own name",
                )
            else:
                lakes[wire.lake] = wire

    # -- settings of the process ---------------------------------------------------------------

    def number_in(
        self,
        at: At,
        what: str,
        value: Any,
        low: float,
        high: float,
        kinds: tuple[Any, ...] = (int,),
        where: str | None = None,
    ) -> bool:
        if isinstance(value, bool) or not isinstance(value, kinds):
            self.error(at, "%s is %r, not a number" % (what, value), "Give %s" % _span(low, high), where)
        elif not low <= value <= high:
            self.error(at, "%s is %s" % (what, value), "Give %s" % _span(low, high), where)
        else:
            return True
        return False

    def choice(self, at: At, what: str, value: object, choices: Sequence[str]) -> int | None:
        if value in choices:
            return choices.index(value)
        cure = "Use one of %s" % ", ".join(choices)
        self.error(at, "unknown %s %r%s" % (what, value, near(value, choices)), cure)
        return None

    def settings(self) -> None:
        p = self.process
        self.strategy = self.choice(p, "checkpoints", p.checkpoints, planread.STRATEGIES)
        self.level = self.choice(p, "level", p.level, planread.LEVELS)
        ok = self.number_in(p, "every", p.every, 1, planread.EVERY_MAX)
        ok = self.number_in(p, "batch", p.batch, 1, planread.BATCH_MAX) and ok
        ok = self.number_in(p, "batch_ms", p.batch_ms, 1, planread.BATCH_MS_MAX) and ok
        ok = self.number_in(p, "link_ms", p.link_ms, 0, planread.BATCH_MS_MAX) and ok
        if ok and p.batch > p.every:
            self.error(
                p,
                "batch=%d is longer than the checkpoint interval every=%d" % (p.batch, p.every),
                "Give every=%d or more, or batch=%d or less" % (p.batch, p.every),
            )
        self.sized = ok
        if not [v for v in self.vertices if v.source]:
            self.error(p, "no source", "Begin with p.source(name, alphabet, rate_hz=..., on=...)")
        for what, have, most in (
            ("vertices", len(self.vertices), planread.VERTICES_MAX),
            ("edges", len(p.wires), planread.EDGES_MAX),
        ):
            if have > most:
                self.error(p, "%d %s; at most %d" % (have, what, most), "Split it into several processes")

    # -- edges: every input port has one, every output port at least one --------------------------

    def connections(self) -> None:
        for wire in self.process.wires:
            v = self.producer(wire)
            if not _is_port(wire.stream.port):
                self.error(wire, "output port %r" % (wire.stream.port,), PORT_CURE, v.label)
                continue
            v.outputs.setdefault(wire.stream.port, []).append(wire)
            if wire.vertex is None:
                continue
            y = self.consumer(wire)
            if y.source:
                self.error(
                    wire,
                    "a source is raw and has no inputs",
                    "Put an operator after it, and connect to that",
                    y.label,
                )
            elif not _is_port(wire.port):
                self.error(wire, "input port %r" % (wire.port,), PORT_CURE, y.label)
            elif wire.port in y.inputs:
                self.error(
                    wire,
                    "has two edges, from '%s' (line %d) and from '%s'"
                    % (self.producer(y.inputs[wire.port]).name, y.inputs[wire.port].where[1], v.name),
                    "Merge the two with Union, or connect one of them elsewhere",
                )
            elif wire.port in y.declared.disabled:
                self.error(wire, "is disabled and has an edge", "Drop one of the two")
            else:
                y.inputs[wire.port] = wire

    # -- cycles --------------------------------------------------------------------------------

    def order_vertices(self) -> None:
        """Producers first, feedback aside, else as declared."""
        wires = list(self.forward())
        left = list(self.vertices)
        while left:
            for v in left:
                if not [w for w in wires if self.consumer(w) is v and self.producer(w) in left]:
                    break
            else:
                self.loop(left, wires)
                self.order += left
                break
            left.remove(v)
            self.order.append(v)
        if self.strategy == plans.ECOC:
            wires = list(self.inner())
            for wire in wires:
                back = self.path(self.consumer(wire), self.producer(wire), wires)
                if back is not None and wire.delay_ms is not None:
                    self.error(
                        wire,
                        'checkpoints="ecoc" on the cycle %s' % _cycle(back),
                        'Use checkpoints="extended"',
                        "process",
                    )

    def loop(self, left: list[Vertex], wires: Sequence[builder.Wire]) -> None:
        told = []
        for wire in wires:
            v = self.consumer(wire)
            if v in told or v not in left:
                continue
            back = self.path(v, self.producer(wire), wires)
            if back is not None:
                told += back
                self.error(
                    wire,
                    "the cycle %s has no feedback edge" % _cycle(back),
                    "Close it with p.feedback(stream, operator, port=..., delay_ms=...)",
                )

    # -- operator types, parameters, alphabets -----------------------------------------------------

    def types(self) -> None:
        for v in self.vertices:
            if v.source:
                self.source(v)
            elif v.cls is None:
                kind = v.declared.kind
                self.error(
                    v,
                    "unknown operator type '%s'%s" % (kind, near(kind, builder.library())),
                    "Import a type of the library, or make one of your class with operator(YourClass)",
                )
            else:
                v.bound = self.bind(v)
        # A feedback port's alphabet is known only when the loop is: go round until nothing changes.
        # Mistakes are reported in the last round.
        known: dict[int, tuple[Alphabet, ...]] = {}
        for _ in range(len(self.vertices) + 2):
            had = {key: [a.text for a in outs] for key, outs in known.items()}
            for v in self.order:
                if not v.source and v.bound:
                    self.ports(v, known, False)
            known = {id(v): v.outs for v in self.order if v.outs is not None}
            if had == {key: [a.text for a in outs] for key, outs in known.items()}:
                break
        for v in self.order:
            if not v.source and v.bound:
                self.ports(v, known, True)

    def source(self, v: Vertex) -> None:
        d = v.declared
        cure = 'Write the alphabet like "t:u32 mV:i16"'
        if not isinstance(d.alphabet, str):
            self.error(v, "alphabet %r" % (d.alphabet,), cure)
        else:
            try:
                v.outs = (Alphabet(d.alphabet),)
            except AlphabetError as e:
                self.error(v, str(e), cure)
        for what, value in (("rate_hz", d.rate_hz), ("most_hz", d.most_hz)):
            if value is not None:
                self.number_in(v, what, value, 0.001, planread.RATE_MHZ_MAX // 1000, (int, float))
        if d.log_kb is not None:
            self.number_in(v, "log_kb", d.log_kb, 1, planread.LOG_BYTES_MAX // 1024)

    def bind(self, v: Vertex) -> bool:
        """Parameters by position and name, checked against PARAMS; True when they are right."""
        assert v.cls is not None
        declared = fields(v.cls.PARAMS)
        names = [name for name, _, _, _ in declared]
        d = v.declared
        errors = len(self.problems)
        try:
            given = arguments(v.cls, d.args, d.params)
        except OperatorError as e:
            self.error(v, str(e), "%s has the parameters %s" % (d.kind, _words(names)))
            return False
        for name in given:
            if name not in names:
                offered = [word for known in names for word in (known, *other_units(known))]
                self.error(
                    v,
                    "unknown parameter '%s'%s" % (name, near(name, offered)),
                    "%s has %s" % (d.kind, _words([_with_units(known) for known in names])),
                )
        for name, kind, _, default in declared:
            if name not in given:
                if default is None:
                    self.error(v, "parameter '%s' is missing" % name, "Give %s(%s=...)" % (d.kind, name))
                continue
            ok, value = self.value(v, name, kind, given[name])
            if ok:
                v.params[name] = value
        return len(self.problems) == errors

    def value(self, v: Vertex, name: str, kind: str, value: Any) -> tuple[bool, Any]:
        where = "%s, parameter '%s'" % (v.label, name)
        if kind == "text":
            if isinstance(value, str) and len(value) <= TEXT_MAX:
                return True, value
            self.error(
                v, "%r is not a text" % (value,), "Give a text of at most %d letters" % TEXT_MAX, where
            )
        elif kind == "ints":
            if isinstance(value, (list, tuple)) and len(value) <= INTS_MAX:
                for item in value:
                    if not self.number_in(
                        v, "an entry", item, TYPES["i64"][2], TYPES["i64"][3], (int,), where
                    ):
                        return False, None
                return True, list(value)
            self.error(
                v, "%r is not a list of integers" % (value,), "Give at most %d integers" % INTS_MAX, where
            )
        elif kind == "expr":
            if isinstance(value, (int, str, list)) and not isinstance(value, bool):
                return True, value  # `arguments` parsed it; the type looks at what it names
            self.error(
                v, "%r is not an expression" % (value,), 'Write it as a text, like "mV * 2 + 1"', where
            )
        elif kind in ("f32", "f64"):
            if self.number_in(v, "it", value, -math.inf, math.inf, (int, float), where):
                return True, float(value)
        elif self.number_in(v, "it", value, TYPES[kind][2], TYPES[kind][3], (int,), where):
            return True, value
        return False, None

    def ports(self, v: Vertex, known: dict[int, tuple[Alphabet, ...]], tell: bool) -> None:
        """Alphabets of the ports of an operator, from those of its inputs. With `tell`,
        misfits are recorded as errors."""
        v.outs = None
        cls = v.cls
        assert cls is not None
        own = cls.ports.__func__ is not Operator.ports.__func__  # type: ignore[attr-defined]
        count = len(cls.IN)
        if own and not count:
            count = max(list(v.inputs) + list(v.declared.disabled) + list(cls.FEEDBACK) + [-1]) + 1
        errors = len(self.problems)
        for port in sorted(v.inputs):
            if tell and port >= count:
                self.error(
                    v.inputs[port],
                    "%s has %d input port%s" % (v.declared.kind, count, "" if count == 1 else "s"),
                    "Connect to port %s" % _words([str(i) for i in range(count)]),
                )
        ins: list[str | None] = []
        open_ = []  # ports whose alphabet is not known: loops that are not closed, or not yet followed
        for port in range(count):
            wire = v.inputs.get(port)
            ins.append(None)
            if wire is None and port not in v.declared.disabled:
                if tell:
                    self.error(
                        v,
                        "the input port has no edge",
                        "Connect a stream, or give None to disable it",
                        "%s, port %d" % (v.label, port),
                    )
                open_.append(port)
            elif wire is not None:
                outs = self.producer(wire).outs
                if wire.delay_ms is not None:
                    outs = known.get(id(self.producer(wire)))
                if outs is not None and wire.stream.port < len(outs):
                    ins[port] = outs[wire.stream.port].text
                elif wire.delay_ms is not None:
                    open_.append(port)
                else:
                    return  # its producer's mistake, reported there
        if not own:
            v.outs = _alphabets(cls.OUT)
        for port in open_:
            if port not in cls.FEEDBACK:
                return
        params = self.filled(v)
        # What is fed back is guessed until it is known: the stream itself, or one integer.
        for guess in (ins[0], "fed:i32") if open_ else (None,):
            for port in open_:
                ins[port] = cls.IN[port] if port < len(cls.IN) else guess
            wants, gives = self.call_ports(v, ins, params, tell)
            if gives is not None:
                break
        v.outs = gives
        if wants is None or not tell or open_ or len(self.problems) > errors:
            return
        if len(wants) != count:
            self.error(
                v,
                "%s takes %d inputs and is given %d" % (v.declared.kind, len(wants), count),
                "Connect each input port once",
            )
            return
        for port in range(count):
            if ins[port] is not None and wants[port].text != ins[port]:
                wire = v.inputs[port]
                self.error(
                    wire,
                    "takes '%s', and '%s' gives '%s'"
                    % (wants[port].text, self.producer(wire).name, ins[port]),
                    "Put a Map between them, or connect a stream with that alphabet",
                )
        if len(self.problems) == errors:
            v.ins = tuple([None if text is None else Alphabet(text) for text in ins])
            self.instance(v)

    def call_ports(
        self, v: Vertex, ins: Sequence[str | None], params: Params, tell: bool
    ) -> tuple[tuple[Alphabet, ...], tuple[Alphabet, ...]] | tuple[None, None]:
        """(input alphabets, output alphabets) as the type says, or (None, None)."""
        assert v.cls is not None
        try:
            wants, gives = v.cls.ports(tuple(ins), params)
            return _alphabets(wants), _alphabets(gives)
        except (OperatorError, AlphabetError) as e:
            what = str(e)
            cure = "Look up %s and give it what it takes" % v.declared.kind
        except Exception as e:  # the author's own class: whatever it raises is its mistake
            what = "ports of %s fail: %s: %s" % (v.declared.kind, type(e).__name__, e)
            cure = "Let ports(ins, params) return two tuples of alphabets, or raise OperatorError"
        if tell:
            self.error(v, what, cure)
        return None, None

    def instance(self, v: Vertex) -> None:
        """Make one, as a host would: it may refuse its parameters, and it knows the size of its state."""
        size = self.process.batch if self.sized else 1
        assert v.cls is not None and v.outs is not None
        try:
            made = v.cls(v.params, v.ins, v.outs, size)
            v.state_bytes = made.state_size()
            v.changed_bytes = _changed_bytes(v.cls)
        except Exception as e:  # the same: what a type raises on its parameters is for the author
            what = str(e) if isinstance(e, OperatorError) else "%s: %s" % (type(e).__name__, e)
            self.error(v, what, "Look up the parameters of %s" % v.declared.kind)
            v.outs = None
            return
        v.floats = v.cls.FLOATS or any([a.floats() for a in v.outs + tuple([a for a in v.ins if a])])

    def unused_outputs(self) -> None:
        for v in self.vertices:
            if v.outs is None:
                continue
            for port in sorted(v.outputs):
                if port >= len(v.outs):
                    for wire in v.outputs[port]:
                        self.error(
                            wire,
                            "%s has %d output port%s"
                            % (v.declared.kind or "a source", len(v.outs), "" if len(v.outs) == 1 else "s"),
                            "Take port %s" % _words([str(i) for i in range(len(v.outs))]),
                            "%s, output port %d" % (v.label, port),
                        )
            for port in sorted(v.declared.unused, key=str):
                if not _is_port(port) or port >= len(v.outs):
                    self.error(
                        v,
                        "output port %r is disabled, but does not exist" % (port,),
                        "Call .unused() for port %s" % _words([str(i) for i in range(len(v.outs))]),
                    )
            for port in range(len(v.outs)):
                used = port in v.outputs
                if used and port in v.declared.unused:
                    self.error(
                        v.outputs[port][0],
                        "is disabled and has an edge",
                        "Drop one of the two",
                        "%s, output port %d" % (v.label, port),
                    )
                elif not used and port not in v.declared.unused:
                    self.error(
                        v,
                        "it is not used",
                        "Connect it, send it to the lake, or call .unused(%d)" % port,
                        "%s, output port %d" % (v.label, port),
                    )
            for what, have, most in (
                ("input", len(v.ins), planread.PORTS_MAX),
                ("output", len(v.outs), planread.OUT_PORTS_MAX),
            ):
                if have > most:
                    self.error(
                        v,
                        "%d %s ports; at most %d" % (have, what, most),
                        "Split the operator into several",
                    )

    # -- settings of an edge -------------------------------------------------------------------------

    def edges(self) -> None:
        for wire in self.process.wires:
            v = self.producer(wire)
            policy = self.choice(wire, "policy on_full", wire.policy or "block", planread.POLICIES)
            if policy is not None and policy > plans.SPILL and wire.vertex is not None:
                self.error(
                    wire,
                    'on_full="%s" inside the process' % wire.policy,
                    'Only edges to the lake may drop: use "block" or "spill"',
                )
            elif policy == plans.SPILL and v.source:
                self.error(
                    wire,
                    "on_full=\"spill\" on a stream of source '%s', which is in its log already" % v.name,
                    'Leave out on_full=, or use "drop_oldest" on its edge to the lake',
                )
            elif policy == plans.DROP_NEWEST and not v.source:
                self.error(
                    wire,
                    "on_full=\"drop_newest\" on a stream of operator '%s', which cannot refuse its inputs"
                    % v.name,
                    'Use "drop_oldest", or "drop_newest" on an edge of its source to the lake',
                )
            if wire.vertex is not None:
                continue
            durable = self.choice(wire, "durable", wire.durable, planread.DURABLE)
            if durable == plans.FLASH and (self.level or 0) > plans.LOCAL and not wire.accept_loss:
                self.error(
                    wire,
                    'durable="flash" with level="%s": a result that is safe on one board alone dies with it'
                    % self.process.level,
                    'Use durable="gateway", or accept_loss=True',
                )
            self.number_in(wire, "within_ms", wire.within_ms, 0, planread.WITHIN_MS_MAX)

    # -- hosts and placement -------------------------------------------------------------------------

    def placement(self) -> None:
        p = self.process
        declared: dict[str, Host] = {}
        for host in p.hosts:
            if not (isinstance(host.name, str) and is_name(host.name)):
                self.error(host, "%r is not a valid name" % (host.name,), NAME_CURE)
                continue
            if host.name in declared:
                self.error(
                    host,
                    "is declared already at line %d" % declared[host.name].where[1],
                    "Give one of the two another name",
                )
                continue
            ok = self.number_in(host, "flash_kb", host.flash_kb, 16, 1 << 24)
            ok = self.number_in(host, "heap_kb", host.heap_kb, 32, 1 << 24) and ok
            if host.floats not in (32, 64):
                self.error(host, "floats=%r" % (host.floats,), "Give 32 or 64")
                ok = False
            host.sound = ok
            declared[host.name] = host
        gateway = declared.pop(GATEWAY, None)
        if gateway is None:
            gateway = Host(GATEWAY, 1 << 24, GATEWAY_HEAP_KB, 64, p.where)
        self.hosts = [gateway] + list(declared.values())
        if not declared:
            for name in p.mentioned:
                if name != GATEWAY and isinstance(name, str) and is_name(name):
                    host = Host(name, builder.FLASH_KB, builder.HEAP_KB, 32, p.where)
                    self.hosts.append(host)
        if len(self.hosts) > planread.HOSTS_MAX:
            self.error(
                p,
                "%d hosts; at most %d" % (len(self.hosts), planread.HOSTS_MAX),
                "Split it into several processes",
            )
        for v in self.order:
            self.place(v)

    def find_host(self, v: Vertex, name: str) -> int | None:
        names = [host.name for host in self.hosts]
        if name in names:
            return names.index(name)
        cure = "Use one of %s" % ", ".join(names) if len(names) > 1 else "Declare it with p.host(name)"
        self.error(v, "unknown host %r%s" % (name, near(name, names)), cure)
        return None

    def place(self, v: Vertex) -> None:
        d = v.declared
        if d.host is not None:
            v.host = self.find_host(v, d.host)
        elif v.source:
            self.error(v, "a source runs where its sensor is", 'Say where: on="..."')
        else:
            for port in sorted(v.inputs):
                if v.inputs[port].delay_ms is None:
                    v.host = self.producer(v.inputs[port]).host
                    break
        if v.source:
            if d.backups:
                self.error(
                    v,
                    "a source cannot move: no backup host has its sensor",
                    "Leave out backup=; to survive its host, put a second source on another one",
                )
            v.hosts = () if v.host is None else (v.host,)
            return
        if v.host is None:
            return
        if d.backups is not None:
            backups = []
            for name in d.backups:
                h = self.find_host(v, name)
                if h is None:
                    continue
                if h == v.host:
                    self.error(v, "is backed up by its own host '%s'" % name, "Name another host as backup")
                elif h in backups:
                    self.error(v, "backup '%s' is named twice" % name, "Drop one of the two")
                backups.append(h)
        else:
            width = self.hosts[v.host].floats
            backups = [h for h in range(len(self.hosts)) if h != v.host]
            if v.floats and not self.process.allow_drift:
                backups = [h for h in backups if self.hosts[h].floats == width]
            # as many as the level requires, and one to spare
            backups = backups[: LEVEL_HOLDERS[self.level or 0] + 1 if self.level else 0]
        v.hosts = (v.host,) + tuple(backups)
        if (
            self.level is not None
            and len(backups) < LEVEL_HOLDERS[self.level]
            and (d.backups is None or None not in [self.known(name) for name in d.backups])
        ):
            self.error(
                v,
                'level="%s" needs %d more host%s for its checkpoints; there %s %d'
                % (
                    self.process.level,
                    LEVEL_HOLDERS[self.level],
                    "" if LEVEL_HOLDERS[self.level] == 1 else "s",
                    "is" if len(backups) == 1 else "are",
                    len(backups),
                ),
                "Name more backup hosts%s, or lower the level"
                % (" with floats=%d" % self.hosts[v.host].floats if v.floats else ""),
            )

    def known(self, name: str) -> str | None:
        return name if name in [host.name for host in self.hosts] else None

    # -- buffers: one checkpoint interval, and the batch that is under way ---------------------------

    def buffers(self) -> None:
        for wire in self.process.wires:
            if wire.cap is not None and not self.number_in(wire, "cap", wire.cap, 1, planread.CAP_MAX):
                continue
            if not self.sized:
                continue
            need = self.need(wire)
            two = need == 2 * self.process.batch
            lake = wire.vertex is None
            if wire.cap is None and self.cap(wire) > planread.CAP_MAX:
                self.error(
                    wire,
                    "%s up to %d elements here; a buffer holds at most %d"
                    % ("until the lake has them come" if lake else "one interval is", need, planread.CAP_MAX),
                    'Use durable="gateway"' if lake else "Lower every=",
                )
            elif wire.cap is not None and wire.cap < need:
                what = "one checkpoint interval and the batch that is under way"
                if two:
                    what = "two batches of %d" % self.process.batch
                elif lake:
                    what = "what comes until the lake has it, and two batches"
                more = "" if two else ', or use durable="gateway"' if lake else ", or lower every="
                self.error(
                    wire,
                    "cap=%d cannot hold %s" % (wire.cap, what),
                    "Give cap=%d or more%s" % (need, more),
                )

    # -- feedback: silent, and late enough -------------------------------------------------------------
    def feedback(self) -> None:
        for wire in self.inner():
            if wire.delay_ms is None:
                continue
            y = self.consumer(wire)
            if y.cls is not None and wire.port not in y.cls.FEEDBACK:
                silent = [str(i) for i in y.cls.FEEDBACK]
                self.error(
                    wire,
                    "feedback into a port that is not silent",
                    "%s takes feedback at port %s" % (y.declared.kind, _words(silent))
                    if silent
                    else "%s has no silent port: use a type that has one, like Attenuate" % y.declared.kind,
                )
            if (
                not self.number_in(wire, "delay_ms", wire.delay_ms, 1, planread.DELAY_US_MAX // 1000)
                or not self.sized
            ):
                continue
            loop = self.loop_ms(wire)
            if wire.delay_ms < 2 * loop:
                self.error(
                    wire,
                    "feedback delay of %d ms; the loop takes up to %d ms with batching"
                    % (wire.delay_ms, loop),
                    "Give delay_ms=%d or more (twice that), or lower batch_ms or link_ms" % (2 * loop),
                )
            need = self.feedback_need(wire)
            if need is None:
                self.error(
                    wire,
                    "nothing limits the rate of '%s', so no buffer is known to be large enough"
                    % self.producer(wire).name,
                    "Give rate_hz or most_hz to the sources above it",
                )
            elif isinstance(wire.cap, int) and self.need(wire) <= wire.cap < need:
                self.error(
                    wire,
                    "cap=%d cannot hold what is on its way for %d ms and one interval"
                    % (wire.cap, wire.delay_ms),
                    "Give cap=%d or more" % need,
                )

    # -- the delay that an author asks for -------------------------------------------------------------

    def lake_delays(self) -> None:
        """Well-formedness, rule 5: no delay limit below what the path takes without failures."""
        if not self.sized:
            return
        for wire in self.process.wires:
            if wire.vertex is not None or not is_number(wire.within_ms) or not wire.within_ms:
                continue
            v = self.producer(wire)
            ways = [self.longest_ms(u, v) for u in self.vertices if u.source]
            least = max([w for w in ways if w is not None] or [0]) + self.latency_ms(wire)
            if wire.within_ms < least:
                self.error(
                    wire,
                    "within_ms=%d; batches and links take up to %d ms" % (wire.within_ms, least),
                    "Give within_ms=%d or more, or lower batch, batch_ms or link_ms" % least,
                )

    # -- floats ------------------------------------------------------------------------------------

    def floats(self) -> None:
        if self.process.allow_drift:
            return
        for v in self.vertices:
            widths = [self.hosts[h].floats for h in v.hosts if h is not None]
            if v.floats and [width for width in widths if width != widths[0]]:
                self.error(
                    v,
                    "computes in floats, and its hosts have floats of different width (%s)"
                    % ", ".join(["%s: %s" % (self.hosts[h].name, self.hosts[h].floats) for h in v.hosts]),
                    "Name hosts of one width, compute in integers, or give Process(..., allow_drift=True)",
                )

    # -- what a host has, and what it needs ------------------------------------------------------------
    def resources(self) -> None:
        if not self.sized:
            return
        # What a log must hold is computed for a plan: one with other mistakes in it may have any numbers.
        written = None if self.wrong() else self.written()
        for vertex in written.vertices if written else ():
            assert written is not None
            size = reserve.checkpoint_bytes(written, vertex) if vertex.kind else 0
            if (len(vertex.hosts) > 1 or self.level) and size > CHECKPOINT_MAX_BYTES:
                self.error(
                    self.order[vertex.index],
                    "a checkpoint with its transfer state takes up to %d KB; a host takes in at most %d KB"
                    % (kb(size), CHECKPOINT_MAX_BYTES // 1024),
                    "Lower every= or the caps of its outputs, or give it a smaller state",
                )
        for h, host in enumerate(self.hosts):
            if not host.sound or h == 0:
                continue
            held = [v for v in self.vertices if h in v.hosts and not v.source]
            runs = [v for v in self.vertices if v.host == h]
            for v in runs:
                if v.source and v.outs and isinstance(v.declared.log_kb, int):
                    least = self.log_bytes(v)
                    if v.declared.log_kb * 1024 < least:
                        self.error(
                            v,
                            "log_kb=%d cannot hold one checkpoint interval" % v.declared.log_kb,
                            "Give log_kb=%d or more, or lower every=" % kb(least),
                        )
            if written:
                self.flash(written, h, host)
            heap = sum([self.buffer_bytes(v, h) for v in runs])
            spare = max([self.buffer_bytes(v, h) for v in held if v.host != h] or [0])
            if RUNTIME_KB * 1024 + heap + spare > host.heap_kb * 1024:
                self.error(
                    host,
                    "heap_kb=%d; the runtime takes %d KB, the buffers of %s %d KB%s"
                    % (
                        host.heap_kb,
                        RUNTIME_KB,
                        _words([v.name for v in runs]),
                        kb(heap),
                        ", what it may take over %d KB" % kb(spare) if spare else "",
                    ),
                    "Give it heap_kb=%d, move operators away, or lower every=, batch= or caps"
                    % (RUNTIME_KB + kb(heap + spare)),
                )

    def flash(self, written: plans.Plan, h: int, host: Host) -> None:
        """Whether the log of a host can hold what it must: see reserve.py."""
        held = [v.name for v in written.vertices if v.kind and h in written.keepers(v.index)]
        streams, table = reserve.table(written, h)
        room = table_max(SECTOR_BYTES)
        if table > room:
            self.error(
                host,
                "the table of what its log holds takes up to %d bytes for %s; a sector has room for %d"
                % (table, _words([v.name for v in written.vertices if h in v.hosts]), room),
                "Move operators to another host, or name fewer backups",
            )
            return
        deployment = reserve.deployment_bytes(len(builder.dumps(written)), len(written.hosts))
        least = reserve.sectors(written, h, deployment) * SECTOR_BYTES
        if least > host.flash_kb * 1024:
            kept = reserve.reserve_sectors(written, h, deployment) * SECTOR_BYTES
            self.error(
                host,
                "flash_kb=%d; the log needs %d KB in reserve for checkpoints of %s, and %d KB for the rest"
                % (host.flash_kb, kb(kept), _words(held), kb(least - kept)),
                "Give it flash_kb=%d, move operators away, or lower every= or caps" % kb(least),
            )

    # -- what the author should know -------------------------------------------------------------------

    def advice(self) -> None:
        p = self.process
        if self.strategy == plans.UNSAFE:
            self.warn(
                p,
                'checkpoints="unsafe": a restart loses what operators hold',
                'Use "extended" where that matters',
            )
        elif self.level == plans.LOCAL and [v for v in self.vertices if not v.source]:
            self.warn(
                p,
                'level="local": the permanent death of a host loses its operators',
                'Use level="peer" to survive it',
            )
        for h, host in enumerate(self.hosts):
            if h and not [v for v in self.vertices if h in v.hosts]:
                self.warn(host, "nothing runs there", "Place something on it, or drop it")
        if not self.wrong():
            self.sense()

    def sense(self) -> None:
        """Values that are legal but make no sense for the streams of this process."""
        for v in self.vertices:
            if v.source:
                continue
            feeders = [self.producer(v.inputs[p]) for p in v.inputs if v.inputs[p].delay_ms is None]
            most = [u.most_hz for u in feeders if u.most_hz is not None]
            most_hz = sum(most) if most and len(most) == len(feeders) else None
            for what in sensible.problems(v.declared.kind, v.ins, self.filled(v), most_hz):
                self.warn(v, what, "Give it another value")

    # -- the plan ------------------------------------------------------------------------------------

    def number(self) -> Report:
        p = self.process
        written = self.written()
        assert written is not None
        data = builder.dumps(written)
        try:
            decoded = plans.loads(data)
        except plans.PlanError as e:
            self.error(p, str(e), "Make it smaller")
            return Report(p.name, self.sorted(), None, None)
        return Report(p.name, self.sorted(), data, decoded)


PORT_CURE = "Ports are numbered 0, 1, 2, ..."
NAME_CURE = "Use a letter, then letters, digits and _, at most 32 in all"
LAKE_NAME_CURE = "Use names with / between them, like cardio/ecg, at most 64 letters"


def _is_port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _span(low: float, high: float) -> str:
    if low == -math.inf:
        return "a number"
    return "%s to %s" % (low, high)


def _words(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"


def _with_units(name: str) -> str:
    units = other_units(name)
    return "%s (or %s)" % (name, ", ".join(units)) if units else name


def _cycle(vertices: Sequence[Vertex]) -> str:
    return " -> ".join([v.name for v in vertices] + [vertices[0].name])


def _alphabets(texts: Iterable[str]) -> tuple[Alphabet, ...]:
    return tuple([Alphabet(text) for text in texts])


def _changed_bytes(cls: type[Operator]) -> int:
    """Bytes of all parameters of a type as a checkpoint holds them, at most."""
    size = 3
    for name, kind, _, _ in fields(cls.PARAMS):
        size += len(name) + 2 + (plans.CONTENT_MAX if kind in ("text", "ints", "expr") else 9)
    return size
