# What a kind of board draws: the numbers of its energy profile, as a board needs them.
#
# `hw provision` writes them into the configuration of a board, key `energy`. Currents are charge, not
# energy: see the head of placement.py, whose units these are.

from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .placement import Link

WHOLE = 10000  # of a battery that is full: hundredths of a percent
# Numbers of a profile, beside the curve and the links; what they mean is in firmware/profiles.
KEYS = (
    "capacity_mc",
    "awake_ua",
    "asleep_ua",
    "compute_ua",
    "copy_ns",
    "flash_byte_pc",
    "radio_ua",
)
_MOST = 1 << 40


class ProfileError(ValueError):
    pass


class Profile:
    # given: the object in the configuration. ProfileError says what is wrong with it.
    def __init__(self, given: "dict[str, Any]") -> None:
        numbers = [_number(given, key, given.get(key)) for key in KEYS]
        self.capacity_mc, awake_ua, asleep_ua, compute_ua, self.copy_ns, self.flash_byte_pc, radio_ua = (
            numbers
        )
        if not self.capacity_mc or not self.copy_ns:
            raise ProfileError("energy: capacity_mc and copy_ns must be above 0")
        self.awake_na = awake_ua * 1000
        self.asleep_na = asleep_ua * 1000
        self.compute_na = compute_ua * 1000
        self.radio_na = radio_ua * 1000
        self.unit_pc = compute_ua * self.copy_ns // 1000  # what a unit of work costs
        self.curve = curve(given.get("discharge"))
        self.links: "dict[str, Link]" = {}
        links = given.get("links")
        if not isinstance(links, dict) or not links:
            raise ProfileError(
                'energy: links is missing: give {"wifi": [send_byte_pc, receive_byte_pc, frame_nc]}'
            )
        for name in sorted(links):
            costs = links[name]
            if not isinstance(costs, list) or len(costs) != 3:
                raise ProfileError("energy: links, %s: give three numbers" % name)
            send, receive, frame = [_number(given, name, cost) for cost in costs]
            self.links[name] = (send, receive, frame)
        for key in given:
            if key not in KEYS and key not in ("discharge", "links"):
                raise ProfileError("energy: unknown key '%s': there are %s" % (key, ", ".join(KEYS)))


# A discharge curve: (millivolts, percent that is left), both rising up to 100 percent.
def curve(given: "Any") -> "tuple[tuple[int, int], ...]":
    points: "list[tuple[int, int]]" = []
    for pair in given if isinstance(given, (list, tuple)) else ():
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            break
        mv, percent = pair
        if not isinstance(mv, int) or not isinstance(percent, int):
            break
        if points and not (mv > points[-1][0] and percent > points[-1][1]):
            break
        points.append((mv, percent))
    if len(points) < 2 or len(points) != len(given) or points[0][1] < 0 or points[-1][1] != 100:
        raise ProfileError(
            "energy: discharge needs pairs of millivolts and percent, both rising, up to 100 percent"
        )
    return tuple(points)


# What a battery of this voltage has left, in hundredths of a percent.
def left(points: "Sequence[tuple[int, int]]", mv: int) -> int:
    below = points[0]
    for point in points:
        if mv < point[0]:
            if point is below:
                return 100 * below[1]
            return 100 * below[1] + 100 * (point[1] - below[1]) * (mv - below[0]) // (point[0] - below[0])
        below = point
    return 100 * below[1]


def _number(given: "Any", key: str, value: "Any") -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise ProfileError("energy: %s is %r: give a whole number of 0 or more" % (key, value))
    return value
