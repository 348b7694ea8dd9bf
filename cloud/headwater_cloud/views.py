"""A stream as its author declared it: rows of `elements` as named, typed columns.

The alphabets of one version are one table: what some of them lack is null in their rows (SPEC.md, Tables).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import alphabet as alphabets

COMMON = ("incarnation", "xi", "ts", "unsync", "arrived", "landed")
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
    """The version that an alphabet belongs to: one that has it, the newest that takes it, or the next."""
    for version in known:
        if alphabet in version.alphabets:
            return version.number
    if known and known[-1].takes(alphabet):
        return known[-1].number
    return known[-1].number + 1 if known else 1


def columns(version: Version) -> list[tuple[str, str]]:
    """(name, SQL) of each column of the typed view of a version, over the columns of `elements`."""
    out = [(name, name) for name in COMMON]
    taken = set(COMMON)
    for field, kind in alphabets.fields(version.widest).items():
        name = field
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        out.append((name, _value(version, field, kind)))
    return out


def view_sql(elements: str, stream: str, version: Version) -> str:
    """The query of a typed view; `elements` names the table, as in delta.`/lake/elements`."""
    chosen = ", ".join(name if sql == name else "%s AS `%s`" % (sql, name) for name, sql in columns(version))
    return "SELECT %s FROM %s WHERE stream = %s AND alphabet IN (%s)" % (
        chosen,
        elements,
        quoted(stream),
        ", ".join(quoted(alphabet) for alphabet in version.alphabets),
    )


def quoted(text: str) -> str:
    """A string of SQL."""
    return "'%s'" % text.replace("\\", "\\\\").replace("'", "\\'")


def _value(version: Version, field: str, kind: str) -> str:
    """SQL for a field, wherever the alphabets of the version have it."""
    at: dict[str, list[str]] = {}
    for alphabet in version.alphabets:
        place = alphabets.places(alphabet).get(field)
        at.setdefault("NULL" if place is None else "%s[%d]" % place, []).append(alphabet)
    if len(at) == 1:
        (raw,) = at
    else:
        raw = "CASE %s END" % " ".join(
            "WHEN alphabet IN (%s) THEN %s" % (", ".join(quoted(a) for a in having), place)
            for place, having in at.items()
            if place != "NULL"
        )
    if kind == "u64":
        # Two's complement back to what it was: exact, as no other type of SQL would be.
        wide = "CAST(%s AS decimal(20,0))" % raw
        return "CAST(IF(%s < 0, %s + 18446744073709551616, %s) AS decimal(20,0))" % (raw, wide, wide)
    return "CAST(%s AS %s)" % (raw, SQL_TYPES[kind])
