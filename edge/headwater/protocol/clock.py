# Time: wrapping ticks -> monotone microseconds -> the site's time; and the floor under a restart.
#
# Site time is the time of the gateway's clock; every ts is in it. A host knows it from two-way
# exchanges with a synchronised neighbour, each with a bound on its error, and runs on by its own
# ticks and their measured drift in between. The gateway's neighbour is the clock of its machine.
# What holds:
#   - `site` never falls, in the order of calls. A boot starts just above the floor that its flash
#     remembers. The first exchange of a boot steps forward; if the true time turns out to be
#     earlier (the floor was logged ahead, the power was back at once), `site` stands still instead,
#     for at most one step: samples taken meanwhile get times at the end of the restart hole.
#   - Later exchanges move it by slewing only, at most slew_ppm faster or slower than it would run. But
#     one that puts the true time more than a step ahead of it is a step forward too: to be so wrong for
#     hours is worse than a jump, and forward is never wrong.
#   - The true time lies within `true_error_us`, as long as ticks drift less than drift_ppm_max. A
#     gateway that has no time from the network yet answers with an unknown error. A host without a better
#     time follows it, and is `synced` with its site but not `sure`; a host with one keeps its own time.
#   - No boundary above the floor in flash, and no floor further than a step ahead of the true time:
#     it is logged ahead by the step less what `site` is ahead already, and not ahead at all while
#     the host is unsynchronised. So a hundred brownouts in a row move ts by one step, not a hundred.
# It reads no clock: monotone times and answers come in, ts go out.

from ..offboard.compat import TYPE_CHECKING, const
from .position import FAR

if TYPE_CHECKING:
    from typing import Any

STEP_US = 10000000  # the floor is logged this much ahead; one record in three quarters of it
_PPB = 1000000000
_SPAN_MIN_US = 10000000  # exchanges closer together say nothing about drift
_SPAN_MAX_US = 256000000  # a measurement over longer tells of another temperature: begin a new one,
_SPAN_END_S = const(4096)  # at the latest here, measured well enough or not
UNKNOWN_US = FAR  # an error without a limit: of a host that does not know the true time


# Extends a counter that wraps, like ticks_us (30 bits of 1 us) or ticks_ms (30 bits of 1000 us).
# It must be read more often than half its period. Where it was not, `late` counts up and the
# time that has passed is not known: call Clock.lost.
class Ticks:
    def __init__(self, raw: int, unit_us: int = 1, bits: int = 30) -> None:
        self.mask = (1 << bits) - 1
        self.unit_us = unit_us
        self.raw = raw & self.mask
        self.mono_us = 0
        self.late = 0

    # The microseconds since the first reading.
    def read(self, raw: int) -> int:
        gone = (raw - self.raw) & self.mask
        if gone > self.mask >> 1:
            self.late += 1
        self.raw = raw & self.mask
        self.mono_us += gone * self.unit_us
        return self.mono_us


class Clock:
    # drift_ppm_max  how wrong the ticks may be; a crystal with its temperature: 100
    # slew_ppm       how fast a deviation is worked off
    # sleep_us       how far ahead this host promises the time to which it sleeps; it may wake before
    def __init__(
        self, drift_ppm_max: int = 100, slew_ppm: int = 500, step_us: int = STEP_US, sleep_us: int = 0
    ) -> None:
        self.drift_ppb_max = drift_ppm_max * 1000
        self.slew_ppm = slew_ppm
        self.step_us = step_us
        self.still_us = step_us + sleep_us  # how long `site` may stand still
        self.refused = 0  # exchanges that cannot be true
        self.start(0, 0)

    # A boot starts, above the floor that the flash remembers.
    def start(self, mono_us: int, floor_us: int) -> None:
        self.mono0 = mono_us  # where the present line begins
        self.true0 = floor_us + 1  # what the true time is believed to be there,
        self.error0 = 0  # with this error,
        self.away0 = 0  # and how far ahead of it (or behind) `site` is
        self.last = floor_us + 1  # the last value of `site`
        self.drift_ppb = 0
        self.synced = 0  # 1: an exchange was taken,
        self.sure = 0  # and one of them with a known error
        # An earlier exchange to measure drift from: (mono, true, error).
        self.far: tuple[int, int, int] | None = None

    # The ticks were not read in time: the next exchange counts as the first.
    def lost(self) -> None:
        self.synced = self.sure = 0
        self.far = None

    # One two-way exchange: sent at t1 and answered at t4 of our monotone time; taken at t2 and
    # returned at t3 of the neighbour's true time, known to it within err_us. Returns False
    # where this cannot be so, and nothing has changed.
    def exchange(self, t1: int, t2: int, t3: int, t4: int, err_us: int = 0) -> bool:
        trip = (t4 - t1) - (t3 - t2)
        rate_ppm = self.slew_ppm + 2 * self.drift_ppb_max // 1000
        slack = 2 + (t4 - t1 + t3 - t2) * rate_ppm // 1000000
        if t4 < t1 or t3 < t2 or trip < -slack or t2 < 0 or t3 > FAR or err_us < 0:
            self.refused += 1
            return False
        sure = 1 if err_us < UNKNOWN_US else 0
        if self.sure > sure:
            return True  # what is known here is better
        if trip < 0:
            trip = 0
        true = t3 + trip // 2
        error = trip // 2 + 1 + slack + err_us
        away = self.at(t4)
        far: "Any" = self.far  # not None if the span is not 0
        drift_ppb = self.drift_ppb
        span = 0 if far is None else t4 - far[0]
        if span >= _SPAN_MIN_US and (error + far[2]) * _PPB // span <= self.drift_ppb_max // 4:
            drift_ppb = (true - far[1] - span) * _PPB // span
            drift_ppb = min(max(drift_ppb, -self.drift_ppb_max), self.drift_ppb_max)
            if span > _SPAN_MAX_US:
                far = None
        if far is None or span > _SPAN_END_S * 1000000 or 2 * error < far[2]:
            self.far = (t4, true, error)
        if self.sure:
            # The truth lies in both intervals. Where they do not meet the neighbour's time was
            # moved: the newer one counts.
            known = self.true_us(t4)
            bound = self._error(t4)
            low = max(true - error, known - bound)
            high = min(true + error, known + bound)
            if low <= high:
                true = (low + high) // 2
                error = (high - low) // 2 + 1
            else:
                self.far = (t4, true, error)
                drift_ppb = self.drift_ppb
        away -= true
        if not self.synced or sure > self.sure or away < -self.step_us:
            away -= min(away, self.still_us)  # forward at once; back by standing still
        self.synced = 1
        self.sure = sure
        self.mono0 = t4
        self.true0 = true
        self.error0 = error
        self.away0 = away
        self.drift_ppb = drift_ppb
        return True

    # The site's time.
    def site(self, mono_us: int) -> int:
        ts = self.at(mono_us)
        if ts > self.last:
            self.last = ts
        return self.last

    # What the clock shows, or showed: the same, but it may lie below what `site` said before.
    def at(self, mono_us: int) -> int:
        return self.true_us(mono_us) + self._away(mono_us)

    # The true time, as far as it is known here,
    def true_us(self, mono_us: int) -> int:
        gone = mono_us - self.mono0
        return self.true0 + gone + gone * self.drift_ppb // _PPB

    # and a bound on its error.
    def true_error_us(self, mono_us: int) -> int:
        return self._error(mono_us) if self.sure else UNKNOWN_US

    # A bound on how far `site` is from the true time.
    def error_us(self, mono_us: int) -> int:
        if not self.sure:
            return UNKNOWN_US
        return abs(self.site(mono_us) - self.true_us(mono_us)) + self._error(mono_us)

    # How long `site` will stand still.
    def standstill_us(self, mono_us: int) -> int:
        return max(0, self.site(mono_us) - self.at(mono_us))

    # How far ahead of `site` a floor may be logged.
    def ahead_us(self, mono_us: int) -> int:
        if not self.synced:
            return 0
        return max(0, self.step_us - max(0, self.site(mono_us) - self.true_us(mono_us)))

    def _error(self, mono_us: int) -> int:
        gone = max(0, mono_us - self.mono0)
        return self.error0 + 1 + gone * (self.drift_ppb_max + abs(self.drift_ppb)) // _PPB

    def _away(self, mono_us: int) -> int:
        slewed = max(0, mono_us - self.mono0) * self.slew_ppm // 1000000
        if self.away0 > 0:
            return max(0, self.away0 - slewed)
        return min(0, self.away0 + slewed)


# What the flash remembers of a host's time. No boundary goes above it; a restart begins above it.
class Floor:
    def __init__(self, flash_us: int = 0, step_us: int = STEP_US) -> None:
        self.flash_us = flash_us
        self.step_us = step_us

    # A floor, or an element with this ts, has been sealed in flash.
    def sealed(self, ts: int) -> None:
        if ts > self.flash_us:
            self.flash_us = ts

    # Whether a boundary at ts may be sent; `cap` is the highest that may.
    def allow(self, ts: int) -> bool:
        return ts <= self.flash_us

    def cap(self, ts: int) -> int:
        return min(ts, self.flash_us)

    # The floor that must be logged now so that boundaries can go on, or 0. `ahead_us` is the
    # clock's. At most one record in three quarters of a step; a source that seals more often needs none.
    def need(self, ts: int, ahead_us: int) -> int:
        floor = ts + ahead_us
        return floor if floor - self.flash_us >= self.step_us * 3 // 4 else 0
