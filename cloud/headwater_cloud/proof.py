"""Whether the rows that landed are those that their segments declare, by checksum.

Only the append itself reads every row, so a false checksum is found when the rows are in the table already,
and before progress or an acknowledgement names them. The append is then undone by a commit (RESTORE to the
version before it, which removes just its files), a generation begins, the file goes to quarantine, and the
batch runs again without it. After a kill in between, a start finds either the append, which is judged again,
or a lake that was taken back, whose progress it rebuilds as usual.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from . import checksum, commits, compare, tables
from .appending import Rows
from .commits import Commit, Stamp
from .decide import Decision
from .files import Files
from .location import Location
from .quarantine import Unreadable
from .segment import ARROW_SCHEMA, SIZE_MAX, Segment, hexadecimal


@dataclass
class Appended:
    """What an append did, and what is known about it."""

    decision: Decision
    divergent: DataFrame | None  # of what was known before the batch
    came: dict[str, int]  # by file: the checksum of what was compared
    summed: dict[str, int]  # by file: the checksum of rows for which none was declared
    stamp: Stamp
    behind: list[Commit] = field(default_factory=list)  # commits that progress lacks
    rows: Rows | None = None  # None: the append was there already, or of nothing


def all_there(spark: SparkSession, elements: Location, ours: Sequence[Commit], decision: Decision) -> bool:
    """Whether these commits brought as many rows as the batch has new ones."""
    rows = [commit.rows for commit in ours]
    if None in rows:  # written without statistics
        paths = [path for commit in ours for path in commits.paths(elements, commit)]
        rows = [spark.read.schema(tables.ELEMENTS_DDL).parquet(*paths).count()]
    return sum(number or 0 for number in rows) == decision.rows_kept


def prove(
    spark: SparkSession,
    elements: Location,
    good: dict[str, Segment],
    added: Appended,
) -> dict[str, int]:
    """Record checksums of what landed, once those that the segments declare are proven.

    Returns the segments whose declaration is false, by file, with the true checksum.
    """
    landing = added.decision.landing()
    if not landing:
        return {}
    false: dict[str, int] = {}
    declared = {s.file: s.sum for s in landing if s.sum is not None} | added.summed
    sums = added.decision.sums(declared, added.came)
    if _landed_sum(spark, elements, added) != added.decision.total(sums):
        true = sums_of(spark, good, landing)
        false = {file: true[file] for file, said in declared.items() if said != true[file]}
        sums = added.decision.sums(true, added.came)
    added.decision.prove(sums)
    return false


def refuse(
    files: Files, landing: Location, good: Iterable[Segment], false: dict[str, int]
) -> list[Unreadable]:
    """The segments whose checksum Spark found to be false and pyarrow computes as Spark did."""
    out = []
    for one in good:
        data = files.content(landing / one.file, SIZE_MAX) if one.file in false else None
        if data is None or one.sum is None:
            continue
        rows = pq.read_table(io.BytesIO(data), schema=ARROW_SCHEMA)
        if checksum.xor(checksum.of_table(one.alphabet, rows)) == false[one.file]:
            detail = "its rows have the checksum %s, its footer declares %s" % (
                hexadecimal(false[one.file]),
                hexadecimal(one.sum),
            )
            out.append(Unreadable(landing / one.file, one.file, "sum", detail))
    return out


def take_back(spark: SparkSession, elements: Location, append: Commit) -> None:
    """Undo the newest commit of a table."""
    spark.sql("RESTORE TABLE delta.`%s` TO VERSION AS OF %d" % (elements.spark, append.version - 1))


def sums_of(spark: SparkSession, good: dict[str, Segment], of: Sequence[Segment]) -> dict[str, int]:
    """The checksums of segments, by file, from their rows."""
    files = {s.file for s in of}
    return compare.sums(spark, sorted(path for path, s in good.items() if s.file in files), hash_of(of))


def hash_of(segments: Iterable[Segment]) -> str:
    """The hash of a row of these segments, in SQL."""
    return checksum.sql({segment.alphabet for segment in segments})


def _landed_sum(spark: SparkSession, elements: Location, added: Appended) -> int:
    """The checksum of the rows that the batch appended: as the append saw it, or from the table."""
    told = None if added.rows is None else added.rows.sum()
    if told is not None:
        return told
    added.decision.turns.clear()  # rows in the table are not distinguished by file
    paths = [p for c in added.behind if c.stamp == added.stamp for p in commits.paths(elements, c)]
    rows = spark.read.schema(tables.ELEMENTS_DDL).parquet(*paths)
    return int(rows.selectExpr("bit_xor(%s)" % checksum.SQL).first()[0])  # type: ignore[index]
