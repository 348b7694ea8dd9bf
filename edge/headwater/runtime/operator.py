# The base of every operator: declared ports, parameters and state; state packs itself.
#
# An operator is a deterministic machine. Given the same inputs it gives the same outputs, with the
# same stream times, on every host, always: no clock, no randomness, no order of a dict or a set,
# and integers that wrap or saturate explicitly before they are stored.
#
# What a type declares:
#   IN, OUT    alphabets of its ports, as texts. A type whose alphabets depend on what it is
#              connected to or on its parameters overrides `ports`.
#   PARAMS     "gain:i32=1 shift:u8" - parameters; one without '=' must be given. A type in
#              TYPES, or `ints` (a list of integers), or `text`, or `expr` (a checked tree).
#              All of them may change at run time through the config port.
#   STATE      "acc:i64 line:i16*taps" - scalars and fixed arrays (a count is a number or the name
#              of a parameter or attribute made by `setup`). This, and nothing else, is what a
#              checkpoint holds; it is packed by the declared widths.
#   VERSION    of the state's layout and meaning; raise it when either changes, and define in
#              `convert` what becomes of older ones, or they are refused.
#   ONE_TO_ONE True: output i is caused by input i, always as many out as in (ts pass through).
#   FLOATS     True: computes in floats; validation keeps such operators on one float width.
#   FEEDBACK   (1, 2): input ports whose elements change state only, cause no output and arm no timer:
#              feedback edges may end there, and nowhere else.
#   CATEGORY   heading under which the documentation lists the type.
#
# What a type does:
#   setup()    derive constants and buffers from parameters; runs again when parameters change.
#   start()    the first state, if zeros are not right.
#   run(x, n)  take n elements of batch x, write outputs into self.y, return how many.
#              At most one output per port for each element or timer. Output j says in
#              self.y.at[j] which input i caused it (not needed with ONE_TO_ONE). Further output
#              ports are self.outs[1], ...: set their n. Work on locals, allocate nothing.
#              With several input ports x is a merged batch: x.port[i] is the port of element i,
#              x.cols[p] holds the columns of port p, in order, each from index 0.
#              A feedback port's elements change state only: no output, no timer.
#   hole(port) one hole on that port, in order, as one step: change state (reset, hold, count);
#              return True to pass the hole on to every output port (the default), else False.
#   closed(port), opened(port, ts)  a decision closed an input, or opened it again: what is older than ts
#              does not come any more. Change state only.
#   timer      0, or the ts at which `fire` is due. It belongs in STATE ("timer:i64"). A type that
#              arms timers says TIMED = True: it is given only elements below its timer, and one
#              element at a time while the timer is 0, so that no batch runs past a timer that
#              one of its own elements arms (a timer may only move on, or go off, inside a batch).
#   fire()     the frontier reached self.timer: write at most one output at index 0 of each port,
#              set the next timer (or 0), return how many on port 0.

import struct
from array import array

from ..board.native import BOARD
from ..data.alphabet import TYPES
from ..data.batch import Batch
from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..data.alphabet import Alphabet
    from ..offboard.interfaces import Params, Port, Ports, Readable


class OperatorError(ValueError):
    pass


# True for a value that a parameter of this kind can have; an expression is checked where it is used.
def _fits(kind: str, value: "Any") -> bool:
    if kind == "expr":
        return True
    if kind == "text":
        return type(value) is str
    if kind == "ints":
        if type(value) not in (list, tuple):
            return False
        for v in value:
            if type(v) is not int:
                return False
        return True
    if kind[0] == "f":
        return type(value) in (int, float)
    return type(value) is int and TYPES[kind][2] <= value <= TYPES[kind][3]


# "a:i32=1 b:i16*taps c:ints" -> [(name, type, count text or "", default text or None)]
def fields(text: str) -> list[tuple[str, str, str, str | None]]:
    out = []
    for part in text.split():
        name, _, rest = part.partition(":")
        rest, eq, default = rest.partition("=")
        kind, _, count = rest.partition("*")
        out.append((name, kind, count, default if eq else None))
    return out


class Operator:
    IN: tuple[str, ...] = ()
    OUT: tuple[str, ...] = ()
    PARAMS = ""
    STATE = ""
    VERSION = 1
    ONE_TO_ONE = False
    FLOATS = False
    FEEDBACK: tuple[int, ...] = ()
    TIMED = False
    # Of a timed operator whose entries set the timer again: the parameter with the distance. After a
    # change an entry may set it earlier than it was before, and later entries must wait for it.
    ARMS = ""
    CATEGORY = "your own"

    timer = 0
    _laid: str | None = None
    ins: "tuple[Any, ...]"  # of Alphabet; None for a disabled port

    # Alphabets of the ports, as texts, for an operator with these parameters whose inputs are
    # connected to streams with alphabets `ins`. Raise OperatorError if they do not fit.
    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        return cls.IN, cls.OUT

    # params: dict name -> value. ins, outs: tuples of Alphabet. size: most elements per batch.
    def __init__(
        self, params: "Params", ins: "tuple[Alphabet | None, ...]", outs: "tuple[Alphabet, ...]", size: int
    ) -> None:
        self.ins = ins
        self.size = size
        made = []
        for a in outs:
            made.append(Batch(a, size))
        self.outs = tuple(made)
        self.y: Batch = self.outs[0] if outs else None  # type: ignore[assignment]
        self.configure(params, True)
        for name, kind, count, _ in fields(self.STATE):
            if count:
                k = int(count) if count.isdigit() else getattr(self, count)
                setattr(self, name, array(TYPES[kind][0], bytes(TYPES[kind][1] * k)))
            else:
                setattr(self, name, 0.0 if kind[0] == "f" else 0)
        self.start()

    # Set parameters (all of them at first, some of them later) and derive from them. If they are
    # refused the operator stays as it was.
    def configure(self, params: "Params", first: bool = False) -> None:
        declared = fields(self.PARAMS)
        known = []
        for name, _, _, _ in declared:
            known.append(name)
        for name in params:
            if name not in known:
                raise OperatorError("unknown parameter '%s': has %s" % (name, " ".join(known) or "none"))
        for name, kind, _, _ in declared:
            if name in params and not _fits(kind, params[name]):
                raise OperatorError("parameter '%s' is %r, which is not %s" % (name, params[name], kind))
        old = []
        for name, kind, _, default in declared:
            if name in params:
                value = params[name]
            elif not first:
                continue
            elif default is None:
                raise OperatorError("parameter '%s' is missing" % name)
            else:
                value = default if kind == "text" else int(default)
            old.append((name, getattr(self, name, None)))
            setattr(self, name, value)
        try:
            self.setup()
        except Exception as e:  # whatever a type's own code raises on these values
            for name, value in old:
                setattr(self, name, value)
            if not first:
                self.setup()
            if isinstance(e, (OperatorError, MemoryError)):
                raise  # too little memory at the moment is not a reason to refuse what others accept
            raise OperatorError("%s: %s" % (type(e).__name__, e))

    if TYPE_CHECKING:

        def run(self, x: Any, n: int) -> int: ...

    def setup(self) -> None:
        pass

    def start(self) -> None:
        pass

    def hole(self, port: int) -> bool:
        return True

    def closed(self, port: int) -> None:
        pass

    def opened(self, port: int, ts: int) -> None:
        pass

    def fire(self) -> int:
        self.timer = 0
        return 0

    # What a snapshot holds: the names, and the code for struct. A state that `setup` declares again
    # is examined again.
    def _layout(self) -> str:
        if self._laid != self.STATE:
            names = []
            code = "<"
            for name, kind, count, _ in fields(self.STATE):
                names.append(name)
                # An array is stored as its bytes: hosts are little-endian.
                code += "%ds" % (TYPES[kind][1] * len(getattr(self, name))) if count else TYPES[kind][0]
            self._laid = self.STATE
            self._names = tuple(names)
            self._code = code
        return self._code

    # Bytes of a snapshot.
    def state_size(self) -> int:
        return struct.calcsize(self._layout())

    # Pack the state at buf[pos:]; returns the position after it.
    def snapshot(self, buf: bytearray, pos: int) -> int:
        code = self._layout()
        values: "list[Any]" = list(self._names)
        for k in range(len(values)):
            value = getattr(self, values[k])
            # MicroPython takes an array for the bytes that it is.
            values[k] = bytes(value) if not BOARD and type(value) is array else value
        struct.pack_into(code, buf, pos, *values)
        return pos + struct.calcsize(code)

    # Restore the state from a snapshot of `version`. Raises OperatorError if it does not fit.
    def restore(self, data: "Readable", version: int) -> None:
        if version != self.VERSION:
            data = self.convert(data, version)  # type: ignore[assignment]
            if data is None:
                raise OperatorError(
                    "checkpoint of version %d, operator of version %d, and no conversion"
                    % (version, self.VERSION)
                )
        if len(data) != self.state_size():
            raise OperatorError("checkpoint of %d bytes, operator needs %d" % (len(data), self.state_size()))
        pos = 0
        for name, kind, count, _ in fields(self.STATE):
            code, width, _, _ = TYPES[kind]
            if count:
                value = getattr(self, name)
                for i in range(len(value)):
                    value[i] = struct.unpack_from("<" + code, data, pos)[0]
                    pos += width
            else:
                setattr(self, name, struct.unpack_from("<" + code, data, pos)[0])
                pos += width

    # Bytes of this version made from those of an older one, or None.
    def convert(self, data: "Readable", version: int) -> "Readable | None":
        return None
