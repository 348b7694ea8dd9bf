"""A stream as its author declared it: rows of `elements` as named, typed columns.

The alphabets of one version are one table: what some of them lack is null in their rows (docs/spec.md,
Tables).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import alphabet as alphabets
from .dialect import SPARK, Dialect
from .errors import LakeError

COMMON = ("incarnation", "xi", "ts", "unsync", "arrived", "landed")
TABLES = ("elements", "erasures", "gaps", "progress", "quarantine", "settled", "streams")  # no view has these
SQL_TYPES = {
    "i8": "tinyint",
    "i16": "smallint",
    "u8": "smallint",
    "i32": "int",
    "u16": "int",
    "i64": "bigint",
    "u32": "bigint",
    "u64": "decimal(20,0)",
    "f32": "float",
    "f64": "double",
}


@dataclass(frozen=True)
class Version:
    """One version of a stream: alphabets that agree."""

    number: int
    alphabets: tuple[str, ...]

    @property
    def widest(self) -> str:
        return max(self.alphabets, key=lambda text: len(alphabets.fields(text)))

    def takes(self, alphabet: str) -> bool:
        """Whether rows of this alphabet belong to the version."""
        widest = self.widest
        return alphabets.contains(widest, alphabet) or alphabets.contains(alphabet, widest)


def versions(known: Iterable[tuple[int, str]]) -> list[Version]:
    """(version, alphabet) of one stream, as the table `streams` has them, in order."""
    found: dict[int, list[str]] = {}
    for number, alphabet in known:
        found.setdefault(number, []).append(alphabet)
    return [Version(number, tuple(sorted(found[number]))) for number in sorted(found)]


def version_of(alphabet: str, known: Sequence[Version]) -> int:
    """The version that an alphabet belongs to: one that has it, the newest that accepts it, or the next."""
    for version in known:
        if alphabet in version.alphabets:
            return version.number
    if known and known[-1].takes(alphabet):
        return known[-1].number
    return known[-1].number + 1 if known else 1


def find(known: Iterable[tuple[str, int, str]], stream: str, number: int | None, lake: object) -> Version:
    """A version of a stream, the newest where no number is given; `known` has (stream, version, alphabet) of
    the table `streams`."""
    rows = list(known)
    there = versions((version, alphabet) for name, version, alphabet in rows if name == stream)
    if not there:
        names = sorted({name for name, _, _ in rows})
        raise LakeError("no stream '%s' in %s: it has %s" % (stream, lake, ", ".join(names) or "none"))
    for version in there:
        if version.number == (there[-1].number if number is None else number):
            return version
    raise LakeError("stream '%s' has %s, not %s" % (stream, numbered(there), number))


def numbered(known: Sequence[Version]) -> str:
    return "version%s %s" % ("s" if len(known) > 1 else "", ", ".join(str(v.number) for v in known))


def view_name(stream: str) -> str:
    """The name of the view of a stream: `cardio/ecg` is cardio_ecg, `site/heart_rate` is site_heart__rate.

    It follows from the name of the stream alone, so it never changes, whatever other streams a lake has or
    gains, and no two streams share one. If the simple rule could give the name of another stream, of a table
    or of another view, the name ends in a part of the stream's SHA-256, after three underscores, which the
    simple rule never gives.
    """
    simple = re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*(/[a-z0-9]+(_[a-z0-9]+)*)*", stream)
    if simple and stream not in TABLES and not stream.startswith("lake/"):
        return stream.replace("_", "__").replace("/", "_")
    readable = re.sub(r"[^a-z0-9_]", "_", stream.lower())
    readable = "_" + readable if not readable[:1].isalpha() else readable
    return "%s___%s" % (readable, hashlib.sha256(stream.encode("utf-8", "replace")).hexdigest()[:8])


def columns(version: Version, dialect: Dialect = SPARK) -> list[tuple[str, str]]:
    """(name, SQL) of each column of the typed view of a version, over the columns of `elements`."""
    out = [(name, name) for name in COMMON]
    for name, field, kind in fields(version):
        out.append((name, _value(version, field, kind, dialect)))
    return out


def fields(version: Version) -> list[tuple[str, str, str]]:
    """(name of the column, field, type in the alphabet) of each field of the typed view of a version."""
    out = []
    taken = set(COMMON)
    for field, kind in alphabets.fields(version.widest).items():
        name = field
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        out.append((name, field, kind))
    return out


def view_sql(
    elements: str,
    stream: str,
    version: Version,
    dialect: Dialect = SPARK,
    only: Sequence[str] | None = None,
) -> str:
    """The query of a typed view; `elements` names the table, as in delta.`/lake/elements`. `only`: of its
    fields, these."""
    return "SELECT %s FROM %s WHERE stream = %s AND %s" % (
        ", ".join(expressions(version, dialect, only)),
        elements,
        dialect.quoted(stream),
        belongs_sql(version, dialect),
    )


def expressions(version: Version, dialect: Dialect = SPARK, only: Sequence[str] | None = None) -> list[str]:
    """The columns of a typed view with their names, as written after SELECT."""
    return [
        name if sql == name else "%s AS %s" % (sql, dialect.named(name))
        for name, sql in columns(version, dialect)
        if only is None or name in COMMON or name in only
    ]


def belongs_sql(version: Version, dialect: Dialect = SPARK) -> str:
    """Whether a row of a stream is of this version."""
    return "alphabet IN (%s)" % _list(version.alphabets, dialect)


def follows_sql(stream: str, version: Version, known: Sequence[Version]) -> str:
    """Whether a row is of this version of a stream; fails at a row of an alphabet that no known version has.

    One expression: of several conditions Spark may evaluate the second one first, and never reach the
    failure.
    """
    others = [alphabet for other in known if other != version for alphabet in other.alphabets]
    return (
        "CASE WHEN stream <> %s THEN false WHEN %s THEN true %sELSE raise_error(concat(%s, alphabet, %s)) END"
        % (
            SPARK.quoted(stream),
            belongs_sql(version),
            "WHEN alphabet IN (%s) THEN false " % _list(others, SPARK) if others else "",
            SPARK.quoted("stream %s has rows of a new alphabet, " % stream),
            SPARK.quoted(": begin the query again, with read_stream and the same checkpoint"),
        )
    )


def quoted(text: str) -> str:
    """A string of Spark's SQL."""
    return SPARK.quoted(text)


def _list(texts: Iterable[str], dialect: Dialect) -> str:
    return ", ".join(dialect.quoted(text) for text in texts)


def _value(version: Version, field: str, kind: str, dialect: Dialect) -> str:
    """SQL for a field, in whatever column the alphabets of the version have it."""
    at: dict[str, list[str]] = {}
    for alphabet in version.alphabets:
        place = alphabets.places(alphabet).get(field)
        at.setdefault("NULL" if place is None else dialect.item(*place), []).append(alphabet)
    if len(at) == 1:
        (raw,) = at
    else:
        raw = "CASE %s END" % " ".join(
            "WHEN alphabet IN (%s) THEN %s" % (_list(having, dialect), place)
            for place, having in at.items()
            if place != "NULL"
        )
    if kind == "u64":
        # Two's complement back to the unsigned value: exact, as no other type of SQL would be.
        wide = "CAST(%s AS decimal(20,0))" % raw
        around = "CAST('18446744073709551616' AS decimal(20,0))"  # a plain number is a float to DataFusion
        return "CAST(CASE WHEN %s < 0 THEN %s + %s ELSE %s END AS decimal(20,0))" % (raw, wide, around, wide)
    return "CAST(%s AS %s)" % (raw, SQL_TYPES[kind])
