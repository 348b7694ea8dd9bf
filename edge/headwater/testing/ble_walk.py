# Two ends of a Bluetooth link (protocol/ble_link.py), tried without a radio, under both interpreters.
#
#     walk = Walk(247, 512, seed)
#     walk.run(2000)          random steps, each rule checked after each step
#     walk.settle()           everything that was sent must have arrived
#
# The judge knows what hosts and frames did, and nothing that a link believes: it counts the values that pass.

from ..offboard.compat import TYPE_CHECKING
from ..protocol.ble_link import HANDS, VALUE_MAX, WINDOW, BleLink

if TYPE_CHECKING:
    from ..offboard.interfaces import Readable

_ACK_US = 20000
_REFUSED_US = 5000


class Broken(AssertionError):
    pass


# A generator whose numbers are the same under both interpreters.
class Dice:
    def __init__(self, seed: int) -> None:
        self.x = (seed * 40503 + 12345) & 0x3FFFFFF

    def roll(self, n: int) -> int:
        self.x = (self.x * 421 + 54773) % 259200
        return self.x * n // 259200


# Bytes that differ from frame to frame and from place to place.
def content(number: int, size: int) -> bytes:
    return bytes([(number * 31 + i * 7 + (i >> 8)) & 255 for i in range(size)])


class End:
    def __init__(self, walk: "Walk", number: int, longest: int, window: int, hands: int) -> None:
        self.walk = walk
        self.number = number
        self.hands = hands  # values that are fragments, in the hands of the host, at most
        self.free = 1 << 20  # buffers of the host
        self.link = BleLink(self._put, self._heard, memoryview(bytearray(VALUE_MAX)), longest, window, hands)
        self.begin()

    def begin(self) -> None:
        self.held: list[bytes] = []  # values in the hands of the host
        self.waits: "list[tuple[int, int]]" = []  # frames that the link took: number, size
        self.frames = 0  # that this end has sent
        self.put = 0  # fragments
        self.came = 0  # fragments that came here
        self.told = 0  # ... as the other end knows
        self.known = 0  # of the fragments put, those that this end knows to have arrived
        self.spoke = False
        self.heard = False
        self.due_us = 0
        self.refused_us = -_REFUSED_US

    def _put(self, handle: int, value: memoryview) -> bool:
        walk = self.walk
        data = bytes(value)
        fragment = len(data) > 2
        if walk.now - self.refused_us < _REFUSED_US:
            raise Broken("offered again too soon")
        if len(self.held) >= self.free:
            self.refused_us = walk.now
            return False
        if len(data) > walk.size:
            raise Broken("a value of %d bytes, %d fit" % (len(data), walk.size))
        if not self.heard and not (self.number == 0 and (self.spoke or len(data) == 2)):
            raise Broken("a value before the other end can hear it")
        if data[0] != self.put & 255:
            raise Broken("number %d, not %d" % (data[0], self.put & 255))
        if data[1] != self.came & 255:
            raise Broken("count %d, not %d" % (data[1], self.came & 255))
        self.spoke = True
        self.told = self.came
        self.held.append(data)
        if fragment:
            self.put += 1
            if self.put - self.known > min(walk.window, self.hands):
                raise Broken("%d fragments unacknowledged" % (self.put - self.known))
            if len([v for v in self.held if len(v) > 2]) > self.hands:
                raise Broken("more than %d fragments in the hands of the host" % self.hands)
        return True

    def _heard(self, link: BleLink, frame: "Readable") -> None:
        other = self.walk.ends[1 - self.number]
        if not other.waits:
            raise Broken("a frame that nobody sent")
        number, size = other.waits.pop(0)
        if bytes(frame) != content(number, size):
            raise Broken("frame %d of %d bytes arrived changed" % (number, size))

    def send(self, size: int) -> bool:
        room = self.link.room()
        data = content(self.frames, size)
        cut = self.walk.dice.roll(min(size, 5) + 1)
        self.waits.append((self.frames, size))
        if self.link.send(data[:cut], data[cut:]):
            self.frames += 1
            return True
        self.waits.pop()
        if room:
            raise Broken("no room for a frame of %d bytes" % size)
        return False

    # One value leaves the hands of the host and arrives.
    def carry(self) -> None:
        other = self.walk.ends[1 - self.number]
        data = self.held.pop(0)
        other.heard = True
        other.known += (data[1] - other.known) & 255
        if len(data) > 2:
            if other.came == other.told:
                other.due_us = self.walk.now
            other.came += 1
        other.link.arrived(data, self.walk.now)
        if other.link.error:
            raise Broken("the link ended with error %d" % other.link.error)

    def pump(self) -> None:
        now = self.walk.now
        link = self.link
        due = link.pump(now)
        if link.error:
            raise Broken("the link ended with error %d" % link.error)
        if due < 0:
            raise Broken("due in the past")
        if now - self.refused_us < _REFUSED_US:
            return
        n = self.came - self.told
        if n >= max(1, self.walk.window // 4) or n and now - self.due_us >= _ACK_US:
            raise Broken("%d fragments without an acknowledgement" % n)
        if n and due > self.due_us + _ACK_US - now:
            raise Broken("an acknowledgement would come too late")


class Walk:
    # size: bytes of a value (MTU - 3). longest: of a frame.
    def __init__(
        self,
        size: int,
        longest: int,
        seed: int,
        window: int = WINDOW,
        hands: "tuple[int, int]" = (HANDS, HANDS),
    ) -> None:
        self.dice = Dice(seed)
        self.longest = longest
        self.window = window
        self.size = size
        self.now = seed * 1000
        self.ends = [End(self, k, longest, window, hands[k]) for k in range(2)]
        self.connects = 0
        self.begin()

    # A new connection: what was on its way is lost.
    def begin(self) -> None:
        self.connects += 1
        for k in range(2):
            self.ends[k].begin()
            self.ends[k].link.begin(self.connects, k == 0, self.size, self.now)
            self.ends[k].link.agree(self.window, self.longest)

    def run(self, steps: int, cuts: bool = False) -> None:
        dice = self.dice
        for _ in range(steps):
            end = self.ends[dice.roll(2)]
            what = dice.roll(12)
            if what < 3:
                end.send(1 + dice.roll(self.longest) if what else 1 + dice.roll(min(8, self.longest)))
            elif what < 6:
                end.pump()
            elif what < 9:
                for _ in range(1 + dice.roll(6)):
                    if end.held:
                        end.carry()
            elif what < 10:
                self.now += dice.roll(30000)
            elif what < 11:
                end.free = dice.roll(5) if dice.roll(2) else 1 << 20
            elif cuts and not dice.roll(8):
                self.begin()

    # Both ends have time, and nothing holds values up: everything arrives.
    def settle(self) -> None:
        for end in self.ends:
            end.free = 1 << 20
        for _ in range(10000):
            for end in self.ends:
                end.pump()
                while end.held:
                    end.carry()
            self.now += 5000
            if self.ends[0].link.drained() and self.ends[1].link.drained():
                break
        for end in self.ends:
            if end.waits or not end.link.drained():
                raise Broken("%d frames did not arrive" % len(end.waits))
        if self.ends[0].came != self.ends[1].put or self.ends[1].came != self.ends[0].put:
            raise Broken("fragments are missing")
