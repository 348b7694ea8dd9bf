# The Bluetooth link: random walks in which each rule is checked after each step, every cut, counts that wrap,
# and everything that another end could send. Both interpreters. More of them:
# tests/unit/edge/test_ble_link_properties.py.

from headwater.protocol import ble_info, ble_link
from headwater.protocol.ble_link import BleLink
from headwater.testing.ble_walk import Dice, Walk, content
from headwater.testing.vectors import part

VECTORS = "tests/data/wire_vectors.json"

VALUE = memoryview(bytearray(ble_link.VALUE_MAX))


class Host:
    def __init__(self, longest=64, window=16, hands=12, central=False, size=244):
        self.values = []
        self.frames = []
        self.takes = True
        self.link = BleLink(self.put, self.take, VALUE, longest, window, hands)
        self.link.begin(7, central, size, 0)

    def put(self, handle, value):
        assert handle == 7
        if self.takes:
            self.values.append(bytes(value))
        return self.takes

    def take(self, link, frame):
        self.frames.append(bytes(frame))

    def error_of(self, *values):
        for value in values:
            self.link.arrived(value, 0)
        return self.link.error


def walked(size, longest, seed, steps, **more):
    walk = Walk(size, longest, seed, **more)
    walk.run(steps)
    walk.settle()
    return walk


def test_frames_arrive_once_in_order_at_any_mtu():
    for mtu in (23, 24, 27, 50, 100, 185, 247, 256, 517):
        walked(mtu - 3, 512, mtu, 300)


def test_frames_of_every_length_arrive():
    for longest in (1, 2, 3, 17, 242, 243, 580):
        walked(244, longest, longest, 250)
        walked(20, longest, longest, 250)


def test_windows_and_hands_of_any_size_are_never_exceeded():
    for window in (1, 2, 3, 5, 16, 24):
        for hands in ((12, 12), (24, 1), (2, 24)):
            walked(60, 100, window, 200, window=window, hands=hands)


def test_numbers_wrap_at_256():
    walk = walked(20, 300, 5, 2000)
    assert walk.ends[0].put > 256 and walk.ends[1].put > 256


def test_a_new_connection_begins_at_zero_wherever_the_last_one_was_cut():
    for seed in range(8):
        walk = Walk(50, 200, seed)
        walk.run(600, cuts=True)
        walk.settle()
    for cut in range(40):
        walk = Walk(22, 90, cut)
        walk.run(cut)
        walk.begin()
        walk.run(60)
        walk.settle()


def test_the_central_speaks_first_and_with_an_empty_acknowledgement():
    a, b = Host(central=True), Host()
    for host in (a, b):
        assert host.link.send(b"", b"hello")
        host.link.pump(0)
    assert a.values == [b"\0\0", b"\0\0\5\0hello"] and b.values == []
    b.link.arrived(a.values[0], 0)
    b.link.pump(0)
    assert b.values == [b"\0\0\5\0hello"]


def test_fragments_are_filled_across_frames():
    a = Host(central=True, size=12)
    for frame in (b"abcdefgh", b"i", b"jklmnopqrst"):
        a.link.send(frame[:1], frame[1:])
    a.link.pump(0)
    assert a.values == [
        b"\0\0", b"\0\0\x08\0abcdefgh", b"\1\0\1\0i\x0b\0jklmn", b"\2\0opqrst",
    ]  # fmt: skip
    b = Host()
    assert b.error_of(*a.values) == 0
    assert b.frames == [b"abcdefgh", b"i", b"jklmnopqrst"]


def test_a_refused_value_is_offered_again_after_five_milliseconds():
    a = Host(central=True)
    a.takes = False
    a.link.send(b"", b"x")
    assert a.link.pump(1000) == 5000
    a.takes = True
    assert a.link.pump(5999) == 1
    assert a.values == []
    a.link.pump(6000)
    assert a.values == [b"\0\0", b"\0\0\1\0x"]


def test_an_acknowledgement_waits_twenty_milliseconds_or_a_quarter_of_the_window():
    a = Host()
    a.link.arrived(b"\0\0\1\0x", 1000)
    assert a.link.pump(1000) == 20000
    assert a.link.pump(20999) == 1 and a.values == []
    a.link.pump(21000)
    assert a.values == [b"\0\1"]
    for k in range(1, 5):
        a.link.pump(30000)
        assert a.values == [b"\0\1"]
        a.link.arrived(bytes((k, 0, 1, 0, 7)), 30000)
    a.link.pump(30000)
    assert a.values == [b"\0\1", b"\0\5"]


def test_an_acknowledgement_is_due_from_the_first_fragment_on():
    a = Host()
    a.link.arrived(b"\0\0\1\0x", 0)
    a.link.arrived(b"\1\0\1\0x", 15000)
    a.link.pump(20000)
    assert a.values == [b"\0\2"]


def test_a_frame_is_taken_whole_or_not_at_all():
    a = Host(longest=100, central=True)
    assert a.link.room() == 3
    assert not a.link.send(b"", b"") and not a.link.send(b"x", bytes(100))
    for _ in range(3):
        assert a.link.send(b"x", bytes(99))
    assert a.link.room() == 0 and not a.link.send(b"", bytes(100))
    a.link.agree(16, 50)
    a.link.pump(0)
    assert a.link.room() == 3 and not a.link.send(b"", bytes(51)) and a.link.send(b"", bytes(50))


def test_a_fragment_is_filled_with_what_found_no_room_before():
    a = Host(longest=300, central=True)
    frame = bytes(299)
    a.link.more = lambda: a.link.send(b"", frame)
    assert a.link.send(b"", frame) and not a.link.send(b"", frame)
    a.link.pump(0)
    assert [len(value) for value in a.values] == [2, 244, 244, 2 + 2 * 301 - 2 * 242]


def test_an_end_that_acknowledges_nothing_ends_the_link():
    a = Host(longest=200, central=True, size=20)
    sent = 0
    for now in range(0, 9999999, 500000):
        while a.link.send(b"", bytes(200)):
            sent += 1
        a.link.pump(now)
        assert a.link.error == 0
    assert len([v for v in a.values if len(v) > 2]) == 12
    a.link.pump(10000000)
    assert a.link.error == ble_link.STALLED
    assert not a.link.send(b"", b"x") and a.link.room() == 0


def test_an_end_that_acknowledges_something_goes_on():
    a = Host(central=True)
    a.link.pump(0)
    for k in range(10):
        a.link.send(b"", b"x")
        a.link.pump(8000000 * k)
        a.link.arrived(bytes((0, k)), 8000000 * k + 10)
        assert a.link.error == 0


def test_an_idle_link_stays():
    a, b = Host(central=True), Host()
    a.link.pump(0)
    b.link.arrived(a.values.pop(), 0)
    for now in range(0, 400000000, 25000000):
        assert a.link.pump(now) > 1000000 and b.link.pump(now) > 1000000
    assert a.values == b.values == [] and a.link.error == b.link.error == 0


def test_what_cannot_be_ends_the_link():
    assert Host().error_of(b"") == ble_link.SHORT
    assert Host().error_of(b"\0") == ble_link.SHORT
    assert Host().error_of(b"\1\0\1\0x") == ble_link.GAP
    assert Host().error_of(b"\0\0\1\0x", b"\0\0\1\0x") == ble_link.GAP
    assert Host().error_of(b"\0\0\1\0x", b"\2\0\1\0x") == ble_link.GAP
    assert Host().error_of(b"\0\0\1\0x", b"\2\0") == ble_link.GAP
    assert Host().error_of(b"\0\1") == ble_link.COUNT
    assert Host().error_of(b"\0\xff\1\0x") == ble_link.COUNT
    assert Host().error_of(b"\0\0\0\0") == ble_link.LENGTH
    assert Host().error_of(b"\0\0\x41\0") == ble_link.LENGTH
    assert Host().error_of(b"\0\0\x40", b"\1\0\1x") == ble_link.LENGTH
    assert Host().error_of(*[bytes((k, 0, 1, 0, 7)) for k in range(16)]) == 0
    assert Host().error_of(*[bytes((k, 0, 1, 0, 7)) for k in range(17)]) == ble_link.OVERRUN


def test_a_link_that_has_ended_says_and_takes_nothing():
    a = Host(central=True)
    a.link.arrived(b"", 0)
    a.link.send(b"", b"x")
    assert a.link.pump(0) == ble_link.NEVER
    a.link.arrived(b"\0\0\1\0x", 0)
    a.link.arrived(b"\5\0", 0)
    assert a.values == [] and a.frames == [] and a.link.error == ble_link.SHORT
    a.link.begin(7, True, 244, 0)
    a.link.pump(0)
    assert a.values == [b"\0\0"]


# Values that were changed on the way: frames of at most the longest length, or an end with a reason.
def test_any_values_are_survived():
    dice = Dice(3)
    ends = set()
    for turn in range(150):
        a, b = Host(central=True, size=30), Host()
        for k in range(6):
            a.link.send(b"", content(k, 1 + dice.roll(20)))
            a.link.pump(k)
        for value in a.values:
            data = bytearray(value)
            for _ in range(dice.roll(3) if turn else 0):
                if data:
                    data[dice.roll(len(data))] = dice.roll(256)
            if turn and not dice.roll(8):
                data = data[: dice.roll(len(data))]
            b.link.arrived(data, 0)
        ends.add(b.link.error)
        assert all([0 < len(frame) <= 64 for frame in b.frames])
        assert turn or (b.link.error == 0 and len(b.frames) == 6)
    assert ends >= {0, ble_link.SHORT, ble_link.GAP, ble_link.COUNT, ble_link.LENGTH}


def test_golden_connection_is_said_value_by_value():
    told = part(VECTORS, "bluetooth")["link"]
    ends = {}
    for name in ("central", "peripheral"):
        ends[name] = Host(told["longest"], central=name == "central", size=told["value bytes"])
    waits = {name: list(told["frames"][name]) for name in ends}
    steps = [(name, bytes.fromhex(value)) for name, value in told["steps"]]
    turn = 0
    while steps:
        for name, other in (("central", "peripheral"), ("peripheral", "central")):
            end = ends[name]
            while waits[name] and end.link.send(b"", bytes.fromhex(waits[name][0])):
                waits[name].pop(0)
            end.link.pump(30000 * turn)
            for value in end.values:
                assert (name, value) == steps.pop(0)
                ends[other].link.arrived(value, 30000 * turn)
            end.values.clear()
        turn += 1
    for name, other in (("central", "peripheral"), ("peripheral", "central")):
        assert [frame.hex() for frame in ends[name].frames] == told["frames"][other]


def test_golden_ends_of_links_have_their_reasons():
    for values, reason in part(VECTORS, "bluetooth")["ends"]:
        end = Host(40)
        assert end.error_of(*[bytes.fromhex(value) for value in values]) == getattr(ble_link, reason)


def test_golden_tags_info_and_service_data():
    told = part(VECTORS, "bluetooth")["shown"]
    key = ble_info.tag_key(bytes.fromhex(told["master"]))
    assert key.hex() == told["key of the tags"]
    site = ble_info.site_tag(key)
    assert site.hex() == told["site"]
    for name in told["tags"]:
        assert ble_info.tag(key, name).hex() == told["tags"][name]
    found = [ble_info.read_info(bytes.fromhex(told["info"][name]), site) for name in sorted(told["info"])]
    assert found == [(16, 578, ble_info.tag(key, "chest")), (24, 578, ble_info.tag(key, "g"))]
    assert ble_info.info(key, "chest", 16, 578).hex() in told["info"].values()
    shown = [ble_info.read_data(bytes.fromhex(data)) for data in told["service data"].values()]
    assert sorted([flags for _, flags in shown]) == [0, ble_info.WANTS | ble_info.LOW]


def test_info_of_others_and_malformed_info_is_refused():
    key = ble_info.tag_key(b"x")
    site = ble_info.site_tag(key)
    good = ble_info.info(key, "a", 16, 578)
    assert ble_info.read_info(good + b"more", site)
    for bad in (
        b"", good[:-1], b"\2" + good[1:], good[:1] + b"\0" + good[2:], good[:2] + b"\0\0" + good[4:],
        good[:8] + bytes(8) + good[16:],
    ):  # fmt: skip
        assert ble_info.read_info(bad, site) is None
    assert ble_info.read_data(b"abcd") is None and ble_info.read_data(b"abcdef") is None


def test_a_link_and_its_buffers_stay_small():
    import gc

    gc.collect()
    before = gc.mem_alloc() if hasattr(gc, "mem_alloc") else 0
    value = memoryview(bytearray(ble_link.VALUE_MAX))
    link = BleLink(None, None, value, 578)
    gc.collect()
    assert link.room() == 0
    if before:
        assert gc.mem_alloc() - before < 2600
