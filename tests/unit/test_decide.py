"""What a batch adds: the decision on ranges is that of a lake that looks at every single ξ."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater_cloud import ranges
from headwater_cloud.decide import Decision, decide
from headwater_cloud.progress import Numbering
from headwater_cloud.segment import Gap, Segment
from hypothesis import given
from hypothesis import strategies as st

KEY = ("s", 1)


def seg(file: str, kinds: str, first: int = 1, process: str = "p") -> Segment:
    """A segment by a picture: r a row, h a hole, g a declared gap."""
    gaps = []
    for i, kind in enumerate(kinds):
        if kind != "r":
            gaps.append(Gap(first + i, first + i, "hole" if kind == "h" else "gap", "full", 1, 2))
    last = first + len(kinds) - 1
    return Segment(file, process, "s", 1, first, last, kinds.count("r"), "a:i8", 0, tuple(gaps), last * 10)


def taken(decision: Decision) -> list[tuple[str, int]]:
    out = [(s.file, xi) for s in decision.whole for a, b in s.row_ranges() for xi in range(a, b + 1)]
    out += [(p.file, xi) for p in decision.parts for xi in range(p.first, p.last + 1)]
    return sorted(out)


@dataclass
class Model:
    """One ξ at a time."""

    known: set[int] = field(default_factory=set)
    gaps: set[int] = field(default_factory=set)
    taken: list[tuple[str, int]] = field(default_factory=list)
    compared: list[tuple[str, int]] = field(default_factory=list)
    declared: list[tuple[int, str]] = field(default_factory=list)

    def take(self, segment: Segment) -> None:
        kind = {gap.first: gap.kind for gap in segment.gaps}
        known, gaps = set(self.known), set(self.gaps)
        for xi in range(segment.first, segment.last + 1):
            what = kind.get(xi, "row")
            if what == "gap":
                if xi not in known and xi not in gaps:
                    self.declared.append((xi, "gap"))
                    self.gaps.add(xi)
                continue
            if xi in known:
                self.compared.append((segment.file, xi))
            elif what == "row":
                self.taken.append((segment.file, xi))
            else:
                self.declared.append((xi, "hole"))
            self.known.add(xi)
            self.gaps.discard(xi)


pictures = st.lists(st.tuples(st.integers(1, 12), st.text("rrrhg", min_size=1, max_size=8)), max_size=6)


@given(pictures, pictures)
def test_decisions_on_ranges_are_those_on_single_numbers(
    before: list[tuple[int, str]], batch: list[tuple[int, str]]
) -> None:
    model = Model()
    numberings: dict[tuple[str, int], Numbering] = {}
    for n, pieces in enumerate((before, batch)):
        segments = [seg("%d.%d" % (n, i), kinds, first) for i, (first, kinds) in enumerate(pieces)]
        model.taken, model.compared, model.declared = [], [], []
        for s in sorted(segments, key=lambda s: (s.first, s.last, s.file)):
            model.take(s)
        decision = decide(segments, numberings)
        numberings.update(decision.changed)
        overlaps = [(p.file, xi) for p in decision.overlaps for xi in range(p.first, p.last + 1)]
        declared = [(xi, g["kind"]) for g in decision.gaps for xi in range(g["first"], g["last"] + 1)]
        assert taken(decision) == sorted(model.taken)
        assert sorted(overlaps) == sorted(model.compared)
        assert sorted(declared) == sorted(model.declared)
        assert decision.rows_landed == decision.rows_kept + decision.rows_duplicate
    if numberings:
        got = numberings[KEY]
        assert got.known == ranges.normal((x, x) for x in model.known)
        assert got.gaps == ranges.normal((x, x) for x in model.gaps)
        assert got.rows_landed == got.rows_kept + got.rows_duplicate


@given(pictures)
def test_the_order_of_files_does_not_matter(batch: list[tuple[int, str]]) -> None:
    segments = [seg(str(i), kinds, first) for i, (first, kinds) in enumerate(batch)]
    assert decide(segments, {}) == decide(reversed(segments), {})


def test_clean_input_touches_no_row() -> None:
    decision = decide([seg("a", "rrrr"), seg("b", "rrhr", 5)], {})
    assert [s.file for s in decision.whole] == ["a", "b"]
    assert (decision.parts, decision.overlaps) == ([], [])
    assert decision.changed[KEY].known == [(1, 8)]


def test_a_range_with_a_hole_in_it_is_not_first_to_last() -> None:
    first = decide([seg("a", "rr"), seg("c", "rr", 5)], {})
    assert first.changed[KEY].known == [(1, 2), (5, 6)]
    assert ranges.high(first.changed[KEY].accounted()) == 2
    second = decide([seg("b", "rr", 3)], first.changed)
    assert taken(second) == [("b", 3), ("b", 4)]
    assert second.changed[KEY].known == [(1, 6)]


def test_a_row_enters_where_a_gap_was_declared_and_not_where_a_hole_was() -> None:
    lake = decide([seg("a", "rghr")], {}).changed
    late = decide([seg("b", "rr", 2)], lake)
    assert taken(late) == [("b", 2)]
    assert [(p.first, p.last) for p in late.overlaps] == [(3, 3)]
    assert late.changed[KEY].gaps == []


def test_an_incarnation_that_begins_at_one_again_is_another_numbering() -> None:
    lake = decide([seg("a", "rrr")], {}).changed
    again = Segment("b", "p", "s", 2, 1, 3, 3, "a:i8", 0, (), 30)
    decision = decide([again], lake)
    assert [s.file for s in decision.whole] == ["b"]


def test_a_process_that_was_renamed_goes_on_in_its_numbering() -> None:
    lake = decide([seg("a", "rrr", process="old")], {}).changed
    after = decide([seg("b", "rrr", 3, process="new")], lake).changed[KEY]
    assert after.processes == ["old", "new"]
    assert (after.known, after.rows_duplicate) == ([(1, 5)], 1)
