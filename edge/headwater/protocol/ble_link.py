# The link: frames over one Bluetooth connection, the same at both ends and in both roles.
#
# Each direction is a stream of bytes: frames, each after its length (u16). The stream is cut into fragments,
# and each fragment is one value of an attribute, a notification or a write without response:
#   byte 0   number of this fragment, modulo 256. A value of two bytes is no fragment: it only acknowledges,
#   and
#            has the number of the next fragment
#   byte 1   how many fragments of the other side have arrived here, modulo 256
# Radio loses nothing inside a connection. What loses is the end of a connection, with all that both hosts and
# controllers hold, and a host that throws a value away. So nothing is sent again here: whatever cannot be
# closes the link (`error`), a new connection begins at 0, and the layers above repeat what they still need.
#
# Promises, whatever the other side sends.
#   - Every frame that arrives was sent whole on this connection, once, and in that order, or the link has
#     ended.
#   - At most `window` fragments are unacknowledged, and at most `hands` of this side's: so many can be in the
#     hands of the host at most. A value that is refused (ENOMEM) is offered again after 5 ms, unchanged or
#     longer.
#   - A fragment is acknowledged when a quarter of the window is due, or after 20 ms, or with the next
#     fragment.
#   - Nothing is sent before the other side can hear it: the central speaks first, after it has subscribed.
#   - A side whose fragments stay unacknowledged for 10 s ends the link: the last ones may be lost, and no
#     number would ever show it.
#   - Buffers are made once, for all connections; a fragment allocates three slices, or two if it is full.
# Sans-I/O: values and microseconds in, values out. Bytes: docs/spec.md, Bluetooth.

from ..offboard.compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..offboard.interfaces import Readable

VALUE_MAX = const(244)  # bytes of a value: with its heads it fills one packet of the radio
VALUE_MIN = const(20)  # before the MTU was exchanged
WINDOW = const(16)
WINDOW_MAX = const(24)  # where both ends can
HANDS = const(12)  # buffers of the smallest NimBLE
FRAME_MAX = const(16384)

# Why a link has ended (`error`). Texts: offboard/reasons.py.
SHORT = 1  # a value of less than two bytes
GAP = 2  # a fragment is missing
COUNT = 3  # it acknowledges what was never sent
OVERRUN = 4  # more fragments than the window
LENGTH = 5  # a frame of no bytes, or longer than agreed
STALLED = 6  # nothing is acknowledged any more
OVER = 7  # the connection ended

_HEAD = const(2)
_REFUSED_US = const(5000)
_ACK_US = const(20000)
_STALL_US = const(10000000)
NEVER = const(3600000000)  # so long at most until `pump` is due again


class BleLink:
    # put(handle, value) -> whether the host took it. take(link, frame): a frame arrived; it lies in the
    # buffer of the link until the call returns. value: room for one value, which several links may share.
    # longest: bytes of a frame, in and out. more(): there is room again, where there was none. window:
    # unacknowledged fragments that this end takes. hands: see above.
    def __init__(
        self,
        put: "Callable[[int, memoryview], bool]",
        take: "Callable[[BleLink, memoryview], object]",
        value: memoryview,
        longest: int,
        window: int = WINDOW,
        hands: int = HANDS,
        more: "Callable[[], object] | None" = None,
    ) -> None:
        assert 0 < longest <= FRAME_MAX and len(value) >= VALUE_MAX and 0 < hands and 0 < window <= WINDOW_MAX
        self.put = put
        self.take = take
        self.value = value
        self.longest = longest
        self.takes = window
        self.hands = hands
        self.more = more
        self.short = False  # a frame has found no room
        self.inbox = memoryview(bytearray(longest))
        self.queue = memoryview(bytearray(longest + _HEAD + VALUE_MAX))
        self.begin(-1, False, VALUE_MIN, 0)
        self.over()

    # A new connection: all that was left of the one before is void. central: which role this end has. size:
    # bytes of a value.
    def begin(self, handle: int, central: bool, size: int, now: int) -> None:
        self.handle = handle
        self.error = 0
        self.first = central  # an empty acknowledgement is due, whatever else
        self.heard = central  # the other side can hear this one
        self.window = min(WINDOW, self.takes)
        self.sent = 0  # number of the next fragment
        self.acked = 0  # ... of the first one that is not acknowledged
        self.got = 0  # fragments that arrived
        self.told = 0  # ... as the other side was told last
        self.due_us = now  # since when an acknowledgement is due
        self.moved_us = now  # when something was acknowledged, or nothing was left to be
        self.wait_us = now  # before this, the host is offered nothing
        self.at = self.end = 0  # of the queue: bytes that wait
        self.length = 0  # of the frame that arrives
        self.heads = 0  # bytes of its length that have come
        self.fill = 0  # bytes of it that have come
        self.most = self.longest  # bytes of a frame that the other side takes
        self.sized(size)

    # There is no connection any more.
    def over(self) -> None:
        self.handle = -1
        self.error = self.error or OVER

    # Bytes of a value from now on.
    def sized(self, size: int) -> None:
        self.payload = max(1, min(size, VALUE_MAX) - _HEAD)
        self.whole = self.value[: self.payload + _HEAD]

    # What the other end takes: unacknowledged fragments, bytes of a frame.
    def agree(self, window: int, longest: int) -> None:
        self.window = max(1, min(window, self.takes))
        self.most = min(longest, self.longest)

    # ---- frames out

    # Frames of the longest length that are taken now.
    def room(self) -> int:
        n = 0 if self.error else (len(self.queue) - self.end + self.at) // (self.longest + _HEAD)
        if not n:
            self.short = True
        return n

    # Take a frame, in two parts: all of it, or False.
    def send(self, head: "Readable", frame: "Readable") -> bool:
        a = len(head)
        n = a + len(frame)
        end = self.end
        queue = self.queue
        if self.error or not 0 < n <= self.most:
            return False
        if n + _HEAD > len(queue) - end + self.at:
            self.short = True
            return False
        if n + _HEAD > len(queue) - end:
            end -= self.at
            queue[:end] = queue[self.at : self.end]
            self.at = 0
        queue[end] = n & 255
        queue[end + 1] = n >> 8
        end += _HEAD
        queue[end : end + a] = head
        queue[end + a : end + n] = frame
        self.end = end + n
        return True

    # True where nothing waits, and everything that was sent has arrived.
    def drained(self) -> bool:
        return self.at == self.end and self.sent == self.acked

    # ---- values out

    # Offer the host what may be sent now.
    # -> microseconds until that may be more, or less: to be called then, and when a value has arrived.
    def pump(self, now: int) -> int:
        if self.error:
            return NEVER
        if self.sent != self.acked and now - self.moved_us >= _STALL_US:
            self.error = STALLED
            return 0
        if not self.heard:
            return NEVER
        if now >= self.wait_us:
            self._offer(now)
        due = NEVER
        if self.sent != self.acked:
            due = self.moved_us + _STALL_US - now
        if self.got != self.told:
            due = min(due, self.due_us + _ACK_US - now)
        if now < self.wait_us:
            due = self.wait_us - now
        return max(0, due)

    def _offer(self, now: int) -> None:
        value = self.value
        most = min(self.window, self.hands)
        while True:
            n = min(self.payload, self.end - self.at)
            if n < self.payload and self.short and self.more:
                self.short = False
                self.more()  # there is room for a frame of any length
                n = min(self.payload, self.end - self.at)
            if self.first or not n or (self.sent - self.acked) & 255 >= most:
                if not self._owed(now):
                    return
                n = 0
            value[0] = self.sent
            value[1] = self.got
            if n:
                value[_HEAD : n + _HEAD] = self.queue[self.at : self.at + n]
            if not self.put(self.handle, self.whole if n == self.payload else value[: n + _HEAD]):
                self.wait_us = now + _REFUSED_US
                return
            self.told = self.got
            self.first = False
            if n:
                if self.sent == self.acked:
                    self.moved_us = now
                self.sent = (self.sent + 1) & 255
                self.at += n
                if self.at == self.end:
                    self.at = self.end = 0

    # An acknowledgement is due.
    def _owed(self, now: int) -> bool:
        n = (self.got - self.told) & 255
        return self.first or n > 0 and (n >= self.window // 4 or now - self.due_us >= _ACK_US)

    # ---- values in

    # A value arrived. Frames that are whole go to `take`.
    def arrived(self, value: "Readable", now: int) -> None:
        if self.error:
            return
        if len(value) < _HEAD:
            self.error = SHORT
            return
        if value[0] != self.got:
            self.error = GAP
            return
        n = (value[1] - self.acked) & 255
        if n > (self.sent - self.acked) & 255:
            self.error = COUNT
            return
        self.heard = True
        if n:
            self.acked = value[1]
            self.moved_us = now
        if len(value) == _HEAD:
            return
        n = (self.got - self.told) & 255
        if n >= self.takes:
            self.error = OVERRUN
            return
        if not n:
            self.due_us = now
        self.got = (self.got + 1) & 255
        self._read(value)

    # Bytes of the stream: the rest of a fragment.
    def _read(self, value: "Readable") -> None:
        at = _HEAD
        end = len(value)
        inbox = self.inbox
        while at < end and not self.error:
            if self.heads < _HEAD:
                self.length |= value[at] << 8 * self.heads
                self.heads += 1
                at += 1
                if self.heads == _HEAD and not 0 < self.length <= self.longest:
                    self.error = LENGTH
                continue
            fill = self.fill
            n = min(end - at, self.length - fill)
            inbox[fill : fill + n] = value[at : at + n]
            at += n
            self.fill = fill + n
            if self.fill == self.length:
                n = self.length
                self.length = self.heads = self.fill = 0
                self.take(self, inbox[:n])
