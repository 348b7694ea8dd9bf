"""Generated pages are as code and records make them; outputs of commands are checked in tests/system."""

from __future__ import annotations

import re

import pytest
from headwater_tools import documents, limits, operator_table
from headwater_tools.bench import Measure, at_most
from headwater_tools.bench.support import against, recorded
from headwater_tools.commands import bench


def test_every_generated_page_is_as_code_and_records_make_it() -> None:
    for path, text in documents.generated().items():
        assert path.read_text() == text, "run: python -m headwater_tools.documents --update"


def test_every_operator_stands_in_the_table_once() -> None:
    from headwater import operators

    rows = re.findall(r"^\| `(\w+)` \|", operator_table.page(), re.M)
    assert sorted(rows) == sorted(operators.kinds())


def test_a_figure_comes_from_its_record_with_commit_and_date() -> None:
    name = "programmed per packed byte, samples"
    known = {"flash": {name: {"value": 1.1437, "commit": "abc", "date": "2026-11-19"}}}
    text = limits.page(known)
    assert "| 1.14 (the aim is 1.15) | `hw bench flash` | abc, 2026-11-19 |" in text
    assert "bytes on the air" not in text  # never recorded, so not claimed


def test_a_record_replaces_its_own_measures_and_no_others(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "bench.json"
    recorded.add("flash", [Measure("a", 1), at_most("b", 2, "ms", 3)], path)
    recorded.add("wire", [Measure("a", 5)], path)
    recorded.add("flash", [Measure("a", 7)], path)
    known = recorded.load(path)
    values = {(bench, name): known[bench][name]["value"] for bench in known for name in known[bench]}
    assert values == {("flash", "a"): 7, ("flash", "b"): 2, ("wire", "a"): 5}
    assert known["flash"]["b"]["bar"] == 3
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", known["flash"]["a"]["date"])


def test_two_trees_are_compared_by_the_medians_of_what_both_measure() -> None:
    there = [{"a": 1.0, "old": 1.0}, {"a": 9.0, "old": 1.0}, {"a": 2.0, "old": 1.0}]
    here = [{"a": 3.0, "new": 1.0}, {"a": 4.0, "new": 1.0}, {"a": 100.0, "new": 1.0}]
    assert against.rows(there, here, {"a": "ms"}) == [
        {"name": "a", "unit": "ms", "there": 2.0, "here": 4.0, "ratio": 2.0}
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["wire", "--against", "abc", "--quick"],
        ["wire", "--against=abc", "--quick", "--repeat=3"],
        ["wire", "--repeat", "3", "--quick", "--against", "abc"],
    ],
)
def test_the_words_of_the_comparison_do_not_reach_the_bench(words: list[str]) -> None:
    assert bench._without(words, "--against", "--repeat") == ["wire", "--quick"]
