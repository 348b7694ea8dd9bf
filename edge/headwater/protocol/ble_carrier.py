# The Bluetooth connections of a host, as one carrier: who connects to whom, what goes to whom, who leaves.
#
# It owns a few links (ble_link.py), one for each connection; each is made once and used again. A radio does
# what only the machine can do: the verbs of both are in docs/architecture.md, Carriers.
#
# A connection, in either role: the central reads INFO of the other end, subscribes, and sends an empty
# acknowledgement; its first frame is its own INFO. After that each frame has a head:
#   to     u8 + bytes   the name that the frame is for; empty: the end that it arrives at
#   from   u8 + bytes   ... that it is from; empty: the end that sent it
# Only the gateway passes on: a board sends it frames for other boards, and it names the board that they are
# from.
#
# Rules.
#   - A connection without a genuine frame within 5 s is closed, and its address left alone for a while. A tag
#     may lie, so until then it carries frames only beside other carriers (carriers.py).
#   - A host connects to a host that something waits for (`wanted`), once it advertises; the gateway also to
#     one that says that it waits. One connect at a time, and first to the host for which something waits
#     longest. Where it fails, or the end proves nothing, the name is left alone like the address:
#     advertisements prove nothing, and a stranger that repeats a tag under ever new addresses would have all
#     others wait.
#   - The gateway passes on nothing for other boards before the connection has brought it a genuine frame:
#     otherwise a stranger could have boards woken that it does not reach itself.
#   - The gateway connects to a board whose battery runs low before others.
#   - A host that is connected to the gateway gives it 3 s to pass on, before it connects to another board
#     itself.
#   - Who connected leaves: after 2 s in which nothing moved. If another host waits for its slot, it leaves
#     after 3 s, or 15 s if it is never drained.
#   - The last slot of a board is for the gateway, while something waits for that; if other boards have taken
#     all, the board closes a connection to one of them.
#   - Of two connections to the same host the one stays whose central has the smaller tag; of two of the same
#     central the newer one.
#   - A link that ends with an error is closed; both are counted, by reason.
# Sans-I/O: events and microseconds in, calls of the radio out.

from ..offboard.compat import TYPE_CHECKING, const
from .ble_info import GATEWAY, LAST, LOW, SITE, WANTS, info, read_data, read_info, site_tag, tag
from .ble_link import HANDS, NEVER, OVER, VALUE_MAX, WINDOW, BleLink

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..offboard.interfaces import Radio, Readable

SLOTS = const(3)  # NimBLE has four: one stays free
# Why a connection was closed, by number, after the errors of the link (`ended`, by number).
CLOSED = OVER  # by the other end, or by the radio
STRANGER = OVER + 1  # of another site, or not a host of its process
MUTE = OVER + 2  # no genuine frame
DOUBLE = OVER + 3  # there is another one to the same host
LEFT = OVER + 4  # nothing moved
TURN = OVER + 5  # another host waits for the slot
FULL = OVER + 6  # no slot
REASONS = FULL + 1

_GENUINE_US = const(5000000)
_IDLE_US = const(2000000)
_TURN_US = const(3000000)
_HELD_US = const(15000000)
_WANT_US = const(1500000)
_RELAY_US = const(3000000)
_CALL_US = const(10000000)
_NEAR_US = const(2000000)
_SHY_US = const(4000000)
_FAST_MS = const(30)
_SLOW_MS = const(250)
_HEAD_MAX = const(66)
_SHY_MAX = const(16)


# One slot: a link, and who is at the other end of it.
class _Slot:
    def __init__(self, link: BleLink) -> None:
        self.link = link
        self.free()

    def free(self) -> None:
        self.used = False
        self.name = ""  # "": not known yet
        self.tag = b""
        self.address: "Any" = None
        self.central = False
        self.genuine = False
        self.since_us = self.moved_us = 0
        self.why = CLOSED

    def take(self, address: "Any", central: bool, now: int) -> None:
        self.used = True
        self.address = address
        self.central = central
        self.since_us = self.moved_us = now

    def is_of(self, name: str, tag: bytes) -> None:
        self.name = name
        self.tag = tag

    def moves(self, now: int) -> None:
        self.moved_us = now

    def proves(self) -> None:
        self.genuine = True

    def ends(self, why: int) -> None:
        self.why = why

    # It carries frames.
    @property
    def ready(self) -> bool:
        return self.used and self.why == CLOSED and self.name != "" and not self.link.error


class BleCarrier:
    # name: of this host. key: of the site's tags. radio: see above.
    # take(carrier, sender, frame) -> whether it was genuine. relay(to, sender, frame) -> likewise, of a frame
    # for another host or another name of this one: of the gateway alone.
    # longest: bytes of a frame. cost: see carriers.py. hands, window: see ble_link.py.
    def __init__(
        self,
        name: str,
        key: "Readable",
        radio: "Radio",
        take: "Callable[[BleCarrier, str, Readable], bool]",
        relay: "Callable[[str, str, Readable], bool] | None" = None,
        longest: int = 512,
        slots: int = SLOTS,
        window: int = WINDOW,
        hands: int = HANDS,
        cost: tuple[int, int] = (0, 0),
    ) -> None:
        self.private = False
        self.name = name
        self.key = key
        self.radio = radio
        self.take = take
        self.relay = relay
        self.cost = cost
        self.on_room: "Callable[[], object] | None" = None
        self.on_gone: "Callable[[BleCarrier, str], object] | None" = None
        self.tag = tag(key, name)
        self.site = site_tag(key)
        self.info = info(key, name, window, longest + _HEAD_MAX)
        self.value = memoryview(bytearray(VALUE_MAX))
        self.limits = (longest + _HEAD_MAX, window, hands)
        self.slots: "list[_Slot]" = []
        self.slots_max = slots
        self.gateway = name == GATEWAY
        self.names: dict[bytes, str] = {} if self.gateway else {tag(key, GATEWAY): GATEWAY}
        self.heads: dict[str, bytes] = {}
        self.wants: dict[
            str, list[int]
        ] = {}  # name -> [since when something waits for it, when it was said last]
        self.shy: "dict[Any, int]" = {}  # address, or name -> until when it is left alone
        self.near: dict[str, int] = {}  # name -> when its advertisement was seen last
        self.pending: "Any" = None  # the address that the radio connects to,
        self.goal = ""  # and the name that it advertised
        self.low = False
        self.listens = False
        self.shows: "tuple[int, int] | None" = None  # flags and interval of the advertisement
        self.now = 0
        self.ended = [0] * REASONS  # connections, by why they ended
        self.connects = self.frames = self.strays = 0

    # on_gone(carrier, name): a connection is over. on_room(): there is room again, where there was none.
    def tell(
        self,
        on_gone: "Callable[[BleCarrier, str], object]",
        on_room: "Callable[[], object] | None" = None,
    ) -> None:
        self.on_gone = on_gone
        self.on_room = on_room

    # Hosts that this one may speak to, from now on, besides the gateway.
    def knows(self, names: "Any") -> None:
        for name in names:
            if name != self.name and name != GATEWAY:
                self.names[tag(self.key, name)] = name

    # The battery runs low, or does not any more.
    def runs_low(self, low: bool) -> None:
        self.low = low

    # ---- frames out

    @property
    def up(self) -> bool:
        return any([s.ready for s in self.slots])

    # The slot that takes a frame for this host: its own, or the gateway's.
    def _slot(self, to: str) -> "_Slot | None":
        if to == SITE:
            to = GATEWAY
        found = None
        for s in self.slots:
            if s.ready:
                if s.name == to:
                    return s
                if s.name == GATEWAY and s.genuine:
                    found = s
        return found

    def reaches(self, to: str) -> bool:
        return self._slot(to) is not None

    def room(self, to: str) -> int:
        s = self._slot(to)
        return s.link.room() if s else 0

    def send(self, to: str, frame: "Readable", sender: str = "") -> bool:
        s = self._slot(to)
        if not s:
            return False
        if sender == self.name:
            sender = ""
        key = ("" if to == s.name else to) + "/" + sender if sender or to != s.name else ""
        head = self.heads.get(key)
        if head is None:
            head = self.heads[key] = _named("" if to == s.name else to) + _named(sender)
        if not s.link.send(head, frame):
            return False
        s.moves(self.now)
        self.frames += 1
        return True

    # Something waits for this host.
    def wanted(self, to: str, now: int) -> None:
        if to == SITE:
            to = GATEWAY
        want = self.wants.get(to)
        if want:
            want[1] = now
        elif to == GATEWAY or to in self.names.values():
            self.wants[to] = [now, now]

    # ---- what the radio reports

    def connected(
        self, handle: int, central: bool, address: "Any", size: int, data: "Readable | None"
    ) -> None:
        if address == self.pending:
            self.pending = None
        self.connects += 1
        s = self._free()
        if s is None:
            self.ended[FULL] += 1
            self.radio.close(handle)
            return
        s.take(address, central, self.now)
        s.link.begin(handle, central, size, self.now)
        if central:
            s.link.send(b"", self.info)
            self._meets(s, data or b"")

    def sized(self, handle: int, size: int) -> None:
        s = self._with(handle)
        if s:
            s.link.sized(size)

    def arrived(self, handle: int, value: "Readable") -> None:
        s = self._with(handle)
        if s and s.why == CLOSED:
            s.link.arrived(value, self.now)

    def over(self, handle: int) -> None:
        s = self._with(handle)
        if s:
            self.ended[s.why] += 1
            name = s.name
            if s.why in (CLOSED, MUTE) and not s.genuine:
                self._leave_alone(s.address)
                if s.central:
                    self._leave_alone(name)
            s.link.over()
            s.free()
            if name and self.on_gone and not self._proven(name):
                self.on_gone(self, name)

    def failed(self, address: "Any") -> None:
        if address == self.pending:
            self.pending = None
            self._leave_alone(self.goal)
        self._leave_alone(address)

    # An advertisement of our service.
    def seen(self, address: "Any", data: "Readable") -> None:
        found = read_data(data)
        if not found or self.pending is not None or self.shy.get(address, 0) > self.now:
            return
        name = self.names.get(found[0])
        if name is None or self._named(name) or self.shy.get(name, 0) > self.now:
            return
        self.near[name] = self.now
        if self.gateway and found[1] & WANTS:
            self.wanted(name, self.now)
            if found[1] & LOW:
                self.wants[name][0] = 0  # as if it waited longest
        if not self._wants(name):
            return
        if self._left() <= (1 if self._calls() else 0) or found[1] & LAST and not self.gateway:
            return
        self.shy.pop(address, None)
        self.shy.pop(name, None)
        del self.near[name]
        self.pending = address
        self.goal = name
        self.radio.connect(address)

    # Whether to connect to this host: something waits for it, and for no other host near by for longer.
    def _wants(self, name: str) -> bool:
        want = self.wants.get(name)
        if not want or self.now - want[0] < _RELAY_US and self._proven(GATEWAY):
            return False
        for other in self.wants:
            since = self.wants[other][0]
            if (
                since < want[0]
                and self.now - self.near.get(other, -_NEAR_US) < _NEAR_US
                and not self._named(other)
            ):
                return False
        return True

    # A slot for a new connection. The buffers of each are made when that many connections are there first.
    def _free(self) -> "_Slot | None":
        for s in self.slots:
            if not s.used:
                return s
        if len(self.slots) >= self.slots_max:
            return None
        try:
            link = BleLink(self.radio.put, self._frame, self.value, *self.limits, self._more)
        except MemoryError:
            return None
        self.slots.append(_Slot(link))
        return self.slots[-1]

    def _more(self) -> None:
        if self.on_room:
            self.on_room()

    def _with(self, handle: int) -> "_Slot | None":
        for s in self.slots:
            if s.used and s.link.handle == handle:
                return s
        return None

    # A genuine frame came from this host, over a connection that is there.
    def _proven(self, name: str) -> bool:
        s = self._named(name)
        return s is not None and s.genuine

    def _named(self, name: str) -> "_Slot | None":
        for s in self.slots:
            if s.ready and s.name == name:
                return s
        return None

    # INFO of the other end.
    def _meets(self, s: _Slot, data: "Readable") -> None:
        found = read_info(data, self.site)
        name = self.names.get(found[2]) if found else None
        if not found or name is None:
            self._close(s, STRANGER)
            return
        s.link.agree(found[0], found[1])
        other = self._named(name)
        s.is_of(name, found[2])
        self.wants.pop(name, None)  # it is said again, if nothing goes this way
        if other:
            self._close(self._worse(other, s), DOUBLE)
        self._more()  # what waited for a connection

    # Of two connections to the same host, the second one newer.
    def _worse(self, a: _Slot, b: _Slot) -> _Slot:
        if a.central == b.central:
            return a
        mine = self.tag < a.tag
        return b if a.central == mine else a

    def _close(self, s: _Slot, why: int) -> None:
        if s.why == CLOSED:
            s.ends(why)
            self.radio.close(s.link.handle)
            if why < LEFT:
                self._leave_alone(s.address)

    def _leave_alone(self, address: "Any") -> None:
        if len(self.shy) >= _SHY_MAX:
            self.shy.clear()
        self.shy[address] = self.now + _SHY_US

    # ---- frames in

    def _frame(self, link: BleLink, frame: memoryview) -> None:
        for s in self.slots:
            if s.link is link:
                break
        s.moves(self.now)
        if not s.name:
            self._meets(s, frame)
            return
        at = 1 + frame[0]
        body = at + 1 + frame[at] if at < len(frame) else len(frame)
        if body >= len(frame) or at > 33 or body - at > 33:
            self.strays += 1
            return
        try:
            to = str(frame[1:at], "utf-8")
            sender = str(frame[at + 1 : body], "utf-8")
        except UnicodeError:
            self.strays += 1
            return
        genuine = False
        if self.gateway and sender:
            self.strays += 1  # a board speaks for itself alone
        elif to and to != self.name:
            if self.relay and (s.genuine or to == SITE):
                genuine = self.relay(to, s.name, frame[body:])
            else:
                self.strays += 1
        elif sender and (s.name != GATEWAY or sender != SITE and sender not in self.names.values()):
            self.strays += 1
        else:
            genuine = self.take(self, sender or s.name, frame[body:])
        if genuine:
            s.proves()

    # ---- time

    # Sends what may be sent. -> microseconds until it has to be called again.
    def pump(self, now: int) -> int:
        self.now = now
        due = NEVER
        for s in self.slots:
            if s.used and s.why == CLOSED:
                due = min(due, s.link.pump(now))
                if s.link.error:
                    self._close(s, s.link.error)
        return due

    # A few times a second.
    def tick(self, now: int) -> None:
        self.now = now
        for name in list(self.wants):
            if now - self.wants[name][1] > _WANT_US:
                del self.wants[name]
        waiting = [name for name in self.wants if not self._named(name)]
        calls = self._calls()
        left = self._left()
        for s in self.slots:
            if s.used and s.why == CLOSED:
                self._look(s, not left and (calls or s.central and bool(waiting)))
        listen = left > 0
        if not self.gateway:
            listen = listen and any([name != GATEWAY for name in waiting])
            self._show(calls, left)
        if listen != self.listens:
            self.listens = listen
            self.radio.listen(listen)
        self.pump(now)

    # Slots that are left.
    def _left(self) -> int:
        return self.slots_max - len([s for s in self.slots if s.used])

    # Something waits for the gateway, which is not connected.
    def _calls(self) -> bool:
        return GATEWAY in self.wants and not self._named(GATEWAY)

    def _look(self, s: _Slot, turn: bool) -> None:
        now = self.now
        if not s.genuine and now - s.since_us >= _GENUINE_US:
            self._close(s, MUTE)
        elif turn and now - s.since_us >= (_TURN_US if s.link.drained() else _HELD_US):
            self._close(s, TURN)
        elif s.central and s.link.drained() and now - s.moved_us >= _IDLE_US:
            self._close(s, LEFT)

    # Advertise what is the case now.
    def _show(self, calls: bool, left: int) -> None:
        flags = (WANTS if calls else 0) | (LOW if self.low else 0) | (LAST if calls and left == 1 else 0)
        fast = calls and self.now - self.wants[GATEWAY][0] < _CALL_US
        shows = (flags, (_FAST_MS if fast else _SLOW_MS) if left else 0)
        if shows != self.shows:
            self.shows = shows
            self.radio.advertise(self.tag + bytes((flags,)), shows[1])


def _named(name: str) -> bytes:
    data = name.encode()
    return bytes((len(data),)) + data
