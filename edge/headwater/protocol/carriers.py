# Carriers: which of the links of a host takes a frame. A host with one link needs none of this.
#
# What a carrier offers, and what it asks of this: docs/architecture.md, Carriers. For each name and each
# carrier this knows whether a genuine frame has come that way (the way is proven), and since when frames that
# went that way have had no answer. A way without an answer for `patience_us` is doubted, until a genuine
# frame comes over it.
#
#   - The cheapest proven way carries. Cheaper ones that are not proven take the same frame as well, and so
#     become proven, or doubted: changing to a cheaper carrier loses nothing. A session refuses what comes
#     twice.
#   - Where no way is proven, every way takes the frame.
#   - Where none is proven, or all are doubted, the carriers are told that the name is wanted.
#   - A doubted way is tried again after a minute.
# Sans-I/O.

from ..offboard.compat import TYPE_CHECKING, const

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..offboard.interfaces import Carrier, Readable

PATIENCE_US = const(10000000)
_PROBE_US = const(60000000)


# One way to a host.
class _Way:
    def __init__(self, carrier: "Carrier") -> None:
        self.carrier = carrier
        self.proven = False
        self.asked_us: int | None = None  # when the first frame went this way that has had no answer

    def doubted(self, now: int, patience_us: int) -> bool:
        if self.asked_us is None or now - self.asked_us <= patience_us:
            return False
        if now - self.asked_us > _PROBE_US:
            self.asked_us = now - patience_us  # one more frame goes this way
            return False
        return True

    def send(self, to: str, frame: "Readable", sender: str, now: int) -> bool:
        if not self.carrier.send(to, frame, sender):
            return False
        if self.asked_us is None:
            self.asked_us = now
        return True

    def answered(self) -> None:
        self.proven = True
        self.asked_us = None

    def over(self) -> None:
        self.proven = False
        self.asked_us = None


class Carriers:
    # take(sender, frame, bare) -> whether it was genuine. bare: it came over a link that does not encrypt.
    def __init__(self, take: "Callable[[str, Readable, bool], bool]") -> None:
        self.take = take
        self.all: "list[Carrier]" = []  # the cheapest first
        self.ways: "dict[str, list[_Way]]" = {}
        self.patience_us = PATIENCE_US
        self.now = 0
        self.refused = 0  # frames that no carrier took

    # Of equal cost, the one that is added first comes first: `sort` of MicroPython does not keep their order.
    def add(self, carrier: "Carrier") -> None:
        at = 0
        while at < len(self.all) and _cost(self.all[at]) <= _cost(carrier):
            at += 1
        self.all.insert(at, carrier)
        self.ways.clear()

    # Both names of the gateway are one host.
    def _of(self, name: str) -> "list[_Way]":
        if name == "s":
            name = "g"
        ways = self.ways.get(name)
        if ways is None:
            ways = self.ways[name] = [_Way(c) for c in self.all]
        return ways

    @property
    def up(self) -> bool:
        return any([c.up for c in self.all])

    # To be called a few times a second, with microseconds that never go back.
    def tick(self, now: int) -> None:
        self.now = now
        for carrier in self.all:
            carrier.tick(now)

    # ---- out

    # Frames of the longest length that go to this host now.
    def room(self, to: str) -> int:
        now = self.now
        n = 0
        sure = False
        for way in self._of(to):
            if way.carrier.reaches(to) and not way.doubted(now, self.patience_us):
                n = max(n, way.carrier.room(to))
                if way.proven:
                    sure = True
                    n = way.carrier.room(to)
                    break
        if not sure:
            self._want(to)
            for way in self._of(to):
                if way.carrier.reaches(to):
                    n = max(n, way.carrier.room(to))
        return n

    # Send a frame; `sender` is for hosts with several names. False where no carrier took it.
    def send(self, to: str, frame: "Readable", sender: str = "") -> bool:
        now = self.now
        taken = sure = False
        ways = self._of(to)
        for way in ways:
            if way.carrier.reaches(to) and not way.doubted(now, self.patience_us):
                done = way.send(to, frame, sender, now)
                taken = taken or done
                if way.proven:
                    sure = True
                    break
        if not sure:
            self._want(to)
            for way in ways:
                if way.carrier.reaches(to) and way.doubted(now, self.patience_us):
                    done = way.send(to, frame, sender, now)
                    taken = taken or done
        if not taken:
            self.refused += 1
        return taken

    def _want(self, to: str) -> None:
        for carrier in self.all:
            carrier.wanted(to, self.now)

    # ---- in

    # A frame came over a carrier. Whether it was genuine.
    def came(self, carrier: "Carrier", sender: str, frame: "Readable") -> bool:
        genuine = self.take(sender, frame, not carrier.private)
        if genuine:
            for way in self._of(sender):
                if way.carrier is carrier:
                    way.answered()
        return genuine

    # A connection to this host is over: what the next one brings is not known.
    def gone(self, carrier: "Carrier", name: str) -> None:
        for way in self._of(name):
            if way.carrier is carrier:
                way.over()


# What a frame of 256 bytes costs, in pC.
def _cost(carrier: "Carrier") -> int:
    byte, frame = carrier.cost
    return 256 * byte + 1000 * frame
