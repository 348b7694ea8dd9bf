"""What a batch adds: the decision on ranges is that of a lake that looks at every single ξ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest
from headwater_cloud import ranges
from headwater_cloud.checksum import turned
from headwater_cloud.decide import CLAIMS_MAX, Decision, decide
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


def summed(file: str, first: int, last: int, checksum: int) -> Segment:
    return replace(seg(file, "r" * (last - first + 1), first), sum=checksum)


def landed(segments: Iterable[Segment], lake: dict[tuple[str, int], Numbering]) -> None:
    """Take segments into a lake whose sink proved what they declare."""
    decision = decide(segments, lake)
    declared = {s.file: s.sum for s in decision.landing() if s.sum is not None}
    decision.prove(decision.sums(declared, decision.claims))
    lake.update(decision.changed)


def test_a_segment_that_repeats_whole_runs_claims_what_progress_knows_of_them() -> None:
    lake: dict[tuple[str, int], Numbering] = {}
    landed([summed("a", 1, 4, 0b1111)], lake)
    landed([summed("b", 5, 8, 0b1010)], lake)
    decision = decide([summed("c", 1, 12, 7)], lake)
    assert (decision.claims, decision.overlaps) == ({"c": 0b1111 ^ 0b1010}, [])
    assert taken(decision) == [("c", xi) for xi in range(9, 13)]
    (turn,) = {part.turn for part in decision.parts}
    assert turn == decision.turns["c"] > 0
    middle = replace(seg("d", "rrrrrrrrgrrr"), sum=9)
    assert decide([middle], lake).claims == {"d": 0b0101}
    span = decision.sums({"c": 7}, decision.claims)["c"]
    assert (span.first, span.last, span.rows, span.sum) == (9, 12, 4, 7 ^ 0b0101)
    assert [(p.first, p.last) for p in decision.distrust()] == [(1, 8)]
    assert (decision.claims, [(p.first, p.last) for p in decision.overlaps]) == ({}, [(1, 8)])


@pytest.mark.parametrize(
    "segment",
    (
        summed("c", 3, 12, 7),  # begins within a run
        summed("c", 7, 12, 7),
        replace(seg("c", "hrrrrrrrrr"), sum=7),  # says a hole where a row is known
        seg("c", "r" * 12),  # declares no checksum
        summed("c", 2, 3, 7),  # brings nothing new that could show it
    ),
)
def test_what_no_checksum_of_progress_covers_is_compared(segment: Segment) -> None:
    lake: dict[tuple[str, int], Numbering] = {}
    landed([summed("a", 1, 4, 15)], lake)
    landed([summed("b", 5, 8, 10)], lake)
    decision = decide([segment], lake)
    assert decision.claims == {} and decision.overlaps != []
    assert {part.turn for part in decision.parts} <= {0}


def test_nothing_is_claimed_of_rows_that_landed_before_there_were_checksums() -> None:
    lake = decide([seg("a", "rrrr")], {}).changed
    landed([summed("b", 5, 8, 10)], lake)
    assert decide([summed("c", 5, 12, 7)], lake).claims == {}


def test_nothing_is_claimed_of_what_the_batch_itself_brings() -> None:
    decision = decide([summed("a", 1, 4, 15), summed("b", 1, 8, 7)], {})
    assert decision.claims == {} and decision.within


def test_each_claim_of_a_batch_has_a_rotation_of_its_own() -> None:
    lake: dict[tuple[str, int], Numbering] = {}
    streams = [replace(summed(str(i), 1, 4, 15), stream=str(i)) for i in range(100)]
    landed(streams, lake)
    decision = decide([replace(s, last=8, rows=8) for s in streams], lake)
    assert sorted(decision.turns.values()) == list(range(1, CLAIMS_MAX + 1))
    assert len(decision.overlaps) == 100 - CLAIMS_MAX
    # The same error in two files does not cancel itself.
    assert turned(9, 3) ^ turned(9, 5) != 0 and turned(turned(-9, 3), 61) == -9


lives = st.lists(
    st.lists(st.tuples(st.integers(1, 12), st.text("rrrhg", min_size=1, max_size=8)), max_size=4),
    min_size=1,
    max_size=4,
)


@given(lives, st.sets(st.integers(1, 20)), st.integers(0, 4))
def test_what_is_erased_never_lands_and_all_else_lands_once(
    batches: list[list[tuple[int, str]]], meant: set[int], declared: int
) -> None:
    """An erasure of these ξ is declared before the batch of this number; until then they land."""
    there: list[int] = []
    erased: set[int] = set()
    holes: set[int] = set()
    numberings: dict[tuple[str, int], Numbering] = {}
    for n, pieces in enumerate(batches):
        if n == declared and numberings:
            now = numberings[KEY].copy()
            gone = [xi for xi in there if xi in meant]
            there = [xi for xi in there if xi not in meant]
            erased |= set(gone)
            now.erased = ranges.normal((xi, xi) for xi in gone)
            now.rows_kept -= len(gone)
            now.rows_landed -= len(gone)
            numberings[KEY] = now
        segments = []
        for i, (first, kinds) in enumerate(pieces):
            one = seg("%d.%d" % (n, i), kinds, first)
            here = ranges.intersect(one.row_ranges(), ranges.normal((xi, xi) for xi in meant))
            segments.append(replace(one, erased=(("e", here),)) if here and n >= declared else one)
        decision = decide(segments, numberings)
        numberings.update(decision.changed)
        there += [xi for _, xi in taken(decision)]
        erased |= {xi for _, _, a, b in decision.erased for xi in range(a, b + 1)}
        holes |= {x for s in segments for g in s.gaps if g.kind == "hole" for x in range(g.first, g.last + 1)}
        dropped = {(p.file, xi) for p in decision.dropped for xi in range(p.first, p.last + 1)}
        overlaps = {(p.file, xi) for p in decision.overlaps for xi in range(p.first, p.last + 1)}
        rows = {(s.file, xi) for s in segments for a, b in s.row_ranges() for xi in range(a, b + 1)}
        # Each row that came is taken, compared with what is known, or left out.
        assert rows <= dropped | overlaps | set(taken(decision))
        assert not dropped & (overlaps | set(taken(decision)))
        assert decision.rows_landed == decision.rows_kept + decision.rows_duplicate
    if not numberings:
        return
    now = numberings[KEY]
    assert len(there) == len(set(there)) and not erased & set(there)
    assert now.erased == ranges.normal((xi, xi) for xi in erased)
    assert now.known == ranges.normal((xi, xi) for xi in {*there, *erased, *holes})
    assert now.rows_kept == len(there)
