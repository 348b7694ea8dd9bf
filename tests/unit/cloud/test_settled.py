"""Numberings that move to `settled` and back, wherever this is cut off: no reader sees a difference."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from headwater_cloud import crash_points, settled, tables
from headwater_cloud.acks import Acknowledgements
from headwater_cloud.decide import decide
from headwater_cloud.files import Files
from headwater_cloud.location import Location
from headwater_cloud.progress import Key, Numbering, Progress, row_of
from headwater_cloud.segment import Gap, Segment, name_part
from headwater_cloud.settled import Settled
from headwater_gateway.segments.planner import Marks, furthest_of, marks_of, settled_of
from hypothesis import given, settings
from hypothesis import strategies as st

KEYS = (("s", 1), ("s", -2), ("a/b", 3))


class Died(Exception):
    """Killed here."""


class Books:
    """What a sink keeps of numberings, on the disk; `die_at`: at the how manieth step of what it writes."""

    def __init__(self, folder: Path) -> None:
        self.lake = Location.of(str(folder))
        for name in ("progress", "settled"):
            DeltaTable.create(str(folder / name), tables.SCHEMAS[name])
        self.now = 0
        self.die_at = 0
        self.start()

    def start(self) -> None:
        self.progress = Progress.load(self.lake)
        self.settled = Settled.load(self.lake)
        assert self.settled.agrees(self.progress)
        self.acks = Acknowledgements(Files(None), self.lake, [])
        self.acks.settle(self.settled.told())
        self.acks.write(self.progress, [])

    def step(self, *what: object) -> None:
        self.die_at -= 1
        if not self.die_at:
            raise Died

    def batch(self, segments: list[Segment]) -> None:
        self.now += 1
        self.settled.activate(self.progress, {one.key for one in segments})
        self.progress.change(decide(segments, self.progress.numberings).changed, self.now)
        self.progress.batch += 1
        self.progress.elements += 1
        self.progress.save()
        self.step()
        self.acks.write(self.progress, [])

    def settle(self) -> None:
        self.now += 1
        keys = settled.quiet(self.progress, self.now, 0)
        settled.settle(keys, self.progress, self.settled, self.acks, self.step)

    def rows(self) -> list[dict[str, Any]]:
        """Of all numberings, as a reader without the lock finds them."""
        return sorted(settled.rows(self.lake), key=lambda row: (row["stream"], row["incarnation"]))

    def told(self) -> tuple[Marks, Marks]:
        """What a gateway makes of the files: marks, and what is accounted for above."""
        folder = Path(self.lake.spark) / "acks"
        marks: Marks = {}
        beyond: Marks = {}
        for path in folder.glob("[!_]*.json"):
            said = json.loads(path.read_text())
            more = folder / (settled.PREFIX + path.name)
            marks |= settled_of(json.loads(more.read_text())) if "settled" in said else {}
            marks |= marks_of(said)
            beyond |= {key: last for key, last in furthest_of(said).items() if last}
        return marks, beyond


class Model:
    """The same in one dictionary that nothing ever leaves."""

    def __init__(self) -> None:
        self.numberings: dict[Key, Numbering] = {}
        self.updated: dict[Key, int] = {}

    def batch(self, segments: list[Segment], now: int) -> None:
        changed = decide(segments, self.numberings).changed
        self.numberings.update(changed)
        self.updated.update(dict.fromkeys(changed, now))

    def rows(self) -> list[dict[str, Any]]:
        return [row_of(key, one, self.updated[key]) for key, one in sorted(self.numberings.items())]

    def told(self) -> tuple[Marks, Marks]:
        accounted = {key: one.accounted() for key, one in self.numberings.items()}
        marks = {(s, inc % (1 << 64)): r[0][1] if r[0][0] == 1 else 0 for (s, inc), r in accounted.items()}
        beyond = {
            (s, inc % (1 << 64)): r[-1][1] for (s, inc), r in accounted.items() if len(r) > 1 or r[0][0] > 1
        }
        return marks, beyond


def seg(key: Key, kinds: str, first: int, process: str) -> Segment:
    """A segment by a picture: r a row, h a hole, g a declared gap."""
    gaps = tuple(
        Gap(first + i, first + i, "hole" if kind == "h" else "gap", "full", 1, 2)
        for i, kind in enumerate(kinds)
        if kind != "r"
    )
    last = first + len(kinds) - 1
    file = "%s %d %d %s" % (*key, first, kinds)
    return Segment(file, process, *key, first, last, kinds.count("r"), "a:i8", 0, gaps, last * 10)


segments = st.builds(
    seg,
    st.sampled_from(KEYS),
    st.text("rrrhg", min_size=1, max_size=6),
    st.integers(1, 7),
    st.sampled_from(("p", "q")),
)
steps = st.one_of(
    st.tuples(st.just("batch"), st.lists(segments, min_size=1, max_size=3), st.integers(0, 2)),
    st.tuples(st.just("settle"), st.just([]), st.integers(0, 6)),
)


History = list[tuple[str, list[Segment], int]]


@settings(max_examples=20, deadline=None)
@given(st.lists(steps, min_size=2, max_size=7))
def test_a_settled_numbering_is_judged_and_acknowledged_as_if_it_had_stayed(history: History) -> None:
    compare(history)


def compare(history: History) -> None:
    """What readers find after each step is what the model has."""
    model = Model()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        books = Books(Path(folder))
        patch.setattr(crash_points, "reach", books.step)
        for what, batch, die_at in history:
            books.die_at = die_at
            try:
                if what == "settle":
                    books.settle()
                else:
                    books.batch(batch)
            except Died:
                books.start()
            if what == "batch":
                model.batch(batch, books.now)
            assert books.rows() == model.rows()
            assert books.told() == model.told()
        books.start()
        assert books.rows() == model.rows() and books.told() == model.told()


def not_made_active_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Settled, "activate", lambda self, progress, keys: None)


def progress_forgets_first(patch: pytest.MonkeyPatch) -> None:
    def settle(keys: Any, progress: Any, there: Any, acks: Any, sync: Any) -> None:
        kept = Progress(dict(progress.numberings), updated=dict(progress.updated))
        progress.forget(keys)
        sync("progress", progress.save())
        sync("settled", there.put(kept, keys))
        acks.settle(there.told())
        acks.write(progress, [])

    patch.setattr(settled, "settle", settle)


def no_second_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Acknowledgements, "settle", lambda self, told: None)


def the_older_row_counts(patch: pytest.MonkeyPatch) -> None:
    put = Settled.put
    patch.setattr(Settled, "put", lambda self, progress, keys: put(self, progress, set(keys) - self.keys))


MUTATIONS = (not_made_active_again, progress_forgets_first, no_second_file, the_older_row_counts)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.__name__ for mutation in MUTATIONS])
def test_the_comparison_sees(monkeypatch: pytest.MonkeyPatch, mutation: Any) -> None:
    first, late = seg(KEYS[0], "rrg", 1, "p"), seg(KEYS[0], "rrr", 2, "p")
    active = seg(KEYS[1], "rr", 3, "p")  # 1 and 2 are still to come
    history: History = [("batch", [first, active], 0), ("settle", [], 1), ("settle", [], 0)]
    history += [("batch", [late], 0), ("settle", [], 0)]
    compare(history)
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        compare(history)


@pytest.fixture
def books(tmp_path: Path) -> Books:
    made = Books(tmp_path)
    made.batch([seg(KEYS[0], "rrghr", 1, "p"), seg(KEYS[1], "rr", 3, "p"), seg(KEYS[2], "rr", 1, "q")])
    made.settle()
    return made


def test_what_is_complete_leaves_progress_and_comes_back_with_a_late_segment(books: Books) -> None:
    assert books.progress.numberings.keys() == {KEYS[1]}  # 1 and 2 are still to come
    assert books.settled.keys == {KEYS[0], KEYS[2]}
    assert json.loads((Path(books.lake.spark) / "acks" / "q.json").read_text())["streams"] == {}
    books.batch([seg(KEYS[0], "rrr", 3, "p")])
    assert books.progress.numberings.keys() == {KEYS[0], KEYS[1]}
    late = books.progress.numberings[KEYS[0]]
    assert (late.rows_kept, late.rows_duplicate, late.known) == (4, 2, [(1, 5)])


def test_files_of_acknowledgements_that_were_lost_are_made_again(books: Books) -> None:
    before = books.told()
    for path in (Path(books.lake.spark) / "acks").iterdir():
        path.unlink()
    books.start()
    assert books.told() == before and before[0][("a/b", 3)] == 2


def test_a_gateway_reads_a_file_of_settled_numberings_only_when_its_crc_is_new(books: Books) -> None:
    acks = Path(books.lake.spark) / "acks"
    before = {path.name: path.read_text() for path in acks.iterdir()}
    books.batch([seg(("other", 1), "r", 1, "p")])
    after = {path.name: path.read_text() for path in acks.iterdir()}
    assert {name for name in after if before.get(name) != after[name]} == {name_part("p") + ".json"}
    assert json.loads(before["p.json"])["settled"] == json.loads(after["p.json"])["settled"]


def test_tables_that_do_not_belong_together_are_told(books: Books) -> None:
    books.settled.number -= 1  # `settled` is older than progress says
    assert not books.settled.agrees(books.progress)
    books.settled.number += 2  # settled, and killed before progress
    assert books.settled.agrees(books.progress)
    books.settled.elements = books.progress.elements + 1  # progress was taken back
    assert not books.settled.agrees(books.progress)
