# What the hosts of a process draw: for their operators, and for the traffic between them.
#
# Pure and integer: the same case gives the same answer on a board, at the gateway and in the simulator. A
# board loads this module when somebody thinks of moving, and unloads it again: so there are no classes here,
# and hosts and streams are tuples. Where operators should run so that batteries last is a matter of
# placement.py, which a board does not have.
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
    # Whether it is on mains; what it draws before it runs an operator or sends a byte for one, in na; what a
    # unit of work costs, in pc; its links by name; what its radio draws at most for frames, in na: it is on
    # all the time then.
    Host = tuple[bool, int, int, dict[str, Link], int]
    # The vertices at its ends, the second one OUTSIDE for an edge to the lake; bytes_mhz and frames_mhz that
    # cross if these are on two hosts.
    Stream = tuple[int, int, int, int]
    Places = Sequence[int]  # host of each vertex

FOREVER = (1 << 30) - 1  # seconds: its time left, and the longest that is told
OUTSIDE = -1  # Edge.dst of an edge to the lake: host 0
FRAME_BYTES = 113  # of a frame without its blocks: head and seal 22, MQTT 17, TLS 22, TCP/IP 52
NOWHERE = -1  # of a vertex that is not placed yet


# The links by which host a sends so many bytes and frames, and host b receives them; None where not even
# the gateway can pass them on.
def ways(
    hosts: "Sequence[Host]", a: int, b: int, bytes_mhz: int, frames_mhz: int
) -> "tuple[str, str] | None":
    both = way(hosts, a, b, bytes_mhz, frames_mhz)
    if both:
        return both, both
    first = way(hosts, a, 0, bytes_mhz, frames_mhz)
    second = way(hosts, 0, b, bytes_mhz, frames_mhz)
    return (first, second) if a and b and first and second else None


# The link that two hosts have in common and use for so many bytes and frames, or None.
def way(hosts: "Sequence[Host]", a: int, b: int, bytes_mhz: int, frames_mhz: int) -> "str | None":
    best = None
    least = 0
    a_mains, _, _, ours, _ = hosts[a]
    b_mains, _, _, theirs, _ = hosts[b]
    for name in sorted(ours):
        if name in theirs:
            cost = 0
            if not a_mains:
                cost += bytes_mhz * ours[name][0] + 1000 * frames_mhz * ours[name][2]
            if not b_mains:
                cost += bytes_mhz * theirs[name][1] + 1000 * frames_mhz * theirs[name][2]
            if best is None or cost < least:
                best = name
                least = cost
    return best


# From host a to host b: a * number of hosts + b -> [bytes_mhz, frames_mhz], frames with their heads.
def traffic(count: int, streams: "Sequence[Stream]", places: "Places") -> "dict[int, list[int]]":
    found: "dict[int, list[int]]" = {}
    for src, dst, bytes_mhz, frames_mhz in streams:
        a = places[src]
        b = places[dst] if dst != OUTSIDE else 0
        if a != b and a != NOWHERE and b != NOWHERE:
            pair = found.setdefault(a * count + b, [0, 0])
            pair[0] += bytes_mhz
            pair[1] = max(pair[1], frames_mhz)
    for pair in found.values():
        pair[0] += pair[1] * FRAME_BYTES
    return found


# What each host draws, in na; None where two hosts that must speak cannot. units_mhz: of each vertex, the
# work that it does in a second.
def draws(
    hosts: "Sequence[Host]", units_mhz: "Sequence[int]", streams: "Sequence[Stream]", places: "Places"
) -> "list[int] | None":
    out = []
    for _, base_na, _, _, _ in hosts:
        out.append(base_na)
    frames = [0] * len(hosts)
    for v in range(len(places)):
        if places[v] == NOWHERE:
            continue
        out[places[v]] += units_mhz[v] * hosts[places[v]][2] // 1000000
    crossing = traffic(len(hosts), streams, places)
    for pair in crossing:
        a = pair // len(hosts)
        b = pair % len(hosts)
        bytes_mhz, frames_mhz = crossing[pair]
        names = ways(hosts, a, b, bytes_mhz, frames_mhz)
        if names is None:
            return None
        for h, end in ((a, 0), (b, 1)):
            link = hosts[h][3][names[end]]
            out[h] += bytes_mhz * link[end] // 1000000
            frames[h] += frames_mhz * link[2] // 1000
    for h in range(len(hosts)):
        out[h] += min(frames[h], hosts[h][4])
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
