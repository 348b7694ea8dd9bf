# Positions and names: how far an operator is in its run.
#
# A position is a list of integers: the xi taken of every input, the ts up to which timers have
# fired, the number of decisions applied. Along the one run that determinism allows, positions are
# totally ordered; an earlier one is a prefix of the later one's history.

from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from ..offboard.interfaces import Epoch, Position
    from ..plan.model import Vertex

FAR = 1 << 62  # larger than any xi or ts that may be sent
EPOCH_MAX = (1 << 30) - 1  # the largest number of an epoch, and of a decision


# Order of a position along its run.
def rank(pos: "Position") -> tuple[int, int, int]:
    return (pos[-1], sum(pos[:-2]), pos[-2]) if pos else (-1, 0, 0)


def further(a: "Position", b: "Position") -> bool:
    return rank(a) > rank(b)


# Which of two checkpoints counts, each an epoch and a position. One of an earlier epoch may be further
# and on a course that the later epoch has left: the later one has seen whatever was acknowledged of it.
def newer(a: "tuple[Epoch, Position]", b: "tuple[Epoch, Position]") -> bool:
    return (a[0], rank(a[1])) > (b[0], rank(b[1]))


# Connected inputs of an operator: this many numbers of a position are xi.
def inputs_of(v: "Vertex") -> int:
    n = 0
    for a in v.ins:
        if a is not None:
            n += 1
    return n
