# A source: sensor and log, no inputs, no state. A sample is accepted when its record is sealed in
# flash; until then no operator and no link gets it.
#
# Invariants.
#   - ts never falls, across power cuts too; every boundary given out lies at or below a floor that
#     the flash remembers, and a later boot begins above it. ts is never ahead of the clock, except as far
#     as that floor demands: once the clock has come there, samples have the time they were taken at.
#   - A source whose stream goes round a loop never gives more entries in a time, by their ts, than it samples
#     in that time: while its clock stands still it takes nothing. The buffers of a loop are made for that
#     many, and a full one would wait for itself.
#   - What could not be sampled or accepted is one hole: an entry of the stream, with from, to and why.
#   - An incarnation ends only when the numbering was truly lost.

from ..data.batch import LOG_FULL, RESTART, Batch
from ..data.block import bound
from ..offboard.compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..plan.model import Vertex
    from .host import Host
    from .outputs import OutPort

_STILL_US = const(100000)  # a clock that is so far behind the last entry stands still; less is a batch late


class Source:
    def __init__(self, host: "Host", vertex: "Vertex", port: "OutPort", last_ts: int, loops: bool) -> None:
        self.host = host
        self.vertex = vertex
        self.port = port
        self.last_ts = max(last_ts, host.floor.flash_us)  # nothing at or below this may follow
        self.sampled_to = last_ts  # ts up to which the stream is complete
        self.why = RESTART if port.ring.last else 0  # reason of the hole that the next sample closes
        self.loops = loops  # whether what it gives comes into a feedback edge
        self.hole = Batch(vertex.outs[0], 1)
        self.accepted = 0
        self.refused = 0

    # Accept a batch whose first sample was taken at `mono` of the host's clock; how many were.
    # It carries cols, n, dt (or at); ts, xi and unsync are set here.
    def take(self, batch: Batch, mono: int) -> int:
        n = batch.n
        clock = self.host.clock
        ts = clock.at(mono)
        unsync = 0 if clock.sure else 1
        if ts <= self.last_ts:
            behind = self.last_ts - clock.at(mono + batch.span())
            if self.loops and behind > max(_STILL_US, batch.dt):
                self.refused += n
                self.fault(RESTART)
                return 0
            ts = self.last_ts + 1
            self._squeeze(batch, clock.at, mono, ts)
        port = self.port
        if self.why:
            # Not without the batch that ends it: holes with no sample between them are one hole.
            while not self.host.store.takes(bound(self.vertex.outs[0], n) + 64):
                if not self._drop(port):
                    return self._refuse(n)
            if not self._close_hole(ts, unsync):
                return self._refuse(n)
        batch.begin(port.ring.last + 1, n, ts, batch.dt, unsync)
        if not self._seal(batch, n):
            return self._refuse(n)
        self.accepted += n
        return n

    # The batch begins later than its first sample was taken: after a restart, where the last entry or the
    # floor lies ahead of the clock. It still ends when its last sample was taken. Otherwise a source that
    # samples without a pause would never come back to the clock, and every restart could add to its times.
    def _squeeze(self, batch: Batch, at: "Callable[[int], int]", mono: int, ts: int) -> None:
        if batch.n > 1:
            batch.squeeze(at(mono + batch.span()) - ts)

    def _refuse(self, n: int) -> int:
        self.refused += n
        if not self.why:
            self.why = LOG_FULL
        self.port.press_all()
        return 0

    # The hole from the last sample to this one, before this one.
    def _close_hole(self, ts: int, unsync: int) -> bool:
        back = ts - self.sampled_to if self.sampled_to else 0
        self.hole.begin_one(self.port.ring.last + 1, ts, unsync, self.why, back)
        if not self._seal(self.hole, 1):
            return False
        self.why = 0
        return True

    # The sensor gave nothing since the last sample, for this reason: a hole, closed by the next one.
    def fault(self, reason: int) -> None:
        if not self.why:
            self.why = reason

    # The numbering begins again: what was before is a hole.
    def restarted(self) -> None:
        self.why = RESTART

    def _seal(self, batch: Batch, n: int) -> bool:
        port = self.port
        while not port.seal(batch, n):
            if not self._drop(port):
                return False
        port.has_room(n)
        port.ring.append(batch, 0, n, True)
        ts = batch.ts_of(n - 1)
        self.last_ts = self.sampled_to = ts
        self.host.floor.sealed(ts)
        port.raise_bound(ts + 1 if not batch.hole else ts)
        return True

    # The log is full. An edge to the lake that is declared to prefer the newest drops the oldest.
    def _drop(self, port: "OutPort") -> bool:
        if not port.drops:
            return False
        from . import gaps

        return gaps.drop_oldest(port)

    # Time passes without a sample. An irregular source promises that nothing earlier will come.
    def tick(self) -> None:
        if self.vertex.rate_mhz or not self.host.clock.synced:
            return
        ts = self.host.site()
        self.host.raise_floor(ts)
        self.promise(self.host.floor.cap(ts))

    # Nothing below ts will come; the floor in flash is at least there.
    def promise(self, ts: int) -> None:
        if ts > self.port.bound:
            self.port.raise_bound(ts)
            if ts - 1 > self.last_ts:
                self.last_ts = ts - 1
