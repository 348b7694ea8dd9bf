"""The judge of `hw crash sink --random` can fail: each promise broken once, and each break seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from headwater_tools import cli, environment

environment.ensure("lake")

from deltalake import write_deltalake  # noqa: E402
from headwater_cloud import checksum, tables  # noqa: E402
from headwater_cloud import segment as sink  # noqa: E402
from headwater_tools.proof.foreign_gateway import ForeignGateway, _part  # noqa: E402


class Lake:
    """What an honest sink makes of all segments of a gateway, for a test to change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gateway = ForeignGateway(folder / "landing", folder / "lake", seed=3)
        for _ in range(40):
            self.gateway.files.clear()  # none may hold back the next one
            self.gateway.act()
        self.rows: dict[tuple[str, int, int], dict[str, Any]] = {}
        self.gaps: dict[tuple[str, int, int], dict[str, Any]] = {}
        self.quarantine: list[dict[str, Any]] = []
        self.settled: dict[str, dict[str, int]] = {}
        self.acks: dict[str, dict[str, Any]] = {}
        for path in sorted((folder / "landing").glob("*.parquet")):
            if path.name in self.gateway.spoiled:
                self.quarantine.append({"file": path.name, "reason": "crc"})
            else:
                self.take(path)
        for (stream, incarnation), numbering in self.gateway.all.items():
            # What only a spoiled file had is cut again.
            for name in self.gateway.spoiled:
                parts = name.split("~")
                if parts[1:3] == [_part(stream), "%016x" % incarnation]:
                    first, last = map(int, parts[3].split("-"))
                    self.gateway._put(numbering, first, last)
            self.acks.setdefault(stream, {})["%016x" % incarnation] = {"high": numbering.last, "ranges": []}
        for path in sorted((folder / "landing").glob("*.parquet")):
            if path.name not in self.gateway.spoiled:
                self.take(path)

    def take(self, path: Path) -> None:
        table = pq.read_table(path)
        data = path.read_bytes()
        said = json.loads(table.schema.metadata[b"headwater"])
        footer = data[-8 - int.from_bytes(data[-8:-4], "little") :]
        crc = int(path.stem.rpartition("~")[2], 16)
        judged = sink.read(path.name, len(data), crc, footer)  # the sink agrees that it is one
        if judged.sum is not None and len(table):
            assert judged.sum == checksum.xor(checksum.of_table(judged.alphabet, table))
        inc = judged.incarnation
        for row in table.to_pylist():
            self.rows[row["stream"], inc, row["xi"]] = {**row, "landed": row["arrived"]}
        for first, last, kind, *_ in said["gaps"]:
            for xi in range(first, last + 1):
                self.gaps[said["stream"], inc, xi] = {
                    "stream": said["stream"], "incarnation": inc, "first": xi, "last": xi, "kind": kind
                }  # fmt: skip

    def write(self) -> None:
        lake = self.folder / "lake"
        all_rows = list(self.rows.values())
        write_deltalake(str(lake / "elements"), pa.Table.from_pylist(all_rows, schema=tables.ELEMENTS_ARROW))
        for name, rows in (("gaps", list(self.gaps.values())), ("quarantine", self.quarantine)):
            write_deltalake(str(lake / name), pa.Table.from_pylist(rows, schema=tables.SCHEMAS[name]))
        (lake / "acks").mkdir(exist_ok=True)
        said = {"generation": 0, "streams": self.acks, "unreadable": []}
        if self.settled:
            said["settled"] = "00000000"
            text = json.dumps({"streams": self.settled})
            (lake / "acks" / "_settled.storm.json").write_text(text)
        (lake / "acks" / "storm.json").write_text(json.dumps(said))

    def some(self) -> tuple[str, int, int]:
        return sorted(self.rows)[len(self.rows) // 2]


def nothing(lake: Lake) -> None:
    """Half of the streams are settled, and that is right."""
    for stream, numberings in lake.acks.items():
        digits = sorted(numberings)[0]
        lake.settled[stream] = {digits: numberings.pop(digits)["high"]}


def a_lost_row(lake: Lake) -> None:
    del lake.rows[lake.some()]


def a_lost_row_of_a_settled_stream(lake: Lake) -> None:
    nothing(lake)
    stream, (digits,) = next((stream, tuple(marks)) for stream, marks in lake.settled.items())
    key = next(key for key in lake.rows if (key[0], "%016x" % (key[1] % (1 << 64))) == (stream, digits))
    del lake.rows[key]


def a_doubled_row(lake: Lake) -> None:
    stream, inc, _ = lake.some()
    lake.rows[stream, inc, -1] = lake.rows[lake.some()]


def a_changed_integer(lake: Lake) -> None:
    lake.rows[lake.some()]["ints"] = [lake.rows[lake.some()]["ints"][0] ^ 1]


def a_zero_of_the_other_sign(lake: Lake) -> None:
    key = next(key for key in lake.rows if key[2] % 17 == 0)
    lake.rows[key]["floats"] = [0.0]


def another_time(lake: Lake) -> None:
    row = lake.rows[lake.some()]
    row["ts"] = row["arrived"]


def a_row_of_another_stream(lake: Lake) -> None:
    lake.rows[lake.some()]["stream"] = "storm/other"


def a_false_acknowledgement(lake: Lake) -> None:
    for numberings in lake.acks.values():
        next(iter(numberings.values()))["high"] += 1


def a_gap_that_was_not_told(lake: Lake) -> None:
    del lake.gaps[sorted(lake.gaps)[0]]


def a_gap_that_was_told_twice(lake: Lake) -> None:
    stream, inc, _ = sorted(lake.gaps)[0]
    lake.gaps[stream, inc, -1] = lake.gaps[sorted(lake.gaps)[0]]


def a_good_file_refused(lake: Lake) -> None:
    lake.quarantine.append({"file": "good.parquet", "reason": "layout"})


def a_missing_acknowledgement(lake: Lake) -> None:
    next(iter(lake.acks.values())).popitem()


BREAKS: tuple[tuple[Callable[[Lake], None], set[str]], ...] = (
    (nothing, set()),
    (a_lost_row, {"lost", "never_landed"}),
    (a_lost_row_of_a_settled_stream, {"lost", "never_landed"}),
    (a_doubled_row, {"twice"}),
    (a_changed_integer, {"changed"}),
    (a_zero_of_the_other_sign, {"changed"}),
    (another_time, {"changed"}),
    (a_row_of_another_stream, {"phantoms", "lost", "never_landed"}),
    (a_false_acknowledgement, {"false_acks"}),
    (a_gap_that_was_not_told, {"gaps_wrong"}),
    (a_gap_that_was_told_twice, {"gaps_wrong"}),
    (a_good_file_refused, {"refused"}),
    (a_missing_acknowledgement, {"unacknowledged"}),
)


@pytest.mark.parametrize(("broken", "seen"), BREAKS, ids=[broken.__name__ for broken, _ in BREAKS])
def test_the_judge_sees(tmp_path: Path, broken: Callable[[Lake], None], seen: set[str]) -> None:
    lake = Lake(tmp_path)
    broken(lake)
    lake.write()
    assert lake.gateway.judge(at_end=True).wrong().keys() == seen


def test_the_judge_sees_a_mark_that_went_back(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write()
    assert lake.gateway.judge(at_end=True).wrong() == {}
    next(iter(next(iter(lake.acks.values())).values()))["high"] -= 1
    path = tmp_path / "lake" / "acks" / "storm.json"
    path.write_text(json.dumps({"generation": 0, "streams": lake.acks, "unreadable": []}))
    assert lake.gateway.judge(at_end=True).wrong() == {"acks_fell": 1}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["sink", "--minutes", "3"], "--minutes belongs to `hw crash sink --random`"),
        (["gateway", "--random"], "--random belongs to `hw crash sink`"),
        (["sink", "--random", "--point", "writing"], "--point does not go with --random"),
    ],
)
def test_bad_use_ends_with_one_sentence(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["crash", *words])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
