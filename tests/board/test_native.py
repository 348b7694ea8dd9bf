# Loops in machine code give what the same operators give in Python, at the limits of their types.

from headwater.board.native import BOARD
from headwater.data import block
from headwater.data.alphabet import TYPES, Alphabet
from headwater.data.batch import Batch
from headwater.operators.expression import Where
from headwater.operators.pointwise import Affine, DeadBand, Difference

N = 64


def values(t):
    low, high = TYPES[t][2:4]
    out = [low, high, low, low + 1, high - 1, high, 0, high, low, 0, 1, 2, 3]
    v = 12345
    while len(out) < N:
        v = (v * 1103515245 + 12345) & 0x7FFFFFFF
        out.append(low + v % (high - low + 1))
        if v & 64:
            out.append(max(low, out[-1] - (v & 3)))
    return out[:N]


def batch(t):
    b = Batch(Alphabet("v:" + t), N)
    column = values(t)
    for i in range(N):
        b.cols[0][i] = column[i]
    b.n = N
    b.dt = 1000
    return b


# What comes out of two batches, and the loop in machine code; without it, what Python gives.
def run(kind, params, x, machine):
    ins, made = kind.ports((x.alphabet,), params)
    op = kind(params, [Alphabet(a) for a in ins], [Alphabet(a) for a in made], N)
    if kind is Where:
        used = op.choose
        if not machine:
            op.choose = None
    elif kind is Affine:
        used = op.code and op.code[0]
        if not machine:
            op.code = []
    elif kind is Difference:
        used = op.code[0]
        if not machine:
            op.code = [None]
    else:
        used = op.code
        if not machine:
            op.code = None
    out = []
    for _ in range(2):
        m = op.run(x, N)
        out += list(op.y.cols[0][:m])
        if not kind.ONE_TO_ONE:
            out += list(op.y.at[:m])
    return out, used


def same(kind, params, types):
    for t in types:
        x = batch(t)
        there, used = run(kind, params, x, True)
        plain, _ = run(kind, params, x, False)
        assert there == plain, (kind, params, t)
        assert bool(used) == BOARD, (kind, params, t)


NARROW = ("i8", "u8", "i16", "u16")


def test_affine_in_machine_code_saturates_as_in_python():
    for num, shift, offset in ((3, 0, -7), (-5, 1, 100), (30000, 3, 70000), (1, 0, 0)):
        same(Affine, {"num": num, "shift": shift, "offset": offset}, NARROW)


def test_difference_in_machine_code_wraps_nowhere():
    same(Difference, {}, NARROW)


def test_dead_band_in_machine_code_lets_the_same_through():
    for width in (0, 1, 200, 65534, 65535, 65536, 4294967295):
        same(DeadBand, {"width": width}, NARROW)


def test_where_in_machine_code_chooses_the_same():
    for test in ([">", "v", ["neg", 3]], ["or", ["<", ["+", "v", "v"], 50], ["==", "v", 7]]):
        same(Where, {"test": test, "names": "", "values": []}, NARROW)
    same(Where, {"test": ["<=", "v", 5], "names": "", "values": []}, ("i32",))


def test_what_32_bits_do_not_hold_stays_in_python():
    x = batch("i16")
    for kind, params in ((Affine, {"num": 70000}), (Affine, {"num": 3, "den": 7})):
        assert not run(kind, params, x, True)[1]
    assert not run(Where, {"test": [">", ["*", "v", "v", "v"], 5], "names": "", "values": []}, x, True)[1]
    assert not run(Where, {"test": [">", "v", "p"], "names": "p", "values": [3]}, x, True)[1]


def test_a_column_packs_in_machine_code_as_in_python():
    packer = block._packer
    assert bool(packer) == BOARD
    a = Alphabet("v:i16")
    buf = bytearray(block.bound(a, N))
    v = 99
    for scale in (0, 2, 9, 60, 1000, 70000):
        for n in (2, 3, 8, 9, 17, 34, N):
            b = batch("i16")
            for i in range(N if scale else 0):
                v = (v * 1103515245 + 12345) & 0x7FFFFFFF
                b.cols[0][i] = max(-32768, min(32767, (v >> 8) % scale - scale // 2 + (i * scale >> 3)))
            b.n = n
            block._packer = packer
            end = block.encode(b, 0, n, buf, 0)
            there = bytes(buf[:end])
            block._packer = None
            end = block.encode(b, 0, n, buf, 0)
            block._packer = packer
            assert there == bytes(buf[:end]), (scale, n)
