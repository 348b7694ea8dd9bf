# heap: 512k
# The same outputs and the same state, byte for byte, on both interpreters, whole and in pieces.

import json

from headwater.testing import trial


def hexed(data):
    return "".join(["%02x" % b for b in data])


def listed(outs):
    return [[[ts, None if row is None else list(row)] for ts, row in out] for out in outs]


def test_vectors_give_equal_outputs_and_equal_state():
    count = 0
    with open("tests/data/operator_vectors.jsonl") as f:
        for line in f:
            v = json.loads(line)
            for cut in (64, (1, 5, 2)):
                op = trial.make(v["kind"], v["params"], v["ins"])
                got = trial.run(op, v["entries"], cut, v["until"])
                assert listed(got) == v["outs"], (v["kind"], cut)
                assert hexed(trial.state(op)) == v["state"], (v["kind"], cut)
            count += 1
    assert count == 33


def test_a_state_taken_in_the_middle_goes_on_as_if_nothing_had_happened():
    with open("tests/data/operator_vectors.jsonl") as f:
        for line in f:
            v = json.loads(line)
            first = trial.make(v["kind"], v["params"], v["ins"])
            second = trial.make(v["kind"], v["params"], v["ins"])
            half = len(v["entries"]) // 2
            trial.run(first, v["entries"][:half])
            second.restore(trial.state(first), second.VERSION)
            trial.run(second, v["entries"][half:], 64, v["until"])
            assert hexed(trial.state(second)) == v["state"], v["kind"]
