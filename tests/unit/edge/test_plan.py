"""Plans: golden bytes, equal bytes both ways, and a decoder that nothing surprises."""

import json
from pathlib import Path

import pytest
import strategies
from headwater.data import msgpack
from headwater.plan import model as plans
from headwater.plan import reader
from headwater.plan.model import PlanError
from headwater.process.builder import dumps
from headwater.process.check import check
from headwater_tools.process_file import example, load
from headwater_tools.simulator.random_process import random_process
from hypothesis import example as case
from hypothesis import given

GOLDEN = json.loads(Path("tests/data/plans.json").read_text())
SP1 = bytes.fromhex(GOLDEN["sp1"]["plan"])


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_examples_have_their_golden_plans(name):
    process = load(example(name))
    assert process.encode().hex() == GOLDEN[name]["plan"]
    plan = process.plan()
    assert (plan.hash.hex(), plan.process_hash.hex()) == (GOLDEN[name]["hash"], GOLDEN[name]["process_hash"])
    seventh = reader.numbered(process.encode(), 7)
    assert plans.loads(seventh).hash.hex() == GOLDEN[name]["hash_as_7"]


@pytest.mark.parametrize("name", ["sp1", "sp2", "sp3", "sp4", "diamond", "cardio"])
def test_the_examples_pass_the_check_without_a_warning(name):
    assert [str(p) for p in check(load(example(name))).problems] == []


def test_300_random_processes_are_valid_and_of_every_kind():
    seen = set()
    for seed in range(300):
        report = check(random_process(seed))
        assert [str(p) for p in report.errors()] == [], "seed %d" % seed
        plan = report.decoded
        seen.add(reader.STRATEGIES[plan.strategy])
        seen.add(reader.LEVELS[plan.level])
        seen |= {v.kind for v in plan.vertices}
        seen |= {reader.DURABLE[e.durable] for e in plan.edges if e.lake}
        seen |= {"feedback" for e in plan.edges if e.delay_us}
        seen |= {"spill" for e in plan.edges if e.policy == plans.SPILL}
        seen |= {"irregular" for v in plan.vertices if not v.kind and not v.rate_mhz}
        seen |= {"on the gateway" for v in plan.vertices if v.kind and v.hosts[0] == 0}
    assert seen >= {
        "uncoordinated",
        "ecoc",
        "extended",
        "local",
        "peer",
        "peers=2",
        "flash",
        "gateway",
        "lake",
    }
    assert seen >= {
        "feedback",
        "spill",
        "irregular",
        "on the gateway",
        "SumJoin",
        "Union",
        "Hold",
        "Attenuate",
    }


@given(strategies.processes())
def test_a_plan_decodes_and_encodes_to_the_same_bytes(process):
    data = process.encode()
    assert dumps(plans.loads(data)) == data


@given(strategies.processes())
def test_producers_come_first_and_every_port_fits(process):
    plan = process.plan()
    assert plan.order == tuple(range(len(plan.vertices)))
    for e in plan.edges:
        assert e.src < e.dst or e.delay_us or e.dst == plans.OUTSIDE
        if e.dst != plans.OUTSIDE:
            assert plan.vertices[e.src].outs[e.sport] == plan.vertices[e.dst].ins[e.dport]


def closed(plan, edge):
    """Whether an edge lies on a cycle, by going round from it."""
    seen, todo = set(), [edge.dst]
    while todo:
        v = todo.pop()
        if v not in seen and v != plans.OUTSIDE:
            seen.add(v)
            todo += [e.dst for e in plan.edges if e.src == v]
    return edge.src in seen


@given(strategies.processes())
def test_an_edge_is_cyclic_where_it_lies_on_a_cycle(process):
    plan = process.plan()
    assert [e.cyclic for e in plan.edges] == [closed(plan, e) for e in plan.edges]


def survives(data):
    try:
        plan = plans.loads(data)
    except PlanError:
        return
    again = dumps(plan)
    assert dumps(plans.loads(again)) == again


@case(b"")
@given(strategies.st.binary(max_size=64))
def test_any_bytes_give_a_plan_or_one_error(data):
    survives(data)


@given(strategies.mutations(SP1))
def test_mutated_plans_give_a_plan_or_one_error(data):
    survives(data)


@given(strategies.mutations(msgpack.loads(SP1)[1]))
def test_mutated_processes_give_a_plan_or_one_error(process):
    form, _, placement, number = msgpack.loads(SP1)
    survives(msgpack.dumps([form, process, placement, number]))


# What a value may be replaced with: other types, out of range, too large.
ODD = [None, True, -1, -2, 0, 1, 2, 255, 1 << 40, 1.5, "", "x", "a/b", b"x", [], [0], {}, {"x": 1}]


def test_no_value_anywhere_in_a_plan_may_be_of_another_type():
    form, process, placement, number = msgpack.loads(SP1)
    process = msgpack.loads(process)
    count = 0

    def places(obj):
        for i in range(len(obj)) if isinstance(obj, list) else sorted(obj):
            yield obj, i
            if isinstance(obj[i], (list, dict)):
                yield from places(obj[i])

    for holder, i in list(places(process)):
        old = holder[i]
        for odd in ODD:
            holder[i] = odd
            survives(msgpack.dumps([form, msgpack.dumps(process), placement, number]))
            count += 1
        holder[i] = old
    for holder, i in list(places(placement)):
        old = holder[i]
        for odd in ODD:
            holder[i] = odd
            survives(msgpack.dumps([form, msgpack.dumps(process), placement, number]))
            count += 1
        holder[i] = old
    assert count > 1000


def change(**values):
    """SP1's plan with some fields of its process changed."""
    form, process, placement, number = msgpack.loads(SP1)
    fields = ["name", "strategy", "every", "level", "batch", "batch_ms", "hosts", "texts", "rows", "links"]
    process = dict(zip(fields, msgpack.loads(process)))
    for name, value in values.items():
        if name == "placement":
            placement = value(placement)
        else:
            process[name] = value(process[name])
    return msgpack.dumps([form, msgpack.dumps([process[name] for name in fields]), placement, number])


def edge(i, field, value):
    def apply(links):
        links[i][field] = value
        return links

    return apply


@pytest.mark.parametrize(
    "values, what",
    [
        ({"strategy": lambda v: 4}, "strategy of process"),
        ({"every": lambda v: 0}, "every of process"),
        ({"batch": lambda v: True}, "batch of process"),
        ({"hosts": lambda v: v + v[:1]}, "host of process"),
        ({"texts": lambda v: v + ["v:i17"]}, "unknown type 'i17'"),
        ({"rows": lambda v: v + [v[-1]]}, "placement of process"),
        ({"rows": lambda v: v[:-1] + v[:1]}, "name of vertex 2"),
        ({"links": lambda v: v[1:]}, "input port of vertex 1"),
        ({"links": lambda v: v + v[:1]}, "input port of edge"),
        ({"links": lambda v: v + v[1:2]}, "lake of edge"),
        ({"links": edge(0, 0, 3)}, "src of edge 0"),
        ({"links": edge(0, 1, 1)}, "sport of edge 0"),
        ({"links": edge(0, 2, 0)}, "dport of edge 0"),
        ({"links": edge(0, 5, 0)}, "cap of edge 0"),
        ({"links": edge(0, 6, 2)}, "policy of edge 0"),
        ({"links": edge(0, 7, "x")}, "lake of edge 0"),
        ({"links": edge(2, 2, 1)}, "order of edge 2"),
        ({"placement": lambda v: v[1:]}, "placement of process"),
        ({"placement": lambda v: [[0, 0]] + v[1:]}, "hosts of vertex 0"),
        ({"placement": lambda v: [[9]] + v[1:]}, "host of vertex 0"),
    ],
)
def test_a_malformed_plan_is_refused_in_words(values, what):
    with pytest.raises(PlanError, match="plan: .*" + what if "unknown" not in what else what):
        plans.loads(change(**values))


def test_a_plan_of_another_format_is_refused():
    with pytest.raises(PlanError, match="format 1; this runtime knows 2"):
        plans.loads(msgpack.dumps([1, b"", []]))


def test_a_plan_is_no_longer_than_a_board_takes():
    with pytest.raises(PlanError, match="16385 bytes; at most 16384"):
        plans.loads(bytes(16385))


def test_trees_deeper_than_lists_may_be_survive_the_plan():
    process = random_process(1)
    plan = process.plan()
    tree = ["list", "x"]
    for i in range(15):
        tree = ["+", tree, i]
    plan.vertices[-1].params["test"] = tree
    assert plans.loads(dumps(plan)).vertices[-1].params["test"] == tree


@pytest.mark.parametrize(
    "flat", [[False], [False, 2, 1], [False, -1], [False, 1.5], [True], [None], [False, 1, False]]
)
def test_a_tree_that_does_not_end_is_refused(flat):
    rows = lambda v: [v[0], v[1][:3] + [{"coeffs": flat}] + v[1][4:], v[2]]  # noqa: E731
    with pytest.raises(PlanError):
        plans.loads(change(rows=rows))


def test_a_tree_without_bottom_is_refused():
    rows = lambda v: [v[0], v[1][:3] + [{"coeffs": [False, 1] * 50 + [1]}] + v[1][4:], v[2]]  # noqa: E731
    with pytest.raises(PlanError, match="a list that does not end"):
        plans.loads(change(rows=rows))
