# A batch: the unit of work. Consecutive entries of one stream, held as columns.
#
# Entry i of a batch has stream time xi + i and generation time
#     ts + i * dt      where dt >= 0 (a source of fixed rate: no ts per element)
#     ts + at[i]       where dt < 0  (irregular: small offsets, each below 2**30)
# xi and ts may be long integers; they are touched once a batch. Everything per element is small.
# A hole (see docs/spec.md) is an entry too: it stands alone in its batch, `hole` is its reason and
# `back` tells how far before ts (its end) it began.

from array import array

from .compat import TYPE_CHECKING

if TYPE_CHECKING:
    from .alphabet import Alphabet
    from .interfaces import Row

SPAN_US = (1 << 30) - 1  # offsets inside a batch stay below this: small integers on a board

# Reasons of a hole (texts in reasons.py).
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
        self.mem = tuple([memoryview(c) for c in self.cols])  # the same columns, for copying slices
        self.xi = 1
        self.ts = 0
        self.dt = -1
        self.n = 0
        self.hole = 0  # 0: elements; else the reason, and n is 1
        self.back = 0
        self.unsync = 0  # 1: stamped before the host's first clock exchange

    # `at`, and `at_mem` over it, are made when first asked for: what is regular never has them.
    def __getattr__(self, name: str) -> "array[int] | memoryview":
        if name != "at" and name != "at_mem":
            raise AttributeError(name)
        self.at = array("i", bytes(4 * self.size))
        self.at_mem = memoryview(self.at)
        return self.at if name == "at" else self.at_mem

    # Generation time of entry i.
    def ts_of(self, i: int) -> int:
        return self.ts + (i * self.dt if self.dt >= 0 else self.at[i])

    # Payload of entry i; for tests and tools, never on the path of an element.
    def row(self, i: int) -> "Row":
        return tuple([c[i] for c in self.cols])
