"""The site's time: the gateway's clock, across restarts and faults of the machine's clock.

The gateway is a host like any other: its time is a line over a monotone clock, which exchanges correct. Its
neighbour in these exchanges is the clock of its machine, and the error is what the kernel guarantees. So the
rules of `headwater.protocol.clock` hold here too: the site's time never falls, small deviations are slewed
away at 500 ppm, one of more than a step forward is a step. What is added:

- The machine's clock counts only while the kernel reports that it is synchronised: systemd-timesyncd, chrony
  (with `rtcsync`) and ntpd clear the flag STA_UNSYNC, and `date -s` sets it. A Pi without a battery-backed
  clock shows some time of the past until then. `gateway.clock = "wall"` is for machines whose clock is kept
  by other means. If the kernel does not answer (not Linux; a container) the clock is trusted.
- Until then the time continues from the newest stored one, and boards learn that its error is unknown.
- Every commit of the database stores the time and the reading of the machine's monotone clock. That clock
  continues while the gateway restarts, and so does the site's time: a restart moves it neither ahead nor
  back, without reading the machine's clock. After a restart of the machine the time begins at the stored
  one. Nothing is stored ahead of the time, so nothing adds up.
- Forward cannot be taken back: boards never stamp below what they have stamped. So a time before this
  software existed or after 2100 is not trusted, nor a jump of more than a day within one boot.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from headwater.protocol.clock import UNKNOWN_US, Clock

from .monitoring.alarms import span

SECOND_US = 1_000_000
EARLIEST_US = 1_577_836_800 * SECOND_US  # 2020
LATEST_US = 4_102_444_800 * SECOND_US  # 2100
JUMP_MAX_US = 86_400 * SECOND_US
FOLLOW_US = SECOND_US  # between two readings of the machine's clock
KEEP_US = 5 * SECOND_US  # if nothing else is committed, the time is stored this often
NETWORK, WALL = "network", "wall"
_STA_UNSYNC = 0x40
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)

NOT_SYNCHRONISED = (
    "not synchronised: this machine has no time from the network, and the site's time runs on from what the "
    "gateway has kept"
)


def mono_us() -> int:
    """A clock that never goes back while the machine runs, and goes on while it is suspended."""
    if _BOOTTIME is None:
        return time.monotonic_ns() // 1000
    return time.clock_gettime_ns(_BOOTTIME) // 1000


class Reading(NamedTuple):
    """What the machine's clock shows, read between two readings of the monotone one."""

    before_us: int
    wall_us: int
    after_us: int
    error_us: int | None  # the largest error; None if nothing guarantees one
    boot: str  # which boot of the machine: another one has another monotone clock


class Machine:
    """The clock of the machine that this runs on. `source`: gateway.clock of the configuration."""

    def __init__(self, source: str) -> None:
        self.source = source
        try:
            self.boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            self.boot = ""

    def read(self) -> Reading:
        error_us = kernel_error_us() if self.source == NETWORK else 0
        before = mono_us()
        wall = time.time_ns() // 1000
        return Reading(before, wall, mono_us(), error_us, self.boot)


class _Timex(ctypes.Structure):
    """The head of the kernel's `struct timex`."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 512),
    ]


try:
    _LIBRARY: Any = ctypes.CDLL(None)
except OSError:
    _LIBRARY = None


def kernel_error_us() -> int | None:
    """The largest error of the machine's clock, as the kernel states it; None: not synchronised."""
    timex = _Timex()
    if not hasattr(_LIBRARY, "adjtimex") or _LIBRARY.adjtimex(ctypes.byref(timex)) < 0:
        return 0  # there is none, or it must not be called
    return None if timex.status & _STA_UNSYNC else max(0, timex.maxerror)


class SiteClock(Clock):
    """`read`: the machine's clock. `kept`: the last result of `keep`, before the restart; `floor_us`: without
    one, the newest time that is known to have been given out."""

    def __init__(self, read: Callable[[], Reading], kept: str | None = None, floor_us: int = 0) -> None:
        super().__init__()
        self.read = read
        self.problem = ""
        self.followed_us = 0
        self.kept_us = 0
        now = read()
        self.boot = now.boot
        if kept is None:
            self.start(now.after_us, (floor_us or max(EARLIEST_US, min(now.wall_us, LATEST_US))) - 1)
        else:
            self._go_on(json.loads(kept), now)
        self.synced = 1  # this is the site's time, known or not
        self._follow(now)

    def _go_on(self, kept: dict[str, Any], now: Reading) -> None:
        self.start(now.after_us, kept["site"] - 1)
        if now.boot and kept["boot"] == now.boot and kept["mono"] <= now.after_us:
            self.mono0 = kept["mono"]
            self.true0 = kept["true"]
            self.away0 = kept["away"]
            if kept["error"] is not None:
                self.error0 = kept["error"]
                self.sure = 1

    def keep(self, mono: int) -> str:
        """What a later start continues from; for the database."""
        true = self.true_us(mono)
        self.kept_us = mono
        return json.dumps(
            {
                "boot": self.boot,
                "mono": mono,
                "site": self.site(mono),
                "true": true,
                "away": self.at(mono) - true,
                "error": self.true_error_us(mono) if self.sure else None,
            }
        )

    # ---- following the machine's clock

    def tick(self, mono: int) -> bool:
        """To be called often. True if the time should be stored now, with no other commit to do it."""
        if mono - self.followed_us >= FOLLOW_US:
            self._follow(self.read())
        return mono - self.kept_us >= KEEP_US

    def _follow(self, now: Reading) -> None:
        self.followed_us = now.after_us
        self.problem = self._doubt(now)
        if not self.problem:
            assert now.error_us is not None  # that would be a doubt
            self.exchange(now.before_us, now.wall_us, now.wall_us, now.after_us, now.error_us)

    def _doubt(self, now: Reading) -> str:
        """Why the machine's clock is not followed, or nothing."""
        if now.error_us is None:
            return NOT_SYNCHRONISED
        if not EARLIEST_US <= now.wall_us < LATEST_US:
            shows = time.strftime("%Y-%m-%d", time.gmtime(now.wall_us // SECOND_US))
            return "not synchronised: this machine's clock shows %s, which cannot be" % shows
        ahead = now.wall_us - self.true_us(now.after_us)
        if self.sure and ahead > JUMP_MAX_US:
            return (
                "not synchronised: this machine's clock jumped ahead by %s, and the site's time did not "
                "follow, since that could not be taken back. If it is right, restart the machine"
                % span(ahead / SECOND_US)
            )
        return ""

    # ---- its state

    def view(self, mono: int) -> dict[str, Any]:
        """For state, page and metrics."""
        ahead = max(0, self.site(mono) - self.true_us(mono))
        return {
            "synchronised": not self.problem,
            "problem": self.problem,
            "error_us": self.error_us(mono) if self.sure else None,
            "ahead_us": ahead,
            "right_in_s": round(self.right_in_s(mono)),
        }

    def right_in_s(self, mono: int) -> float:
        """How long until the site's time, which is ahead, is the true time again."""
        slewing = max(0, self.at(mono) - self.true_us(mono)) / self.slew_ppm
        return max(slewing, self.standstill_us(mono) / SECOND_US)


def told(view: dict[str, Any]) -> str:
    """A line about the time, from what `SiteClock.view` gave."""
    words = ["time: synchronised" if view["synchronised"] else "time: not synchronised"]
    if view["ahead_us"] > SECOND_US:
        ahead, right = span(view["ahead_us"] / SECOND_US), span(view["right_in_s"])
        words.append("%s ahead, right again in %s" % (ahead, right))
    elif view["error_us"] is not None:
        words.append("within %.1f ms" % (view["error_us"] / 1000))
    return ", ".join(words)


assert UNKNOWN_US > LATEST_US
