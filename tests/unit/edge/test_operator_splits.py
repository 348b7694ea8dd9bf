"""Every type of the library: what comes out, and the state, depend on the entries alone. The same cases
make tests/data/operator_vectors.jsonl, which both interpreters compute again:

    PYTHONPATH=edge:tools .hw/py3.11/bin/python tests/unit/edge/test_operator_splits.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from headwater.data.alphabet import TYPES, Alphabet
from headwater.operators import find, kinds
from headwater.process.arguments import arguments
from headwater.process.coefficients import BANDPASS, LOWPASS
from headwater.testing import trial
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

VECTORS = Path(__file__).parents[2] / "data" / "operator_vectors.jsonl"
WHAT = "count sum mean min max variance"
V = ("v:i16",)
XY = ("x:i16 y:u8",)

# kind, what an author writes, inputs
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[str, ...]]] = [
    ("Affine", (), {"num": 7, "den": 3, "offset": -5}, XY),
    ("Magnitude", (), {}, XY),
    ("Difference", (), {}, XY),
    ("Decimate", (3,), {}, XY),
    ("DeadBand", (500,), {"field": "x"}, XY),
    ("Where", ("x > limit and y != 3",), {"limit": 100}, XY),
    ("Map", ("m:i8 n:u16",), {"m": "max(x, -x) + (y >> 1)", "n": "x * y // (y - 7)"}, XY),
    ("Route", ("x > 1000", "y < 9"), {}, XY),
    ("Fir", (list(BANDPASS),), {}, V),
    ("Fir", (list(LOWPASS),), {}, XY),
    ("ExpAverage", (3,), {}, XY),
    ("Median", (5,), {}, XY),
    ("Average", (), {"count": 7}, V),
    ("Average", (), {"ms": 20, "keep": 8}, V),
    ("Tumbling", (), {"count": 7, "what": WHAT}, V),
    ("Tumbling", (), {"ms": 20, "what": WHAT, "holes": 1}, V),
    ("Tumbling", (), {"ms": 20, "what": "mean", "empty": 1}, V),
    ("Sliding", (), {"count": 7, "what": WHAT}, V),
    ("Sliding", (), {"count": 7, "step": 3, "what": "min"}, V),
    ("Sliding", (), {"ms": 20, "step_ms": 5, "what": WHAT, "holes": 1}, V),
    ("SumJoin", (), {"ms": 20, "keep": 9}, ("a:i16", "b:u16")),
    ("Attenuate", (), {"threshold": 0}, ("a:i16 b:u8", "mean:i32")),
    ("Union", (), {}, ("a:i16", "a:i16", "a:i16")),
    ("Hold", (), {}, ("a:i16", "b:u8 c:i32", "d:u16")),
    ("Threshold", (), {"high": 1000, "low": -1000}, V),
    ("Debounce", (), {"ms": 4}, ("b:u8",)),
    ("Rate", (), {"ms": 7}, V),
    ("Counter", (), {"us": 60000}, V),
    ("Qrs", (), {"hz": 90}, V),
    ("HeartRate", (), {"seconds": 10, "quiet_ms": 9}, ("rr_us:u32",)),
    ("Variability", (4,), {}, ("rr_us:u32",)),
    ("HealthAnalyzer", (), {"a": (-500, 500), "b": (0, 9000), "need": "all"}, ("a:i16", "b:u16")),
    ("Otherwise", (), {}, ("a:i16 b:u8", "a:i16 b:u8")),
]
NAMES = ["%d-%s" % (i, case[0]) for i, case in enumerate(CASES)]
Entry = tuple[int, int, tuple[int, ...] | None]


def test_every_kind_of_the_library_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(kinds())


def made(case: tuple[str, tuple[Any, ...], dict[str, Any], tuple[str, ...]]) -> Any:
    kind, args, given_, ins = case
    return trial.make(kind, arguments(find(kind), args, given_), ins)


def invented(ins: tuple[str, ...], seed: int, count: int) -> list[Entry]:
    """Entries with values at the limits, equal ts, pauses and holes."""
    draw = random.Random(seed)
    alphabets = [Alphabet(text) for text in ins]
    ts = 1_700_000_000_000_000 + draw.randrange(10_000)
    out: list[Entry] = []
    while len(out) < count:
        ts += draw.choice((0, 500, 1000, 1000, 1000, 2777, 3000, 40_000, 2_000_000))
        ports = sorted({draw.randrange(len(ins)) for _ in range(2)})
        for port in ports:
            if draw.random() < 0.04:
                out.append((port, ts, None))
                continue
            row = []
            for t in alphabets[port].types:
                low, high = TYPES[t][2:4]
                if t == "u32":
                    values = [0, 700_000, 810_000, draw.randrange(500_000, 1_500_000), 800_000, 900_000]
                else:
                    values = [
                        low,
                        high,
                        0,
                        *[draw.randint(max(low, -3000), min(high, 3000)) for _ in range(6)],
                    ]
                row.append(draw.choice(values))
            out.append((port, ts, tuple(row)))
    return out


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@settings(max_examples=25)
@given(
    seed=st.integers(0, 1 << 20),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=9),
    part=st.integers(0, 80),
)
def test_outputs_and_state_do_not_depend_on_the_cut_nor_on_a_restart(
    case: Any, seed: int, cuts: list[int], part: int
) -> None:
    entries = invented(case[3], seed, 80)
    end = entries[-1][1] + 30_000
    whole = made(case)
    expected = trial.run(whole, entries, until=end)

    first, second = made(case), made(case)
    before = trial.run(first, entries[:part], cuts)
    second.restore(trial.state(first), second.VERSION)
    behind = trial.run(second, entries[part:], cuts, end)
    assert [a + b for a, b in zip(before, behind)] == expected
    assert trial.state(second) == trial.state(whole)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_restore_of_a_wrong_size_or_version_is_refused(case: Any) -> None:
    op = made(case)
    data = trial.state(op)
    with pytest.raises(ValueError, match="bytes, operator needs"):
        op.restore(data + b"\0", op.VERSION)
    with pytest.raises(ValueError, match="no conversion"):
        op.restore(data, op.VERSION + 1)


def vectors() -> list[dict[str, Any]]:
    out = []
    for i, case in enumerate(CASES):
        kind, args, given_, ins = case
        op = made(case)
        entries = invented(ins, 1000 + i, 40)
        until = entries[-1][1] + 10_000
        outs = trial.run(op, entries, until=until)
        out.append(
            {
                "kind": kind,
                "params": arguments(find(kind), args, given_),
                "ins": ins,
                "entries": entries,
                "until": until,
                "outs": outs,
                "state": trial.state(op).hex(),
            }
        )
    return out


def test_the_vectors_are_those_of_this_file() -> None:
    lines = VECTORS.read_text().splitlines()
    assert [json.loads(line) for line in lines] == json.loads(json.dumps(vectors()))


if __name__ == "__main__":
    VECTORS.write_text("".join([json.dumps(v, separators=(",", ":")) + "\n" for v in vectors()]))
