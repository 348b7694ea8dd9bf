# HeartRate and Variability: from the beats that Qrs finds, or any stream with a field rr_us, the time
# from the beat before (0: unknown). Intervals are kept in units of 100 us, at most 6.5 s.

from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator, OperatorError
from . import fields

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from ..data.alphabet import Alphabet
    from ..data.batch import Batch
    from ..offboard.interfaces import Params, Port, Ports


def _beats(kind: str, ins: "Sequence[Port]") -> "Alphabet":
    a = fields.inputs(kind, ins, 1)[0]
    if "rr_us" not in a.names:
        raise OperatorError(
            "input port 0 of %s has no field 'rr_us': it has %s. Connect what Qrs gives"
            % (kind, ", ".join(a.names))
        )
    fields.index(kind, a, "rr_us", 0, 32)
    return a


class HeartRate(Operator):
    """Beats per minute, one element for each beat, over the newest `beats` intervals, or over as
    many of them as fit into `us` (at most 64). After `quiet_us` without a beat it gives 0, once.

    At a hole: passes; intervals are forgotten, and the silence is counted from the next beat.
    """

    PARAMS = "us:u32=0 beats:u8=0 quiet_us:u32=10000000"
    TIMED = True
    ARMS = "quiet_us"
    STATE = "timer:i64 head:u8 filled:u8 span:u32 rr:u16*places"
    CATEGORY = "heart"
    us: int
    beats: int
    quiet_us: int
    head: int
    filled: int
    span: int
    rr: "array[int]"

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        return (_beats("HeartRate", ins).text,), ("rate:u16",)

    def setup(self) -> None:
        if (not self.us) == (not self.beats):
            raise OperatorError("HeartRate: give either us (a length of time) or beats")
        fields.within("HeartRate", "beats", self.beats, 0, 64)
        fields.within("HeartRate", "quiet_us", self.quiet_us, 1, 4294967295)
        places = self.beats or 64
        if getattr(self, "places", places) != places:
            raise OperatorError(
                "HeartRate: the number of beats cannot change at run time: it decides the size of the state"
            )
        self.places = places
        self.at_field = self.ins[0].names.index("rr_us")

    def run(self, x: "Batch", n: int) -> int:
        if not n:
            return 0
        c = x.cols[self.at_field]
        o = self.y.cols[0]
        at = self.y.at
        rr = self.rr
        places = self.places
        head = self.head  # the oldest
        filled = self.filled
        span = self.span
        most = self.us // 100 if self.us else 1 << 29
        j = 0
        for i in range(n):
            v = c[i] // 100
            if v <= 0:
                filled = span = head = 0
                continue
            if v > 65535:
                v = 65535
            while filled and (filled == places or span + v > most):
                span -= rr[head]
                filled -= 1
                head += 1
                if head == places:
                    head = 0
            k = head + filled
            if k >= places:
                k -= places
            rr[k] = v
            filled += 1
            span += v
            v = (600000 * filled + (span >> 1)) // span
            o[j] = v if v < 65535 else 65535
            at[j] = i
            j += 1
        self.head = head
        self.filled = filled
        self.span = span
        self.timer = x.ts_of(n - 1) + self.quiet_us
        return j

    def fire(self) -> int:
        self.timer = 0
        self._forget()
        self.y.cols[0][0] = 0
        return 1

    def _forget(self) -> None:
        self.head = self.filled = self.span = 0

    def hole(self, port: int) -> bool:
        self.timer = 0
        self._forget()
        return True


class Variability(Operator):
    """The variability of the newest `beats` intervals, one element for each beat once there are
    that many: `rmssd_us`, the root mean square of the differences of neighbours, and `sdnn_us`, the
    root mean square of the distances from the mean (rounded down).

    At a hole: passes; intervals are forgotten.
    """

    PARAMS = "beats:u8=32"
    STATE = "head:u8 filled:u8 rr:u16*places"
    CATEGORY = "heart"
    beats: int
    head: int
    filled: int
    rr: "array[int]"

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        return (_beats("Variability", ins).text,), ("rmssd_us:u32 sdnn_us:u32",)

    def setup(self) -> None:
        fields.within("Variability", "beats", self.beats, 2, 255)
        if getattr(self, "places", self.beats) != self.beats:
            raise OperatorError(
                "Variability: beats cannot change at run time: it decides the size of the state"
            )
        self.places = self.beats
        self.at_field = self.ins[0].names.index("rr_us")

    def run(self, x: "Batch", n: int) -> int:
        c = x.cols[self.at_field]
        rmssd, sdnn = self.y.cols
        at = self.y.at
        rr = self.rr
        places = self.places
        j = 0
        for i in range(n):
            v = c[i] // 100
            if v <= 0:
                self.head = self.filled = 0
                continue
            rr[self.head] = v if v < 65535 else 65535
            self.head = self.head + 1 if self.head + 1 < places else 0
            if self.filled < places:
                self.filled += 1
            if self.filled < places:
                continue
            k = self.head  # the oldest
            before = rr[k]
            mean = sum(rr) // places
            steps = spread = 0
            for _ in range(places):
                v = rr[k]
                k = k + 1 if k + 1 < places else 0
                steps += (v - before) * (v - before)
                spread += (v - mean) * (v - mean)
                before = v
            rmssd[j] = 100 * fields.isqrt(steps // (places - 1), 256)
            sdnn[j] = 100 * fields.isqrt(spread // places, 256)
            at[j] = i
            j += 1
        return j

    def hole(self, port: int) -> bool:
        self.head = self.filled = 0
        return True
