"""How long the hosts of a process last: its streams, and what its boards draw, as a case of placement.py.
A board never imports this module.

Rates are those of validation (sizing.py): the highest that the sources allow, with the longest blocks. So a
life is estimated from below. Sources whose rate nothing limits count nothing, and are named.

Not counted: checkpoints and their copies, acknowledgements, encoding and decoding of blocks. What an author
can change moves little of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..plan import model as plans
from ..plan import placement
from ..plan.profile import left
from ..storage import reserve
from .builder import Host
from .sizing import Sizing

MC_PER_MAH = 3600
OTHER = "other"  # work of a type that is not in the table


@dataclass(frozen=True)
class Board:
    """What a kind of board draws, from its energy profile."""

    name: str
    battery_mah: int
    discharge: tuple[tuple[int, int], ...]  # (millivolts, percent that is left), rising
    awake_ua: int  # waiting, with Wi-Fi
    asleep_ua: int
    compute_ua: int  # more than that while it computes
    copy_ns: int  # the time of a unit of work: one element copied in a bare loop
    flash_byte_pc: int  # to write a byte, its share of an erase included
    radio_ua: int  # more than awake_ua while its radio is on all the time
    links: dict[str, placement.Link]
    awake_ble_ua: int | None = None  # waiting, with Bluetooth alone; None: as with Wi-Fi

    def waits_ua(self, links: tuple[str, ...]) -> int:
        """What it draws while it waits, with these links."""
        if "wifi" in links or self.awake_ble_ua is None:
            return self.awake_ua
        return self.awake_ble_ua

    def percent(self, mv: int) -> int:
        """What a battery of this voltage has left."""
        return left(self.discharge, mv) // 100


@dataclass
class Energy:
    """A case, and what it rests on."""

    case: placement.Case
    first: list[int]  # host of each vertex, as declared
    boards: list[Board | None]  # of each host; None: on mains
    capacity_mah: list[int]  # of each host's battery; 0: on mains
    unlimited: list[str] = field(default_factory=list)  # sources whose rate nothing limits


def energy(
    sizing: Sizing,
    plan: plans.Plan,
    boards: Mapping[str, Board | None],
    percent: Mapping[str, int],
    work: Mapping[str, int],
) -> Energy:
    """The case of a checked process. `boards`: of each host by name, None on mains; `percent`: what batteries
    have left, 100 if not given; `work`: hundredths of a unit for each element, by type."""
    kinds = [
        boards[host.name] if h and host.battery_mah != 0 else None for h, host in enumerate(sizing.hosts)
    ]
    capacity = [_capacity(host, board) for host, board in zip(sizing.hosts, kinds)]
    hosts = []
    for h, host in enumerate(sizing.hosts):
        board = kinds[h]
        heap = (host.heap_kb - sizing.runtime_kb(h)) * 1024 if h else placement.FOREVER
        if board is None:
            # The gateway has whatever boards have.
            links = {
                name: (0, 0, 0) for other in sizing.hosts if not h or other is host for name in other.links
            }
            hosts.append(placement.Host(placement.MAINS, 0, 0, links, 0, heap, floats=host.floats))
            continue
        left = capacity[h] * MC_PER_MAH * percent.get(host.name, 100) // 100
        base = board.waits_ua(host.links) * host.awake_percent + board.asleep_ua * (100 - host.awake_percent)
        hosts.append(
            placement.Host(
                left,
                base * 10 + _logged_na(sizing, h, board),
                board.compute_ua * board.copy_ns // 1000,
                {name: board.links[name] for name in host.links if name in board.links},
                board.radio_ua * 1000,
                heap,
                floats=host.floats,
            )
        )
    vertices = []
    for v, known in zip(sizing.order, plan.vertices):
        units = 0 if v.source else sizing.taken_hz(v) * work.get(v.declared.kind, work[OTHER]) / 100
        width = sizing.hosts[v.hosts[0]].floats if v.floats and not sizing.process.allow_drift else 0
        vertices.append(
            placement.Vertex(
                v.hosts,
                math.ceil(units * 1000),
                sizing.own_bytes(v),
                moved_bytes=0 if v.source else reserve.checkpoint_bytes(plan, known),
                width=width,
                state_bytes=0 if v.source else v.state_bytes,
            )
        )
    case = placement.Case(hosts, vertices, _edges(sizing))
    first = [v.hosts[0] for v in sizing.order]
    unlimited = [v.name for v in sizing.order if v.source and not v.most_hz]
    return Energy(case, first, kinds, capacity, unlimited)


def _capacity(host: Host, board: Board | None) -> int:
    if board is None:
        return 0
    return board.battery_mah if host.battery_mah is None else host.battery_mah


def _logged_na(sizing: Sizing, h: int, board: Board) -> int:
    """What the log of a host draws for its sources."""
    bytes_s = sum([sizing.carried(v, 0)[0] for v in sizing.order if v.source and v.host == h])
    return math.ceil(bytes_s) * board.flash_byte_pc // 1000


def _edges(sizing: Sizing) -> list[placement.Edge]:
    edges = []
    for wire in sizing.process.wires:
        x = sizing.producer(wire)
        bytes_s, batches_s = sizing.carried(x, wire.stream.port)
        lake = wire.vertex is None
        edges.append(
            placement.Edge(
                sizing.order.index(x),
                placement.OUTSIDE if lake else sizing.order.index(sizing.consumer(wire)),
                math.ceil(bytes_s * 1000),
                math.ceil(batches_s * 1000),
                0 if lake else sizing.queue_bytes(wire),
            )
        )
    return edges
