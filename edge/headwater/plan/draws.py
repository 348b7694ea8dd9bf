# What the hosts of a process draw: for their operators, and for the traffic between them.
#
# Pure and integer: the same case gives the same answer on a board, at the gateway and in the simulator. A
# board loads this module when somebody thinks of moving, and unloads it again. Where operators should run so
# that batteries last is a matter of placement.py, which a board does not have.
#
# Charge, not energy: a board's linear regulator draws the same current whatever the battery's voltage is,
# and capacities are given in mAh. A host on mains lasts for ever.
# Traffic between two hosts takes the link that both have and that costs the two least together. Two that have
# none in common, like a board without a network and one without Bluetooth, speak through the gateway, which
# passes on what it does not read. Streams between the same two hosts share their frames: as many frames pass
# as the busiest of them needs. However many frames there are, a radio draws no more than one that is always
# on.
#
# Units: mc, nc, pc: millicoulombs, nanocoulombs, picocoulombs; na: nanoamperes; mhz: thousandths of one a
# second (of an element, a byte, a frame or a unit of work).

from ..offboard.compat import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    Link = tuple[int, int, int]  # pc to send a byte, pc to receive one, nc for a frame at either end
    Places = Sequence[int]  # host of each vertex

MAINS = -1  # charge left of a host without a battery
FOREVER = (1 << 30) - 1  # seconds: its time left, and the longest that is told
OUTSIDE = -1  # Edge.dst of an edge to the lake: host 0
FRAME_BYTES = 113  # of a frame without its blocks: head and seal 22, MQTT 17, TLS 22, TCP/IP 52
NOWHERE = -1  # of a vertex that is not placed yet


class Host:
    # left_mc     charge left, or MAINS
    # base_na     what it draws before it runs an operator or sends a byte for one
    # unit_pc     what a unit of work costs
    # links       name -> (pc to send a byte, pc to receive one, nc for a frame)
    # radio_na    what its radio draws at most for frames: it is on all the time
    # heap_bytes, log_bytes: for operators
    # floats      width of its floats in bits
    def __init__(
        self,
        left_mc: int,
        base_na: int,
        unit_pc: int,
        links: "dict[str, Link]",
        radio_na: int,
        heap_bytes: int = FOREVER,
        log_bytes: int = FOREVER,
        floats: int = 32,
    ) -> None:
        self.left_mc = left_mc
        self.base_na = base_na
        self.unit_pc = unit_pc
        self.links = links
        self.radio_na = radio_na
        self.heap_bytes = heap_bytes
        self.log_bytes = log_bytes
        self.floats = floats


class Vertex:
    # hosts       candidates, best first; a source has one
    # units_mhz   units of work a second
    # heap_bytes  of its state and buffers, without the queues of its inputs
    # log_bytes   of its checkpoints where it runs
    # moved_bytes of its checkpoint with its transfer state: what a move sends
    # width       of floats that it needs; 0: any
    def __init__(
        self,
        hosts: "Sequence[int]",
        units_mhz: int,
        heap_bytes: int = 0,
        log_bytes: int = 0,
        moved_bytes: int = 0,
        width: int = 0,
    ) -> None:
        self.hosts = hosts
        self.units_mhz = units_mhz
        self.heap_bytes = heap_bytes
        self.log_bytes = log_bytes
        self.moved_bytes = moved_bytes
        self.width = width


class Edge:
    # src, dst     vertices; dst is OUTSIDE for an edge to the lake
    # bytes_mhz, frames_mhz: that cross if its ends are on two hosts
    # queue_bytes  heap that its consumer needs for it then
    def __init__(self, src: int, dst: int, bytes_mhz: int, frames_mhz: int, queue_bytes: int = 0) -> None:
        self.src = src
        self.dst = dst
        self.bytes_mhz = bytes_mhz
        self.frames_mhz = frames_mhz
        self.queue_bytes = queue_bytes


class Draws:
    # Hosts (0 is the gateway), vertices and edges of a process.
    def __init__(self, hosts: list[Host], vertices: list[Vertex], edges: list[Edge]) -> None:
        self.hosts = hosts
        self.vertices = vertices
        self.edges = edges

    # The links by which host a sends so many bytes and frames, and host b receives them; None where not even
    # the gateway can pass them on.
    def links(self, a: int, b: int, bytes_mhz: int, frames_mhz: int) -> "tuple[str, str] | None":
        both = self.link(a, b, bytes_mhz, frames_mhz)
        if both:
            return both, both
        first = self.link(a, 0, bytes_mhz, frames_mhz)
        second = self.link(0, b, bytes_mhz, frames_mhz)
        return (first, second) if a and b and first and second else None

    # The link that two hosts have in common and use for so many bytes and frames, or None.
    def link(self, a: int, b: int, bytes_mhz: int, frames_mhz: int) -> "str | None":
        best = None
        least = 0
        ours = self.hosts[a].links
        theirs = self.hosts[b].links
        for name in sorted(ours):
            if name in theirs:
                cost = 0
                if self.hosts[a].left_mc != MAINS:
                    cost += bytes_mhz * ours[name][0] + 1000 * frames_mhz * ours[name][2]
                if self.hosts[b].left_mc != MAINS:
                    cost += bytes_mhz * theirs[name][1] + 1000 * frames_mhz * theirs[name][2]
                if best is None or cost < least:
                    best = name
                    least = cost
        return best

    # From host a to host b: a * number of hosts + b -> [bytes_mhz, frames_mhz], frames with their heads.
    def traffic(self, places: "Places") -> "dict[int, list[int]]":
        found: "dict[int, list[int]]" = {}
        for e in self.edges:
            a = places[e.src]
            b = places[e.dst] if e.dst != OUTSIDE else 0
            if a != b and a != NOWHERE and b != NOWHERE:
                pair = found.setdefault(a * len(self.hosts) + b, [0, 0])
                pair[0] += e.bytes_mhz
                pair[1] = max(pair[1], e.frames_mhz)
        for pair in found.values():
            pair[0] += pair[1] * FRAME_BYTES
        return found

    # What each host draws, in na; None where two hosts that must speak cannot.
    def draws(self, places: "Places") -> "list[int] | None":
        hosts = self.hosts
        out = [h.base_na for h in hosts]
        frames = [0] * len(hosts)
        for v in range(len(places)):
            if places[v] == NOWHERE:
                continue
            out[places[v]] += self.vertices[v].units_mhz * hosts[places[v]].unit_pc // 1000000
        crossing = self.traffic(places)
        for pair in crossing:
            a = pair // len(hosts)
            b = pair % len(hosts)
            bytes_mhz, frames_mhz = crossing[pair]
            names = self.links(a, b, bytes_mhz, frames_mhz)
            if names is None:
                return None
            for h, way in ((a, 0), (b, 1)):
                link = hosts[h].links[names[way]]
                out[h] += bytes_mhz * link[way] // 1000000
                frames[h] += frames_mhz * link[2] // 1000
        for h in range(len(hosts)):
            out[h] += min(frames[h], hosts[h].radio_na)
        return out


# How fast a battery empties that lasts so long: the part of what is left that goes in a second, times 2^40.
def pace(life_s: int) -> int:
    return 0 if life_s >= FOREVER else (1 << 40) // max(1, life_s)


# Whether a move is worth while: of all batteries that it touches, together, the paces fall by a sixth.
# A battery that has little left counts much; where one drains fast and another has plenty, so does what is
# saved. So operators share a host as long as it has most, although each battery alone lasts longest when
# they are apart, and go to another one in time.
def gains(now: "Sequence[int]", then: "Sequence[int]") -> bool:
    return 5 * sum(now) >= 6 * sum(then) and sum(then) < sum(now)
