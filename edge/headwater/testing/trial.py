# An operator tried without a host: entries in, entries out. For the tests of a type, under both
# interpreters; it follows the contract of runtime/operator.py, and leaves the streams to the caller.
#
#     op = trial.make("Threshold", {"high": 100, "low": 80}, ("bpm:u16",))
#     trial.run(op, [(0, 1000, (120,)), (0, 2000, (70,))])
#     -> [[(1000, (1, 120)), (2000, (0, 70))]]
#
# An entry is (port, ts, row); None for the row is a hole. What comes out is, for each output port, a
# list of (ts, row). Entries come in the order of the merge.

from array import array

from ..data.alphabet import Alphabet
from ..data.batch import SPAN_US, Batch
from ..offboard.compat import TYPE_CHECKING
from ..operators import find

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..offboard.interfaces import Columns, Params, Row
    from ..runtime.operator import Operator

    Entry = tuple[int, int, Row | None]
    Told = list[tuple[int, Row | None]]


# An operator of a kind, or of a class of your own, for inputs with these alphabets.
def make(kind: "str | type[Operator]", params: "Params", ins: "Sequence[str]", size: int = 64) -> "Operator":
    cls = find(kind) if isinstance(kind, str) else kind
    inputs = tuple([Alphabet(text) for text in ins])
    wants, gives = cls.ports(inputs, params)
    for a, text in zip(inputs, wants):
        assert a.text == text
    return cls(params, inputs, tuple([Alphabet(text) for text in gives]), size)


# Give it the entries in batches of at most `cut` (a number, or several, taken in turn), then let
# timers fire up to ts `until`. `regular`: say dt for elements at equal distances, as sources do.
def run(
    op: "Operator",
    entries: "Sequence[Entry]",
    cut: "int | Sequence[int]" = 64,
    until: int = 0,
    regular: bool = False,
) -> "list[Told]":
    cuts = (cut,) if isinstance(cut, int) else tuple(cut)
    turn = 0
    outs: "list[Told]" = [[] for _ in op.outs]
    i = 0
    while i < len(entries):
        port, ts, row = entries[i]
        _fire(op, ts, outs)
        if row is None:
            if op.hole(port):
                for out in outs:
                    out.append((ts, None))
            i += 1
            continue
        most = min(cuts[turn % len(cuts)], op.size)
        turn += 1
        end = ts + SPAN_US
        if op.TIMED:
            if not op.timer:
                most = 1
            elif op.timer < end:
                end = op.timer
        part: "list[Any]" = []
        while len(part) < most and i < len(entries) and entries[i][2] is not None and entries[i][1] < end:
            part.append(entries[i])
            i += 1
        x = _joined(op, part) if len(op.ins) > 1 else _single(op, part, regular)
        m = op.run(x, len(part))
        for y, out in zip(op.outs, outs):
            for j in range(m if y is op.y else y.n):
                cause = j if op.ONE_TO_ONE else y.at[j]
                out.append((part[cause][1], y.row(j)))
    _fire(op, until, outs)
    return outs


# The state as bytes.
def state(op: "Operator") -> bytes:
    buf = bytearray(op.state_size())
    assert op.snapshot(buf, 0) == len(buf)
    return bytes(buf)


def _fire(op: "Operator", upto: int, outs: "list[Told]") -> None:
    while op.TIMED and op.timer and op.timer <= upto:
        ts = op.timer
        for y in op.outs:
            y.n = 0
        m = op.fire()
        for y, out in zip(op.outs, outs):
            if m if y is op.y else y.n:
                out.append((ts, y.row(0)))


def _single(op: "Operator", part: "list[Any]", regular: bool) -> Batch:
    x = Batch(op.ins[0], len(part))
    x.n = len(part)
    x.ts = part[0][1]
    for i in range(len(part)):
        x.at[i] = part[i][1] - x.ts
        for c, v in zip(x.cols, part[i][2]):
            c[i] = v
    if regular:
        dt = x.at[1] if x.n > 1 else 0
        if all([x.at[i] == i * dt for i in range(x.n)]):
            x.dt = dt
    return x


class _Joined:
    ts: int
    n: int
    port: bytearray
    at: "array[int]"
    cols: "list[Columns]"
    dt = -1
    unsync = 0
    hole = 0

    def ts_of(self, i: int) -> int:
        return self.ts + self.at[i]


def _joined(op: "Operator", part: "list[Any]") -> _Joined:
    x = _Joined()
    x.n = len(part)
    x.ts = part[0][1]
    x.port = bytearray([e[0] for e in part])
    x.at = array("i", [e[1] - x.ts for e in part])
    x.cols = []
    for p in range(len(op.ins)):
        rows = [e[2] for e in part if e[0] == p]
        cols = op.ins[p].arrays(len(rows))
        for i in range(len(rows)):
            for c, v in zip(cols, rows[i]):
                c[i] = v
        x.cols.append(cols)
    return x
