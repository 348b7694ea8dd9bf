# What a kind of board draws: the numbers of its energy profile, as a board needs them.
#
# `hw provision` writes them into the configuration of a board, key `energy`. profile_reader.py checks them
# and packs them when the board starts. Currents are charge, not energy: see the head of draws.py, whose units
# these are.

from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .draws import Link

_FRAME_BYTES = const(256)
_WHOLE = const(10000)  # of a battery that is full: hundredths of a percent


class Profile:
    # data: what profile_reader.py makes.
    def __init__(self, data: bytes) -> None:
        numbers, self.curve, links = msgpack.loads(data)
        self.capacity_mc: int = numbers[0]
        self.awake_na: int = numbers[1] * 1000
        self.asleep_na: int = numbers[2] * 1000
        self.compute_na: int = numbers[3] * 1000
        self.copy_ns: int = numbers[4]
        self.flash_byte_pc: int = numbers[5]
        self.radio_na: int = numbers[6] * 1000
        self.links: "dict[str, Link]" = {link[0]: tuple(link[1:]) for link in links}
        # What carries, as long as it is in reach: the cheapest, as protocol/carriers.py chooses.
        found = [(_FRAME_BYTES * link[1] + 1000 * link[3], link[0]) for link in links]
        self.costs: "Link" = self.links[min(found)[1]]

    # What a battery of this voltage has left, in millicoulombs.
    def left_mc(self, mv: int) -> int:
        return self.capacity_mc * left(self.curve, mv) // _WHOLE


# ... in hundredths of a percent.
def left(points: "Sequence[tuple[int, int]]", mv: int) -> int:
    below = points[0]
    for point in points:
        if mv < point[0]:
            if point is below:
                return 100 * below[1]
            return 100 * below[1] + 100 * (point[1] - below[1]) * (mv - below[0]) // (point[0] - below[0])
        below = point
    return 100 * below[1]
