# Placements, lives and moves of the golden cases: the same on both interpreters.

import json

from headwater.plan import placement
from headwater.plan.placement import Case, Edge, Host, Vertex


def test_golden_cases_have_the_same_answers():
    searched = found = 0
    with open("tests/data/placements.jsonl") as f:
        for line in f:
            told = json.loads(line)
            case = Case(
                [Host(*row) for row in told["hosts"]],
                [Vertex(*row) for row in told["vertices"]],
                [Edge(*row) for row in told["edges"]],
            )
            first = told["first"]
            assert case.lives(first) == told["lives"]
            assert [list(each) for each in case.breaks(first)] == told["broken"]
            hosts = range(len(case.hosts))
            assert [case.flee_mc(first, h, 5000) for h in hosts] == told["flee_mc"]
            assert [list(case.moved(first, len(first) - 1, h)) for h in hosts] == told["moved"]
            assert placement.place(case, first, told["trials"]) == told["best"]
            n = 1
            for v in case.vertices:
                n *= len(v.hosts)
            searched += n > told["trials"]
            found += told["best"] is not None
    assert searched >= 4 and found >= 8
