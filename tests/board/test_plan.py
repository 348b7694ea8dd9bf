# Plans as a board loads them.

import json

from headwater.data import msgpack
from headwater.plan import model, reader
from headwater.plan.model import PlanError


def golden():
    with open("tests/data/plans.json") as f:
        return json.load(f)


def refused(data):
    try:
        model.loads(data)
    except PlanError as e:
        return str(e)
    raise AssertionError("a malformed plan was taken")


def test_golden_plans_load_with_their_hash():
    seen = 0
    plans = golden()
    for name in sorted(plans):
        p = model.loads(bytes.fromhex(plans[name]["plan"]))
        assert p.name == name
        assert p.hash == bytes.fromhex(plans[name]["hash"])
        assert p.process_hash == bytes.fromhex(plans[name]["process_hash"])
        assert p.deployment == 0
        p = model.loads(reader.numbered(bytes.fromhex(plans[name]["plan"]), 7))
        assert p.hash == bytes.fromhex(plans[name]["hash_as_7"])
        assert p.process_hash == bytes.fromhex(plans[name]["process_hash"])
        assert p.deployment == 7
        assert p.order == tuple(range(len(p.vertices)))
        seen += 1
    assert seen == 4


def test_sp1_is_what_its_author_wrote():
    p = model.loads(bytes.fromhex(golden()["sp1"]["plan"]))
    assert [v.name for v in p.vertices] == ["ecg", "clean", "beats"]
    assert [v.kind for v in p.vertices] == ["", "Fir", "Qrs"]
    assert [v.hosts[0] for v in p.vertices] == [1, 1, 1]
    assert p.hosts[0] == "gateway"
    assert p.vertices[0].rate_mhz == 360000
    assert p.vertices[1].ins[0].text == "mV:i16"
    assert [(e.src, e.dst) for e in p.edges] == [(0, 1), (0, model.OUTSIDE), (1, 2), (2, model.OUTSIDE)]
    assert [e.dst for e in p.outs(0, 0)] == [1, model.OUTSIDE]
    assert [e.src for e in p.ins(2)] == [1]
    assert p.strategy == model.ECOC
    assert p.every == 500


def test_only_edges_of_the_loop_are_cyclic():
    p = model.loads(bytes.fromhex(golden()["sp3"]["plan"]))
    names = [v.name for v in p.vertices]
    loop = [names[e.src] for e in p.edges if e.cyclic]
    assert loop == ["calm_left", "sum", "average"]
    back = [e for e in p.edges if e.delay_us]
    assert [(names[e.src], names[e.dst], e.dport, e.delay_us) for e in back] == [
        ("average", "calm_left", 1, 10000000)
    ]


def test_a_plan_cut_short_is_refused_at_every_byte():
    data = bytes.fromhex(golden()["sp1"]["plan"])
    for n in range(len(data)):
        assert refused(data[:n])


def test_a_plan_with_any_byte_changed_is_a_plan_or_an_error():
    data = bytearray(bytes.fromhex(golden()["sp2"]["plan"]))
    errors = 0
    for i in range(len(data)):
        for flip in (1, 0x10, 0x80, 0xFF):
            data[i] ^= flip
            try:
                model.loads(data)
            except PlanError:
                errors += 1
            data[i] ^= flip
    assert errors > len(data)


def test_lengths_larger_than_the_plan_reserve_nothing():
    assert refused(b"\xdd\xff\xff\xff\xff")
    assert refused(b"\x94\x02\xc6\xff\xff\xff\xff")
    assert refused(msgpack.dumps([2, b"\xdd\x7f\xff\xff\xff" + bytes(9), [], 0]))


def test_an_error_says_what_and_where():
    process = msgpack.loads(msgpack.loads(bytes.fromhex(golden()["sp1"]["plan"]))[1])
    process[9][0][5] = 0
    assert (
        refused(msgpack.dumps([2, msgpack.dumps(process), [[1], [1], [1]], 0])) == "plan: cap of edge 0 is 0"
    )


def test_the_number_of_a_deployment_is_an_integer_that_a_database_can_hold():
    data = bytes.fromhex(golden()["sp1"]["plan"])
    for number in (0, 1, 1 << 40, (1 << 63) - 1):
        assert model.loads(reader.numbered(data, number)).deployment == number
    for number in (-1, 1 << 63, True, None, "1"):
        assert refused(reader.numbered(data, number)).startswith("plan: deployment of plan is ")


def test_every_number_is_another_deployment_of_the_same_process():
    data = bytes.fromhex(golden()["sp1"]["plan"])
    seen = [model.loads(reader.numbered(data, n)).hash for n in (0, 1, 2, 255, 256, 1 << 40)]
    assert len(set(seen)) == len(seen)
    assert reader.alike(data, reader.numbered(data, 9))
    assert not reader.alike(data, bytes.fromhex(golden()["sp2"]["plan"]))
