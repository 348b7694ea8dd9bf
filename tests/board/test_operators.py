# Every operator type against literal expectations, at the limits of its types, on both interpreters.

from headwater.operators import find, register
from headwater.runtime.operator import Operator, OperatorError
from headwater.testing import trial

DAY_US = 1700000000000000  # a ts as it is in life: far above what a board calls small


# Output rows of port 0 for the values of one field, a millisecond apart.
def rows(kind, params, alphabet, values, cut=64, until=0):
    op = trial.make(kind, params, (alphabet,))
    return [row for _, row in trial.run(op, entries(values), cut, until)[0]]


def entries(values, ts=DAY_US, step=1000):
    out = []
    for v in values:
        out.append((0, ts, None if v is None else v if type(v) is tuple else (v,)))
        ts += step
    return out


def firsts(kind, params, alphabet, values):
    return [row[0] for row in rows(kind, params, alphabet, values)]


def refusal(kind, params, *ins):
    try:
        trial.make(kind, params, ins)
    except OperatorError as e:
        return str(e)
    raise AssertionError("was not refused")


def test_an_unknown_kind_is_refused_by_name():
    try:
        find("Frobnicate")
    except OperatorError as e:
        assert "'Frobnicate'" in str(e)
        return
    raise AssertionError("was found")


def test_affine_saturates_at_both_limits():
    values = [1, -1, 32767, -32768]
    assert firsts("Affine", {"num": 2, "offset": 1}, "v:i16", values) == [3, -1, 32767, -32768]
    assert firsts("Affine", {"num": -1}, "v:i16", values) == [-1, 1, -32767, 32767]
    assert firsts("Affine", {"offset": -5}, "v:u8", [0, 4, 5, 255]) == [0, 0, 0, 250]
    assert firsts("Affine", {"num": 2}, "v:u32", [4294967295, 2147483647]) == [4294967295, 4294967294]


def test_affine_rounds_towards_minus_infinity():
    assert firsts("Affine", {"num": 1, "den": 3}, "v:i16", [7, -7]) == [2, -3]
    assert firsts("Affine", {"num": 1, "den": 3, "shift": 1}, "v:i16", [13, -13]) == [2, -3]
    assert firsts("Affine", {"shift": 4}, "v:i16", [-1, 31]) == [-1, 1]


def test_magnitude_is_the_integer_root_of_the_exact_sum():
    got = rows(
        "Magnitude", {}, "x:i16 y:i16 z:i16", [(3, 4, 0), (-32768, -32768, -32768), (0, 0, 0), (1, 1, 1)]
    )
    assert got == [(5,), (56755,), (0,), (1,)]
    assert rows("Magnitude", {"of": "b c"}, "a:i8 b:i8 c:i8", [(9, 5, 12)]) == [(13,)]
    assert rows("Magnitude", {}, "a:u32 b:u32", [(4294967295, 4294967295)]) == [(4294967295,)]
    assert rows("Magnitude", {}, "a:u32", [(4294967295,), (2147483648,)]) == [(4294967295,), (2147483648,)]
    assert rows("Magnitude", {}, "a:u8 b:u8 c:u8 d:u8", [(1, 1, 1, 1)]) == [(2,)]


def test_difference_holds_what_the_type_before_cannot():
    assert firsts("Difference", {}, "v:i16", [5, -32768, 32767]) == [0, -32773, 65535]
    assert firsts("Difference", {}, "v:u32", [0, 4294967295, 0]) == [0, 4294967295, -4294967295]


def test_difference_begins_anew_behind_a_hole():
    assert rows("Difference", {}, "v:i16", [5, 7, None, 100, 101]) == [(0,), (2,), None, (0,), (1,)]


def test_decimate_lets_every_kth_through():
    op = trial.make("Decimate", {"k": 3}, ("v:i16",))
    assert trial.run(op, entries([1, 2, 3, 4, 5, 6, 7]), 2)[0] == [
        (DAY_US + 2000, (3,)),
        (DAY_US + 5000, (6,)),
    ]


def test_dead_band_compares_with_what_it_let_through_last():
    assert firsts("DeadBand", {"width": 3}, "v:i16", [1, 4, 5, 2, 1, -32768, 32767]) == [
        1,
        5,
        1,
        -32768,
        32767,
    ]
    assert rows("DeadBand", {"width": 9, "field": "b"}, "a:u8 b:u8", [(1, 9), (2, 18), (3, 19)]) == [
        (1, 9),
        (3, 19),
    ]


def test_fir_rounds_and_saturates():
    assert firsts("Fir", {"coeffs": [1, 1], "shift": 1}, "v:i16", [1, 2, 2, -1]) == [1, 2, 2, 1]
    assert firsts("Fir", {"coeffs": [2, 0, 0], "shift": 0}, "v:i16", [20000, -20000, 5]) == [
        32767,
        -32768,
        10,
    ]
    assert firsts("Fir", {"coeffs": [-1], "shift": 0}, "v:i16", [-32768, 32767]) == [32767, -32767]
    assert firsts("Fir", {"coeffs": [1, 2, 3, 2, 1], "shift": 0}, "v:u8", [1, 0, 0, 0, 0, 9]) == [
        9,
        8,
        6,
        3,
        1,
        9,
    ]
    assert firsts("Fir", {"coeffs": [1, 2, 3], "shift": 0}, "v:i32", [1, 0, 0, 0]) == [6, 5, 3, 0]


def test_fir_begins_without_a_transient_and_again_behind_a_hole():
    got = rows("Fir", {"coeffs": [4, 4, 4, 4], "shift": 4}, "v:i16", [100, 100, None, -7, -7])
    assert got == [(100,), (100,), None, (-7,), (-7,)]


def test_exponential_average_begins_at_the_first_element():
    assert firsts("ExpAverage", {"shift": 2}, "v:i16", [8, 8, 16, 16]) == [8, 8, 10, 11]
    assert firsts("ExpAverage", {"shift": 24}, "v:i32", [2147483647, -2147483648]) == [2147483647, 2147483391]


def test_exponential_average_keeps_its_value_when_the_shift_changes():
    op = trial.make("ExpAverage", {"shift": 2}, ("v:i16",))
    trial.run(op, entries([100, 100]))
    op.configure({"shift": 4})
    assert trial.run(op, entries([100]))[0] == [(DAY_US, (100,))]


def test_median_takes_the_first_element_for_those_missing():
    assert firsts("Median", {"k": 3}, "v:i16", [1, 9, 2, 3, 50, 4]) == [1, 1, 2, 3, 3, 4]
    assert firsts("Median", {"k": 5}, "v:i16", [5, 1, 1, 1, -32768]) == [5, 5, 5, 1, 1]


def test_average_by_count_divides_by_what_there_is():
    assert firsts("Average", {"count": 3}, "v:i16", [1, 2, 4, -9, 32767]) == [1, 1, 2, -1, 10920]
    assert firsts("Average", {"count": 2}, "v:i16", [-32768, -32768, 32767, 32767]) == [
        -32768,
        -32768,
        -1,
        32767,
    ]


def test_average_by_time_leaves_out_what_is_older():
    op = trial.make("Average", {"us": 2000}, ("v:i16",))
    given = [
        (0, DAY_US, (10,)),
        (0, DAY_US + 1999, (20,)),
        (0, DAY_US + 2000, (30,)),
        (0, DAY_US + 9000, (1,)),
    ]
    assert [r[0] for _, r in trial.run(op, given)[0]] == [10, 15, 25, 1]


def test_average_by_time_covers_the_newest_where_too_many_fall_into_it():
    op = trial.make("Average", {"us": 1000000, "keep": 2}, ("v:i16",))
    assert [r[0] for _, r in trial.run(op, entries([10, 20, 40, 80]))[0]] == [10, 15, 30, 60]


def test_where_takes_elements_for_which_the_test_holds():
    params = {
        "test": ["and", [">", "rate", "limit"], ["<", "effort", 900]],
        "names": "limit",
        "values": [120],
    }
    op = trial.make("Where", params, ("rate:u16 effort:i16",))
    given = entries([(100, 1), (130, 2), (140, 900)])
    assert trial.run(op, given)[0] == [(DAY_US + 1000, (130, 2))]
    op.configure({"limit": 99})
    assert [row for _, row in trial.run(op, given)[0]] == [(100, 1), (130, 2)]


def test_map_saturates_and_wraps_as_asked():
    params = {"out": "a:i8 b:u8", "exprs": ["list", ["*", "v", 3], "v"], "names": "", "values": []}
    assert rows("Map", params, "v:i16", [1, 100, -100]) == [(3, 1), (127, 100), (-128, 0)]
    params["wrap"] = 1
    assert rows("Map", params, "v:i16", [1, 100, -100]) == [(3, 1), (44, 100), (-44, 156)]
    params = {
        "out": "a:i64 b:u64",
        "exprs": ["list", ["*", "v", "v", 4], ["neg", "v"]],
        "names": "",
        "values": [],
    }
    assert rows("Map", params, "v:i64", [-1 << 62]) == [((1 << 63) - 1, 1 << 62)]


def test_route_sends_each_element_to_one_port():
    params = {"tests": ["list", [">", "v", 10], [">", "v", 5]], "names": "", "values": []}
    op = trial.make("Route", params, ("v:i16",))
    t = DAY_US
    assert trial.run(op, entries([1, 6, 11, None, 3])) == [
        [(t + 2000, (11,)), (t + 3000, None)],
        [(t + 1000, (6,)), (t + 3000, None)],
        [(t, (1,)), (t + 3000, None), (t + 4000, (3,))],
    ]


WHAT = "count sum mean min max variance"


def test_tumbling_by_count_tells_everything_exactly():
    got = rows("Tumbling", {"count": 3, "what": WHAT}, "v:i16", [1, 2, -3, 7, 7, 7, 9], 2)
    assert got == [(3, 0, 0, -3, 2, 4), (3, 21, 7, 7, 7, 0)]
    got = rows("Tumbling", {"count": 2, "what": WHAT}, "v:i16", [-32768, 32767])
    assert got == [(2, -1, -1, -32768, 32767, 1073709056)]
    assert rows("Tumbling", {"count": 2, "what": "sum"}, "v:u32", [4294967295] * 2) == [(8589934590,)]


def test_sums_saturate():
    op = trial.make("Tumbling", {"count": 70000, "what": "sum"}, ("v:i16",), 250)
    given = [(0, DAY_US, (32767,))] * 250
    for _ in range(280):
        got = trial.run(op, given, 250)[0]
    assert [row for _, row in got] == [(2147483647,)]


def test_tumbling_by_time_ends_at_its_timer_and_leaves_empty_windows_out():
    op = trial.make("Tumbling", {"us": 2000, "what": "count mean"}, ("v:i16",))
    given = [(0, DAY_US, (10,)), (0, DAY_US + 1999, (20,)), (0, DAY_US + 9000, (1,))]
    assert trial.run(op, given, 64, DAY_US + 20000)[0] == [(DAY_US + 2000, (2, 15)), (DAY_US + 10000, (1, 1))]


def test_tumbling_tells_empty_windows_when_asked():
    op = trial.make("Tumbling", {"us": 2000, "what": "count mean", "empty": 1}, ("v:i16",))
    got = trial.run(op, [(0, DAY_US, (10,))], 64, DAY_US + 4000)[0]
    assert got == [(DAY_US + 2000, (1, 10)), (DAY_US + 4000, (0, 0))]


def test_a_window_counts_holes_when_asked_and_passes_them_on_otherwise():
    op = trial.make("Tumbling", {"us": 8000, "what": "count", "holes": 1}, ("v:i16",))
    assert trial.run(op, entries([1, None, None, 2]), 64, DAY_US + 9000)[0] == [(DAY_US + 8000, (2, 2))]
    op = trial.make("Tumbling", {"count": 2, "what": "sum", "holes": 1}, ("v:i16",))
    assert trial.run(op, entries([1, None, None, 2]))[0] == [(DAY_US + 3000, (3, 2))]
    op = trial.make("Tumbling", {"count": 2, "what": "sum"}, ("v:i16",))
    assert trial.run(op, entries([1, None, 2]))[0] == [(DAY_US + 1000, None), (DAY_US + 2000, (3,))]


def test_sliding_by_count_tells_the_newest():
    got = rows("Sliding", {"count": 3, "what": WHAT}, "v:i16", [1, 2, -3, 7])
    assert got == [(1, 1, 1, 1, 1, 0), (2, 3, 1, 1, 2, 0), (3, 0, 0, -3, 2, 4), (3, 6, 2, -3, 7, 16)]
    got = rows("Sliding", {"count": 2, "step": 3, "what": "sum variance"}, "v:i16", [-32768] * 6)
    assert got == [(-65536, 0), (-65536, 0)]


def test_sliding_by_time_is_made_of_panes():
    op = trial.make("Sliding", {"us": 4000, "step_us": 2000, "what": WHAT}, ("v:i16",))
    got = trial.run(op, entries([1, 2, -3, 7, 7], DAY_US + 500), 64, DAY_US + 20000)[0]
    assert [(t - DAY_US, row) for t, row in got] == [
        (2000, (2, 3, 1, 1, 2, 0)),
        (4000, (4, 7, 1, -3, 7, 12)),
        (6000, (3, 11, 3, -3, 7, 22)),
        (8000, (1, 7, 7, 7, 7, 0)),
    ]


def test_sum_join_adds_both_inputs_over_the_window():
    op = trial.make("SumJoin", {"us": 2000}, ("a:i16", "b:i16"))
    t = DAY_US
    given = [
        (0, t, (1,)),
        (1, t + 500, (10,)),
        (0, t + 1999, (2,)),
        (1, t + 2000, (20,)),
        (0, t + 2500, (5,)),
    ]
    got = trial.run(op, given + [(0, t + 90000, (-3,))])[0]
    assert [row[0] for _, row in got] == [1, 11, 13, 32, 27, -3]


def test_sum_join_saturates_forgets_the_oldest_at_its_bound_and_all_at_a_hole():
    op = trial.make("SumJoin", {"us": 100000, "keep": 2}, ("a:i32", "b:i32"))
    big = 2147483647
    t = DAY_US
    got = trial.run(
        op, [(0, t, (big,)), (1, t, (big,)), (0, t + 1, (-5,)), (1, t + 2, None), (1, t + 3, (4,))]
    )[0]
    assert [row and row[0] for _, row in got] == [big, big, big - 5, None, 4]


def test_attenuate_follows_what_is_fed_back_in_silence():
    op = trial.make("Attenuate", {"threshold": 10, "shift": 1}, ("v:i16", "mean:i32"))
    t = DAY_US
    given = [
        (0, t, (100,)),
        (1, t + 1, (11,)),
        (0, t + 2, (-101,)),
        (1, t + 3, None),
        (1, t + 4, (10,)),
        (0, t + 5, (7,)),
    ]
    assert trial.run(op, given)[0] == [(t, (100,)), (t + 2, (-51,)), (t + 5, (7,))]


def test_union_keeps_the_order_of_the_merge():
    op = trial.make("Union", {}, ("v:i16 w:u8", "v:i16 w:u8", "v:i16 w:u8"))
    given = [(2, 5, (1, 2)), (0, 6, (3, 4)), (2, 6, (5, 6)), (1, 7, None), (1, 8, (-7, 255))]
    assert trial.run(op, given)[0] == [(5, (1, 2)), (6, (3, 4)), (6, (5, 6)), (7, None), (8, (-7, 255))]


def test_hold_waits_for_every_port_and_gives_the_newest_of_each():
    op = trial.make("Hold", {}, ("a:i16", "b:u8"))
    given = [
        (0, 1, (1,)),
        (1, 2, (7,)),
        (0, 3, (2,)),
        (1, 4, (8,)),
        (1, 5, (9,)),
        (0, 6, (3,)),
        (1, 7, None),
        (0, 8, (4,)),
    ]
    assert trial.run(op, given)[0] == [(3, (2, 7)), (6, (3, 9))]


def test_threshold_has_hysteresis():
    got = rows("Threshold", {"high": 5, "low": 2}, "v:i16", [4, 5, 9, 3, 2, 4, 32767, -32768])
    assert got == [(1, 5), (0, 2), (1, 32767), (0, -32768)]


def test_debounce_tells_what_stood_still():
    op = trial.make("Debounce", {"us": 2000}, ("b:u8",))
    t = DAY_US
    given = [
        (0, t, (1,)),
        (0, t + 500, (0,)),
        (0, t + 600, (1,)),
        (0, t + 8000, (0,)),
        (0, t + 8500, (1,)),
        (0, t + 20000, (0,)),
    ]
    assert trial.run(op, given, 64, t + 30000)[0] == [(t + 2600, (1,)), (t + 22000, (0,))]


def test_rate_counts_also_nothing():
    op = trial.make("Rate", {"us": 2000}, ("v:f32",))
    got = trial.run(op, [(0, DAY_US, (0.5,)), (0, DAY_US + 1, (0.5,))], 64, DAY_US + 4000)[0]
    assert got == [(DAY_US + 2000, (2,)), (DAY_US + 4000, (0,))]


def test_counter_counts_overall_and_in_the_last_hour():
    op = trial.make("Counter", {}, ("alarm:u8",))
    minute = 60000000
    t = DAY_US // (60 * minute) * 60 * minute
    given = [(0, t + k * minute, (1,)) for k in (0, 0, 1, 59, 60, 61, 500, 501)]
    assert [row for _, row in trial.run(op, given)[0]] == [
        (1, 1), (2, 2), (3, 3), (4, 4), (5, 3), (6, 3), (7, 1), (8, 2),
    ]  # fmt: skip


def test_counter_wraps():
    op = trial.make("Counter", {}, ("alarm:u8",))
    op.total = 4294967295
    assert trial.run(op, entries([1]))[0] == [(DAY_US, (0, 1))]


def test_heart_rate_of_a_steady_heart_and_of_silence():
    op = trial.make("HeartRate", {"us": 3000000, "quiet_us": 5000000}, ("back_us:u32 rr_us:u32 amp:u16",))
    second = 1000000
    given = [
        (0, DAY_US + k * second, (0, rr, 9)) for k, rr in enumerate((0, 1000000, 1000000, 500000, 500000))
    ]
    got = trial.run(op, given, 64, DAY_US + 60 * second)[0]
    assert [row[0] for _, row in got] == [60, 60, 72, 80, 0]
    assert got[-1][0] == DAY_US + 9 * second


def test_variability_of_known_intervals():
    op = trial.make("Variability", {"beats": 3}, ("rr_us:u32",))
    given = entries([0, 800000, 810000, 790000, 0, 790000])
    assert [row for _, row in trial.run(op, given)[0]] == [(15800, 8100)]


def test_health_analyzer_tells_when_the_combination_leaves_its_limits_and_when_it_is_back():
    params = {"names": "rate effort", "limits": [40, 180, 0, 900], "need": 0}
    op = trial.make("HealthAnalyzer", params, ("rate:u16", "effort:i16"))
    given = [
        (0, 1, (181,)),
        (1, 2, (901,)),
        (1, 3, (902,)),
        (0, 4, (180,)),
        (0, 5, (39,)),
        (1, 6, (-1,)),
        (1, 7, (0,)),
    ]
    assert trial.run(op, given)[0] == [(2, (1, 3, 901)), (4, (0, 2, 180)), (5, (1, 3, 39)), (7, (0, 1, 0))]
    op = trial.make("HealthAnalyzer", {"names": "rate", "limits": [40, 180]}, ("rate:u16",))
    assert trial.run(op, [(0, 1, (100,)), (0, 2, (30,))])[0] == [(2, (1, 1, 30))]
    op.configure({"limits": [20, 180]})
    assert trial.run(op, [(0, 3, (30,))])[0] == [(3, (0, 0, 30))]


def test_a_refused_parameter_leaves_the_operator_as_it_was():
    op = trial.make("Threshold", {"high": 5, "low": 2}, ("v:i16",))
    for params in ({"low": 5}, {"high": "x"}, {"high": 1 << 31}, {"width": 1}):
        try:
            op.configure(params)
        except OperatorError:
            continue
        raise AssertionError("was taken")
    assert (op.low, op.high) == (2, 5)
    op.configure({"high": 9})
    assert trial.run(op, entries([8, 9]))[0] == [(DAY_US + 1000, (1, 9))]


def test_values_of_an_expression_that_are_no_list_are_refused():
    op = trial.make("Where", {"test": [">", "v", "limit"], "names": "limit", "values": [5]}, ("v:i16",))
    for values in (7, None, "5", b"\x07", {"limit": 7}):
        for params in ({"values": values}, {"values": values, "limit": 7}):
            try:
                op.configure(params)
            except OperatorError:
                continue
            raise AssertionError("was taken")
    op.configure({"values": [3], "limit": 6})
    assert op.values == [6]


def test_what_does_not_fit_is_refused_in_a_sentence():
    assert "2 input ports" in refusal("SumJoin", {"us": 5}, "v:i16")
    assert "'v' is f32" in refusal("Affine", {}, "v:f32")
    assert "say which" in refusal("Average", {"count": 3}, "x:i16 y:i16")
    assert "has no field 'z'" in refusal("Average", {"count": 3, "field": "z"}, "x:i16 y:i16")
    assert "either" in refusal("Average", {}, "x:i16")
    assert "one alphabet" in refusal("Union", {}, "x:i16", "x:i32")
    assert "odd" in refusal("Median", {"k": 4}, "x:i16")
    assert "at most 16 bits" in refusal("Tumbling", {"count": 3, "what": "variance"}, "x:i32")
    assert "'speed'" in refusal("Tumbling", {"count": 3, "what": "speed"}, "x:i16")
    assert "multiple" in refusal("Sliding", {"us": 5, "step_us": 2}, "x:i16")
    assert "rr_us" in refusal("HeartRate", {"beats": 3}, "x:i16")
    assert "'pulse'" in refusal("Where", {"test": [">", "pulse", 3], "names": "", "values": []}, "x:i16")


def test_a_size_that_state_depends_on_cannot_change_at_run_time():
    for kind, params, change in (
        ("Fir", {"coeffs": [1, 2, 3]}, {"coeffs": [1, 2]}),
        ("Median", {"k": 3}, {"k": 5}),
        ("Average", {"count": 3}, {"count": 4}),
        ("Sliding", {"count": 3}, {"count": 4}),
        ("HeartRate", {"beats": 3}, {"beats": 4}),
    ):
        op = trial.make(kind, params, ("rr_us:u32",))
        before = trial.state(op)
        try:
            op.configure(change)
        except OperatorError as e:
            assert "cannot change at run time" in str(e), str(e)
            assert trial.state(op) == before
            continue
        raise AssertionError("was taken")


class Doubled(Operator):
    IN = ("v:i16",)
    OUT = ("v:i32",)
    STATE = "last:i16"
    ONE_TO_ONE = True

    def run(self, x, n):
        c = x.cols[0]
        o = self.y.cols[0]
        for i in range(n):
            o[i] = 2 * c[i]
            self.last = c[i]
        return n


def test_a_type_of_ones_own_is_registered_and_found():
    assert register(Doubled) is Doubled
    op = trial.make("Doubled", {}, ("v:i16",))
    assert trial.run(op, entries([-32768]))[0] == [(DAY_US, (-65536,))]
    assert trial.state(op) == b"\x00\x80"
    try:
        register(type("Affine", (Doubled,), {}))
    except OperatorError as e:
        assert "'Affine' exists already" in str(e)
        return
    raise AssertionError("was registered")
