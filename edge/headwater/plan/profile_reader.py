# Reads the energy profile that a board has in its configuration, key `energy`. ProfileError says what is
# wrong with it. A board loads this module when it starts.

from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

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
_AWAKE = const(1)
WITHOUT_WIFI = "awake_ble_ua"  # instead of awake_ua, on a board with Bluetooth alone
_MOST = 1 << 40


class ProfileError(ValueError):
    pass


# The object in the configuration, as profile.Profile takes it. has: the links of this board, of those that
# its kind may have; empty: all of them.
def read(given: "dict[str, Any]", has: "Sequence[str]" = ()) -> bytes:
    numbers = [_number(given, key, given.get(key)) for key in KEYS]
    without_wifi = _number(given, WITHOUT_WIFI, given.get(WITHOUT_WIFI, numbers[_AWAKE]))
    if has and "wifi" not in has:
        numbers[_AWAKE] = without_wifi
    if not given["capacity_mc"] or not given["copy_ns"]:
        raise ProfileError("energy: capacity_mc and copy_ns must be above 0")
    points = curve(given.get("discharge"))
    links = given.get("links")
    if not isinstance(links, dict) or not links:
        raise ProfileError(
            'energy: links is missing: give {"wifi": [send_byte_pc, receive_byte_pc, frame_nc]}'
        )
    costs: "list[list[Any]]" = []
    names = [name for name in sorted(links) if name in has] or sorted(links)
    for name in names:
        if not isinstance(links[name], list) or len(links[name]) != 3:
            raise ProfileError("energy: links, %s: give three numbers" % name)
        costs.append([name] + [_number(given, name, cost) for cost in links[name]])
    for key in given:
        if key not in KEYS and key not in ("discharge", "links", WITHOUT_WIFI):
            raise ProfileError("energy: unknown key '%s': there are %s" % (key, ", ".join(KEYS)))
    found: bytes = msgpack.dumps([numbers, [list(point) for point in points], costs])
    return found


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


def _number(given: "Any", key: str, value: "Any") -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise ProfileError("energy: %s is %r: give a whole number of 0 or more" % (key, value))
    return value
