"""What a process file declares, rule by rule: names, settings, connections, order, types, unused outputs.

Each rule records what it finds and leaves the rest to the others. These need no numbers of streams or hosts;
what does is in feasibility.py.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ..data.alphabet import TYPES, Alphabet, AlphabetError, is_name
from ..offboard.interfaces import Params
from ..plan import model as plans
from ..plan import reader
from ..runtime.operator import Operator, OperatorError, fields
from . import builder
from .arguments import arguments, other_units
from .builder import near
from .problems import At, Problems
from .sizing import Vertex

INTS_MAX = 1024
TEXT_MAX = 256
PORT_CURE = "Ports are numbered 0, 1, 2, ..."
NAME_CURE = "Use a letter, then letters, digits and _, at most 32 in all"
LAKE_NAME_CURE = "Use names with / between them, like cardio/ecg, at most 64 letters"


class Rules(Problems):
    """The rules of what a process file declares."""

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
            if not (isinstance(wire.lake, str) and reader.is_lake_name(wire.lake)):
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
        self.strategy = self.choice(p, "checkpoints", p.checkpoints, reader.STRATEGIES)
        self.level = self.choice(p, "level", p.level, reader.LEVELS)
        ok = self.number_in(p, "every", p.every, 1, reader.EVERY_MAX)
        ok = self.number_in(p, "batch", p.batch, 1, reader.BATCH_MAX) and ok
        ok = self.number_in(p, "batch_ms", p.batch_ms, 1, reader.BATCH_MS_MAX) and ok
        ok = self.number_in(p, "link_ms", p.link_ms, 0, reader.BATCH_MS_MAX) and ok
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
            ("vertices", len(self.vertices), reader.VERTICES_MAX),
            ("edges", len(p.wires), reader.EDGES_MAX),
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
                self.number_in(v, what, value, 0.001, reader.RATE_MHZ_MAX // 1000, (int, float))
        if d.log_kb is not None:
            self.number_in(v, "log_kb", d.log_kb, 1, reader.LOG_BYTES_MAX // 1024)

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
                ("input", len(v.ins), reader.PORTS_MAX),
                ("output", len(v.outs), reader.OUT_PORTS_MAX),
            ):
                if have > most:
                    self.error(
                        v,
                        "%d %s ports; at most %d" % (have, what, most),
                        "Split the operator into several",
                    )


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
