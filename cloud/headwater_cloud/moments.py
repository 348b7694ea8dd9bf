"""Earlier moments of a lake: which version of each table, and which of its rows, belong together.

The log of a table keeps its newest versions without exception and a few older ones (see `log_retention`).
If the version of a moment is not kept, the next one that is kept holds the same rows and later ones; `landed`
tells when a row's batch began, so the later ones can be left out. The answer then differs from the
version itself in one point: rows of a batch that was under way at the moment count as landed. Rows that were
removed in between, by an erasure or a RESTORE, are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from .dialect import Dialect
from .errors import LakeError

History = Sequence[tuple[int, int]]  # version and time in µs of each commit that the log keeps, oldest first


class At(NamedTuple):
    version: int
    until_us: int | None = None  # only rows that had landed by then


Moment = dict[str, At | None]  # of each table what was there; None if it did not exist yet


def moment_of(
    lake: object, names: Sequence[str], when: int | datetime | str, history: Callable[[str], History]
) -> Moment:
    """The tables at a version of `elements` (an int), or at a moment (without a zone: UTC)."""
    moment = None if isinstance(when, int) else micros(when)
    elements = history("elements")
    if isinstance(when, int):
        _must_be_kept(lake, elements, when)
        moment, by_rows = beside(elements, when)
        there: At | None = At(when)
    else:
        there = at_moment(elements, moment)
        by_rows = there is not None and there.until_us is not None
    if there is None:
        oldest = datetime.fromtimestamp(elements[0][1] / 1e6, UTC)
        raise LakeError("%s did not exist at %s: it begins at %s" % (lake, when, oldest))
    found: Moment = {"elements": there}
    for name in names:
        if name != "elements":
            of_table = history(name)
            rows = by_rows and moment is not None
            found[name] = rows_until(of_table, moment or 0) if rows else at_moment(of_table, moment)
    return found


def _must_be_kept(lake: object, history: History, wanted: int) -> None:
    versions = {version for version, _ in history}
    if wanted not in versions:
        newest = max(versions)
        first = next(v for v in range(newest, -1, -1) if v - 1 not in versions)
        older = ", ".join(str(v) for v in sorted(versions) if v < first)
        kept = "%d to %d" % (first, newest) + (", and of older ones " + older if older else "")
        raise LakeError("%s: `elements` has versions %s, not %d" % (lake, kept, wanted))


def said(moment: Moment | None) -> str:
    """A moment, for people; nothing of now."""
    there = (moment or {}).get("elements")
    if there is None:
        return ""
    if there.until_us is None:
        return ", as of version %d of elements" % there.version
    return ", as of %s" % datetime.fromtimestamp(there.until_us / 1e6, UTC)


def only(source: str, name: str, there: At, dialect: Dialect) -> str:
    """What a query reads of a table: all rows of its version, named by `source`, or the earlier ones."""
    if there.until_us is None:
        return source
    when = "since" if name == "streams" else "landed"
    return "(SELECT * FROM %s WHERE %s <= %s)" % (source, when, dialect.moment(there.until_us))


def at_moment(history: History, moment: int | None) -> At | None:
    """The table at a moment (None: now); None if there was no table yet."""
    later = [version for version, time in history if moment is not None and time > moment]
    known = [version for version, time in history if moment is None or time <= moment]
    if not known and history[0][0] == 0:
        return None
    if known and (not later or later[0] == known[-1] + 1):
        return At(known[-1])
    return rows_until(history, moment) if moment is not None else None


def rows_until(history: History, moment: int) -> At:
    """The rows of a table that had landed by a moment."""
    later = [version for version, time in history if time > moment]
    return At(later[0] if later else history[-1][0], moment)


def beside(history: History, version: int) -> tuple[int | None, bool]:
    """The moment at which the other tables belong to a version of `elements` (None: now), and whether their
    rows tell that, not their versions.

    What belongs to a version is written to them after it, and before the next one.
    """
    times = dict(history)
    if version + 1 in times:
        return times[version + 1] - 1, False
    if version == max(times):
        return None, False
    return times[version], True  # `landed` is the time at which the batch began: before its commit


def micros(when: datetime | str | None) -> int | None:
    """A time in µs since 1970; one without a zone is UTC."""
    if when is None:
        return None
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            raise LakeError("'%s' is not a time: write it like 2026-11-18 15:30:00" % when)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
