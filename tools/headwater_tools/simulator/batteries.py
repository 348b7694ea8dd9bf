"""Batteries of simulated hosts: what they hold, and what everything that a host does takes from them.

A host draws charge for being there, for each element that its operators take, for each frame and byte that
it sends or receives, and for each byte that it writes to flash. The terms are those of
`headwater.plan.placement`; only capacities are scaled, to seconds, so that batteries end within a history.
What a battery monitor of a board would read, `Battery.mv()` and `Battery.percent`, is all that a host may
know of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.plan.placement import FRAME_BYTES
from headwater.plan.profile_reader import KEYS, read
from headwater.process.energy import Board
from headwater.runtime.meter import Meter

if TYPE_CHECKING:
    from headwater.runtime.host import Host

    from .world import Node, World

LINK = "wifi"
HEAD_BYTES = FRAME_BYTES - 22  # what carries a frame; its own head and seal are part of it
LOOK_US = 250_000  # base draw and work are taken from a battery this often, frames and flash at once
UNITS = 5  # of work for an element, whatever its type

# Millivolts, and the percentage that is left.
_CURVE = ((3300, 0), (3600, 5), (3700, 25), (3750, 40), (3800, 50), (3900, 70), (4000, 80), (4200, 100))

# A board whose radio draws most: the figures of an ESP32 that waits with its link.
RADIO = Board(
    name="radio",
    battery_mah=400,
    discharge=_CURVE,
    awake_ua=31_120,
    asleep_ua=5,
    compute_ua=17_000,
    copy_ns=4_000,
    flash_byte_pc=313_700,
    radio_ua=68_880,
    links={LINK: (59_552, 27_552, 3_444_000)},
)
# One on which computing costs most: a slow processor, and a link that needs little.
COMPUTE = Board(
    name="compute",
    battery_mah=400,
    discharge=_CURVE,
    awake_ua=4_000,
    asleep_ua=5,
    compute_ua=17_000,
    copy_ns=600_000,
    flash_byte_pc=40_000,
    radio_ua=4_000,
    links={LINK: (6_000, 3_000, 50_000)},
)


class Battery:
    """The battery of one host, in picocoulombs. It never holds less than nothing."""

    def __init__(self, board: Board, capacity_mc: int, percent: int = 100) -> None:
        self.board = board
        self.capacity_mc = capacity_mc
        self.left_pc = 0
        self.charges = 0  # how often it was charged, or lost charge at once
        self.radio_pc = 0  # what frames may still take until the next look: a radio is never more than on
        self.taken: dict[int, int] = {}  # input -> the last element that was paid for
        self.written = 0  # bytes of flash that were paid for
        self.charge(percent)

    @property
    def left_mc(self) -> int:
        return self.left_pc // 1_000_000_000

    @property
    def percent(self) -> int:
        return self.left_pc // (10_000_000 * self.capacity_mc)

    @property
    def empty(self) -> bool:
        return self.left_pc == 0

    def charge(self, percent: int) -> None:
        """It holds this much from now on."""
        self.left_pc = 10_000_000 * self.capacity_mc * percent
        self.charges += 1

    def spend(self, pc: int) -> None:
        self.left_pc = max(0, self.left_pc - pc)

    def mv(self) -> int:
        """The voltage that a monitor reads."""
        curve = self.board.discharge
        percent = self.percent
        for (low, p), (high, q) in zip(curve, curve[1:]):
            if percent < q:
                return low + (high - low) * (percent - p) // (q - p)
        return curve[-1][0]

    def frame(self, size: int, sent: bool) -> None:
        """A frame of this size was sent, or received."""
        byte_pc = self.board.links[LINK][0 if sent else 1]
        on_pc = min(self.radio_pc, 1000 * self.board.links[LINK][2])
        self.radio_pc -= on_pc
        self.spend((size + HEAD_BYTES) * byte_pc + on_pc)

    def look(self, node: Node, us: int, asleep: bool) -> None:
        """Pay for this time, and for what was computed and written in it."""
        self.radio_pc = self.board.radio_ua * us
        host = node.host
        if host is None:
            self.taken.clear()
            return
        elements = 0
        for edge, e in host.inputs.items():
            before = self.taken.get(edge, e.cur.xi)
            elements += max(0, e.cur.xi - before)
            self.taken[edge] = e.cur.xi
        unit_pc = self.board.compute_ua * self.board.copy_ns // 1000
        written = node.flash.programmed
        self.spend((self.board.asleep_ua if asleep else self.board.awake_ua) * us)
        self.spend(elements * UNITS * unit_pc)
        self.spend((written - self.written) * self.board.flash_byte_pc)
        self.written = written


def known_to(host: Host, battery: Battery | None) -> Meter:
    """What a host with this battery knows of it: what its monitor reads, and the numbers of its profile."""
    if battery is None:
        return Meter(host)
    given: dict[str, object] = {key: getattr(battery.board, key) for key in KEYS[1:]}
    given |= {
        "capacity_mc": battery.capacity_mc,
        "discharge": [list(point) for point in battery.board.discharge],
        "links": {name: list(costs) for name, costs in battery.board.links.items()},
    }
    return Meter(host, read(given), battery.mv)


def lasting(board: Board, seconds: float) -> int:
    """Capacity, in millicoulombs, that lasts about so long with a radio that is on half of the time."""
    return max(1, int((board.awake_ua + board.radio_ua / 2) * seconds / 1000))


class Power:
    """The batteries of a world. A host without one is on mains."""

    def __init__(self, world: World, on_empty: Callable[[Node], None]) -> None:
        self.world = world
        self.on_empty = on_empty
        self.stopped = False
        world.after(LOOK_US, self.look)

    def put(self, node: Node, board: Board, lasts_s: float, percent: int) -> None:
        """Give a host a battery; a full one lasts about so long."""
        node.battery = Battery(board, lasting(board, lasts_s), percent)
        node.battery.written = node.flash.programmed

    def stop(self) -> None:
        """All hosts are at a charger from now on."""
        self.stopped = True

    def look(self) -> None:
        if self.stopped:
            return
        for node in self.world.nodes:
            battery = node.battery
            if battery is None or node.dead:
                continue
            battery.look(node, LOOK_US, node.number in self.world.dozing)
            if battery.empty and node.up:
                for see in self.world.on_empty:
                    see(node)
                self.on_empty(node)
        self.world.after(LOOK_US, self.look)


__all__ = ["COMPUTE", "RADIO", "Battery", "Board", "Power", "lasting"]
