# Blocks: what was encoded comes back, and the bytes are those of the vectors. Both interpreters.

from array import array

from headwater.data.alphabet import TYPES, Alphabet
from headwater.data.batch import Batch
from headwater.data.block import BlockError, bound, decode, encode, get_varint, peek, put_varint
from headwater.testing.vectors import part

VECTORS = "tests/data/wire_vectors.json"


def batch_of(spec):
    columns = spec["cols"]
    n = len(columns[0]) if columns else 1
    batch = Batch(Alphabet(spec["alphabet"]), n)
    for column, values in zip(batch.cols, columns):
        for i in range(n):
            column[i] = values[i]
    for i, at in enumerate(spec["at"]):
        batch.at[i] = at
    batch.n = n
    for name in ("xi", "ts", "dt", "hole", "back", "unsync"):
        setattr(batch, name, spec[name])
    return batch


def same(a, b):
    assert (a.xi, a.ts, a.n, a.hole, a.back, a.unsync) == (b.xi, b.ts, b.n, b.hole, b.back, b.unsync)
    if not a.hole:
        for i in range(a.n):
            assert a.ts_of(i) == b.ts_of(i)
            assert a.row(i) == b.row(i)


# What decode says to the data, or "" where it takes them.
def refused(data, batch):
    try:
        decode(data, 0, len(data), batch)
    except BlockError as e:
        assert batch.n == 0
        return e.args[0]
    return ""


def test_golden_blocks_are_written_byte_for_byte():
    for spec in part(VECTORS, "blocks"):
        batch = batch_of(spec)
        buf = bytearray(bound(batch.alphabet, batch.n))
        end = encode(batch, 0, batch.n, buf, 0)
        assert buf[:end] == bytes.fromhex(spec["hex"]), spec["name"]


def test_golden_blocks_are_read_back():
    for spec in part(VECTORS, "blocks"):
        data = bytes.fromhex(spec["hex"])
        batch = Batch(Alphabet(spec["alphabet"]), 48)
        assert decode(data, 0, len(data), batch) == len(data), spec["name"]
        same(batch, batch_of(spec))
        assert peek(data) == (batch.xi, batch.n)


def test_every_malformed_block_of_the_vectors_is_refused_for_its_reason():
    batch = Batch(Alphabet("a:i16"), 20)
    for text, reason in part(VECTORS, "refused")["block"]:
        assert refused(bytes.fromhex(text), batch) == reason, text


def test_a_run_in_the_middle_carries_the_times_of_its_first_entry():
    batch = Batch(Alphabet("v:i16"), 12)
    for i in range(12):
        batch.cols[0][i] = 7 * i
        batch.at[i] = 100 + i * i
    batch.n = 12
    batch.xi = 1000
    batch.ts = 5000000
    buf = bytearray(bound(batch.alphabet, 5))
    back = Batch(batch.alphabet, 5)
    for dt in (-1, 40):
        batch.dt = dt
        end = encode(batch, 3, 5, buf, 0)
        assert decode(buf, 0, end, back) == end
        assert back.xi == 1003 and back.n == 5
        for i in range(5):
            assert back.ts_of(i) == batch.ts_of(3 + i)
            assert back.cols[0][i] == batch.cols[0][3 + i]


def test_extremes_of_every_type_come_back():
    for kind in TYPES:
        low, high = TYPES[kind][2:]
        if low is None:
            continue
        values = [low, high, low, low, high, 0, high, high, high, low] * 3
        batch = Batch(Alphabet("v:" + kind), len(values))
        for i, v in enumerate(values):
            batch.cols[0][i] = v
        batch.n = len(values)
        batch.dt = 0
        buf = bytearray(bound(batch.alphabet, batch.n))
        end = encode(batch, 0, batch.n, buf, 0)
        back = Batch(batch.alphabet, batch.n)
        assert decode(buf, 0, end, back) == end
        for i, v in enumerate(values):
            assert back.cols[0][i] == v, kind


def test_noise_costs_no_more_than_plain_values():
    batch = Batch(Alphabet("v:i16"), 200)
    x = 1
    for i in range(200):
        x = x * 75 % 65537
        batch.cols[0][i] = x % 65536 - 32768
    batch.n = 200
    batch.dt = 10
    batch.ts = 1000
    buf = bytearray(bound(batch.alphabet, 200))
    assert encode(batch, 0, 200, buf, 0) <= 2 * 200 + 12


def test_a_buffer_without_room_gives_minus_one_and_nothing_beyond_it():
    batch = Batch(Alphabet("v:i16 f:f32 w:u64"), 40)
    for i in range(40):
        batch.cols[0][i] = i * i % 91
        batch.cols[1][i] = i
        batch.cols[2][i] = i
    batch.n = 40
    batch.dt = 10
    buf = bytearray(bound(batch.alphabet, 40))
    end = encode(batch, 0, 40, buf, 0)
    for room in range(end):
        assert encode(batch, 0, 40, bytearray(room), 0) == -1
    assert encode(batch, 0, 40, bytearray(end), 0) == end


def test_a_block_cut_anywhere_is_refused():
    spec = part(VECTORS, "blocks")[1]
    data = bytes.fromhex(spec["hex"])
    batch = Batch(Alphabet(spec["alphabet"]), 48)
    for k in range(len(data)):
        assert refused(data[:k], batch)
    try:
        decode(data, 0, len(data) + 1, batch)
        raise AssertionError("read beyond the data")
    except BlockError:
        pass


def test_changed_bytes_give_a_batch_or_blockerror_and_values_inside_their_types():
    x = 12345
    for spec in part(VECTORS, "blocks"):
        data = bytes.fromhex(spec["hex"])
        batch = Batch(Alphabet(spec["alphabet"]), 48)
        for _ in range(60):
            x = x * 1103 % 65521
            broken = bytearray(data)
            broken[x % len(data)] ^= 1 << x % 7
            if refused(broken, batch):
                continue
            for kind, column in zip(batch.alphabet.types, batch.cols):
                code, _, low, high = TYPES[kind]
                assert len(column) == 48
                for i in range(batch.n):
                    assert (
                        low is None or array(code, [column[i]])[0] == column[i] and low <= column[i] <= high
                    )


def test_numbers_take_seven_bits_a_byte_and_only_their_shortest_form():
    buf = bytearray(12)
    for v, n in ((0, 1), (127, 1), (128, 2), (1 << 30, 5), ((1 << 63) - 1, 9), ((1 << 64) - 1, 10)):
        assert put_varint(buf, 0, v) == n
        assert get_varint(buf, 0, n) == (v, n)
    for text in ("80", "8000", "ffffffffffffffffff02", "80808080808080808080", ""):
        data = bytes.fromhex(text)
        try:
            get_varint(data, 0, len(data))
            raise AssertionError(text)
        except BlockError:
            pass
