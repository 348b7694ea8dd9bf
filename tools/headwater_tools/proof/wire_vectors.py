"""Golden vectors of the wire, and a fuzzer for its decoders.

    python -m headwater_tools.proof.wire_vectors            write tests/data/wire_vectors.json
    python -m headwater_tools.proof.wire_vectors --check    report whether it holds what the code writes
    python -m headwater_tools.proof.wire_vectors --fuzz N   feed N broken inputs to every decoder [--seed S]

The file is what another implementation is written against: it changes only with the format.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.data import block, msgpack
from headwater.data.alphabet import TYPES, Alphabet
from headwater.data.batch import Batch
from headwater.offboard import encryption, reasons
from headwater.protocol import frames, sessions
from headwater.protocol.sessions import Peer, hmac

from ..environment import ROOT
from . import ble_vectors

SUMMARY = "golden vectors of the wire, and a fuzzer for its decoders"
PATH = ROOT / "tests" / "data" / "wire_vectors.json"
PLAN = bytes.fromhex("a1b2c3d4e5f60718")
OLD_PLAN = bytes.fromhex("1122334455667788")
LOG_A, LOG_B, LOG_C = 0x1111222233334444, 0x9999AAAABBBBCCCC, 0xDEADBEEF00000001
MASTER = bytes(range(32))
TS = 1_790_000_000_000_000


def batch_of(spec: dict[str, Any]) -> Batch:
    """A batch from its description in the vectors."""
    columns = spec["cols"]
    n = len(columns[0]) if columns else 1
    batch = Batch(Alphabet(spec["alphabet"]), max(n, 1))
    for column, values in zip(batch.cols, columns, strict=False):
        for i, value in enumerate(values):
            column[i] = value
    for i, at in enumerate(spec["at"]):
        batch.at[i] = at
    batch.n = n
    for name in ("xi", "ts", "dt", "hole", "back", "unsync"):
        setattr(batch, name, spec[name])
    return batch


def block_bytes(batch: Batch, i0: int = 0, n: int | None = None) -> bytes:
    n = batch.n - i0 if n is None else n
    buf = bytearray(block.bound(batch.alphabet, n))
    end = block.encode(batch, i0, n, buf, 0)
    assert end >= 0
    return bytes(buf[:end])


def _spec(alphabet: str, cols: list[list[Any]], **more: Any) -> dict[str, Any]:
    spec = {"alphabet": alphabet, "xi": 1, "ts": TS, "dt": 2778, "hole": 0, "back": 0, "unsync": 0, "at": []}
    spec.update(more)
    spec["cols"] = cols
    return spec


def _blocks() -> list[dict[str, Any]]:
    beat = [round(40 * (i % 9) - 3 * (i % 4)) for i in range(40)]
    wide = [0, (1 << 32) - 1, 0, 1, (1 << 31) - 1, 1 << 31, 7, 8, 9]
    lo64, hi64 = -(1 << 63), (1 << 63) - 1
    noise = [(i * i * 40503 + 12345) % 65536 - 32768 for i in range(24)]
    specs = {
        "one sample": _spec("mV:i16", [[-5]]),
        "regular, two orders of difference": _spec("mV:i16 r:u8", [beat, list(range(40))], xi=1 << 33),
        "one spike: a value in full": _spec("mV:i16", [[0] * 12 + [32767] + [0] * 12]),
        "irregular, unsynchronised": _spec(
            "on:u8", [[1, 0, 1, 0, 1]], dt=-1, unsync=1, at=[0, 0, 1000, 1_000_000, (1 << 30) - 1]
        ),
        "noise stands plain": _spec("mV:i16", [noise]),
        "full range of 32 bits": _spec("a:u32 b:i32", [wide, [v - (1 << 31) for v in wide]]),
        "full range of 64 bits": _spec("a:i64 b:u64", [[lo64, hi64, 0, -1], [0, (1 << 64) - 1, 5, 6]]),
        "slow and wide": _spec("a:u64", [[(1 << 60) + 3 * i for i in range(20)]]),
        "floats": _spec("f:f32 d:f64", [[0.0, 1.5, -2.25], [1e300, -0.5, 3.0]]),
        "largest times": _spec("a:u8", [[1, 2]], xi=(1 << 64) - 2, ts=(1 << 64) - 2, dt=1),
        "hole": _spec("mV:i16", [], dt=-1, hole=1, back=10_000_000),
    }
    return [dict(spec, name=name, hex=block_bytes(batch_of(spec)).hex()) for name, spec in specs.items()]


# The form of each field code in the vectors: to a value, and from a value.
def from_json(code: str, value: Any) -> Any:
    return bytes.fromhex(value) if code == "b" else tuple(value) if code == "e" else value


def to_json(code: str, value: Any) -> Any:
    return bytes(value).hex() if code == "b" else list(value) if code == "e" else value


def _values(k: int) -> dict[str, list[Any]]:
    """Values for field codes; message k takes different ones than message k + 1."""
    return {
        "v": [k, 0, 127, 128, 1 << 32, (1 << 64) - 1],
        "e": [(0, 0), (k, 1), (1 << 40, 200)],
        "i": [0, LOG_A, LOG_B, LOG_C],
        "b": [b"", bytes(range(k)), bytes(k + 120)],
        "p": [[], [k], [300, 0, 1 << 63]],
        "l": [[], [0], [0, k, 200]],
    }


def _frame(messages: list[tuple[Any, ...]]) -> bytes:
    writer = frames.Writer(frames.FRAME_MAX)
    writer.begin(3, 7, 70000, PLAN, LOG_A, LOG_B)
    for kind, *values in messages:
        assert writer.put(kind, *values)
    return bytes(writer.view())


def _frames() -> list[dict[str, Any]]:
    out = []
    for kind, codes in frames.MESSAGES.items():
        messages: list[tuple[Any, ...]] = []
        for turn in range(3):
            values = _values(kind)
            messages.append((kind, *[values[c][(turn + at) % len(values[c])] for at, c in enumerate(codes)]))
        out.append(
            {
                "messages": [
                    [kind, *[to_json(c, v) for c, v in zip(codes, values, strict=True)]]
                    for kind, *values in messages
                ],
                "hex": _frame(messages).hex(),
            }
        )
    return out


class _Nonces:
    """Numbers in place of random ones, for vectors and fuzz."""

    def __init__(self, first: int) -> None:
        self.next = first

    def __call__(self) -> int:
        self.next += 1
        return self.next


def _peers(life: int = 0) -> tuple[Any, Any]:
    """Hosts 1 and 2 in one of their boots: each has boot numbers and nonces of its own."""
    key = sessions.pair_key(MASTER, 1, 2)
    one = sessions.Peer(key, 1, LOG_A, life + 4, 2, PLAN, _Nonces((life << 32) + 0xA000))
    two = sessions.Peer(key, 2, LOG_B, life + 9, 1, PLAN, _Nonces((life << 32) + 0xB000))
    return one, two


def _sealed(peer: Peer, *messages: tuple[Any, ...]) -> bytes:
    writer = frames.Writer(256)
    peer.begin(writer)
    for message in messages:
        assert writer.put(*message)
    return bytes(peer.seal(writer))


def _seals() -> dict[str, Any]:
    """A boot: host 1 sends to host 2, which has forgotten everything; then both have a session."""
    one, two = _peers()
    steps: list[list[str]] = []

    def hand(sender: str, frame: bytes, to: Any) -> None:
        taken = to.open(frame)
        steps.append([sender, frame.hex(), reasons.OF_SEALS[to.why]])
        assert (taken is not None) == (to.why == sessions.TAKEN)

    def settle() -> None:
        while one.reply or two.reply:
            for name, a, b in (("1", one, two), ("2", two, one)):
                frame, a.reply = a.reply, None
                if frame:
                    hand(name, frame, b)

    hand("1", _sealed(one, (frames.BEAT, 1, 2)), two)
    settle()
    kept = _sealed(one, (frames.GOT, 1, LOG_B, (0, 0), 5, 6, 0))
    hand("1", kept, two)
    hand("1", kept, two)
    hand("2", _sealed(two, (frames.STANDS, 3)), one)
    broken = bytearray(_sealed(one, (frames.STANDS, 3)))
    broken[-1] ^= 1
    hand("1", bytes(broken), two)
    one.use_plan(OLD_PLAN)
    old = _sealed(one, (frames.STANDS, 3))
    hand("1", old, two)
    two.use_plan(PLAN, (OLD_PLAN,))
    hand("1", old, two)
    return {
        "master": MASTER.hex(),
        "key of 1 and 2": sessions.pair_key(MASTER, 1, 2).hex(),
        "plan": PLAN.hex(),
        "old plan": OLD_PLAN.hex(),
        "logs": [LOG_A, LOG_B],
        "boots": [4, 9],
        "first nonces": [0xA001, 0xB001],
        "steps": steps,
    }


def _encrypted() -> dict[str, Any]:
    """A boot over a link of host 1 that does not encrypt itself; host 2 hears of it by what arrives. Then
    host 1 restarts, and its first frame is lost."""
    encryption.use()
    one, two = _peers()
    steps: list[list[str]] = []

    def hand(sender: str, frame: bytes) -> None:
        to = two if sender == "1" else one
        span = to.open(frame)
        said = frames.messages(to.plain or frame, span[0], span[1], to.log, to.my_log) if span else []
        # The messages as they were written, so that each vector shows what was encrypted.
        plain = (to.plain or b"")[span[0] : span[1]].hex() if span else ""
        steps.append([sender, frame.hex(), reasons.OF_SEALS[to.why], plain])
        assert (span is not None) == (to.why == sessions.TAKEN) and bool(said) == (span is not None)

    def settle() -> None:
        while one.reply or two.reply:
            for name, peer in (("1", one), ("2", two)):
                frame = peer.take_reply()
                if frame:
                    hand(name, frame)

    assert one.hide(True)
    settle()
    first = _sealed(one, (frames.BEAT, 1, 2))
    hand("1", first)
    hand("1", first)
    hand("2", _sealed(two, (frames.STANDS, 3)))
    broken = bytearray(_sealed(one, (frames.STANDS, 3)))
    broken[-9] ^= 1
    hand("1", bytes(broken))
    hand("1", _sealed(one, (frames.CKPT, 1, (1, 2), [300, 1, 2], 150, 0, bytes(range(150)))))
    one = sessions.Peer(sessions.pair_key(MASTER, 1, 2), 1, LOG_A, 5, 2, PLAN, _Nonces(0xC000))
    assert one.hide(True) and one.take_reply()
    hand("1", _sealed(one, (frames.STANDS, 4)))  # its salt is not known yet
    settle()
    hand("1", _sealed(one, (frames.STANDS, 5)))
    key = sessions.pair_key(MASTER, 1, 2)
    ciphers = []
    for sender, log, boot, salt in ((1, LOG_A, 4, 0xA001), (2, LOG_B, 9, 0xB001), (1, LOG_A, 5, 0xC001)):
        numbers = [n.to_bytes(8, "little") for n in (sender, log, boot, salt)]
        ciphers.append([sender, log, boot, salt, hmac(key, b"headwater cipher", *numbers).hex()])
    streams = []
    for cipher_key, counter, size in ((bytes(range(32)), 0, 40), (key, 70000, 300), (key, (1 << 64) - 1, 16)):
        stream = bytearray(size)
        encryption.crypt(cipher_key, counter, memoryview(stream))
        streams.append([cipher_key.hex(), counter, stream.hex()])
    return {
        "key of 1 and 2": key.hex(),
        "plan": PLAN.hex(),
        "logs": [LOG_A, LOG_B],
        "boots": [4, 9, 5],
        "first nonces": [0xA001, 0xB001, 0xC001],
        "cipher keys": ciphers,
        "streams": streams,
        "steps": steps,
    }


def _packed() -> list[list[Any]]:
    objects: list[Any] = [
        None, True, False, 0, 127, 128, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32, (1 << 64) - 1,
        -1, -32, -33, -128, -129, -32768, -32769, -(1 << 31), -(1 << 31) - 1, -(1 << 63),
        0.0, 1.5, -2.25, "", "mV", "é" * 16, "x" * 31, "x" * 32, [], [1, [2, [3]]], list(range(16)),
        {}, {"a": 1, "b": [None]}, {"1": {"2": {"3": 4}}}, {"k%02d" % i: i for i in range(17)},
    ]  # fmt: skip
    return [[value, msgpack.dumps(value).hex()] for value in objects]


def _refused() -> dict[str, list[list[str]]]:
    """Bytes that each decoder must refuse; blocks are read with alphabet a:i16 and room for 20."""
    good = block_bytes(batch_of(_spec("a:i16", [[5, 6, 5, 9, 4]])))
    blocks = [good[:k] for k in range(len(good))]
    head = "10010000"
    blocks += [
        bytes.fromhex(h)
        for h in (
            "00010000",  # no entries
            "d0020100000000",  # 21 entries
            "1000000000",  # stream time 0
            "20ffffffffffffffffff0100000000",  # past the last stream time
            "1801000000",  # reserved flag
            "1301050100",  # irregular hole
            "2101050100",  # hole of two entries
            "1101050000",  # hole without reason
            "1101050106",  # hole from before time 0
            "900001000000",  # number not in shortest form
            head + "808004",  # 65536 / 2: above i16
            head + "ffffffffffffffffff7f",  # above 64 bits
            "20010000008000",  # unknown column head
            "2001000000000000",  # thirteen zeros
            "20010000000003",  # bits behind the last value
            "20010000004000",  # plain, cut short
            "3201000014000003",  # times that fall
            "2001ffffffffffffffffff0101000001",  # time above 64 bits
        )
    ]
    frame = _frame([(frames.STANDS, 1)])
    start = len(frame) - 2
    seal_ = bytes(8)
    refused = [frame[:k] for k in range(len(frame))] + [b"\x02" + frame[1:] + seal_]
    refused += [
        frame[:start] + bytes.fromhex(h) + seal_
        for h in (
            "00",  # no such message
            "1700",
            "1a",  # cut short
            "1a80",  # cut short inside a number
            "1a8000",  # not the shortest form
            "1affffffffffffffffff02",  # above 64 bits
            "0301040000",  # unknown incarnation code
            "03010311",  # cut short inside an incarnation
            "0d0041" + "00" * 65 + "00",  # 65 numbers in a name
            "0600000000000011" + "00" * 17 + "00",  # 17 holders
            "0e00000105",  # content longer than the frame
        )
    ]
    refused.append(frame[:start] + bytes([frames.STANDS, 0]) * (frames.MESSAGES_MAX + 1) + seal_)
    packed = """
        c1 cc05 cd00ff d005 d0e0 d0ff d1ff80 ca00000000 cf00000000ffffffff d3ffffffff80000000
        cb7ff8000000000001
        82a16201a16101 82a16101a16101 820101a16102 819001 81c301 a2c080 a3eda080 a180 a4f4908080
        d90161 da000161 dc000101 de00010101 c40561 c5000161 c70000 d40000 ddffffffff dfffffffff c6ffffffff
        9191919191919191919101 0101 a16100 c2c2
    """.split()
    small = Batch(Alphabet("a:i16"), 20)

    def read_frame(data: bytes) -> None:
        frames.messages(data, frames.header(data)[-1], len(data) - frames.TAG, LOG_A, LOG_B)

    return {
        "block": _reasons(blocks, lambda data: block.decode(data, 0, len(data), small)),
        "frame": _reasons(refused, read_frame),
        "msgpack": _reasons([b"", *map(bytes.fromhex, packed)], msgpack.loads),
    }


def _reasons(inputs: list[bytes], read: Callable[[bytes], Any]) -> list[list[str]]:
    """Each input with its reader's error."""
    out = []
    for data in inputs:
        try:
            read(data)
        except (block.BlockError, frames.FrameError, msgpack.PackError) as error:
            out.append([data.hex(), str(error)])
        else:
            raise AssertionError("taken: " + data.hex())
    return out


def vectors() -> dict[str, Any]:
    return {
        "blocks": _blocks(),
        "frames": _frames(),
        "frame header": {
            "sender": 3,
            "boot": 7,
            "counter": 70000,
            "plan": PLAN.hex(),
            "logs": [LOG_A, LOG_B],
        },
        "seals": _seals(),
        "encryption": _encrypted(),
        "msgpack": _packed(),
        "refused": _refused(),
        "bluetooth": ble_vectors.vectors(),
    }


def text() -> str:
    """The file: one line for each vector, so that a change of the format shows where."""
    out = ["{"]
    whole = vectors()
    for name, part in whole.items():
        comma = "," if name != list(whole)[-1] else ""
        if isinstance(part, list):
            lines = ",\n".join("  " + json.dumps(item) for item in part)
            out.append("%s: [\n%s\n]%s" % (json.dumps(name), lines, comma))
        else:
            out.append("%s: %s%s" % (json.dumps(name), json.dumps(part, indent=1), comma))
    return "\n".join(out) + "\n}\n"


# Fuzz


def _broken(rng: random.Random, data: bytes) -> bytes:
    """Noise, or the data with some bytes changed, cut, doubled or put in."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(80))
    b = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        what = rng.randrange(6)
        at = rng.randrange(len(b) + 1)
        if what == 0 and b:
            b[at % len(b)] ^= 1 << rng.randrange(8)
        elif what == 1 and b:
            b[at % len(b)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif what == 2:
            del b[at:]
        elif what == 3:
            del b[at : at + rng.randrange(1, 4)]
        elif what == 4:
            b[at:at] = rng.randbytes(rng.randrange(1, 9))
        else:
            b[at:at] = b[at : at + rng.randrange(1, 20)]
    return bytes(b)


def _check_batch(batch: Batch) -> None:
    """What a decoder that returned must have left: values that their types can hold."""
    assert 1 <= batch.n <= batch.size and 1 <= batch.xi and batch.xi + batch.n - 1 < 1 << 64
    assert 0 <= batch.ts and batch.ts_of(batch.n - 1) < 1 << 64 or batch.hole
    if not batch.hole:
        for kind, column in zip(batch.alphabet.types, batch.cols, strict=True):
            low, high = TYPES[kind][2:]
            assert len(column) == batch.size
            assert low is None or all(low <= v <= high for v in column[: batch.n])


def fuzz(cases: int, seed: int) -> dict[str, int]:
    """Broken bytes into every decoder; anything but the declared error escapes. -> what was accepted."""
    rng = random.Random(seed)
    good = vectors()
    batches = {spec["alphabet"]: Batch(Alphabet(spec["alphabet"]), 48) for spec in good["blocks"]}
    accepted = {"block": 0, "frame": 0, "msgpack": 0, "seal": 0, "encrypted": 0}

    def one_block() -> None:
        spec = rng.choice(good["blocks"])
        data = _broken(rng, bytes.fromhex(spec["hex"]))
        batch = batches[spec["alphabet"] if rng.random() < 0.8 else rng.choice(list(batches))]
        try:
            end = block.decode(data, 0, len(data), batch)
        except block.BlockError:
            assert batch.n == 0
            return
        assert end <= len(data)
        _check_batch(batch)
        assert block.peek(data) == (batch.xi, batch.n)
        accepted["block"] += 1

    def one_frame() -> None:
        data = _broken(rng, bytes.fromhex(rng.choice(good["frames"])["hex"]) + bytes(8))
        try:
            pos = frames.header(data)[-1]
            found = frames.messages(data, pos, len(data) - frames.TAG, LOG_A, LOG_B)
        except frames.FrameError:
            return
        for kind, *values in found:
            assert len(values) == len(frames.MESSAGES[kind])
        accepted["frame"] += 1

    def one_pack() -> None:
        data = _broken(rng, bytes.fromhex(rng.choice(good["msgpack"])[1]))
        try:
            value = msgpack.loads(data)
        except msgpack.PackError:
            return
        assert msgpack.dumps(value) == data
        accepted["msgpack"] += 1

    # One host has a session with the other and gets its frames, once each, among broken ones; the
    # other has none, and receives only frames recorded in another boot.
    one, two = _peers(1)
    frame = _sealed(one, (frames.BEAT, 1, 2))
    two.open(frame)
    one.open(two.reply)
    two.open(one.reply)
    one.open(two.reply)
    assert two.live and one.live
    former = [bytes.fromhex(step[1]) for step in good["seals"]["steps"]]
    fresh = [_sealed(one, (frames.STANDS, k)) for k in range(60)]
    recorded = former + fresh + [frame, one.reply]
    waiting = set(fresh)
    deaf = _peers(2)[0]

    def one_seal() -> None:
        data = rng.choice(recorded)
        if rng.random() < 0.8:
            data = _broken(rng, data)
        for peer in (deaf, two):
            peer.reply = None
            if peer.open(data) is not None:
                waiting.remove(data)
                accepted["seal"] += 1
            assert peer.reply is None or len(peer.reply) <= 80

    # The same where frames are encrypted.
    hidden, reader = _peers(3)
    hidden.hide(True)
    while hidden.reply or reader.reply:
        for peer, other in ((hidden, reader), (reader, hidden)):
            opening = peer.take_reply()
            if opening:
                other.open(opening)
    encrypted = [_sealed(hidden, (frames.STANDS, k)) for k in range(60)]
    unread = set(encrypted)
    former = [bytes.fromhex(step[1]) for step in good["encryption"]["steps"]]

    def one_encrypted() -> None:
        data = rng.choice(encrypted + former)
        if rng.random() < 0.8:
            data = _broken(rng, data)
        for peer in (deaf, reader):
            peer.reply = None
            span = peer.open(data)
            if span is not None:
                unread.remove(data)
                [message] = frames.messages(peer.plain, span[0], span[1], peer.log, peer.my_log)
                assert message == (frames.STANDS, encrypted.index(data))
                accepted["encrypted"] += 1
            assert peer.reply is None or len(peer.reply) <= 80

    turns: tuple[Callable[[], None], ...] = (one_block, one_frame, one_pack, one_seal, one_encrypted)
    for case in range(cases):
        turns[case % len(turns)]()
    assert not deaf.live, "nobody answered its nonce, and yet a session is open"
    return accepted


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m headwater_tools.proof.wire_vectors", description=SUMMARY)
    parser.add_argument("--check", action="store_true", help="compare the file with what the code writes")
    parser.add_argument("--fuzz", type=int, metavar="N", help="feed N broken inputs to the decoders")
    parser.add_argument("--seed", type=int, default=1, help="of the fuzz run")
    args = parser.parse_args()
    if args.fuzz is not None:
        print("%d cases of seed %d; accepted: %s" % (args.fuzz, args.seed, fuzz(args.fuzz, args.seed)))
        return 0
    name = Path(PATH).relative_to(ROOT)
    if args.check:
        same = PATH.exists() and PATH.read_text() == text()
        print("%s %s" % (name, "holds what the code writes" if same else "differs from what the code writes"))
        return 0 if same else 1
    PATH.write_text(text())
    print("wrote %s" % name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
