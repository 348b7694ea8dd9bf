# msgpack in one form: equal objects give equal bytes, and nothing else is read. Both interpreters.

from headwater.data.msgpack import DEPTH_MAX, PackError, dumps, loads
from headwater.testing.vectors import part

VECTORS = "tests/data/wire_vectors.json"


# What loads says to the data, or "" where it takes them.
def refused(data):
    try:
        loads(data)
        return ""
    except PackError as e:
        return e.args[0]


def unpackable(obj):
    try:
        dumps(obj)
        return False
    except PackError:
        return True


def test_golden_objects_are_written_and_read():
    for obj, text in part(VECTORS, "msgpack"):
        assert dumps(obj) == bytes.fromhex(text), text
        back = loads(bytes.fromhex(text))
        assert back == obj and type(back) is type(obj), text


def test_every_other_form_of_the_vectors_is_refused_for_its_reason():
    for text, reason in part(VECTORS, "refused")["msgpack"]:
        assert refused(bytes.fromhex(text)) == reason, text


def test_bytes_stay_bytes_and_tuples_become_lists():
    assert loads(dumps(b"ab")) == b"ab"
    assert loads(dumps(memoryview(b"abc")[1:])) == b"bc"
    assert loads(dumps((1, (2,)))) == [1, [2]]
    assert dumps(bytes(256)) == b"\xc5\x01\x00" + bytes(256)


def test_keys_are_written_in_ascending_order():
    assert dumps({"b": 1, "a": 2, "aa": 3}) == b"\x83\xa1a\x02\xa2aa\x03\xa1b\x01"
    assert dumps({300: 1, -5: 2, 7: 3}) == b"\x83\xfb\x02\x07\x03\xcd\x01\x2c\x01"


def test_what_has_no_canonical_form_is_not_written():
    for obj in ({1: 1, "a": 2}, {b"a": 1}, {True: 1}, {None: 1}, 1 << 64, -(1 << 63) - 1, object()):
        assert unpackable(obj)


def test_nesting_ends_at_the_limit_on_both_sides():
    deep = 1
    for _ in range(DEPTH_MAX):
        deep = [deep]
    assert loads(dumps(deep)) == deep
    assert unpackable([deep])
    assert unpackable({"a": deep})
    assert refused(b"\x91" + dumps(deep))


def test_lengths_beyond_the_data_are_refused_before_anything_is_made():
    for head in (b"\xdd", b"\xdf", b"\xdb", b"\xc6"):
        assert refused(head + b"\x7f\xff\xff\xff" + bytes(20))


def test_a_packed_object_cut_anywhere_or_followed_by_anything_is_refused():
    data = dumps({"name": "ecg", "at": [1, 300, -70000, 1.5, None, True], "raw": b"\x00\x01"})
    for k in range(len(data)):
        assert refused(data[:k])
    assert refused(data + b"\xc0")


def test_all_nans_are_one():
    nan = float("nan")
    assert dumps(nan) == dumps(-nan) == b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"
    back = loads(dumps(nan))
    assert back != back
