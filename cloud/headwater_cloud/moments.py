"""Earlier moments of a lake: which version of each table belongs together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from .errors import LakeError

History = list[tuple[int, int]]  # (version, time in µs) of a table, oldest first


def versions_at(
    lake: object, names: Sequence[str], when: int | datetime | str, history: Callable[[str], History]
) -> dict[str, int | None]:
    """The version of each table at a version of `elements` (an int), or at a moment (without a zone: UTC).

    None where a table did not exist yet.
    """
    moment = None if isinstance(when, int) else micros(when)
    elements = history("elements")
    version: int | None
    if isinstance(when, int):
        if when not in [version for version, _ in elements]:
            raise LakeError(
                "%s: `elements` has versions %d to %d, not %d" % (lake, elements[0][0], elements[-1][0], when)
            )
        # What belongs to a version of `elements` is written after it, and before the next one.
        later = [time for version, time in elements if version > when]
        moment = later[0] - 1 if later else None
        version = when
    else:
        version = _newest(lake, "elements", elements, moment)
    if version is None:
        oldest = datetime.fromtimestamp(elements[0][1] / 1e6, UTC)
        raise LakeError("%s did not exist at %s: it begins at %s" % (lake, when, oldest))
    others = [name for name in names if name != "elements"]
    return {name: _newest(lake, name, history(name), moment) for name in others} | {"elements": version}


def _newest(lake: object, name: str, history: History, moment: int | None) -> int | None:
    """The version of a table at a moment; None where there was no such table yet."""
    known = [version for version, time in history if moment is None or time <= moment]
    if not known and history[0][0] > 0:
        oldest = datetime.fromtimestamp(history[0][1] / 1e6, UTC)
        raise LakeError("%s: the history of `%s` begins only at %s" % (lake, name, oldest))
    return known[-1] if known else None


def micros(when: datetime | str | None) -> int | None:
    """A time in µs since 1970; one without a zone is UTC."""
    if when is None:
        return None
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            raise LakeError("'%s' is no time: write it like 2026-11-18 15:30:00" % when)
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
