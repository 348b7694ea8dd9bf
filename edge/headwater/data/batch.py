# A batch: the unit of work. Consecutive entries of one stream, held as columns.
#
# Entry i of a batch has stream time xi + i and generation time
#     ts + i * dt      where dt >= 0 (a source of fixed rate: no ts per element)
#     ts + at[i]       where dt < 0  (irregular: small offsets, each below 2**30)
# xi and ts may be long integers; they are touched once a batch. Everything per element is small.
# A hole (see docs/spec.md) is an entry too: it stands alone in its batch, `hole` is its reason and
# `back` tells how far before ts (its end) it began.

from array import array

from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from ..offboard.interfaces import Row
    from .alphabet import Alphabet

SPAN_US = (1 << 30) - 1  # offsets inside a batch stay below this: small integers on a board

# Reasons of a hole (texts in offboard/reasons.py).
RESTART = 1  # the board was down, or lost what it had not sealed yet
LOG_FULL = 2  # the source refused samples: its log was full
SENSOR = 3  # the sensor gave nothing, or nonsense

# Why the entries of a declared gap do not come to the lake.
GAP_FULL = 1  # dropped by the edge's declared policy
GAP_GIVEN_UP = 2  # an operator gave up regenerating
GAP_GATEWAY_LOST = 3  # only the gateway had it, and its database is lost
GAP_EARLIER = 4  # an earlier version of the process took care of it, and did not send it here


class Batch:
    at: "array[int]"
    at_mem: memoryview

    def __init__(self, alphabet: "Alphabet", size: int) -> None:
        self.alphabet = alphabet
        self.size = size
        self.cols = alphabet.arrays(size)
        # The same columns, for copying slices.
        self.mem: "tuple[memoryview, ...]" = tuple(map(memoryview, self.cols))
        self.xi = 1
        self.ts = 0
        self.dt = -1
        self.n = 0
        self.hole = 0  # 0: elements; otherwise the reason, and n is 1
        self.back = 0
        self.unsync = 0  # 1: stamped before the host's first clock exchange

    # `at`, and `at_mem` over it, are made when first asked for: what is regular never has them.
    def __getattr__(self, name: str) -> "array[int] | memoryview":
        if name != "at" and name != "at_mem":
            raise AttributeError(name)
        self.at = array("i", bytes(4 * self.size))
        self.at_mem = memoryview(self.at)
        return self.at if name == "at" else self.at_mem

    # The columns hold the n entries from xi on, none of them a hole. With dt < 0 their times are in `at`.
    def begin(self, xi: int, n: int, ts: int, dt: int, unsync: int) -> None:
        self.xi = xi
        self.n = n
        self.ts = ts
        self.dt = dt
        self.unsync = unsync
        self.hole = 0

    # One entry alone, at ts: an element, or a hole with this reason that began `back` before.
    def begin_one(self, xi: int, ts: int, unsync: int, hole: int = 0, back: int = 0) -> None:
        self.begin(xi, 1, ts, -1, unsync)
        self.at[0] = 0
        self.hole = hole
        self.back = back

    # Its entries were stamped before the first clock exchange (1), or after it.
    def stamp(self, unsync: int) -> None:
        self.unsync = unsync

    # Nothing is in it.
    def clear(self) -> None:
        self.n = 0

    # It holds a copy of n entries of another batch of this alphabet, from its entry i on.
    def copy(self, other: "Batch", i: int, n: int) -> None:
        xi = other.xi + i
        if other.hole:
            self.begin_one(xi, other.ts, other.unsync, other.hole, other.back)
            return
        dt = other.dt
        self.begin(xi, n, other.ts + i * dt if dt > 0 else other.ts, dt, other.unsync)
        for to, column in zip(self.mem, other.mem):
            to[0:n] = column[i : i + n]
        if dt < 0:
            self.at_mem[0:n] = other.at_mem[i : i + n]

    # Give every entry its offset: entries may follow that do not go on at dt.
    def loosen(self) -> None:
        if self.dt >= 0:
            for i in range(self.n):
                self.at[i] = i * self.dt
            self.dt = -1

    # Time from its first entry to its last.
    def span(self) -> int:
        return self.ts_of(self.n - 1) - self.ts

    # Shorten that to span_us, where it is longer; a regular batch keeps a microsecond from entry to entry.
    def squeeze(self, span_us: int) -> None:
        last = self.n - 1
        if span_us < self.span():
            if self.dt > 0:
                self.dt = max(1, span_us // last)
            elif self.dt < 0:
                for i in range(last + 1):
                    self.at[i] = min(self.at[i], max(0, span_us))

    # Generation time of entry i.
    def ts_of(self, i: int) -> int:
        return self.ts + (i * self.dt if self.dt >= 0 else self.at[i])

    # Payload of entry i; for tests and tools, never on the path of an element.
    def row(self, i: int) -> "Row":
        return tuple([c[i] for c in self.cols])
