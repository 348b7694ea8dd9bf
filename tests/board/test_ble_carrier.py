# Connections of hosts as one carrier, and which carrier takes a frame: hosts with a radio that loses nothing.
# Both interpreters. Over a model of the radio, with every fault: simulator/nearby.py.

from headwater.protocol import ble_carrier, ble_info
from headwater.protocol.ble_carrier import BleCarrier
from headwater.protocol.carriers import Carriers

KEY = ble_info.tag_key(b"master")
SECOND = 1000000
NAMES = ("chest", "wrist", "hip", "arm", "leg")


class Air:
    def __init__(self, *names):
        self.now = 0
        self.hosts = {}
        self.handles = 0
        self.pairs = {}  # handle -> [central, peripheral]
        self.deaf = set()  # hosts that connections do not reach
        for name in names:
            self.hosts[name] = Host(self, name)

    def run(self, seconds):
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            self.now += 100000
            for host in self.hosts.values():
                host.step()

    # Until it succeeds.
    def until(self, action, *args):
        for _ in range(60):
            if action(*args):
                return
            self.run(0.2)
        raise AssertionError("not within 12 s")

    # Connections that stand, by the names of their ends.
    def stand(self):
        return sorted(["%s-%s" % (a.name, b.name) for a, b in self.pairs.values()])


class Host:
    def __init__(self, air, name):
        self.air = air
        self.name = name
        self.values = []
        self.frames = []
        self.genuine = True
        self.data = b""
        self.interval = 0
        self.listens = False
        self.goal = None
        self.rooms = 0
        self.gone = []
        self.carrier = BleCarrier(
            name, KEY, self, self.take, self.relay if name == "g" else None, 100, 4 if name == "g" else 3
        )
        self.carrier.knows(NAMES)
        self.carrier.on_gone = self.over
        self.carrier.on_room = self.room

    # ---- the radio

    def put(self, handle, value):
        a, b = self.air.pairs[handle]
        self.values.append((handle, b if self is a else a, bytes(value)))
        return True

    def close(self, handle):
        self.values.append((handle, None, b""))

    def connect(self, address):
        self.goal = address

    def advertise(self, data, interval_ms):
        self.data = data
        self.interval = interval_ms

    def listen(self, on):
        self.listens = on

    def step(self):
        air, carrier = self.air, self.carrier
        carrier.tick(air.now)
        if self.listens:
            for name in sorted(air.hosts):
                other = air.hosts[name]
                if other is not self and other.interval:
                    carrier.seen(name, other.data)
        if self.goal is not None:
            name, self.goal = self.goal, None
            other = air.hosts[name]
            if not other.interval or name in air.deaf:
                carrier.failed(name)
            else:
                air.handles += 1
                air.pairs[air.handles] = (self, other)
                other.carrier.connected(air.handles, False, self.name, 244, None)
                carrier.connected(air.handles, True, name, 244, other.carrier.info)
        carrier.pump(air.now)
        values, self.values = self.values, []
        for handle, other, value in values:
            if handle not in air.pairs:
                continue
            if other is None:
                ends = air.pairs.pop(handle)
                for end in ends:
                    end.carrier.over(handle)
            elif other.name not in air.deaf:
                other.carrier.arrived(handle, value)

    # ---- the program

    def take(self, carrier, sender, frame):
        self.frames.append((sender, bytes(frame)))
        return self.genuine

    def relay(self, to, sender, frame):
        self.frames.append((sender, to, bytes(frame)))
        if to in self.air.hosts:
            self.carrier.send(to, frame, sender)
        return to == "s"

    def over(self, carrier, name):
        self.gone.append(name)

    def room(self):
        self.rooms += 1

    # Something waits for a host, and is sent when that is possible.
    def send_to(self, to, frame=b"x", sender=""):
        if not self.carrier.send(to, frame, sender):
            self.carrier.wanted(to, self.air.now)
            return False
        return True


def joined(a, b):
    air = Air(a, b)
    air.until(air.hosts[a].send_to, b)
    return air


def test_a_board_connects_to_a_board_that_something_waits_for():
    air = joined("chest", "wrist")
    air.run(0.4)
    assert air.stand() == ["chest-wrist"]
    assert air.hosts["wrist"].frames == [("chest", b"x")]
    assert air.hosts["wrist"].send_to("chest", b"back")
    air.run(0.4)
    assert air.hosts["chest"].frames == [("wrist", b"back")]
    assert not air.hosts["chest"].send_to("hip")


def test_nothing_listens_or_connects_where_nothing_waits():
    air = Air("chest", "wrist", "g")
    air.run(5)
    assert air.stand() == [] and not air.hosts["chest"].listens and air.hosts["g"].listens
    assert air.hosts["chest"].interval == 250


def test_the_gateway_connects_to_a_board_that_calls_for_it():
    air = Air("chest", "g")
    chest = air.hosts["chest"]
    air.run(0.5)
    assert chest.data[4] == 0
    air.until(chest.send_to, "s", b"status")
    air.run(0.3)
    assert air.stand() == ["g-chest"] and air.hosts["g"].frames == [("chest", "s", b"status")]
    assert air.hosts["g"].send_to("chest", b"plan", "s") and air.hosts["g"].send_to("chest", b"data", "g")
    air.run(0.3)
    assert chest.frames == [("s", b"plan"), ("g", b"data")]


def test_the_advertisement_says_what_is_the_case_and_no_name():
    air = Air("chest", "hip")
    chest = air.hosts["chest"]
    chest.carrier.wanted("g", 0)
    chest.carrier.runs_low(True)
    air.run(0.5)
    assert chest.data == ble_info.tag(KEY, "chest") + bytes((ble_info.WANTS | ble_info.LOW,))
    assert chest.interval == 30
    for _ in range(60):
        chest.carrier.wanted("g", air.now)
        air.run(0.2)
    assert chest.interval == 250
    air.run(3)
    assert chest.data[4] == ble_info.LOW


def test_who_connected_leaves_when_nothing_moves():
    air = joined("chest", "wrist")
    air.run(1.5)
    assert air.stand() == ["chest-wrist"]
    air.run(1.5)
    assert air.stand() == []
    chest, wrist = air.hosts["chest"], air.hosts["wrist"]
    assert chest.carrier.ended[ble_carrier.LEFT] == wrist.carrier.ended[ble_carrier.CLOSED] == 1
    assert chest.gone == ["wrist"] and wrist.gone == ["chest"]


def test_a_connection_without_a_genuine_frame_is_closed_and_its_host_left_alone():
    air = Air("chest", "wrist")
    chest, wrist = air.hosts["chest"], air.hosts["wrist"]
    wrist.genuine = chest.genuine = False
    found = []
    for _ in range(70):
        chest.send_to("wrist")
        wrist.carrier.send("chest", b"y")
        air.run(0.1)
        found.append(bool(air.pairs))
    assert chest.carrier.ended[ble_carrier.MUTE] + wrist.carrier.ended[ble_carrier.MUTE] == 1
    assert 45 < len([1 for now in found if now]) < 55
    assert not any(found[-10:])


def test_a_stranger_is_not_spoken_to():
    air = Air("chest", "wrist")
    other = Host(air, "wrist")
    other.carrier = BleCarrier("wrist", ble_info.tag_key(b"other"), other, other.take)
    other.carrier.knows(NAMES)
    air.hosts["wrist"] = other
    chest = air.hosts["chest"]
    chest.carrier.wanted("wrist", 0)
    air.run(1)
    assert air.handles == 0  # its tag is another one
    chest.carrier.names[other.carrier.tag] = "wrist"
    for _ in range(10):
        chest.send_to("wrist")
        air.run(0.1)
    assert air.handles == 1 and not air.pairs
    assert chest.carrier.ended[ble_carrier.STRANGER] == 1 and other.frames == []


def test_a_host_of_the_site_that_this_one_has_nothing_to_do_with_is_a_stranger():
    air = Air("chest", "zed")
    chest, zed = air.hosts["chest"], air.hosts["zed"]
    for _ in range(10):
        zed.send_to("chest")
        air.run(0.1)
    assert air.handles == 1 and not air.pairs and chest.frames == []
    assert chest.carrier.ended[ble_carrier.STRANGER] == 1


class Closed:
    def __init__(self):
        self.closed = []

    def put(self, handle, value):
        return True

    def close(self, handle):
        self.closed.append(handle)


# Connection 1 was begun by chest, connection 2 by wrist: what each end closes, in either order.
def test_both_ends_of_crossed_connections_close_the_same_one():
    found = []
    for order in ((1, 2), (2, 1)):
        ends = []
        for name in ("chest", "wrist"):
            radio = Closed()
            carrier = BleCarrier(name, KEY, radio, None)
            carrier.knows(NAMES)
            ends.append((radio, carrier, name))
        for _, carrier, name in ends:
            other = ends[0][1] if name == "wrist" else ends[1][1]
            for handle in order:
                if (handle == 1) == (name == "chest"):
                    carrier.connected(handle, True, handle, 244, other.info)
                else:
                    carrier.connected(handle, False, handle, 244, None)
                    carrier.arrived(handle, b"\0\0\x14\0" + other.info)
        assert ends[0][0].closed == ends[1][0].closed and len(ends[0][0].closed) == 1
        found.append(ends[0][0].closed)
    assert found[0] == found[1]


def test_what_is_sent_one_way_keeps_a_connection():
    air = joined("chest", "wrist")
    for _ in range(4):
        air.run(1)
        assert air.hosts["chest"].send_to("wrist")
    assert air.stand() == ["chest-wrist"] and air.handles == 1


def test_of_two_connections_that_cross_one_stays_and_both_ends_agree():
    air = Air("chest", "wrist")
    chest, wrist = air.hosts["chest"], air.hosts["wrist"]
    for host, to in ((chest, "wrist"), (wrist, "chest")):
        host.carrier.wanted(to, 0)
        host.carrier.pending = to
        host.goal = to
    for host in (chest, wrist):
        host.interval = 250
    air.run(1)
    first = min((chest, wrist), key=lambda h: h.carrier.tag)
    other = wrist if first is chest else chest
    assert air.stand() == ["%s-%s" % (first.name, other.name)]
    assert air.handles == 2
    assert chest.send_to("wrist") and wrist.send_to("chest")


def test_a_host_that_began_again_replaces_its_old_connection():
    air = joined("chest", "wrist")
    air.run(0.3)
    wrist = air.hosts["wrist"]
    old = list(air.pairs)[0]
    air.hosts["chest"] = again = Host(air, "chest")
    again.carrier.wanted("wrist", air.now)
    air.run(0.6)
    assert again.send_to("wrist", b"new")
    air.run(0.3)
    assert wrist.frames[-1] == ("chest", b"new") and wrist.carrier.ended[ble_carrier.DOUBLE] == 1
    assert old not in air.pairs


def test_a_connection_that_takes_the_place_of_another_has_proven_nothing():
    air = joined("chest", "wrist")
    air.run(0.3)
    wrist = air.hosts["wrist"]
    air.hosts["chest"] = Host(air, "chest")
    air.hosts["chest"].carrier.wanted("wrist", air.now)
    air.run(0.6)
    assert len(air.pairs) == 1 and wrist.carrier.ended[ble_carrier.DOUBLE] == 1
    assert wrist.gone == ["chest"]


def test_the_gateway_passes_on_what_boards_send_to_each_other():
    air = Air("chest", "hip", "g")
    chest, hip, g = [air.hosts[name] for name in ("chest", "hip", "g")]
    for name in ("chest", "hip"):
        air.until(g.send_to, name, b"hello", "g")
    air.run(0.3)
    assert chest.carrier.reaches("hip")
    assert chest.send_to("g", b"here")
    air.run(0.3)
    assert chest.send_to("hip", b"far")
    air.run(0.3)
    assert hip.frames[-1] == ("chest", b"far")
    assert air.stand() == ["g-chest", "g-hip"]


def test_the_gateway_passes_on_nothing_from_an_end_that_has_proven_nothing():
    air = Air("chest", "hip", "g")
    chest, hip, g = [air.hosts[name] for name in ("chest", "hip", "g")]
    g.genuine = False
    for name in ("chest", "hip"):
        air.until(g.send_to, name, b"hello", "g")
    air.run(0.3)
    before = list(g.frames)
    assert chest.send_to("hip", b"junk")
    air.run(0.3)
    assert g.frames == before and hip.frames == [("g", b"hello")]
    assert chest.send_to("s", b"here")  # genuine: `relay` says so
    air.run(0.3)
    assert chest.send_to("hip", b"far")
    air.run(0.3)
    assert hip.frames[-1] == ("chest", b"far")


def test_a_board_takes_no_frame_of_a_host_that_it_does_not_know():
    air = Air("chest", "g")
    chest, g = air.hosts["chest"], air.hosts["g"]
    air.until(g.send_to, "chest", b"hello", "g")
    for name in ("s", "hip", "nobody"):
        assert g.send_to("chest", b"x", name)
    air.run(0.3)
    assert chest.frames == [("g", b"hello"), ("s", b"x"), ("hip", b"x")]
    assert chest.carrier.strays == 1


# It is heard more often than a board, and connections to it are never made.
def test_a_stranger_that_advertises_under_ever_new_addresses_holds_up_no_board():
    air = Air("wrist", "g")
    wrist, g = air.hosts["wrist"], air.hosts["g"]
    false = ble_info.tag(KEY, "chest") + bytes((ble_info.WANTS,))
    tried = 0
    for step in range(100):
        wrist.carrier.wanted("g", air.now)
        if g.goal is not None and g.goal != "wrist":
            g.carrier.failed(g.goal)
            g.goal = None
            tried += 1
        g.carrier.seen("false %d" % step, false)
        goal, g.goal = g.goal, None if g.goal != "wrist" else "wrist"
        air.run(0.1)
        g.goal = g.goal or goal
        if air.stand():
            break
    assert air.stand() == ["g-wrist"] and 0 < tried < 3


def test_a_board_passes_nothing_on_and_believes_no_other_name():
    air = joined("chest", "wrist")
    air.run(0.3)
    wrist = air.hosts["wrist"]
    slot = air.hosts["chest"].carrier.slots[0]
    before = list(wrist.frames)
    for head in (
        b"\3hip\0",
        b"\0\3hip",
        b"\1g\0",
        b"\0\1g",
        b"\x22" + b"a" * 34 + b"\0",
        b"\0",
        b"\5a",
        b"\1\xff\0",
    ):
        slot.link.send(head, b"frame")
        air.run(0.1)
    slot.link.send(b"\0\0", b"")
    air.run(0.1)
    assert wrist.frames == before and wrist.carrier.strays == 9
    slot.link.send(b"\5wrist\0", b"mine")
    air.run(0.1)
    assert wrist.frames[-1] == ("chest", b"mine")


def test_the_gateway_connects_to_a_board_whose_battery_runs_low_before_others():
    air = Air("g")
    gateway = air.hosts["g"]
    tags = {name: ble_info.tag(KEY, name) for name in NAMES}

    def seen(name, flags):
        gateway.carrier.seen(name, tags[name] + bytes((flags,)))

    air.run(1)
    for _ in range(20):
        gateway.carrier.wanted("chest", air.now)
        air.run(0.1)
        gateway.carrier.near["chest"] = air.now
        seen("hip", ble_info.WANTS)
        assert gateway.goal is None  # chest waits for longer
    seen("arm", ble_info.WANTS | ble_info.LOW)
    assert gateway.goal == "arm"


def test_three_connections_at_most_and_others_get_their_turn():
    air = Air("chest", "wrist", "hip", "arm", "leg")
    chest = air.hosts["chest"]
    reached = set()
    silent = False  # it does not advertise while all slots are taken
    for _ in range(80):
        for name in NAMES[1:]:
            if chest.send_to(name):
                reached.add(name)
                air.hosts[name].carrier.send("chest", b"y")
        air.run(0.3)
        assert len([1 for a, b in air.pairs.values() if chest in (a, b)]) <= 3
        for host in air.hosts.values():
            host.frames.clear()
            host.gone.clear()
        silent = silent or chest.interval == 0
    assert silent and reached == set(NAMES[1:])
    assert chest.carrier.ended[ble_carrier.FULL] == 0


def test_the_last_slot_is_for_the_gateway_while_something_waits_for_it():
    air = Air("chest", "wrist", "hip", "arm")
    chest = air.hosts["chest"]
    for _ in range(20):
        chest.carrier.wanted("g", air.now)
        for name in ("wrist", "hip", "arm"):
            if chest.send_to(name):
                air.hosts[name].carrier.send("chest", b"y")
        air.run(0.1)
        assert len(chest.carrier.slots) <= 2
    assert len(chest.carrier.slots) == 2 and chest.data[4] & ble_info.LAST
    for name in ("wrist", "hip", "arm"):
        other = Host(air, name)
        other.carrier.wanted("chest", air.now)
        other.carrier.seen("chest", chest.data)
        assert other.goal is None
    gateway = Host(air, "g")
    gateway.carrier.seen("chest", chest.data)
    assert gateway.goal == "chest"


def test_room_is_reported_when_there_is_some_again():
    air = joined("chest", "wrist")
    chest = air.hosts["chest"]
    before = chest.rooms
    sent = 0
    while sent < 9 and chest.carrier.send("wrist", bytes(100)):
        sent += 1
    assert sent in (1, 2, 3) and chest.carrier.room("wrist") == 0 and chest.rooms == before
    air.run(0.3)
    assert chest.rooms == before + 1 and chest.carrier.room("wrist") == 2


def test_free_memory_after_connections_is_what_it_was():
    import gc

    if not hasattr(gc, "mem_free"):
        return
    air = Air("chest", "wrist")
    free = []
    for _ in range(30):
        air.until(air.hosts["chest"].send_to, "wrist")
        air.run(3)
        air.hosts["wrist"].frames.clear()
        for host in air.hosts.values():
            host.gone.clear()
        gc.collect()
        free.append(gc.mem_free())
    assert free[-1] >= free[9] - 64


# ---- which carrier takes a frame


class Way:
    private = True

    def __init__(self, cost=1, reaches=True):
        self.cost = (cost, cost)
        self.up = self.there = reaches
        self.sent = []
        self.wants = []
        self.rooms = 5

    def reaches(self, to):
        return self.there

    def room(self, to):
        return self.rooms

    def send(self, to, frame, sender):
        if self.rooms:
            self.sent.append(to)
        return self.rooms > 0

    def wanted(self, to, now):
        self.wants.append(to)

    def tick(self, now):
        pass


def two(cheap=True, dear=True):
    carriers = Carriers(lambda sender, frame, bare: not bare and frame != b"forged")
    one, other = Way(1, cheap), Way(9, dear)
    carriers.add(other)
    carriers.add(one)
    carriers.tick(0)
    return carriers, one, other


def test_of_carriers_that_cost_the_same_the_one_that_was_added_first_carries():
    carriers = Carriers(lambda sender, frame, bare: True)
    ways = [Way(0), Way(0), Way(0)]
    for way in ways:
        carriers.add(way)
    assert carriers.all == ways
    for way in ways:
        carriers.came(way, "a", b"answer")
    assert carriers.send("a", b"x") and [len(way.sent) for way in ways] == [1, 0, 0]


def test_until_a_way_is_proven_each_takes_the_frame():
    carriers, cheap, dear = two()
    assert carriers.send("a", b"x") and cheap.sent == dear.sent == ["a"]
    carriers.came(dear, "a", b"answer")
    carriers.send("a", b"x")
    assert len(cheap.sent) == len(dear.sent) == 2
    assert not carriers.came(cheap, "a", b"forged")
    carriers.send("a", b"x")
    assert len(cheap.sent) == len(dear.sent) == 3
    carriers.came(cheap, "a", b"answer")
    carriers.send("a", b"x")
    assert len(cheap.sent) == 4 and len(dear.sent) == 3


def test_a_way_without_an_answer_is_doubted_and_tried_again_later():
    carriers, cheap, dear = two()
    for way in (cheap, dear):
        carriers.came(way, "a", b"answer")
    carriers.send("a", b"x")
    carriers.tick(10 * SECOND)
    carriers.send("a", b"x")
    assert len(cheap.sent) == 2 and dear.sent == []
    carriers.tick(10 * SECOND + 1)
    carriers.send("a", b"x")
    assert len(cheap.sent) == 2 and len(dear.sent) == 1
    carriers.came(dear, "a", b"answer")
    carriers.tick(60 * SECOND + 1)
    carriers.send("a", b"x")
    assert len(cheap.sent) == 3 and cheap.wants == []


def test_a_way_that_answers_is_not_doubted_later():
    carriers, cheap, dear = two()
    carriers.came(cheap, "a", b"answer")
    for second in (0, 4, 8, 12, 16):
        carriers.tick(second * SECOND)
        carriers.send("a", b"x")
        carriers.came(cheap, "a", b"answer")
    assert len(cheap.sent) == 5 and dear.sent == [] and cheap.wants == []


def test_a_host_that_nothing_reaches_is_wanted():
    carriers, cheap, dear = two(False, False)
    assert not carriers.send("a", b"x") and carriers.refused == 1
    assert carriers.room("a") == 0
    assert cheap.wants == dear.wants == ["a", "a"]
    dear.there = True
    assert carriers.room("a") == 5 and carriers.send("a", b"x")
    carriers.came(dear, "a", b"answer")
    n = len(cheap.wants)
    assert carriers.send("a", b"x") and carriers.room("a") == 5 and len(cheap.wants) == n


def test_a_full_way_refuses_and_the_room_is_that_of_the_proven_way():
    carriers, cheap, dear = two()
    carriers.came(dear, "a", b"answer")
    carriers.came(cheap, "a", b"answer")
    cheap.rooms = 0
    assert carriers.room("a") == 0
    carriers.gone(cheap, "a")
    cheap.rooms, dear.rooms = 5, 0
    assert carriers.room("a") == 0
    carriers.came(cheap, "a", b"answer")
    cheap.rooms = 0
    assert not carriers.send("a", b"x") and dear.sent == []


def test_a_connection_that_ended_proves_nothing():
    carriers, cheap, dear = two()
    for way in (cheap, dear):
        carriers.came(way, "a", b"answer")
    carriers.gone(cheap, "a")
    carriers.send("a", b"x")
    assert cheap.sent == dear.sent == ["a"]


def test_both_names_of_the_gateway_are_one_host():
    carriers, cheap, dear = two()
    carriers.came(cheap, "g", b"answer")
    assert carriers.send("s", b"x") and cheap.sent == ["s"] and dear.sent == []
