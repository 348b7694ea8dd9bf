# What a host knows of its energy: what it has spent, what its battery has left, and how long that lasts.
#
# This is loaded once a beat, and when another module asks; between two looks it is put away as bytes
# (meter.py). What a move would change is estimated by outlook.py, and what follows is decided by leaving.py,
# in rounds of bids.py. These three are loaded for a round, when another host asks, and once a minute for the
# reserve; they are unloaded again.
#
# A host counts what it does (elements taken, bytes and frames, bytes of flash, time awake and asleep) and
# multiplies by the numbers of its profile: so it knows its draw. What is left follows from the voltage of
# the battery, by its curve; between two readings it is counted down. The two are compared: once the battery
# has lost a few percent, the ratio of what it lost and what was counted corrects the draw, slowly and
# within bounds.
#
# Invariants.
#   - The correction stays within a quarter and four times what the profile says.
#   - A restart forgets no correction, no cost of a hand-over and no flight: they are in the flash (`keep`).
#   - Whoever has an Energy changes it by its verbs, before the host rests: another one is made after that.

from ..board.unload import unload
from ..data import msgpack
from ..offboard.compat import TYPE_CHECKING, const
from ..plan.profile import Profile
from ..protocol.moves import FLEE
from ..protocol.offers import FOREVER, OK, SILENT
from ..protocol.refusals import NO_ROOM
from ..storage.keyspace import B_ENERGY
from ..storage.log import LogFull

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .bids import Round
    from .meter import Meter

    Rates = Sequence[int]

ONE = const(256)  # a correction that changes nothing (outlook.py has it too)
_LEAST = const(64)
_MOST = const(1024)
_ODD_MAX = const(2)
_SETTLES = const(16)  # readings before the correction is looked at
_RESERVE_BEATS = const(12)  # the reserve is computed this often
_WINDOW_MS = const(600000)  # what was spent longer ago than this counts half
_HOUR_MS = const(3600000)
_FORM = const(1)
UNITS = const(10)  # of work for an element of an operator that was not timed yet


class Energy:
    # As it is in `kept`, which `as_bytes` has made, or in its first state where that is empty.
    def __init__(self, meter: "Meter", kept: bytes) -> None:
        self.meter = meter
        self.host = meter.host
        self.profile = Profile(meter.profile) if meter.profile else None
        self.programmed = -1  # bytes of flash, in this boot
        self.now = 0
        self.slept_ms = 0  # to be counted with the next look
        # Within the window: time, nanocoulombs by what spent them.
        self.ms = 0
        self.spent = [0, 0, 0, 0]  # waiting and sleeping, computing, radio, flash
        # Stream of a port, or -1 - edge of an input -> [last entry, entries in the window].
        self.flows: "dict[int, list[int]]" = {}
        self.ran: list[int] = []  # operators that ran here all that time
        self.copy_ns = 0  # of an element in a bare loop: a unit of work; 0: it was not measured yet
        # The battery.
        self.known = False  # its voltage was read
        self.mv = 0
        self.odd = 0  # readings in a row that do not fit at all
        self.settled = 0  # readings since one that was taken as it was
        self.left_mc = 0
        self.rest_nc = 0  # spent, and less than what left_mc counts
        self.error_mc = 0  # by which reading and counting differed, lately
        self.factor = ONE
        self.mark_mc = -1  # what it had when the correction was looked at last,
        self.mark_nc = 0  # ... what was counted since,
        self.mark_ms = 0  # ... in this time
        # What a hand-over costs beside what the profile says, and the one that is under way.
        self.handing = ONE
        self.begun_nc = -1  # what was spent in this boot when it began
        self.fled: dict[int, int] = {}  # operator -> what was left when it fled from here
        # Decisions.
        self.reserve_mc = 0  # with less this host flees,
        self.reserve_na = 0  # ... and what it drew when that was computed; 0: with other operators
        self.beats = 0
        # To balance, and to flee: when the next round begins, and how many since one led to a move.
        self.due_us = [0, 0]
        self.quiet = [0, 0]
        if kept:
            self._unpack(kept)
        else:
            self._begin()

    # ---- between two looks

    # All that it knows.
    def as_bytes(self) -> bytes:
        flows: list[int] = []
        for key in self.flows:
            flows += [key] + self.flows[key]
        boot = [
            self.programmed, self.now, self.slept_ms, self.copy_ns, int(self.known), self.mv, self.odd,
            self.settled, self.rest_nc, self.error_mc, self.begun_nc, self.reserve_mc, self.reserve_na,
            self.beats,
        ]  # fmt: skip
        kept: "bytes" = msgpack.dumps([self._lasting(), boot, self.ran, flows, self.due_us + self.quiet])
        return kept

    def _unpack(self, kept: bytes) -> None:
        lasting, boot, self.ran, flows, rounds = msgpack.loads(kept)
        self._last(lasting)
        (
            self.programmed, self.now, self.slept_ms, self.copy_ns, known, self.mv, self.odd,
            self.settled, self.rest_nc, self.error_mc, self.begun_nc, self.reserve_mc, self.reserve_na,
            self.beats,
        ) = boot  # fmt: skip
        self.known = known > 0
        for i in range(0, len(flows), 3):
            self.flows[flows[i]] = flows[i + 1 : i + 3]
        self.due_us = rounds[:2]
        self.quiet = rounds[2:]

    # What outlasts a boot.
    def _lasting(self, asleep_ms: int = 0) -> "list[Any]":
        fled = [self.host.plan.deployment]
        for v in sorted(self.fled):
            fled += [v, self.fled[v]]
        mark = [self.mark_mc, self.mark_nc, self.mark_ms] if self.mark_mc >= 0 else []
        return [_FORM, self.factor, self.handing, self.left_mc, asleep_ms, mark, [self.ms] + self.spent, fled]

    def _last(self, lasting: "list[Any]") -> None:
        _, self.factor, self.handing, self.left_mc, self.slept_ms, mark, spent, fled = lasting
        if mark:
            self.mark_mc, self.mark_nc, self.mark_ms = mark
        self.ms = spent[0]
        self.spent = spent[1:]
        if fled[0] == self.host.plan.deployment:
            for i in range(1, len(fled), 2):
                self.fled[fled[i]] = fled[i + 1]

    # ---- once per beat

    def tick(self) -> None:
        host = self.host
        self._look()
        if self.meter.round:
            self.meter.round.tick(self)
        elif self.powered or host.now >= self.due_us[0]:
            self._consider()

    # Whether it is time for bids: the host flees, or the pause since the last round is over.
    def _consider(self) -> None:
        host = self.host
        movable = [v for v in host.instances if len(host.plan.vertices[v].hosts) > 1]
        if not movable or not host.words or host.quiet or host.giving:
            return
        self.beats += 1
        if self.powered and (self.beats % _RESERVE_BEATS == 2 or self._draws_more()):
            self._reserve()
        if host.now >= self.due_us[int(self.must_flee())]:
            from . import bids

            bids.begin(self)

    # Whether it draws twice what it drew when the reserve was computed: what handing over costs follows from
    # that. The first two beats say little.
    def _draws_more(self) -> bool:
        return 1000 * self.ms > 2 * self.host.period_us and self.drawn_na() > 2 * self.reserve_na

    def _reserve(self) -> None:
        from . import outlook

        self.reserve_mc = outlook.reserve_mc(self.host, self)
        self.reserve_na = self.drawn_na()
        outlook = None  # type: ignore[assignment]
        self.rests()

    # A round of bids has begun, or is over; the next one begins after `pause_s`.
    def asks(
        self, round_: "Round | None", flees: bool = False, moved: bool = False, pause_s: int = 0
    ) -> None:
        self.meter.asks(round_)
        if round_ is None:
            self.due_us[int(flees)] = self.host.now + pause_s * 1000000
            self.quiet[int(flees)] = 0 if moved else self.quiet[int(flees)] + 1
            self.rests()

    # What only decisions need is unloaded.
    def rests(self) -> None:
        unload("runtime.leaving", "runtime.outlook", "plan.draws")
        if not self.meter.round:
            unload("runtime.bids")
            if not self.host.giving:
                unload("runtime.moving")

    # A boot begins. The battery is read before any other host asks: one that was not read yet would pass for
    # mains, and a host that flees would choose it.
    def _begin(self) -> None:
        host = self.host
        self.now = host.now
        self.programmed = self._flash()
        self.due_us[0] = self.now + _RESERVE_BEATS * host.period_us  # until then too little was measured
        stored = host.store.get_blob(B_ENERGY) if self.profile else None
        kept = msgpack.loads(stored) if stored else [0]
        profile = self.profile
        if profile and kept[0] == _FORM:
            self._last(kept)
            # A battery that was charged or changed meanwhile shows at once. A low reading proves nothing.
            mv = self.meter.battery_mv() if self.meter.battery_mv else None
            there = profile.left_mc(mv) if mv is not None else 0
            self.known = there - self.left_mc <= profile.capacity_mc // 8
        if profile and not self.known:
            self._battery(profile, 0, 0)

    def _flash(self) -> int:
        return self.host.store.stats()["programmed"] if self.profile else 0

    # Count what was done since the last look, and look at the battery.
    def _look(self) -> None:
        host = self.host
        ms = (host.now - self.now) // 1000
        self.now += ms * 1000
        if self.ran != sorted(host.instances):
            # What was measured with other operators says little.
            self.ran = sorted(host.instances)
            self.ms = 0
            self.spent = [0, 0, 0, 0]
            self.reserve_na = 0
            self.due_us[0] = max(self.due_us[0], host.now + _RESERVE_BEATS * host.period_us)
            for f in self.flows.values():
                f[1] = 0
        taken = 0  # nanoseconds of computing
        for v in host.instances:
            inst = host.instances[v]
            n = 0
            for e in inst.inputs:
                n += self._flow(-1 - e.edge.index, e.cur.xi)
            taken += n * self.cost(v)
        for p in host.ports.values():
            self._flow(p.stream, p.ring.last)
        profile = self.profile
        sent_bytes, got_bytes, frames = self.meter.counted()
        if profile:
            written = self._flash()
            send, receive, frame = profile.costs
            frames_nc = min(profile.radio_na * ms // 1000, frames * frame)
            parts = (
                profile.awake_na * ms // 1000 + profile.asleep_na * (self.slept_ms // 1000),
                taken * (profile.compute_na // 1000) // 1000000,
                (sent_bytes * send + got_bytes * receive) // 1000 + frames_nc,
                max(0, written - self.programmed) * profile.flash_byte_pc // 1000,
            )
            self.programmed = written
            nc = 0
            for i in range(4):
                self.spent[i] += parts[i]
                nc += parts[i]
            ms += self.slept_ms
            self.slept_ms = 0
            self._battery(profile, nc, ms)
        self.ms += ms
        if self.ms > 2 * _WINDOW_MS:
            self.ms //= 2
            self.spent = [nc // 2 for nc in self.spent]
            for f in self.flows.values():
                f[1] //= 2

    # This stream, or input, is at entry `last`: how many are new.
    def _flow(self, key: int, last: int) -> int:
        f = self.flows.get(key)
        if f is None:
            self.flows[key] = [last, 0]
            return 0
        n = max(0, last - f[0])
        f[0] = last
        f[1] += n
        return n

    # Thousandths of an entry that a stream has in a second, as far as it passes here; None: it does not.
    def rate_mhz(self, key: int) -> "int | None":
        f = self.flows.get(key)
        return None if f is None or not self.ms else f[1] * 1000000 // self.ms

    # Nanoseconds that an element of operator v costs here.
    def cost(self, v: int) -> int:
        known = self.meter.costs.get(v)
        if known is None:
            known = UNITS * self.profile.copy_ns if self.profile else 0
        return known

    # ---- the battery

    def _battery(self, profile: "Profile", nc: int, ms: int) -> None:
        self.meter.spend(nc)
        self.rest_nc += nc * self.factor // ONE
        self.left_mc = max(0, self.left_mc - self.rest_nc // 1000000)
        self.rest_nc %= 1000000
        mv = self.meter.battery_mv() if self.meter.battery_mv else None
        if mv is None:
            return
        self.mv = mv
        there = profile.left_mc(mv)
        off = there - self.left_mc
        # A reading while the radio sends is low, so one reading moves little. Three in a row that are far off
        # show another battery.
        self.odd = self.odd + 1 if abs(off) > profile.capacity_mc // 8 else 0
        if not self.known or self.odd > _ODD_MAX:
            self.known = True
            self.odd = self.settled = 0
            self.left_mc = there
            self.mark_mc = -1
            self.error_mc = 0
        else:
            self.left_mc = max(0, self.left_mc + off // 8)
            self.error_mc += (abs(off) - self.error_mc) // 8
        self.settled += 1
        if self.settled > _SETTLES:
            self._correct(profile, nc, ms)

    # Compare what the battery lost with what was counted, once that is enough to be seen in its voltage:
    # after an hour, or sooner where it lost much.
    def _correct(self, profile: "Profile", nc: int, ms: int) -> None:
        if self.mark_mc < 0:
            self.mark_mc = self.left_mc
            self.mark_nc = self.mark_ms = 0
            return
        self.mark_nc += nc
        self.mark_ms += ms
        lost = self.mark_mc - self.left_mc
        counted = self.mark_nc // 1000000
        step = profile.capacity_mc // 32
        if max(lost, counted) < (step if self.mark_ms >= _HOUR_MS else 2 * step):
            return
        if lost > 0 and counted > 0:
            seen = max(_LEAST, min(_MOST, ONE * lost // counted))
            self.factor += (seen - self.factor) // 4
        self.mark_mc = -1
        self.keep()

    # ---- how long it lasts

    # Whether this host runs from a battery that it can measure.
    @property
    def powered(self) -> bool:
        return self.profile is not None and self.known

    # What it draws, in nanoamperes, over the window; while that is not known, what waiting draws.
    @property
    def draw_na(self) -> int:
        return self.drawn_na() * self.factor // ONE

    # ... as it was counted, without the correction. Less than a beat says nothing: a start costs much.
    def drawn_na(self) -> int:
        if 1000 * self.ms < self.host.period_us:
            return self.profile.awake_na if self.profile else 0
        return sum(self.spent) * 1000 // self.ms

    # Seconds until the battery is empty: now; without operators, which move to `to`; with others, as
    # (operator, rates that the host where it runs has measured).
    def left_s(
        self, without: "Sequence[int]" = (), with_: "Sequence[tuple[int, Rates]]" = (), to: int = 0
    ) -> int:
        if not self.powered:
            return FOREVER
        draw = self.draw_na
        if without or with_:
            from . import outlook

            view = outlook.View(self, with_)
            draw += view.differences(without, to, [v for v, _ in with_])[self.host.me]
            self.rests()
        return min(FOREVER - 1, self.left_mc * 1000000 // max(1, draw))

    # Seconds that a full battery would last.
    def whole_s(self) -> int:
        if not self.powered or not self.profile:
            return FOREVER
        return min(FOREVER - 1, self.profile.capacity_mc * 1000000 // max(1, self.draw_na))

    # Whether it has less than it needs to hand over what it runs.
    def must_flee(self) -> bool:
        return self.powered and self.left_mc < self.reserve_mc

    # A unit of work takes so long on this host.
    def measured(self, copy_ns: int) -> None:
        self.copy_ns = copy_ns

    # What operator v takes and puts out: see outlook.py.
    def rates(self, v: int) -> list[int]:
        from . import outlook

        found: list[int] = outlook.rates(self, v)
        self.rests()
        return found

    # Why this host does not take operator v, or OK (protocol/offers.py). left: the time left of the host that
    # gives it.
    def refuses(self, v: int, rates: "Rates", why: int, left: int = FOREVER) -> int:
        if not self.powered:
            return OK
        from . import leaving

        self._reserve()
        with_s = self.left_s(with_=((v, rates),))
        reserve_s = self.reserve_mc * with_s // max(1, self.left_mc)
        found: int = leaving.refusal(self, v, why, left, with_s, reserve_s)
        self.rests()
        return found

    # For people: percent left, seconds left, microamperes that it draws, what percent of these are computing,
    # radio and flash, and the correction in percent. None on mains.
    def told(self) -> "list[int] | None":
        if not self.powered or not self.profile:
            return None
        whole = max(1, sum(self.spent))
        parts = [100 * nc // whole for nc in self.spent[1:]]
        percent = 100 * self.left_mc // self.profile.capacity_mc
        return [percent, self.left_s(), self.draw_na // 1000] + parts + [100 * self.factor // ONE]

    # ---- hand-overs

    # This host begins to hand an operator over.
    def gives(self) -> None:
        if self.powered:
            self._look()
            self.begun_nc = self.meter.spent_nc

    # ... operator v, whose checkpoint has this size, and it is over: what that cost counts from now on,
    # beside what the profile makes of the size. What has fled does not return before the battery is charged.
    def gave(self, v: int, size: int, why: int, outcome: int) -> None:
        if self.begun_nc < 0 or not self.powered:
            return
        self._look()
        cost = self.meter.spent_nc - self.begun_nc
        self.begun_nc = -1
        if outcome != OK:
            if why == FLEE and outcome <= SILENT:
                self.due_us[1] = self.host.now  # that host did not take it: another one may
            return
        from . import outlook

        seen = ONE * cost // max(1, outlook.handover_nc(self.host, self, size))
        self.handing += (max(_LEAST // 4, min(4 * _MOST, seen)) - self.handing) // 4
        if why == FLEE:
            self.fled[v] = self.left_mc
            self.due_us[1] = self.host.now  # the next operator leaves at once
            self.quiet[1] = 0
        self.keep()
        self.rests()

    # Whether operator v may come (again): it did not flee from here, or a tenth of the battery was charged.
    def takes_back(self, v: int) -> bool:
        if v not in self.fled or not self.profile:
            return True
        if self.left_mc < self.fled[v] + self.profile.capacity_mc // 10:
            return False
        del self.fled[v]
        return True

    # ---- restarts

    # This host sleeps from now on, for so long.
    def sleep(self, us: int) -> None:
        if self.profile:
            self._look()
            self.keep(us // 1000)

    # Have the flash remember what a restart would forget.
    def keep(self, asleep_ms: int = 0) -> None:
        if not self.powered:
            return
        try:
            self.host.store.put_blob(B_ENERGY, msgpack.dumps(self._lasting(asleep_ms)))
        except LogFull:
            self.host.count(NO_ROOM)  # after a restart it goes on from what was kept before
