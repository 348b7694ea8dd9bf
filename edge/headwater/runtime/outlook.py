# What a host would draw if an operator ran elsewhere, or here, and what handing over costs.
#
# Loaded while an operator may leave or come, and unloaded again. The arithmetic is that of draws.py: this
# host makes a case of what it knows. Of the other boards it does not know what they draw, so they have its
# own numbers in that case; what they draw they tell themselves, in answers to bids.
#
# Rates of an operator travel from the host where it runs to those that may take it: units of work a second,
# then elements a second of each input and of each output port, all in thousandths. Bytes follow from the
# alphabets and frames from the plan, so that both hosts make the same of them.

from array import array

from ..offboard.compat import TYPE_CHECKING, const
from ..plan.draws import FRAME_BYTES, draws
from ..protocol import moves, offers
from ..storage.keyspace import PERMANENT, checkpoint_key, stream_key
from .instance import RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..plan.draws import Stream
    from ..plan.model import Plan
    from . import host as hosts
    from .battery import Energy

    Taken = Sequence[tuple[int, Sequence[int]]]  # operators that run elsewhere, and their rates

_ONE = const(256)  # battery.ONE
_PIECE_BYTES = const(64)  # of a frame with a piece of a checkpoint that are no piece
_PIECE_MS = const(100)  # from a piece to its answer, as long as no hand-over was measured
_STEPS = const(
    6
)  # times in which a message reaches everybody: that bids and a hand-over take beside its pieces
_COPIES = const(32)
_MASK = const((1 << 30) - 1)  # as in meter.py


# What operator v takes and puts out here, as it was measured.
def rates(energy: "Energy", v: int) -> list[int]:
    plan = energy.host.plan
    ins = [energy.rate_mhz(-1 - e.index) or 0 for e in plan.ins(v)]
    outs = [energy.rate_mhz(stream_key(v, k)) or 0 for k in range(len(plan.vertices[v].outs))]
    units = sum(ins) * energy.cost(v) // copy_ns(energy)
    return ([units] + ins + outs)[: offers.RATES_MAX]  # of more streams the rest counts nothing


# Nanoseconds of copying an element in a bare loop: a unit of work on this host, measured once in a boot.
def copy_ns(energy: "Energy") -> int:
    ticks = energy.meter.ticks_us
    if ticks is None:
        return energy.profile.copy_ns if energy.profile else 1
    if not energy.copy_ns:
        energy.measured(_copied(ticks))
    return energy.copy_ns


def _copied(ticks: "Callable[[], int]") -> int:
    x = array("i", bytes(4 * _COPIES))
    y = array("i", bytes(4 * _COPIES))
    best = 1 << 29
    for _ in range(3):
        began = ticks()
        for _ in range(8):
            for i in range(_COPIES):
                y[i] = x[i]
        best = min(best, (ticks() - began) & _MASK)
    return max(1, best * 1000 // (8 * _COPIES))


# What this host knows of the hosts, operators and streams of its process: all that leaving.py wants to know
# of it. taken: operators that run elsewhere.
class View:
    def __init__(self, energy: "Energy", taken: "Taken" = ()) -> None:
        self.energy = energy
        self.host = host = energy.host
        self.me = host.me
        profile = energy.profile
        links = profile.links if profile else {"wifi": (0, 0, 0)}
        mains = (True, 0, 0, {name: (0, 0, 0) for name in links}, 0)
        board = mains
        if profile:
            unit_pc = profile.compute_na // 1000 * copy_ns(energy) // 1000
            board = (False, 0, unit_pc, links, profile.radio_na)
        self.hosts = [mains] + [board] * (len(host.plan.hosts) - 1)
        self.hosts[self.me] = board
        given = {v: found for v, found in taken}
        self.units_mhz: list[int] = []
        for u in host.plan.vertices:
            units = 0
            if u.index in host.instances:
                units = rates(energy, u.index)[0]
            elif given.get(u.index):
                units = given[u.index][0]
            self.units_mhz.append(units)
        self.streams = _streams(energy, given)
        self.places = [w[2] for w in host.where]
        self.now: list[int] = []  # what each would draw as it is

    def _draws(self, places: list[int]) -> list[int]:
        found = draws(self.hosts, self.units_mhz, self.streams, places)
        assert found is not None, "hosts have no way to each other"
        return [na * self.energy.factor // _ONE for na in found]

    # Nanoamperes that each host would draw more if the operators `without` ran at `to`, and those of `with_`
    # here.
    def differences(self, without: "Sequence[int]", to: int, with_: "Sequence[int]" = ()) -> list[int]:
        after = list(self.places)
        for v in without:
            after[v] = to
        for v in with_:
            after[v] = self.me
        if not self.now:
            self.now = self._draws(self.places)
        return [b - a for a, b in zip(self.now, self._draws(after))]

    # ---- for leaving.py: see its head

    def operators(self) -> list[int]:
        host = self.host
        found = []
        for v in sorted(host.instances):
            if len(host.plan.vertices[v].hosts) > 1 and host.instances[v].status == RUNNING:
                found.append(v)
        return found

    def candidates(self, v: int) -> list[int]:
        host = self.host
        hosts = host.plan.vertices[v].hosts
        return [h for h in hosts if h != host.me and h in host.exchange.links and not host.words.dead(h)]

    def rank(self, v: int, h: int) -> int:
        return list(self.host.plan.vertices[v].hosts).index(h)

    def left_s(self) -> int:
        return self.energy.left_s()

    def whole_s(self) -> int:
        return self.energy.whole_s()

    def after(self, vs: "Sequence[int]", h: int) -> "tuple[int, list[int]]":
        energy = self.energy
        more = self.differences(vs, h)
        if not energy.powered:
            return offers.FOREVER, more
        left = energy.left_mc - sum([handover_mc(self.host, energy, v) for v in vs])
        draw = energy.draw_na + more[self.me]
        return min(offers.FOREVER - 1, max(0, left) * 1000000 // max(1, draw)), more

    def flees(self) -> bool:
        return self.energy.must_flee()

    def stays(self) -> bool:
        return self.energy.quiet[1] > 0

    def crosses(self, v: int, h: int) -> bool:
        where = self.host.where
        for e in self.host.plan.edges:
            if (
                e.src == v
                and (where[e.dst][2] if e.dst >= 0 else 0) == h
                or e.dst == v
                and where[e.src][2] == h
            ):
                return True
        return False

    def rests(self, v: int) -> bool:
        from . import leaving

        why, since = self.host.moves.get(v, (0, 0))
        return why > moves.TAKEOVER and self.host.site() // 1000000 - since < leaving.REST_S

    def trusts(self, v: int, h: int) -> bool:
        return self.host.refused_by.get(v * 256 + h, 0) <= self.host.now


# The streams of the process, as far as this host knows. given: rates of operators that run elsewhere.
def _streams(energy: "Energy", given: "dict[int, Sequence[int]]") -> "list[Stream]":
    plan = energy.host.plan
    found = []
    for e in plan.edges:
        mhz = energy.rate_mhz(stream_key(e.src, e.sport))
        if mhz is None:
            mhz = energy.rate_mhz(-1 - e.index)
        if mhz is None:
            mhz = max([_given(plan, v, given[v], e.src, e.sport, e.index) for v in given] or [0])
        frames = max(mhz // plan.batch, 1000000 // max(1, plan.batch_ms))
        size = mhz * (plan.vertices[e.src].outs[e.sport].width + 1)
        found.append((e.src, e.dst, size, min(mhz, frames)))
    return found


# What the rates of operator v say of this stream.
def _given(plan: "Plan", v: int, given: "Sequence[int]", src: int, port: int, edge: int) -> int:
    ins = [e.index for e in plan.ins(v)]
    at = len(given)
    if edge in ins:
        at = 1 + ins.index(edge)
    elif src == v:
        at = 1 + len(ins) + port
    return given[at] if at < len(given) else 0


# ---- hand-overs


# Bytes of operator v's checkpoint here, as a hand-over would send it.
def checkpoint_bytes(host: "hosts.Host", v: int) -> int:
    size = host.store.blob_size(checkpoint_key(v, PERMANENT))
    for p in host.instances[v].ports:
        size += p.ring.count * (p.alphabet.width + 1)
    return 64 + size


# What it costs to hand over a checkpoint of this size, in nanocoulombs, as the profile says: frames, bytes,
# flash, and what this host draws in any case while it lasts.
def handover_nc(host: "hosts.Host", energy: "Energy", size: int) -> int:
    profile = energy.profile
    if profile is None:
        return 0
    pieces = 1 + size // max(64, host.exchange.writer.mtu - _PIECE_BYTES)
    frames = 2 * pieces + 8
    ms = _STEPS * host.pace[2] // 1000 + pieces * _PIECE_MS
    send, _, frame = profile.costs
    nc = (size + frames * FRAME_BYTES) * send // 1000 + min(frames * frame, profile.radio_na * ms // 1000)
    return nc + size * profile.flash_byte_pc // 1000 + energy.drawn_na() * ms // 1000


# ... as it was measured, in millicoulombs.
def handover_mc(host: "hosts.Host", energy: "Energy", v: int) -> int:
    nc = handover_nc(host, energy, checkpoint_bytes(host, v))
    return nc * energy.handing // _ONE * energy.factor // _ONE // 1000000 + 1


# Millicoulombs below which this host hands over what it runs: twice the measured cost of that, what its log
# has still to send, and the error with which it knows its battery. At most three quarters of a battery: what
# is measured while a host that has restarted catches up would make it flee with a full one.
def reserve_mc(host: "hosts.Host", energy: "Energy") -> int:
    profile = energy.profile
    if profile is None:
        return 0
    mc = energy.error_mc
    for v in host.instances:
        if [h for h in host.plan.vertices[v].hosts if h != host.me]:
            mc += 2 * handover_mc(host, energy, v)
    if host.sources:
        waiting = max(0, host.store.usable_bytes() - host.store.free_bytes())
        frames = -(-waiting // max(64, host.exchange.writer.mtu - _PIECE_BYTES))
        send, _, frame = profile.costs
        nc = (waiting + frames * FRAME_BYTES) * send // 1000 + frames * frame
        mc += nc * energy.factor // _ONE // 1000000
    return min(mc, 3 * profile.capacity_mc // 4)
