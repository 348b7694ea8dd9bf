"""Validation: each rule is broken alone, and told with its place and its cure."""

import linecache
import re

import pytest
from headwater.process import Decimate, Fir, HealthAnalyzer, Process, ProcessError, Where, operator, sizing
from headwater.process.check import check
from headwater.runtime.operator import Operator, OperatorError
from headwater.storage import reserve


class Pass(Operator):
    IN = ("v:i16",)
    OUT = ("v:i16",)
    PARAMS = "gain:i8=1 label:text="
    ONE_TO_ONE = True

    def run(self, x, n):
        return n


class Split(Operator):
    IN = ("v:i16",)
    OUT = ("v:i16", "w:i16")

    def run(self, x, n):
        return n


class Fed(Operator):
    IN = ("v:i16", "v:i16")
    OUT = ("v:i16",)
    FEEDBACK = (1,)

    def run(self, x, n):
        return n


class Real(Operator):
    IN = ("v:i16",)
    OUT = ("v:i16",)
    PARAMS = "factor:f32"
    FLOATS = True

    def run(self, x, n):
        return n


class Big(Operator):
    IN = ("v:i16",)
    OUT = ("v:i16",)
    STATE = "line:u32*8000"

    def run(self, x, n):
        return n


class Broken(Operator):
    @classmethod
    def ports(cls, ins, params):
        return cls.nothing

    def run(self, x, n):
        return n


class Picky(Operator):
    IN = ("v:i16",)
    OUT = ("v:i16",)
    PARAMS = "count:u8"

    def setup(self):
        if self.count < 2:
            raise OperatorError("count is %d; it must be 2 or more" % self.count)

    def run(self, x, n):
        return n


Pass, Split, Fed, Real, Big, Broken, Picky = [
    operator(cls) for cls in (Pass, Split, Fed, Real, Big, Broken, Picky)
]


def start(**settings):
    settings = {"checkpoints": "extended", "every": 100, "batch": 10, **settings}
    p = Process("test", **settings)
    p.host("a", heap_kb=256)
    p.host("b", heap_kb=256)
    return p, p.source("s", "v:i16", rate_hz=10, on="a")


def only(process):
    """The one error of a process, as (where, the line it points to, what, cure)."""
    report = check(process)
    assert [str(p) for p in report.errors()[1:]] == []
    assert report.plan is None
    problem = report.errors()[0]
    assert problem.file == __file__
    line = linecache.getline(problem.file, problem.line).strip()
    return problem.where, line, problem.what, problem.cure


def sound(process):
    report = check(process)
    assert [str(p) for p in report.errors()] == []
    return report


def test_a_sound_process_has_a_plan_and_no_problem():
    p, s = start()
    p.lake("out", s >> Pass().on("b"))
    report = check(p)
    assert report.problems == []
    assert report.decoded.name == "test"
    assert len(report.plan) < 200


def test_a_problem_reads_file_line_place_what_cure():
    p, s = start()
    s >> Pass()
    problem = check(p).errors()[0]
    assert str(problem) == (
        "%s:%d: vertex 'pass', output port 0: it is not used. "
        "Connect it, send it to the lake, or call .unused(0)." % (__file__, problem.line)
    )


def test_all_problems_are_told_at_once_in_the_order_of_the_file():
    p = Process("bad name", checkpoints="ecoc ", every=0)
    s = p.source("s", "v:i17", rate_hz=-1, on="a")
    p.lake("/", s >> Pass(gain=1000, nain=2))
    assert [(e.where, e.what.split(":")[0]) for e in check(p).errors()] == [
        ("process", "'bad name' is not a valid name"),
        ("process", "unknown checkpoints 'ecoc '"),
        ("process", "every is 0"),
        ("vertex 's'", "unknown type 'i17' of field 'v'"),
        ("vertex 's'", "rate_hz is -1"),
        ("lake stream '/'", "not a name"),
        ("vertex 'pass'", "unknown parameter 'nain'"),
        ("vertex 'pass', parameter 'gain'", "it is 1000"),
    ]


# -- names and settings


@pytest.mark.parametrize("name", ["", "1st", "a-b", "x" * 33, 7, "ö"])
def test_a_process_name_is_a_name(name):
    p, s = start()
    p.name = name
    p.lake("out", s)
    where, line, what, _ = only(p)
    assert (where, line) == ("process", 'p = Process("test", **settings)')
    assert what == "%r is not a valid name" % (name,)


def test_a_vertex_name_is_a_name():
    p, s = start()
    clean = s >> Pass().named("clean it")
    p.lake("out", clean)
    assert only(p)[:3] == (
        "vertex 'clean it'",
        'clean = s >> Pass().named("clean it")',
        "'clean it' is not a valid name",
    )


def test_two_vertices_of_one_name_are_refused():
    p, s = start()
    p.lake("out", s >> Pass().named("s"))
    where, line, what, cure = only(p)
    assert (where, line) == ("vertex 's'", 'p.lake("out", s >> Pass().named("s"))')
    assert what.startswith("the name is already used on line ")
    assert cure == "Give one of the two another name"


def test_vertices_without_a_name_are_numbered_around_the_names_given():
    p, s = start()
    p.lake("out", s >> Pass() >> Pass().named("pass2") >> Pass())
    assert [v.name for v in sound(p).decoded.vertices] == ["s", "pass", "pass2", "pass3"]


def test_two_lake_streams_of_one_name_are_refused():
    p, s = start()
    p.lake("out", s)
    p.lake("out", s >> Pass())
    where, line, what, _ = only(p)
    assert (where, line) == ("lake stream 'out'", 'p.lake("out", s >> Pass())')
    assert what.startswith("the name is already used on line ")


@pytest.mark.parametrize("name", ["", "a//b", "a/", "a b", "x" * 65, None])
def test_a_lake_stream_name_is_made_of_names(name):
    p, s = start()
    p.lake(name, s)
    assert only(p)[:3] == ("lake stream %r" % (name,), "p.lake(name, s)", "not a name")


def test_unknown_strategies_and_levels_are_told_with_what_was_meant():
    p, s = start(checkpoints="extendet", level="peers=3")
    p.lake("out", s)
    assert [(e.what, e.cure) for e in check(p).errors()] == [
        (
            "unknown checkpoints 'extendet': did you mean 'extended'?",
            "Use one of unsafe, uncoordinated, ecoc, extended",
        ),
        ("unknown level 'peers=3': did you mean 'peers=2'?", "Use one of local, peer, peers=2"),
    ]


@pytest.mark.parametrize(
    "setting, value, what",
    [
        ("every", 0, "every is 0"),
        ("every", 1000001, "every is 1000001"),
        ("every", "500", "every is '500', not a number"),
        ("every", True, "every is True, not a number"),
        ("batch", 0, "batch is 0"),
        ("batch", 4097, "batch is 4097"),
        ("batch_ms", 0, "batch_ms is 0"),
        ("link_ms", -1, "link_ms is -1"),
        ("link_ms", None, "link_ms is None, not a number"),
    ],
)
def test_settings_lie_in_their_range(setting, value, what):
    p, s = start(**{setting: value})
    p.lake("out", s)
    assert only(p)[:3] == ("process", 'p = Process("test", **settings)', what)


def test_a_batch_is_no_longer_than_the_interval():
    p, s = start(every=20, batch=21)
    p.lake("out", s)
    assert only(p)[2:] == (
        "batch=21 is longer than the checkpoint interval every=20",
        "Give every=21 or more, or batch=20 or less",
    )


def test_a_process_without_source_is_refused():
    p = Process("empty")
    where, line, what, _ = only(p)
    assert (where, line, what) == ("process", 'p = Process("empty")', "no source")


# -- edges


def test_an_input_port_without_edge_is_refused():
    p, s = start()
    loop = Fed()(s)
    p.lake("out", loop)
    assert only(p)[:3] == ("vertex 'fed', port 1", "loop = Fed()(s)", "the input port has no edge")


def test_an_input_port_with_two_edges_is_refused():
    p, s = start()
    t = p.source("t", "v:i16", rate_hz=10, on="a")
    one = s >> Pass()
    p.connect(t, one, port=0)
    p.lake("out", one)
    where, line, what, cure = only(p)
    assert (where, line) == ("vertex 'pass', port 0", "p.connect(t, one, port=0)")
    assert what.startswith("has two edges, from 's' (line ") and what.endswith(") and from 't'")
    assert cure == "Merge the two with Union, or connect one of them elsewhere"


def test_an_input_port_that_the_type_does_not_have_is_refused():
    p, s = start()
    one = s >> Pass()
    p.connect(s, one, port=1)
    p.lake("out", one)
    assert only(p)[:3] == ("vertex 'pass', port 1", "p.connect(s, one, port=1)", "Pass has 1 input port")


@pytest.mark.parametrize("port", [-1, "0", None, True])
def test_ports_are_numbers(port):
    p, s = start()
    one = s >> Pass()
    p.connect(s, one, port=port)
    p.lake("out", one)
    assert only(p)[:3] == ("vertex 'pass'", "p.connect(s, one, port=port)", "input port %r" % (port,))


def test_a_source_has_no_inputs():
    p, s = start()
    p.connect(s >> Pass(), s, port=0)
    assert only(p)[:3] == (
        "vertex 's'",
        "p.connect(s >> Pass(), s, port=0)",
        "a source is raw and has no inputs",
    )


def test_an_output_port_that_nobody_uses_is_refused():
    p, s = start()
    both = s >> Split()
    p.lake("out", both)
    assert only(p)[:3] == ("vertex 'split', output port 1", "both = s >> Split()", "it is not used")


def test_an_output_port_may_be_disabled():
    p, s = start()
    p.lake("out", s >> Split().unused(1))
    sound(p)


def test_a_disabled_output_port_exists():
    p, s = start()
    p.lake("out", s >> Pass().unused(1))
    assert only(p)[2:] == ("output port 1 is disabled, but does not exist", "Call .unused() for port 0")


def test_a_disabled_output_port_has_no_edge():
    p, s = start()
    both = (s >> Split()).unused(1)
    p.lake("one", both)
    p.lake("two", both.out(1))
    assert only(p)[:3] == (
        "vertex 'split', output port 1",
        'p.lake("two", both.out(1))',
        "is disabled and has an edge",
    )


def test_an_output_port_that_the_type_does_not_have_is_refused():
    p, s = start()
    one = s >> Pass()
    p.lake("one", one)
    p.lake("two", one.out(1))
    assert only(p)[:3] == (
        "vertex 'pass', output port 1",
        'p.lake("two", one.out(1))',
        "Pass has 1 output port",
    )


def test_an_input_port_may_be_disabled():
    p, s = start()
    p.lake("out", Fed()(s, None))
    plan = sound(p).decoded
    assert plan.vertices[1].ins[1] is None


def test_a_disabled_input_port_has_no_edge():
    p, s = start()
    one = Fed()(s, None)
    p.connect(s, one, port=1)
    p.lake("out", one)
    assert only(p)[:3] == (
        "vertex 'fed', port 1",
        "p.connect(s, one, port=1)",
        "is disabled and has an edge",
    )


def test_alphabets_of_an_edge_are_equal():
    p, s = start()
    t = p.source("t", "w:i16", rate_hz=10, on="a")
    p.lake("s", s)
    p.lake("out", t >> Pass())
    assert only(p)[:3] == (
        "vertex 'pass', port 0",
        'p.lake("out", t >> Pass())',
        "takes 'v:i16', and 't' gives 'w:i16'",
    )


@pytest.mark.parametrize("text", ["", "v", "v:i17", "v:i16 v:u8", "1:i16", None, 5])
def test_an_alphabet_that_is_none_is_told(text):
    p, s = start()
    p.lake("s", s)
    t = p.source("t", text, rate_hz=10, on="a")
    p.lake("t", t)
    where, line, _, cure = only(p)
    assert (where, line) == ("vertex 't'", 't = p.source("t", text, rate_hz=10, on="a")')
    assert cure == 'Write the alphabet like "t:u32 mV:i16"'


# -- types and parameters


def test_an_unknown_type_is_told_with_what_was_meant():
    from headwater.process.builder import Madian

    p, s = start()
    p.lake("out", s >> Madian(k=3))
    assert only(p)[:3] == (
        "vertex 'madian'",
        'p.lake("out", s >> Madian(k=3))',
        "unknown operator type 'Madian': did you mean 'Median'?",
    )


def test_an_unknown_parameter_is_told_with_what_was_meant():
    p, s = start()
    p.lake("out", s >> Pass(gian=2))
    assert only(p)[2:] == (
        "unknown parameter 'gian': did you mean 'gain'?",
        "Pass has gain, label",
    )


def test_a_missing_parameter_is_told():
    p, s = start()
    p.lake("out", s >> Picky())
    assert only(p)[::2] == ("vertex 'picky'", "parameter 'count' is missing")


@pytest.mark.parametrize(
    "args, params, where, what",
    [
        ((128,), {}, "vertex 'pass', parameter 'gain'", "it is 128"),
        ((1.5,), {}, "vertex 'pass', parameter 'gain'", "it is 1.5, not a number"),
        ((True,), {}, "vertex 'pass', parameter 'gain'", "it is True, not a number"),
        ((1, 2), {}, "vertex 'pass', parameter 'label'", "2 is not a text"),
        ((1, "x", 4), {}, "vertex 'pass'", "Pass takes at most 2 parameters by position, not 3"),
        ((1,), {"gain": 2}, "vertex 'pass'", "parameter 'gain' of Pass is given twice"),
    ],
)
def test_parameters_have_their_type_and_range(args, params, where, what):
    p, s = start()
    p.lake("out", s >> Pass(*args, **params))
    assert only(p)[::2] == (where, what)


@pytest.mark.parametrize(
    "coeffs, what",
    [
        (3, "3 is not a list of integers"),
        ([1, "2"], "an entry is '2', not a number"),
        ([1 << 63], "an entry is 9223372036854775808"),
    ],
)
def test_a_list_of_integers_is_one(coeffs, what):
    p, s = start()
    p.lake("out", s >> Fir(coeffs))
    assert only(p)[::2] == ("vertex 'fir', parameter 'coeffs'", what)


def test_a_wrong_expression_is_told():
    p, s = start()
    p.lake("out", s >> Where("v + import os"))
    where, line, what, _ = only(p)
    assert (where, line) == ("vertex 'where'", 'p.lake("out", s >> Where("v + import os"))')
    assert what.startswith("'v + import os' is not an expression: ")


def test_a_name_that_no_field_has_is_told():
    p, s = start()
    p.lake("out", s >> Where("w > 3"))
    assert only(p)[2] == "expression names 'w': there are v"


def test_what_a_type_refuses_is_told_in_its_words():
    p, s = start()
    p.lake("out", s >> Picky(1))
    assert only(p)[:3] == (
        "vertex 'picky'",
        'p.lake("out", s >> Picky(1))',
        "count is 1; it must be 2 or more",
    )


def test_a_type_whose_ports_fail_is_told_and_not_raised():
    p, s = start()
    p.lake("out", s >> Broken())
    where, line, what, _ = only(p)
    assert (where, line) == ("vertex 'broken'", 'p.lake("out", s >> Broken())')
    assert what.startswith("ports of Broken fail: AttributeError: ")


# -- cycles and feedback


def loop(p, s, **feedback):
    fed = Fed()(s)
    end = fed >> Pass()
    p.lake("out", end)
    p.feedback(end, fed, port=1, **{"delay_ms": 5000, **feedback})


def test_a_cycle_without_feedback_is_refused():
    p, s = start()
    fed = Fed()(s)
    end = fed >> Pass()
    p.lake("out", end)
    p.connect(end, fed, port=1)
    where, _, what, cure = only(p)
    assert (where, what) == (
        "vertex 'fed', port 0",
        "the cycle pass -> fed -> pass has no feedback edge",
    ) or (
        where,
        what,
    ) == ("vertex 'fed', port 1", "the cycle fed -> pass -> fed has no feedback edge")
    assert cure.startswith("Close it with p.feedback(")


def test_ecoc_refuses_a_cycle_and_names_it():
    p, s = start(checkpoints="ecoc")
    loop(p, s)
    where, line, what, cure = only(p)
    assert (where, what) == ("process", 'checkpoints="ecoc" on the cycle fed -> pass -> fed')
    assert line == 'p.feedback(end, fed, port=1, **{"delay_ms": 5000, **feedback})'
    assert cure == 'Use checkpoints="extended"'


@pytest.mark.parametrize("checkpoints", ["unsafe", "uncoordinated", "extended"])
def test_the_other_strategies_take_a_cycle(checkpoints):
    p, s = start(checkpoints=checkpoints)
    loop(p, s)
    plan = sound(p).decoded
    assert [(e.src, e.dst, e.cyclic) for e in plan.edges] == [
        (0, 1, False),
        (1, 2, True),
        (2, 1, True),
        (2, -1, False),
    ]


def test_feedback_ends_at_a_silent_port():
    p, s = start()
    one = s >> Pass()
    two = Fed()(s)
    p.feedback(one, two, port=1, delay_ms=5000)
    p.lake("out", two)
    sound(p)
    p, s = start()
    one = Fed()(s, s)
    p.lake("out", one)
    end = Split()(s)
    p.lake("low", end)
    p.lake("high", end.out(1))
    three = Pass()
    three = three(s)
    p.lake("three", three)
    p.wires[[w.vertex for w in p.wires].index(three.vertex)].delay_ms = 5000
    assert only(p)[::2] == ("vertex 'pass', port 0", "feedback into a port that is not silent")


def test_feedback_is_delayed_at_least_twice_the_loop():
    # fed and pass may both run on any host: 1000 ms of batching and 250 ms of link, twice.
    p, s = start()
    loop(p, s, delay_ms=4999)
    where, line, what, cure = only(p)
    assert where == "vertex 'fed', port 1"
    assert line.startswith("p.feedback(")
    assert what == "feedback delay of 4999 ms; the loop takes up to 2500 ms with batching"
    assert cure == "Give delay_ms=5000 or more (twice that), or lower batch_ms or link_ms"


@pytest.mark.parametrize("delay_ms", [0, -1, 1000001, "5000", None])
def test_a_feedback_delay_lies_in_its_range(delay_ms):
    p, s = start()
    loop(p, s, delay_ms=delay_ms)
    if delay_ms is None:  # no delay: no feedback
        assert only(p)[2].endswith("has no feedback edge")
    else:
        assert only(p)[0] == "vertex 'fed', port 1"


def test_a_feedback_buffer_holds_the_delay_and_an_interval():
    # 10 elements a second for 5000 + 1250 ms, one interval of 100 and a batch of 10
    p, s = start()
    loop(p, s, cap=172)
    where, _, what, cure = only(p)
    assert where == "vertex 'fed', port 1"
    assert what == "cap=172 cannot hold what is on its way for 5000 ms and one interval"
    assert cure == "Give cap=173 or more"
    p, s = start()
    loop(p, s, cap=173)
    sound(p)


def test_feedback_of_unbounded_rate_is_refused():
    p, s = start()
    button = p.source("button", "v:i16", on="a")
    p.lake("s", s)
    loop(p, button)
    where, _, what, cure = only(p)
    assert where == "vertex 'fed', port 1"
    assert what.startswith("nothing limits the rate of 'pass'")
    assert cure == "Give rate_hz or most_hz to the sources above it"


# -- buffers, policies, durability


def test_a_buffer_holds_one_interval():
    p, s = start()
    one = s.buffered(109) >> Pass()
    p.lake("out", one)
    assert only(p) == (
        "vertex 'pass', port 0",
        "one = s.buffered(109) >> Pass()",
        "cap=109 cannot hold one checkpoint interval and the batch that is under way",
        "Give cap=110 or more, or lower every=",
    )


def test_a_buffer_behind_a_merge_holds_the_interval_of_both_inputs():
    p, s = start()
    p.lake("out", Fed()(s, s).buffered(209) >> Pass())
    assert only(p)[3] == "Give cap=210 or more, or lower every="


def test_a_lake_buffer_holds_two_batches():
    p, s = start()
    p.lake("out", s, cap=19)
    assert only(p) == (
        "lake stream 'out'",
        'p.lake("out", s, cap=19)',
        "cap=19 cannot hold two batches of 10",
        "Give cap=20 or more",
    )


def test_a_lake_buffer_holds_what_comes_until_the_lake_has_it():
    p, s = start()
    out = s >> Pass()
    p.lake("out", out, cap=39, durable="lake")
    assert only(p) == (
        "lake stream 'out'",
        'p.lake("out", out, cap=39, durable="lake")',
        "cap=39 cannot hold what comes until the lake has it, and two batches",
        'Give cap=40 or more, or use durable="gateway"',
    )
    p, s = start()
    p.lake("out", s >> Pass(), cap=20)
    p.lake("raw", s, cap=20, durable="lake")  # the log of the source holds the rest
    sound(p)


@pytest.mark.parametrize("cap", [-5, "many", 1 << 21])
def test_a_cap_is_a_number_in_its_range(cap):
    p, s = start()
    p.lake("out", s.buffered(cap) >> Pass())
    assert only(p)[0] == "vertex 'pass', port 0"


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest"])
def test_nothing_is_dropped_inside_a_process(policy):
    p, s = start()
    p.lake("out", (s >> Pass()).buffered(on_full=policy) >> Pass())
    where, _, what, cure = only(p)
    assert (where, what) == ("vertex 'pass2', port 0", 'on_full="%s" inside the process' % policy)
    assert cure == 'Only edges to the lake may drop: use "block" or "spill"'


@pytest.mark.parametrize("policy", ["block", "drop_oldest", "drop_newest"])
def test_a_lake_edge_may_drop(policy):
    p, s = start()
    p.lake("out", s, on_full=policy)
    sound(p)


def test_an_operator_does_not_drop_the_newest():
    p, s = start()
    p.lake("out", s >> Pass(), on_full="drop_newest")
    assert only(p)[:3] == (
        "lake stream 'out'",
        'p.lake("out", s >> Pass(), on_full="drop_newest")',
        "on_full=\"drop_newest\" on a stream of operator 'pass', which cannot refuse its inputs",
    )


def test_a_source_does_not_spill():
    p, s = start()
    p.lake("out", s, on_full="spill")
    assert only(p)[:3] == (
        "lake stream 'out'",
        'p.lake("out", s, on_full="spill")',
        "on_full=\"spill\" on a stream of source 's', which is in its log already",
    )


def test_an_unknown_policy_is_told_with_what_was_meant():
    p, s = start()
    p.lake("out", s, on_full="drop_oldst")
    assert only(p)[2] == "unknown policy on_full 'drop_oldst': did you mean 'drop_oldest'?"


def test_results_that_are_safe_on_one_board_contradict_a_peer_level():
    p, s = start()
    p.lake("out", s, durable="flash")
    where, line, what, cure = only(p)
    assert (where, line) == ("lake stream 'out'", 'p.lake("out", s, durable="flash")')
    assert what.startswith('durable="flash" with level="peer"')
    assert cure == 'Use durable="gateway", or accept_loss=True'


def test_that_loss_can_be_accepted():
    p, s = start()
    p.lake("out", s, durable="flash", accept_loss=True)
    sound(p)
    p, s = start(level="local")
    p.lake("out", s, durable="flash")
    sound(p)


def test_an_unknown_durability_is_told():
    p, s = start()
    p.lake("out", s, durable="gatway")
    assert only(p)[2:] == (
        "unknown durable 'gatway': did you mean 'gateway'?",
        "Use one of flash, gateway, lake",
    )


def test_a_delay_bound_is_not_below_what_the_way_takes():
    # 1000 ms of batching at the source and as much behind the operator, 250 ms of link each time
    p, s = start()
    p.lake("out", s >> Pass(), within_ms=2499)
    assert only(p)[2:] == (
        "within_ms=2499; batches and links take up to 2500 ms",
        "Give within_ms=2500 or more, or lower batch, batch_ms or link_ms",
    )
    p, s = start()
    p.lake("out", s >> Pass(), within_ms=2500)
    sound(p)


# -- hosts and placement


def test_an_unknown_host_is_told_with_what_was_meant():
    p, s = start()
    p.lake("out", s >> Pass().on("gatway", backup="b"))
    assert only(p) == (
        "vertex 'pass'",
        'p.lake("out", s >> Pass().on("gatway", backup="b"))',
        "unknown host 'gatway': did you mean 'gateway'?",
        "Use one of gateway, a, b",
    )


def test_an_unknown_backup_is_told():
    p, s = start()
    p.lake("out", s >> Pass().on("b", backup="c"))
    assert only(p)[2] == "unknown host 'c'"


def test_hosts_that_are_only_named_come_into_being():
    p = Process("test", every=100, batch=10)
    s = p.source("s", "v:i16", rate_hz=10, on="chest")
    p.lake("out", s >> Pass().on("wrist"))
    assert sound(p).decoded.hosts == ("gateway", "chest", "wrist")


def test_an_operator_runs_where_its_input_is_produced_and_is_backed_up_by_the_gateway_first():
    p, s = start()
    p.lake("out", s >> Pass() >> Pass().on("b") >> Pass())
    assert [v.hosts for v in sound(p).decoded.vertices] == [(1,), (1, 0, 2), (2, 0, 1), (2, 0, 1)]


def test_a_level_says_how_many_backups_there_are_by_default():
    for level, hosts in (("local", (1,)), ("peer", (1, 0, 2)), ("peers=2", (1, 0, 2, 3))):
        p, s = start(level=level)
        p.host("c")
        p.host("d")
        p.lake("out", s >> Pass())
        assert sound(p).decoded.vertices[1].hosts == hosts


def test_a_host_is_declared_once():
    p, s = start()
    p.host("a")
    p.lake("out", s >> Pass().on("b"))
    where, line, what, _ = only(p)
    assert (where, line) == ("host 'a'", 'p.host("a")')
    assert what.startswith("is declared already at line ")


@pytest.mark.parametrize(
    "given, what",
    [
        ({"flash_kb": 8}, "flash_kb is 8"),
        ({"heap_kb": "64"}, "heap_kb is '64', not a number"),
        ({"floats": 16}, "floats=16"),
        ({"board": 32}, "board=32 is not a name"),
        ({"battery_mah": -1}, "battery_mah is -1"),
        ({"battery_mah": 3.7}, "battery_mah is 3.7, not a number"),
        ({"awake_percent": 0}, "awake_percent is 0"),
    ],
)
def test_what_a_host_has_lies_in_its_range(given, what):
    p, s = start()
    p.host("c", **given)
    p.lake("out", s >> Pass().on("b", backup="c"))
    assert only(p)[:3] == ("host 'c'", 'p.host("c", **given)', what)


def test_a_source_says_where_its_sensor_is():
    p, s = start()
    t = p.source("t", "v:i16", rate_hz=10)
    p.lake("t", t)
    p.lake("s", s)
    assert only(p)[:3] == (
        "vertex 't'",
        't = p.source("t", "v:i16", rate_hz=10)',
        "a source runs where its sensor is",
    )


def test_a_source_cannot_move():
    p, s = start()
    p.lake("out", s.on("a", backup="b"))
    where, _, what, _ = only(p)
    assert (where, what) == ("vertex 's'", "a source cannot move: no backup host has its sensor")


def test_an_operator_is_not_backed_up_by_its_own_host():
    p, s = start()
    p.lake("out", s >> Pass().on("b", backup=["b", "a"]))
    assert only(p)[2:] == ("is backed up by its own host 'b'", "Name another host as backup")


def test_a_backup_stands_once():
    p, s = start()
    p.lake("out", s >> Pass().on("b", backup=["a", "a"]))
    assert only(p)[2:] == ("backup 'a' is named twice", "Drop one of the two")


def test_a_level_needs_its_holders():
    p, s = start(level="peers=2")
    p.lake("out", s >> Pass().on("b", backup="a"))
    assert only(p)[2:] == (
        'level="peers=2" needs 2 more hosts for its checkpoints; there is 1',
        "Name more backup hosts, or lower the level",
    )


def test_floats_stay_on_hosts_of_one_width():
    p, s = start()
    p.lake("out", s >> Real(0.5).on("a", backup=["b", "gateway"]))
    where, _, what, _ = only(p)
    assert where == "vertex 'real'"
    assert what == (
        "computes in floats, and its hosts have floats of different width (a: 32, b: 32, gateway: 64)"
    )


def test_backups_of_floats_are_chosen_by_width_and_drift_can_be_allowed():
    p, s = start()
    p.lake("out", s >> Real(0.5))
    assert sound(p).decoded.vertices[1].hosts == (1, 2)
    p, s = start(allow_drift=True)
    p.lake("out", s >> Real(0.5))
    assert sound(p).decoded.vertices[1].hosts == (1, 0, 2)


def test_a_stream_of_floats_makes_its_operators_compute_in_floats():
    p, s = start()
    x = p.source("x", "v:f32", rate_hz=10, on="a")
    p.lake("s", s)
    p.lake("out", x >> Decimate(k=2).on("a", backup="gateway"))
    assert only(p)[2].startswith("computes in floats")


def test_the_reserve_of_checkpoints_fits_the_flash():
    def process(flash_kb):
        p, s = start()
        p.hosts[1].flash_kb = flash_kb
        p.lake("out", s >> Pass())
        return p

    where, line, what, cure = only(process(16))
    assert (where, line) == ("host 'b'", 'p.host("b", heap_kb=256)')
    kept, rest, least = map(
        int,
        re.fullmatch(
            r"flash_kb=16; the log needs (\d+) KB in reserve for checkpoints of pass, and "
            r"(\d+) KB for the rest\nGive it flash_kb=(\d+), move operators away, or lower every= or caps",
            what + "\n" + cure,
        ).groups(),
    )
    assert 16 < least == kept + rest
    sound(process(least))
    only(process(least - 1))


def test_a_declared_log_holds_one_interval():
    p, s = start(every=1000)
    t = p.source("t", "v:i16", rate_hz=10, on="b", log_kb=5)
    p.lake("s", s)
    p.lake("t", t)
    assert only(p)[::3] == ("vertex 't'", "Give log_kb=6 or more, or lower every=")


def test_buffers_fit_the_heap():
    p, s = start()
    p.hosts[0].heap_kb = 47
    p.lake("out", s >> Pass())
    where, line, what, _ = only(p)
    assert (where, line) == ("host 'a'", 'p.host("a", heap_kb=256)')
    assert what.startswith("heap_kb=47; the runtime takes 97 KB with moves, the buffers of s, pass ")


def test_what_a_backup_may_take_over_fits_its_heap():
    p, s = start()
    p.hosts[1].heap_kb = 46
    p.lake("out", s >> Pass())
    where, _, what, _ = only(p)
    assert where == "host 'b'"
    assert ", what it may take over " in what


def test_a_checkpoint_is_no_larger_than_a_host_takes_in():
    def process(cap):
        p, s = start()
        for host in p.hosts:
            host.flash_kb = 4096
        p.lake("out", (s >> Big().on("gateway")).buffered(cap) >> Pass().on("gateway"))
        return p

    low, high = 100, 20000
    while high - low > 1:
        cap = (low + high) // 2
        low, high = (low, cap) if check(process(cap)).errors() else (cap, high)
    plan = sound(process(low)).decoded
    most = sizing.CHECKPOINT_MAX_BYTES
    assert most - 80 < reserve.checkpoint_bytes(plan, plan.vertices[1]) <= most
    assert only(process(high))[::2] == (
        "vertex 'big'",
        "a checkpoint with its transfer state takes up to 97 KB; a host takes in at most 96 KB",
    )


# -- warnings


def warned(process):
    report = sound(process)
    assert report.plan is not None
    return [(w.where, w.what) for w in report.warnings()]


def test_a_local_level_is_warned_of():
    p, s = start(level="local")
    p.lake("out", s >> Pass().on("b"))
    assert warned(p) == [
        ("process", 'level="local": the permanent death of a host loses its operators that have no backup')
    ]


def test_unsafe_checkpoints_are_warned_of():
    p, s = start(checkpoints="unsafe")
    p.lake("out", s >> Pass().on("b"))
    assert warned(p) == [("process", 'checkpoints="unsafe": a restart loses what operators hold')]


def test_a_host_without_work_is_warned_of():
    p, s = start()
    p.host("c")
    p.lake("out", s >> Pass().on("b", backup="a"))
    assert warned(p) == [("host 'c'", "nothing runs there")]


# -- limits of numbers


def test_a_process_too_large_for_a_plan_is_refused():
    p, s = start(every=10)
    for i in range(101):
        p.lake("out%d" % i, s >> Pass().on("gateway"))
    what = [e.what for e in check(p).errors()]
    assert "102 vertices; at most 100" in what and "202 edges; at most 200" in what


def test_validation_reckons_with_the_runtime_s_own_limits():
    from headwater.runtime import incoming

    assert sizing.CHECKPOINT_MAX_BYTES == incoming.CHECKPOINT_MAX


# -- whatever an author writes, the check answers

ODD = [
    None,
    True,
    -1,
    0,
    1,
    2.5,
    1e400,
    float("nan"),
    10**30,
    "",
    "x",
    "é",
    b"x",
    [],
    [1],
    (),
    {},
    {"x": 1},
    object(),
]


def written(odd):
    """A process with one argument somewhere replaced; `odd(default)` gives each argument."""
    p = Process(
        odd("odd"),
        checkpoints=odd("extended"),
        every=odd(100),
        level=odd("peer"),
        batch=odd(10),
        batch_ms=odd(1000),
        link_ms=odd(250),
        allow_drift=odd(False),
    )
    p.host(odd("a"), flash_kb=odd(512), heap_kb=odd(256), floats=odd(32))
    p.host("b", heap_kb=256)
    s = p.source(odd("s"), odd("v:i16"), rate_hz=odd(10), on=odd("a"), log_kb=odd(64), most_hz=odd(None))
    fed = Fed()(s).named(odd("fed")).on(odd("b"), backup=odd("a"))
    one = fed.buffered(odd(400), on_full=odd("block")) >> Pass(odd(3), odd("label"))
    two = one >> Where(odd("v > limit"), limit=odd(3)) >> Fir(odd([1, 2, 1]), shift=odd(2))
    end = HealthAnalyzer(low=odd((1, 2)), high=odd((3, 4)), need=odd("any"))(two, s)
    p.feedback(one, fed, port=odd(1), delay_ms=odd(9000), cap=odd(None), on_full=odd(None))
    p.lake(
        odd("low"),
        s.out(odd(0)),
        durable=odd("gateway"),
        within_ms=odd(9000),
        on_full=odd(None),
        cap=odd(300),
    )
    p.lake("end", end)
    p.lake("spare", (s >> Split()).unused(odd(1)))
    return p


def test_an_odd_value_anywhere_is_answered_by_the_check_or_refused_in_words():
    arguments = []
    written(lambda value: arguments.append(value) or value)
    assert len(arguments) == 43
    sound(written(lambda value: value))
    answered = 0
    for place in range(len(arguments)):
        for value in ODD:
            count = iter(range(len(arguments)))
            try:
                process = written(lambda usual: value if next(count) == place else usual)  # noqa: B023
            except (ProcessError, TypeError):
                continue  # told with its line by whoever loads the file
            report = check(process)
            assert report.plan is None or report.errors() == []
            answered += 1
    assert answered > 700
