# Qrs: finds heart beats in a filtered electrocardiogram, Fir(BANDPASS) before it. One element out for
# each beat:
#   back_us  how long before this element's ts the R peak lay (the filter's delay included)
#   rr_us    time from the R peak before; 0 for the first beat and the first after a hole
#   amp      height of the filtered peak
#
# After Pan and Tompkins, made small: samples go by blocks of about 11 ms. A block adds its rectified
# sum to a window of 16 blocks (178 ms), whose envelope rises once for a beat, narrow or wide. A peak
# of the envelope that has fallen to half is judged against a threshold between the adaptive levels
# of beats and of noise. Not within 200 ms of the last beat; within 360 ms only if half as strong
# (else it is a T wave). When a beat is overdue by two thirds of the mean interval, the best peak
# that was passed over counts, if it reaches half the threshold. The first 1.1 s only learn.
#
# Time is counted in samples, so a result does not depend on how the stream is cut into batches.

from array import array

from ..board.native import native
from ..offboard.compat import TYPE_CHECKING
from ..runtime.operator import Operator
from . import fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..data.batch import Batch
    from ..offboard.interfaces import Column, Params, Port, Ports

_WINDOW = 16  # blocks
_LEARN = 100  # blocks

# What runs per sample: of every block that comes to its end its sum, its largest sample and that one's
# place go into o, and behind them the same of the block under way, and how many samples it has. What
# that one has at first stands at the head of o. Gives where the last four lie.
_BLOCKS = """def run(%s, o: ptr32, n: int, block: int) -> int:
 s = o[0]
 most = o[1]
 at = o[2]
 k = o[3]
 j = 0
 for i in range(n):
  v = %s
  if v < 0:
   v = 0 - v
  s += v
  if v > most:
   most = v
   at = k
  k += 1
  if k >= block:
   o[j] = s
   o[j + 1] = most
   o[j + 2] = at
   j += 3
   s = k = most = at = 0
 o[j] = s
 o[j + 1] = most
 o[j + 2] = at
 o[j + 3] = k
 return j
"""


def _blocks(c: "Column", o: "array[int]", n: int, block: int) -> int:
    s, most, at, k = o[:4]
    j = 0
    for i in range(n):
        v = c[i]
        if v < 0:
            v = -v
        s += v
        if v > most:
            most = v
            at = k
        k += 1
        if k >= block:
            o[j] = s
            o[j + 1] = most
            o[j + 2] = at
            j += 3
            s = k = most = at = 0
    o[j] = s
    o[j + 1] = most
    o[j + 2] = at
    o[j + 3] = k
    return j


class Qrs(Operator):
    """Heart beats in a filtered electrocardiogram (`Fir(BANDPASS)` before it): `back_us`, how long
    before the element's ts the R peak lay, with the filter's delay; `rr_us`, the time since the R
    peak before (0 for the first beat); `amp`, the height of the filtered peak.

    At a hole: passes; beats that are half seen are forgotten, levels are kept.
    """

    PARAMS = "hz:u16=360 delay:u16=15"
    # block_*: samples, sum, largest and its place in the block under way. top, top_age: the largest
    # sample of about a window. pk*: the envelope's peak under way, its age in blocks, its R peak.
    # since: samples from the last R peak, `strong` its envelope; known 0: there is none. old*: the
    # best peak passed over. rr8: eight times the mean interval. All ages are in samples.
    STATE = (
        "learn:u8 block_n:u8 block_sum:u32 block_top:u16 block_at:u8 head:u8 ring:u16*16 top:u16 top_age:u16 "
        "beat:u32 noise:u32 pk:u32 pk_age:u8 pk_r:u16 pk_amp:u16 known:u8 since:u32 strong:u32 rr8:u16 "
        "old:u32 old_r:u32 old_amp:u16"
    )
    CATEGORY = "heart"
    hz: int
    delay: int
    learn: int
    block_n: int
    block_sum: int
    block_top: int
    block_at: int
    head: int
    ring: "array[int]"
    top: int
    top_age: int
    beat: int
    noise: int
    pk: int
    pk_age: int
    pk_r: int
    pk_amp: int
    known: int
    since: int
    strong: int
    rr8: int
    old: int
    old_r: int
    old_amp: int

    @classmethod
    def ports(cls, ins: "Sequence[Port]", params: "Params") -> "Ports":
        a = fields.inputs("Qrs", ins, 1)[0]
        fields.index("Qrs", a, "", 0, 16)
        return (a.text,), ("back_us:u32 rr_us:u32 amp:u16",)

    def setup(self) -> None:
        fields.within("Qrs", "hz", self.hz, 90, 1000)
        fields.within("Qrs", "delay", self.delay, 0, self.hz)
        self.block = self.hz // 90
        self.blocks = array("i", bytes(12 * (self.size // self.block) + 28))
        self.find = native(_BLOCKS % fields.column(self.ins[0].types[0], "c")) or _blocks

    def start(self) -> None:
        self.learn = _LEARN
        self.rr8 = 8 * self.hz

    # Half-seen beats are forgotten; what beats and noise look like is not.
    def hole(self, port: int) -> bool:
        for i in range(_WINDOW):
            self.ring[i] = 0
        self.block_n = self.block_sum = self.block_top = self.block_at = 0
        self.top = self.pk = self.old = self.known = 0
        return True

    def run(self, x: "Batch", n: int) -> int:
        block = self.block
        hz = self.hz
        oat = self.y.at
        back, rr_us, amp = self.y.cols
        ring = self.ring
        w = sum(ring)
        head = self.head
        o = self.blocks
        o[0] = self.block_sum
        o[1] = self.block_top
        o[2] = self.block_at
        o[3] = self.block_n
        i = -1 - self.block_n
        if i < -block:
            i = -block  # the block became shorter at run time
        end = self.find(x.cols[0], o, n, block)
        top = self.top
        top_age = self.top_age
        learn = self.learn
        beat = self.beat
        noise = self.noise
        pk = self.pk
        pk_age = self.pk_age
        pk_r = self.pk_r
        pk_amp = self.pk_amp
        known = self.known
        since = self.since
        strong = self.strong
        rr8 = self.rr8
        old = self.old
        old_r = self.old_r
        old_amp = self.old_amp
        j = 0
        for k in range(0, end, 3):
            s = o[k]
            most = o[k + 1]
            i += block  # the sample that ends the block
            if s > 65535:
                s = 65535
            w += s - ring[head]
            ring[head] = s
            head = (head + 1) & 15
            top_age += block
            if most >= top or top_age >= _WINDOW * block:
                top = most
                top_age = block - 1 - o[k + 2]
            if known:
                since += block
                if since > 1000000:  # an hour: no longer an interval
                    known = 0
            if learn:
                if w > beat:
                    beat = w
                learn -= 1
                if not learn:
                    noise = beat >> 3
                    beat -= beat >> 2
                continue
            if old:
                old_r += block
            r = -1  # age of the R peak, once there is a beat
            if w > pk:
                pk = w
                pk_age = 0
                pk_r = top_age
                pk_amp = top
            elif pk:
                pk_age += 1
                pk_r += block
                if w < pk >> 1 or pk_age > _WINDOW + 4:
                    d = since - pk_r if known else 1000000
                    if d * 5 >= hz:
                        level = noise + ((beat - noise) >> 2)
                        if pk > level and (d * 25 > hz * 9 or pk > strong >> 1):
                            r = pk_r
                            strong = pk
                            h = pk_amp
                            beat += (pk - beat) >> 3
                        else:
                            noise += (pk - noise) >> 3
                            if pk > old and d * 10 >= hz * 3:
                                old = pk
                                old_r = pk_r
                                old_amp = pk_amp
                    pk = 0
            if r < 0 and known and since * 24 > rr8 * 5:
                if old > noise + ((beat - noise) >> 2) >> 1:
                    r = old_r
                    strong = old
                    h = old_amp
                    beat += (old - beat) >> 2
                elif since * 24 > rr8 * 10 and beat > noise << 2:
                    beat -= beat >> 7  # nothing for long: come down, but stay clear of the noise
            if r >= 0:
                if known:
                    d = since - r
                    rr_us[j] = d * 1000000 // hz
                    q = rr8 >> 3
                    if d > 2 * q:
                        d = 2 * q
                    if d > 4 * hz:
                        d = 4 * hz
                    rr8 += d - q
                else:
                    rr_us[j] = 0
                back[j] = (r + self.delay) * 1000000 // hz
                amp[j] = h
                oat[j] = i
                j += 1
                since = r
                known = 1
                old = 0
        self.head = head
        self.block_sum = o[end]
        self.block_top = o[end + 1]
        self.block_at = o[end + 2]
        self.block_n = o[end + 3]
        self.top = top
        self.top_age = top_age
        self.learn = learn
        self.beat = beat
        self.noise = noise
        self.pk = pk
        self.pk_age = pk_age
        self.pk_r = pk_r
        self.pk_amp = pk_amp
        self.known = known
        self.since = since
        self.strong = strong
        self.rr8 = rr8
        self.old = old
        self.old_r = old_r
        self.old_amp = old_amp
        return j
