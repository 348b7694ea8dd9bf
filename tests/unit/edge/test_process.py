"""The builder: sentences become vertices and edges."""

import pytest
from headwater.plan import model as plans
from headwater.process import Process, ProcessError, operator
from headwater.runtime.operator import Operator
from headwater_tools.simulator.random_process import random_process


class Half(Operator):
    IN = ("v:i16",)
    OUT = ("low:i16", "high:i16")
    PARAMS = "limit:i16=5"

    def run(self, x, n):
        return n


class Same(Operator):
    ONE_TO_ONE = True
    PARAMS = "gain:i16=1 name:text="

    @classmethod
    def ports(cls, ins, params):
        return ins, ins[:1]

    def run(self, x, n):
        return n


HALF, SAME = operator(Half), operator(Same)


def start(**settings):
    p = Process("p", checkpoints="extended", every=100, batch=10, **settings)
    return p, p.source("s", "v:i16", rate_hz=10, on="a")


def edges(p):
    plan = p.plan()
    names = [v.name for v in plan.vertices] + ["lake"]
    return [
        "%s.%d -> %s.%d" % (names[e.src], e.sport, names[e.dst], e.dport) + (" " + e.lake if e.lake else "")
        for e in plan.edges
    ]


def test_a_stream_flows_through_a_chain_of_operators():
    p, s = start()
    p.lake("out", s >> SAME() >> SAME(gain=2).named("two") >> SAME)
    assert edges(p) == ["s.0 -> same.0", "same.0 -> two.0", "two.0 -> same2.0", "same2.0 -> lake.0 out"]


def test_an_operator_is_called_with_its_inputs_in_order():
    p, s = start()
    t = p.source("t", "v:i16", rate_hz=10, on="b")
    p.lake("out", SAME()(s, t))
    assert edges(p) == ["s.0 -> same.0", "t.0 -> same.1", "same.0 -> lake.0 out"]


def test_outputs_are_taken_by_number_or_unpacked():
    p, s = start()
    low, high = s >> HALF()
    p.lake("low", low)
    p.lake("high", high >> SAME())
    p.lake("again", low.out(1))
    assert edges(p) == [
        "s.0 -> half.0",
        "half.0 -> lake.0 low",
        "half.1 -> same.0",
        "half.1 -> lake.0 again",
        "same.0 -> lake.0 high",
    ]


def test_a_port_feeds_many_and_a_specification_makes_a_vertex_each_time():
    p, s = start()
    same = SAME(gain=3)
    p.lake("one", s >> same)
    p.lake("two", s >> same)
    assert edges(p) == [
        "s.0 -> same.0",
        "s.0 -> same2.0",
        "same.0 -> lake.0 one",
        "same2.0 -> lake.0 two",
    ]


def test_parameters_stand_in_the_plan_by_name_without_their_defaults():
    p, s = start()
    p.lake("out", s >> SAME(7) >> SAME(name="x") >> SAME())
    assert [v.params for v in p.plan().vertices] == [{}, {"gain": 7}, {"name": "x"}, {}]


def test_names_and_hosts_may_be_given_before_and_after_connecting():
    p, s = start()
    p.host("a")
    p.host("b")
    p.lake("out", (s >> SAME().on("b").named("x")) >> SAME())
    p.lake("out2", (s >> SAME()).named("y").on("b", backup="a"))
    assert [(v.name, v.hosts) for v in p.plan().vertices] == [
        ("s", (1,)),
        ("x", (2, 0, 1)),
        ("same", (2, 0, 1)),
        ("y", (2, 1)),
    ]


def test_buffers_policies_and_delays_reach_the_plan():
    p, s = start()
    out = s.buffered(400) >> SAME()
    p.lake("out", out.buffered(500, on_full="spill") >> SAME())
    p.lake("out2", s, durable="lake", within_ms=9000, on_full="drop_oldest", cap=300)
    assert [(e.cap, e.policy, e.durable, e.within_ms) for e in p.plan().edges] == [
        (400, plans.BLOCK, 0, 0),
        (300, plans.DROP_OLDEST, plans.LAKE, 9000),
        (500, plans.SPILL, 0, 0),
        (110, plans.BLOCK, plans.GATEWAY, 0),
    ]


def test_rates_and_logs_of_sources_reach_the_plan():
    p, s = start()
    t = p.source("t", "v:i16", on="a", log_kb=64)
    u = p.source("u", "v:i16", on="a", rate_hz=0.5)
    for x in (s, t, u):
        p.lake(x.vertex.name, x)
    assert [(v.rate_mhz, v.log_bytes) for v in p.plan().vertices] == [(10000, 0), (0, 65536), (500, 0)]


def test_the_version_does_not_depend_on_placement_and_does_on_everything_else():
    def version(host="b", gain=1, name="out", every=100):
        p, s = start()
        p.every = every
        p.host("a")
        p.host("b")
        p.lake(name, s >> SAME(gain).on(host))
        return p.plan().hash

    assert version() == version(host="a")
    assert len({version(), version(gain=2), version(name="out2"), version(every=101)}) == 4


def test_the_order_of_lake_edges_does_not_change_the_version():
    def version(names):
        p, s = start()
        for name in names:
            p.lake(name, s)
        return p.plan().hash

    assert version("ab") == version("ba")


def test_what_is_no_stream_is_refused_in_words():
    p, s = start()
    with pytest.raises(ProcessError, match="input 1 of Same is int, not a stream"):
        SAME()(s, 5)
    with pytest.raises(ProcessError, match="Same.* is connected to nothing"):
        SAME()()
    with pytest.raises(ProcessError, match="lake stream 'x' is given Spec, not a stream"):
        p.lake("x", SAME())
    with pytest.raises(ProcessError, match="int is not a stream"):
        p.feedback(5, s, port=1, delay_ms=5)
    with pytest.raises(TypeError):
        s >> 5


def test_streams_of_two_processes_do_not_meet():
    p, s = start()
    q, t = start()
    with pytest.raises(ProcessError, match="the inputs of Same come from two processes"):
        SAME()(s, t)
    with pytest.raises(ProcessError, match="the stream is of process 'p', not of 'p'"):
        p.lake("out", t)
    with pytest.raises(ProcessError, match="the stream is of process"):
        p.feedback(t, s, port=1, delay_ms=5000)


def test_unpacking_what_cannot_be_counted_is_refused_in_words():
    p, s = start()
    with pytest.raises(ProcessError, match="the outputs of Half are not known yet"):
        low, high = s >> HALF(limit=100000)


def test_a_plan_of_a_process_with_errors_is_refused_with_all_of_them():
    p, s = start()
    s >> SAME(gain=100000)
    p.source("t", "nothing", on="a")
    with pytest.raises(ProcessError) as e:
        p.encode()
    assert len(str(e.value).splitlines()) == 2


def test_types_of_the_library_are_imported_by_name_and_a_slip_is_told():
    from headwater.process import Fir

    assert Fir.kind == "Fir"
    with pytest.raises(ImportError, match="did you mean 'Process'"):
        from headwater.process.builder import Proces  # noqa: F401


def test_an_operator_class_is_needed_to_make_a_type():
    with pytest.raises(ProcessError, match="derived from headwater.runtime.operator.Operator"):
        operator(int)


def test_a_class_does_not_take_the_name_of_a_library_type():
    class Fir(Operator):
        def run(self, x, n):
            return n

    with pytest.raises(ProcessError, match="operator type 'Fir' exists already"):
        operator(Fir)


def test_random_processes_are_the_same_for_the_same_seed():
    assert random_process(7).encode() == random_process(7).encode()
    assert random_process(7).encode() != random_process(8).encode()
