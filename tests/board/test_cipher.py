# Encryption of frames. Both interpreters. Hostile histories: tests/unit/edge/test_cipher_scenarios.py.

from headwater.board.native import BOARD
from headwater.offboard import reasons
from headwater.protocol import cipher, frames, sessions
from headwater.protocol.sessions import Peer, hmac, pair_key
from headwater.testing.vectors import part

VECTORS = "tests/data/wire_vectors.json"

if not BOARD:
    from headwater.offboard import encryption

    encryption.use()

PLAN = b"thisplan"
KEY = pair_key(bytes(32), 1, 2)


class Nonces:
    def __init__(self, first):
        self.next = first

    def __call__(self):
        self.next += 1
        return self.next


def pair(boot=1):
    return Peer(KEY, 1, 11, boot, 2, PLAN, Nonces(100 * boot)), Peer(KEY, 2, 22, 1, 1, PLAN, Nonces(5000))


def sealed(peer, value=0):
    w = frames.Writer(100)
    peer.begin(w)
    w.put(frames.STANDS, value)
    return bytes(peer.seal(w))


def settle(a, b):
    turns = 0
    while a.reply or b.reply:
        for x, y in ((a, b), (b, a)):
            frame = x.take_reply()
            if frame:
                assert cipher.covered(frame)
                y.open(frame)
                turns += 1
        assert turns < 8


# Host a's link does not encrypt itself; host b does not know that.
def session():
    a, b = pair()
    assert a.hide(True)
    settle(a, b)
    assert a.live and b.live
    return a, b


def messages(peer, frame, span):
    return frames.messages(peer.plain or frame, span[0], span[1], peer.log, peer.my_log)


def test_the_stream_is_that_of_the_golden_vectors():
    for key, counter, stream in part(VECTORS, "encryption")["streams"]:
        size = len(stream) // 2
        mem = bytearray(size + 2)
        cipher._aes[0](bytes.fromhex(key), counter, memoryview(mem)[1 : size + 1])
        assert mem[1 : size + 1] == bytes.fromhex(stream)
        assert mem[0] == mem[size + 1] == 0


def test_cipher_keys_are_those_of_the_golden_vectors():
    golden = part(VECTORS, "encryption")
    key = bytes.fromhex(golden["key of 1 and 2"])
    peer = Peer(key, 1, 11, 1, 2, PLAN, Nonces(1))
    found = []
    for sender, log, boot, salt, wanted in golden["cipher keys"]:
        assert cipher.key_of(peer, sender, log, boot, salt.to_bytes(8, "little")) == bytes.fromhex(wanted)
        found.append(wanted)
    assert len(set(found)) == len(found) == 3


def test_golden_life_is_lived_byte_for_byte():
    life = part(VECTORS, "encryption")
    key = bytes.fromhex(life["key of 1 and 2"])
    plan = bytes.fromhex(life["plan"])
    boots = life["boots"]
    nonces = life["first nonces"]
    one = Peer(key, 1, life["logs"][0], boots[0], 2, plan, Nonces(nonces[0] - 1))
    two = Peer(key, 2, life["logs"][1], boots[1], 1, plan, Nonces(nonces[1] - 1))
    one.hide(True)
    plains = {}
    for at, (sender, text, reason, plain) in enumerate(life["steps"]):
        frame = bytes.fromhex(text)
        if frame[2] == boots[2] and one.my_boot == boots[0] and sender == "1":
            one = Peer(key, 1, life["logs"][0], boots[2], 2, plan, Nonces(nonces[2] - 1))
            one.hide(True)
            one.take_reply()
        frm, to = (one, two) if sender == "1" else (two, one)
        if frame[0] & frames.OPENING:
            assert frm.take_reply() == frame, at
        elif reason == "taken" or reason.startswith("encrypted"):
            # Made by the code under test, and the very same bytes.
            frm.counter = frame[3] - 1
            w = frames.Writer(256)
            frm.begin(w)
            body = bytes.fromhex(plain or "1a04")
            w.mem[w.pos : w.pos + len(body)] = body
            w.pos += len(body)
            assert frm.seal(w) == frame, at
        span = to.open(frame)
        assert reasons.OF_SEALS[to.why] == reason, at
        if span:
            assert to.plain[span[0] : span[1]] == bytes.fromhex(plain)
            plains[at] = messages(to, frame, span)
    assert len(plains) == 4


def test_an_encrypted_frame_is_read_and_shows_nothing():
    a, b = session()
    frame = sealed(a, 0x5A5A)
    assert frame[0] == frames.VERSION | frames.ENCRYPTED | frames.BARE
    clear = frames.Writer(100)
    a.begin(clear)
    clear.put(frames.STANDS, 0x5A5A)
    assert bytes(clear.view())[6:] not in frame
    assert messages(b, frame, b.open(frame)) == [(frames.STANDS, 0x5A5A)]
    # The other direction: host b has learned from the frames that came that it has to.
    answer = sealed(b, 0x5A5A)
    assert answer[0] == frames.VERSION | frames.ENCRYPTED
    assert messages(a, answer, a.open(answer)) == [(frames.STANDS, 0x5A5A)]
    assert answer[6:-8] != frame[6:-8]


def test_a_frame_that_can_be_written_to_is_decrypted_where_it_lies():
    a, b = session()
    frame = bytearray(sealed(a, 77))
    span = b.open(memoryview(frame))
    assert b.plain is None
    assert messages(b, frame, span) == [(frames.STANDS, 77)]


def test_equal_messages_never_look_equal():
    a, b = session()
    seen = set()
    for boot in (2, 3, 4):
        for _ in range(20):
            frame = sealed(a, 1)
            seen.add(frame[6:-8])
            assert b.open(frame)
        a = pair(boot)[0]
        a.hide(True)
        settle(a, b)
    assert len(seen) == 60


def test_a_frame_that_was_changed_or_cut_or_came_twice_changes_nothing():
    a, b = session()
    frame = sealed(a, 7)
    for k in range(8 * len(frame)):
        broken = bytearray(frame)
        broken[k >> 3] ^= 1 << (k & 7)
        kept = bytes(broken)
        assert b.open(broken) is None and broken == kept
    for k in range(len(frame)):
        assert b.open(frame[:k]) is None
    assert b.open(frame)
    assert b.open(frame) is None and b.why == sessions.REPLAY and b.plain is None


def test_a_frame_is_encrypted_once():
    a, b = session()
    w = frames.Writer(100)
    a.begin(w)
    w.put(frames.STANDS, 1)
    a.seal(w)
    try:
        a.seal(w)
        raise AssertionError("the stream was put over the messages again, which shows them")
    except ValueError:
        pass


def test_without_encryption_frames_are_what_they_were():
    a, b = pair()
    sealed(a)
    settle(a, b)
    assert a.cipher is None and b.cipher is None
    frame = sealed(a, 3)
    assert frame[0] == frames.VERSION and not cipher.covered(frame)
    assert b.open(frame) and b.plain is None


def test_the_neighbour_follows_and_goes_back():
    a, b = session()
    late = sealed(b)
    assert late[0] & frames.ENCRYPTED
    a.hide(False)
    assert a.open(late)  # it was on its way: no reason for host a to go on with it
    frame = sealed(a)
    assert not frame[0] & frames.ENCRYPTED  # over a link that encrypts itself
    assert b.open(frame)
    assert not sealed(b)[0] & frames.ENCRYPTED
    # And again: nothing has to be learned.
    a.hide(True)
    frame = sealed(a, 8)
    assert a.reply is None
    assert messages(b, frame, b.open(frame)) == [(frames.STANDS, 8)]
    assert sealed(b)[0] & frames.ENCRYPTED


def test_a_link_that_changes_under_a_session_loses_nothing_that_comes_after_the_opening_frame():
    a, b = pair()
    sealed(a)
    settle(a, b)
    a.hide(True)
    settle(a, b)
    for x, y in ((a, b), (b, a), (a, b)):
        frame = sealed(x, 5)
        assert messages(y, frame, y.open(frame)) == [(frames.STANDS, 5)]


def test_a_salt_that_was_lost_is_asked_for():
    a, b = pair()
    sealed(a)
    settle(a, b)
    a.hide(True)
    a.take_reply()  # it is lost
    frame = sealed(a, 5)
    assert b.open(frame) is None and b.why == sessions.UNREAD
    settle(a, b)
    frame = sealed(a, 6)
    assert messages(b, frame, b.open(frame)) == [(frames.STANDS, 6)]
    frame = sealed(b, 7)
    assert messages(a, frame, a.open(frame)) == [(frames.STANDS, 7)]


def test_frames_of_an_earlier_plan_are_read_too():
    a, b = session()
    a.use_plan(b"old plan")
    b.use_plan(PLAN, (b"old plan",))
    frame = sealed(a, 9)
    assert b.open(frame) is None and b.why == sessions.OLD_PLAN
    assert messages(b, frame, b.span) == [(frames.STANDS, 9)]


def test_a_cipher_key_is_a_hash_of_all_that_it_belongs_to():
    peer = pair()[0]
    salt = b"12345678"
    keys = [cipher.key_of(peer, 1, 11, 1, salt)]
    text = b"headwater cipher" + b"".join([n.to_bytes(8, "little") for n in (1, 11, 1)]) + salt
    assert keys[0] == hmac(KEY, text)
    for sender, log, boot, other in (
        (2, 11, 1, salt),
        (1, 12, 1, salt),
        (1, 11, 2, salt),
        (1, 11, 1, b"1234567_"),
    ):
        keys.append(cipher.key_of(peer, sender, log, boot, other))
    assert len(set(keys)) == 5 and KEY not in keys


def test_only_covered_frames_pass_a_link_that_does_not_encrypt_itself():
    a, b = pair()
    frame = sealed(a)
    assert not cipher.covered(frame) and not cipher.covered(b"")
    assert cipher.covered(a.take_reply())
    a.hide(True)
    assert cipher.covered(sealed(a)) and cipher.covered(a.take_reply())
