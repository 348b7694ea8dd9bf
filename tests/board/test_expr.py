# Expressions on both interpreters: every operation against literal values, and trees that come from
# outside against the check.

from headwater.operators.expr import DEPTH_MAX, NODES_MAX, ExprError, source

NAMES = {"x": "v0", "y": "v1", "limit": "p0"}


def value(tree, x=0, y=0, limit=0):
    space = {}
    exec("def f(v0, v1, p0):\n return %s\n" % source(tree, NAMES), space)
    return int(space["f"](x, y, limit))


def refusal(tree):
    try:
        source(tree, NAMES)
    except ExprError as e:
        return str(e)
    raise AssertionError("was not refused")


def test_arithmetic_is_exact_beyond_64_bits():
    big = (1 << 63) - 1
    assert value(["*", big, big, big]) == big * big * big
    assert value(["+", "x", "y", 3, -4], 1, 2) == 2
    assert value(["-", "x", "y"], -big, big) == -2 * big
    assert value(["neg", "x"], -7) == 7
    assert value(["neg", -7]) == 7


def test_division_and_remainder_round_down_and_by_zero_give_zero():
    assert [value(["//", "x", "y"], x, y) for x, y in ((7, 2), (-7, 2), (7, -2), (7, 0))] == [3, -4, -4, 0]
    assert [value(["%", "x", "y"], x, y) for x, y in ((7, 3), (-7, 3), (7, -3), (7, 0))] == [1, 2, -2, 0]
    assert [value(["//", "x", 0], 9), value(["%", "x", 0], 9), value(["//", "x", -2], 9)] == [0, 0, -5]


def test_shifts_go_by_0_to_31():
    assert [value(["<<", "x", "y"], 3, y) for y in (-1, 0, 4, 31, 32, 1000)] == [
        3,
        3,
        48,
        3 << 31,
        3 << 31,
        3 << 31,
    ]
    assert [value([">>", "x", "y"], -5, y) for y in (-9, 1, 99)] == [-5, -3, -1]
    assert [value(["<<", "x", 40], 1), value(["<<", "x", -1], 1), value([">>", "x", 2], 9)] == [1 << 31, 1, 2]


def test_bits():
    assert [value([op, "x", "y"], 12, 10) for op in ("&", "|", "^")] == [8, 14, 6]
    assert [value(["~", "x"], 5), value(["~", [">", "x", 1]], 5)] == [-6, -2]


def test_comparisons_are_one_or_zero_and_may_be_counted():
    assert [value([op, "x", 3], 3) for op in ("<", "<=", ">", ">=", "==", "!=")] == [0, 1, 0, 1, 1, 0]
    assert value(["+", [">", "x", 1], [">", "x", 2], [">", "x", 3]], 3) == 2


def test_and_or_not_if():
    assert value(["and", [">", "x", 1], ["<", "y", 9]], 2, 8) == 1
    assert [value(["or", "x", "y"], 0, 7), value(["and", "x", "y"], 0, 7)] == [7, 0]
    assert [value(["not", "x"], 0), value(["not", "x"], 3)] == [1, 0]
    assert [value(["if", [">", "x", 0], "y", -1], x, 5) for x in (1, 0)] == [5, -1]


def test_functions():
    assert [value(["min", "x", "y", 4], 9, 5), value(["max", "x", "y", 4], 3, -5)] == [4, 4]
    assert value(["min", ["max", "x", 3], ["max", "y", ["min", "x", 9]]], 7, 1) == 7
    assert [value(["abs", "x"], -3), value(["abs", ["-", "x", 9]], 3)] == [3, 6]
    assert [value(["clamp", "x", -2, ["+", "y", 1]], x, 4) for x in (-9, 0, 9)] == [-2, 0, 5]
    assert value(["clamp", "x", 5, 1], 3) == 5


def test_saturation_stops_at_the_limits_of_the_type():
    for name, low, high in (
        ("sat8", -128, 127),
        ("sat16", -32768, 32767),
        ("sat32", -2147483648, 2147483647),
        ("satu8", 0, 255),
        ("satu16", 0, 65535),
        ("satu32", 0, 4294967295),
    ):
        got = [value([name, ["+", "x", 0]], x) for x in (low - 1, low, high, high + 1)]
        assert got == [low, low, high, high], name


def test_operands_needed_twice_do_not_disturb_each_other():
    tree = [
        "//",
        ["*", ["abs", ["-", "x", "y"]], 10],
        ["max", ["abs", ["-", "y", "x"]], ["abs", ["+", "x", 1]]],
    ]
    assert value(tree, 3, 8) == 10
    tree = [
        "<<",
        ["min", ["%", "x", ["-", "y", 1]], ["+", "y", 0]],
        ["max", ["-", "x", 7], ["%", "y", ["abs", "x"]]],
    ]
    assert value(tree, 8, 4) == 2 << 4


def test_nested_operands_do_not_multiply_the_source():
    tree = "x"
    for _ in range(DEPTH_MAX - 1):
        tree = ["abs", tree]
    assert len(source(tree, NAMES)) < 700
    tree = "x"
    for _ in range(DEPTH_MAX - 1):
        tree = ["clamp", "x", "y", tree]
    assert len(source(tree, NAMES)) < 1200


def test_trees_from_outside_are_checked_totally():
    deep = "x"
    for _ in range(DEPTH_MAX):
        deep = ["neg", deep]
    assert "deeper" in refusal(deep)
    for _ in range(300):
        deep = ["neg", deep]
    assert "deeper" in refusal(deep)
    assert "more than" in refusal(["+"] + ["x"] * NODES_MAX)
    assert "64 bits" in refusal(1 << 63)
    assert "'z'" in refusal("z")
    assert "'__import__'" in refusal(["+", "__import__", 1])
    assert "operands" in refusal(["-", "x"])
    assert "operands" in refusal(["not", "x", "x"])
    for odd in (
        [],
        [[]],
        ["exec", "x"],
        ["list", "x"],
        [1, 2],
        None,
        True,
        1.5,
        {"+": 1},
        b"x",
        ["+", "x", None],
    ):
        assert "expression" in refusal(odd)
