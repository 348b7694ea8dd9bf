# Frames and messages: the bytes of the vectors, and one error for everything else. Both interpreters.

import json

from headwater.data import block
from headwater.data.alphabet import Alphabet
from headwater.data.batch import Batch
from headwater.protocol import frames
from headwater.protocol.frames import MESSAGES, TAG, FrameError, Writer, header, messages
from headwater.testing.vectors import part

VECTORS = "tests/data/wire_vectors.json"

LOG_A = 0x1111222233334444
LOG_B = 0x9999AAAABBBBCCCC


# One by one: all of them do not fit into a board's heap.
def golden_frames():
    with open(VECTORS) as f:
        while f.readline() != '"frames": [\n':
            pass
        line = f.readline()
        while line[0] != "]":
            yield json.loads(line.rstrip(",\n"))
            line = f.readline()


def from_json(code, value):
    return bytes.fromhex(value) if code == "b" else tuple(value) if code == "e" else value


def plain(message):
    return tuple([bytes(v) if isinstance(v, memoryview) else v for v in message])


def writer(mtu=400):
    w = Writer(mtu)
    w.begin(3, 7, 70000, b"\xa1\xb2", LOG_A, LOG_B)
    return w


def read(data, sender_log=LOG_A, receiver_log=LOG_B):
    return messages(data, header(data)[-1], len(data) - TAG, sender_log, receiver_log)


# What the reader says to the data, or "" where it takes them.
def refused(data):
    try:
        read(data)
        return ""
    except FrameError as e:
        return e.args[0]


def test_golden_frames_are_written_byte_for_byte_and_read_back():
    seen = []
    for frame in golden_frames():
        w = Writer(1024)
        w.begin(3, 7, 70000, b"\xa1\xb2\xc3", LOG_A, LOG_B)
        sent = []
        for kind, *values in frame["messages"]:
            values = [from_json(c, v) for c, v in zip(MESSAGES[kind], values)]
            assert w.put(kind, *values)
            sent.append(tuple([kind] + values))
            seen.append(kind)
        data = bytes.fromhex(frame["hex"])
        assert w.view() == data
        data += bytes(TAG)
        assert header(data) == (3, 7, 70000, b"\xa1\xb2", 8)
        assert [plain(m) for m in read(data)] == sent
    assert sorted(set(seen)) == sorted(MESSAGES)


def test_every_malformed_frame_of_the_vectors_is_refused_for_its_reason():
    for text, reason in part(VECTORS, "refused")["frame"]:
        assert refused(bytes.fromhex(text)) == reason, text


def test_a_message_that_does_not_fit_leaves_the_frame_as_it_was():
    w = writer(64)
    assert w.put(frames.BEAT, 1, 2)
    before = bytes(w.view())
    room = w.room()
    assert room == 64 - TAG - len(before)
    assert not w.put(frames.CONFIG, 1, 0, 2, bytes(room - 4))
    assert not w.put(frames.CONFIG, 1, 0, 2, bytes(1000))
    assert w.view() == before and w.room() == room and len(w.buf) == 64
    assert w.put(frames.CONFIG, 1, 0, 2, bytes(room - 5))
    assert w.room() == 0


def test_a_frame_takes_a_bounded_number_of_messages():
    w = writer(1024)
    for k in range(frames.MESSAGES_MAX):
        assert w.put(frames.BEAT, k, 0)
    assert not w.put(frames.BEAT, 0, 0)
    assert w.open_data(0, 0, (0, 0)) is None
    assert len(read(bytes(w.view()) + bytes(TAG))) == frames.MESSAGES_MAX


def test_log_numbers_of_both_ends_take_one_byte_and_others_nine():
    sizes = []
    for inc in (0, LOG_A, LOG_B, 5):
        w = writer()
        start = w.pos
        assert w.put(frames.BOUND, 1, inc, 1, 1)
        sizes.append(w.pos - start)
        assert read(bytes(w.view()) + bytes(TAG)) == [(frames.BOUND, 1, inc, 1, 1)]
    assert sizes == [5, 5, 5, 13]


def test_a_receiver_reads_the_log_numbers_of_its_own_session():
    w = writer()
    w.put(frames.BEAT, 1, 1)
    w.put(frames.BOUND, 1, LOG_A, 1, 1)
    w.put(frames.BOUND, 1, LOG_B, 1, 1)
    found = read(bytes(w.view()) + bytes(TAG), 77, 88)
    assert found[1][2] == 77 and found[2][2] == 88


def test_a_block_is_written_straight_into_the_frame():
    batch = Batch(Alphabet("mV:i16"), 120)
    for i in range(120):
        batch.cols[0][i] = i * i % 50
    batch.n = 120
    batch.dt = 2778
    for n in (1, 5, 120):  # short blocks have a length of one byte, long ones of two
        w = writer()
        start = w.pos
        buf, pos = w.open_data(5, LOG_A, (0, 0))
        assert buf is w.buf
        end = block.encode(batch, 0, n, buf, pos)
        assert w.close_data(end)
        body = end - pos
        assert w.pos - start == body + (6 if body < 128 else 7)
        assert w.put(frames.BEAT, 1, 2)
        found = read(bytes(w.view()) + bytes(TAG))
        assert found[0][:4] == (frames.DATA, 5, LOG_A, (0, 0)) and found[1] == (frames.BEAT, 1, 2)
        back = Batch(batch.alphabet, 120)
        data = found[0][4]
        assert len(data) == body
        assert block.decode(data, 0, len(data), back) == body
        assert list(back.cols[0])[:n] == list(batch.cols[0])[:n]
        # The same message by way of put().
        again = writer()
        assert again.put(frames.DATA, 5, LOG_A, (0, 0), data)
        assert again.put(frames.BEAT, 1, 2)
        assert again.view() == w.view()


def test_a_block_of_any_length_has_the_shortest_length_before_it():
    for n in (1, 126, 127, 128, 129, 300):
        w = writer()
        buf, pos = w.open_data(5, 0, (0, 0))
        for k in range(n):
            buf[pos + k] = k & 255
        assert w.close_data(pos + n)
        again = writer()
        assert again.put(frames.DATA, 5, 0, (0, 0), bytes([k & 255 for k in range(n)]))
        assert w.view() == again.view(), n


def test_a_block_that_does_not_fit_leaves_the_frame_as_it_was():
    batch = Batch(Alphabet("v:f32"), 30)
    batch.n = 30
    batch.dt = 1
    w = writer(100)
    before = bytes(w.view())
    buf, pos = w.open_data(5, 0, (0, 0))
    assert not w.close_data(block.encode(batch, 0, 30, buf, pos))
    assert w.view() == before
    fits = 30
    while True:
        buf, pos = w.open_data(5, 0, (0, 0))
        if w.close_data(block.encode(batch, 0, fits, buf, pos)):
            break
        fits -= 1
    assert fits > 15
    assert w.pos <= 100 - TAG


def test_values_that_no_field_can_carry_are_an_error_of_the_caller():
    w = writer()
    before = bytes(w.view())
    for values in ((-1, 0), (1 << 64, 0), (1,), (1, 2, 3)):
        try:
            w.put(frames.BEAT, *values)
            raise AssertionError(values)
        except ValueError:
            pass
    for values in ((1, (0, 0), [0] * 65, 1), (1, (0, 0), [-1], 1)):
        try:
            w.put(frames.STORED, *values)
            raise AssertionError(values)
        except ValueError:
            pass
    assert w.view() == before


def test_a_writer_is_used_again_and_again():
    w = writer()
    w.put(frames.BEAT, 1, 2)
    w.begin(1, 1, 1, b"\0\0", 0, 0)
    w.put(frames.BEAT, 3, 4)
    assert read(bytes(w.view()) + bytes(TAG)) == [(frames.BEAT, 3, 4)]
