# Seals: who sent a frame, and that it is new. Both interpreters. Hostile histories: tests/unit.

from headwater.offboard import reasons
from headwater.protocol import frames, sessions
from headwater.protocol.sessions import Peer, hmac, pair_key
from headwater.testing.vectors import part

VECTORS = "tests/data/wire_vectors.json"

PLAN = b"thisplan"
OLD = b"old plan"
LIKE = b"thatplan"  # begins with the same two bytes as PLAN


class Nonces:
    def __init__(self, first):
        self.next = first

    def __call__(self):
        self.next += 1
        return self.next


def pair():
    key = pair_key(bytes(32), 1, 2)
    return Peer(key, 1, 11, 1, 2, PLAN, Nonces(100)), Peer(key, 2, 22, 1, 1, PLAN, Nonces(200))


def sealed(peer, value=0):
    w = frames.Writer(100)
    peer.begin(w)
    w.put(frames.STANDS, value)
    return bytes(peer.seal(w))


def settle(a, b):
    turns = 0
    while a.reply or b.reply:
        for x, y in ((a, b), (b, a)):
            frame = x.reply
            x.reply = None
            if frame:
                y.open(frame)
                turns += 1
        assert turns < 8
    assert a.live and b.live


def session():
    a, b = pair()
    sealed(a)
    settle(a, b)
    return a, b


def test_hmac_gives_the_published_values():
    # RFC 4231, cases 1, 2 and 6
    assert hmac(b"\x0b" * 20, b"Hi ", b"There") == bytes.fromhex(
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
    )
    assert hmac(b"Jefe", b"what do ya want for nothing?") == bytes.fromhex(
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    )
    assert hmac(b"\xaa" * 131, b"Test Using Larger Than Block-Size Key - Hash Key First") == bytes.fromhex(
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
    )


def test_a_pair_has_one_key_and_every_pair_another():
    master = bytes(range(32))
    assert pair_key(master, 3, 70) == pair_key(master, 70, 3)
    keys = [pair_key(master, a, b) for a in range(4) for b in range(a, 4)]
    assert len(set(keys)) == 10 and len(keys[0]) == 32


def test_golden_life_is_lived_byte_for_byte():
    life = part(VECTORS, "seals")
    key = pair_key(bytes.fromhex(life["master"]), 1, 2)
    assert key == bytes.fromhex(life["key of 1 and 2"])
    plan = bytes.fromhex(life["plan"])
    hosts = {}
    for k, name in ((0, "1"), (1, "2")):
        first = life["first nonces"][k]
        hosts[name] = Peer(key, k + 1, life["logs"][k], life["boots"][k], 2 - k, plan, Nonces(first - 1))
    opened = 0
    for at, (sender, text, reason) in enumerate(life["steps"]):
        frame = bytes.fromhex(text)
        to = hosts["2" if sender == "1" else "1"]
        if at == 0:
            w = frames.Writer(100)
            hosts["1"].begin(w)
            w.put(frames.BEAT, 1, 2)
            assert hosts["1"].seal(w) == frame
        if frame[0] & frames.OPENING:
            # Opening frames are made by the code under test, and must be the very same bytes.
            opened += 1
            assert hosts[sender].reply == frame
            hosts[sender].reply = None
        if reason == "of an earlier plan":
            to.use_plan(plan, (bytes.fromhex(life["old plan"]),))
        taken = to.open(frame)
        assert reasons.OF_SEALS[to.why] == reason, at
        assert (taken is not None) == (reason == "taken")
    assert opened == 3


def test_a_sealed_frame_is_taken_once():
    a, b = session()
    frame = sealed(a, 7)
    pos, end = b.open(frame)
    assert frames.messages(frame, pos, end, b.log, b.my_log) == [(frames.STANDS, 7)]
    assert b.open(frame) is None and b.why == sessions.REPLAY and b.reply is None
    assert b.counts[sessions.REPLAY] == 1


def test_every_changed_bit_is_refused():
    a, b = session()
    frame = sealed(a, 7)
    for k in range(8 * len(frame)):
        broken = bytearray(frame)
        broken[k >> 3] ^= 1 << (k & 7)
        assert b.open(broken) is None
    assert b.open(frame)


def test_frames_may_arrive_in_another_order_within_the_window():
    a, b = session()
    frames = [sealed(a, k) for k in range(70)]
    for k in (69, 6, 40, 68, 7):
        assert b.open(frames[k]), k
    for k in (5, 0, 6, 40):  # 5 lies 64 behind the highest
        assert b.open(frames[k]) is None and b.why == sessions.REPLAY


def test_a_jump_of_the_counter_costs_nothing():
    a, b = session()
    old = sealed(a)
    a.counter += 1 << 60
    assert b.open(sealed(a))
    assert b.open(old) is None and b.why == sessions.REPLAY
    assert b.open(sealed(a))


def test_a_frame_of_the_other_end_or_of_ourselves_is_no_frame_of_the_peer():
    a, b = session()
    frame = sealed(a)
    assert a.open(frame) is None and a.why == sessions.STRANGER
    assert b.open(b"") is None and b.why == sessions.MALFORMED


def test_a_seal_of_another_key_or_plan_or_log_is_refused():
    a, b = session()
    for change in ("key", "plan", "log"):
        x = Peer(
            pair_key(bytes(32), 1, 3 if change == "key" else 2),
            1,
            12 if change == "log" else 11,
            2,
            2,
            PLAN[:2] + b"others" if change == "plan" else PLAN,
            Nonces(300),
        )
        assert b.open(sealed(x)) is None and b.why == sessions.FORGED, change
        assert b.reply is None


def test_frames_of_another_plan_are_told_apart():
    a, b = session()
    a.use_plan(OLD)
    assert b.open(sealed(a)) is None and b.why == sessions.OTHER_PLAN
    b.use_plan(b"newplan.", (OLD,))
    frame = sealed(a, 9)
    assert b.open(frame) is None and b.why == sessions.OLD_PLAN
    pos, end = b.span
    assert frames.messages(frame, pos, end, b.log, b.my_log) == [(frames.STANDS, 9)]
    assert b.open(frame) is None and b.why == sessions.REPLAY and b.span is None
    a.use_plan(b"newplan.")
    assert b.open(sealed(a))


def test_plans_whose_shortened_hashes_agree_are_still_told_apart():
    a, b = session()
    a.use_plan(LIKE)
    assert b.open(sealed(a)) is None and b.why == sessions.FORGED
    b.use_plan(PLAN, (OLD, LIKE))
    assert b.open(sealed(a)) is None and b.why == sessions.OLD_PLAN


def test_a_higher_boot_opens_a_session_and_a_lower_one_is_refused():
    a, b = session()
    key = pair_key(bytes(32), 1, 2)
    last = sealed(a)
    again = Peer(key, 1, 11, 2, 2, PLAN, Nonces(300))
    first = sealed(again)
    assert b.open(first) and b.boot == 2
    assert b.open(last) is None and b.why == sessions.OLD_BOOT
    assert b.open(first) is None and b.why == sessions.REPLAY
    settle(again, b)
    assert again.open(sealed(b)) and b.open(sealed(again))
