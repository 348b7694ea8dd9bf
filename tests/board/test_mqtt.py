# Packets of MQTT 3.1.1: written to the byte, read from pieces of any size, refused without a fall.

from headwater.board.connecting import connect
from headwater.board.mqtt import Client, Packets, packet, text


def fed(p, data, step):
    out = []
    while data and not p.broken:
        room = p.room()
        n = min(step, len(room), len(data))
        assert n, "no room, and nothing to take"
        room[:n] = data[:n]
        p.end += n
        data = data[n:]
        kind = p.next()
        while kind:
            out.append((kind, bytes(p.mem[p.body : p.pos])))
            kind = p.next()
    return out


def client(takes, size=640):
    def take(sender, payload):
        takes.append((sender, bytes(payload)))

    return Client("hw", "chest", {}, None, None, take, lambda: 7, size)


def test_connect_has_clean_session_will_user_and_password():
    head = b"\x10\x26\0\4MQTT\4\xc6\0\x14"
    names = b"\0\5chest\0\x0ahw/s/chest\0\0\0\1u\0\2pw"
    assert connect("chest", 20, "hw/s/chest", "u", "pw") == head + names


def test_connect_without_user_says_so_in_its_flags():
    assert connect("c", 300, "w", "", "") == b"\x10\x12\0\4MQTT\4\x06\x01\x2c\0\1c\0\1w\0\0"


def test_lengths_of_packets_take_as_many_bytes_as_they_need():
    assert packet(0x30, bytes(127))[:3] == b"\x30\x7f\0"
    assert packet(0x30, bytes(128))[:4] == b"\x30\x80\x01\0"
    assert packet(0x30, bytes(16384))[:5] == b"\x30\x80\x80\x01\0"


def test_packets_come_out_whole_whatever_the_pieces():
    data = packet(0x20, b"\0\0") + packet(0x30, bytes(range(200))) + packet(0xD0) + packet(0x90, b"\0\1\0")
    for step in (1, 2, 3, 7, 100, 300):
        assert fed(Packets(256), data, step) == [
            (0x20, b"\0\0"), (0x30, bytes(range(200))), (0xD0, b""), (0x90, b"\0\1\0"),
        ]  # fmt: skip


def test_packet_larger_than_the_buffer_is_skipped_and_counted():
    for size in (63, 64, 200, 9000):
        for step in (1, 50) if size < 1000 else (64,):
            p = Packets(64)
            assert fed(p, packet(0x30, bytes(size)) + packet(0xD0), step)[-1] == (0xD0, b"")
            assert p.skipped == 1, size


def test_packet_that_just_fits_is_taken():
    p = Packets(64)
    assert fed(p, bytes(packet(0x30, bytes(62))) * 3, 5) == [(0x30, bytes(62))] * 3
    assert p.skipped == 0


def test_length_of_more_than_four_bytes_breaks_the_link_for_good():
    p = Packets(64)
    assert fed(p, b"\x30\xff\xff\xff\xff\x01", 1) == []
    assert p.broken
    assert p.next() == 0


def test_any_bytes_give_packets_or_end_the_link():
    state = 12345
    for turn in range(60):
        data = bytearray(300)
        for i in range(len(data)):
            state = (state * 1103515245 + 12345) & 0x3FFFFFFF
            data[i] = state >> 8 & (255 if turn % 3 else 63)
        for kind, body in fed(Packets(64), bytes(data), 1 + turn):
            takes = []
            c = client(takes)
            c.up = turn % 2 == 0
            c._write = lambda data: True
            try:
                c._packet(kind, memoryview(body))
            except OSError as e:
                assert "broker" in str(e)
            assert not takes


def test_frame_reaches_the_taker_with_its_sender():
    takes = []
    c = client(takes)
    c.up = True
    c._packet(0x30, memoryview(text("hw/chest/wrist") + b"frame"))
    c._packet(0x31, memoryview(text("hw/chest/g")))
    assert takes == [("wrist", b"frame"), ("g", b"")]
    assert c.strays == 0


def test_other_topics_are_counted_and_not_taken():
    takes = []
    c = client(takes)
    c.up = True
    bodies = [text("hw/wrist/g") + b"x", text("hw/chest/") + b"x", text("hw/chest"), b"\0", b"", b"\xff\xff"]
    for body in bodies:
        c._packet(0x30, memoryview(body))
    c._packet(0x32, memoryview(text("hw/chest/g") + b"\0\1x"))
    assert takes == []
    assert c.strays == len(bodies) + 1


def test_sender_that_is_no_text_is_a_stray():
    takes = []
    c = client(takes)
    c.up = True
    c._packet(0x30, memoryview(b"\0\x0ahw/chest/\xff" + b"x"))
    assert takes == []
    assert c.strays == 1


def test_refusal_of_the_broker_is_said_in_words():
    for code, words in ((4, "user or password"), (5, "not allowed"), (77, "not allowed")):
        try:
            client([])._packet(0x20, memoryview(bytes((0, code))))
            raise AssertionError("taken")
        except OSError as e:
            assert str(e) == "refused by the broker: " + words


def test_frames_without_a_link_are_dropped_and_counted():
    c = client([])
    assert not c.send("g", b"frame")
    assert (c.dropped, c.sent) == (1, 0)


def test_no_more_than_the_bound_waits_for_the_socket():
    c = client([])
    c.up = True
    c._put = lambda mem: 0
    c.drain = True
    assert [c.send("g", b"x") for _ in range(20)] == [True] * 12 + [False] * 8
    assert len(c.out) == 12


def test_write_that_was_not_taken_whole_goes_on_where_it_stopped():
    c = client([])
    c.up = True
    c.drain = True
    seen = []

    def put(mem):
        seen.append(bytes(mem[:3]))
        return min(3, len(mem)) if len(seen) % 3 else None

    c._put = put
    c.send("g", b"abc")
    c.send("g", b"d")
    for _ in range(20):
        c._push()
    whole = b"".join([s for i, s in enumerate(seen) if (i + 1) % 3])
    assert whole == packet(0x30, text("hw/g/chest"), b"abc") + packet(0x30, text("hw/g/chest"), b"d")


def test_what_waits_for_the_socket_outlives_the_buffer_it_was_made_in():
    buf = bytearray(40)
    c = Client("hw", "chest", {}, None, None, None, lambda: 7, 640, buf)
    c.up = True
    c.drain = True
    free = [3]

    def put(mem):
        n = min(free[0], len(mem))
        free[0] -= n
        seen.extend(mem[:n])
        return n

    seen = bytearray()
    c._put = put
    frames = (b"abc", b"d", bytes(range(30)), b"e")
    for frame in frames:
        assert c.send("g", frame)
    for i in range(len(buf)):
        buf[i] = 0
    free[0] = 1000
    c._push()
    topic = text("hw/g/chest")
    assert seen == b"".join([bytes(packet(0x30, topic, frame)) for frame in frames])


def test_frame_that_fits_takes_no_room_of_its_own():
    buf = bytearray(40)
    c = Client("hw", "chest", {}, None, None, None, lambda: 7, 640, buf)
    c.up = True
    seen = []

    def put(mem):
        seen.append(bytes(mem) == bytes(buf[: len(mem)]))
        return len(mem)

    c._put = put
    assert c.send("g", b"abc") and c.send("g", bytes(range(30))) and c.send("g", b"d")
    assert seen == [True, False, True] and c.out == []
