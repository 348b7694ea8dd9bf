"""The status that a board reports, made safe to hold and to show: known keys, each of its type, or nil.

A status is sealed, so it comes from a board of this site. That board may still be broken or in foreign hands,
and its status appears on the page, in the API and in the metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.data import msgpack

ALARMS_MAX = 16  # of one board
BACKLOG_MAX = 128  # streams of one board
TEXT_MAX = 200  # characters
ID_BYTES = 8
NUMBER_MAX = (1 << 63) - 1


def _number(value: Any) -> int | None:
    return value if type(value) is int and -NUMBER_MAX <= value <= NUMBER_MAX else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= NUMBER_MAX else None


def _free(value: Any) -> int | None:
    """Bytes of free heap. A host with an operating system measures none, and reports 0."""
    return _count(value) or None


def _id(value: Any) -> bytes | None:
    return bytes(value) if isinstance(value, bytes) and len(value) == ID_BYTES else None


def text(value: str) -> str:
    """A sentence of a board as it may be shown: of bounded length, and in one line."""
    return "".join(c if c.isprintable() else " " for c in value[:TEXT_MAX])


def _text(value: Any) -> str | None:
    return text(value) if isinstance(value, str) else None


def _crash(value: Any) -> list[Any] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    boot, what = _count(value[0]), _text(value[1])
    return None if boot is None or what is None else [boot, what]


def _pair(value: Any) -> list[int] | None:
    if not isinstance(value, list) or len(value) != 2 or any(_count(v) is None for v in value):
        return None
    return list(value)


def _backlog(value: Any) -> list[list[int]] | None:
    if not isinstance(value, list) or len(value) > BACKLOG_MAX:
        return None
    rows = [row for row in value if isinstance(row, list) and len(row) == 3]
    rows = [row for row in rows if all(_count(v) is not None for v in row)]
    return rows if len(rows) == len(value) else None


def _alarms(value: Any) -> list[list[int]] | None:
    """Of each alarm of the board: its number, why it is on, seconds that it stays muted, whether it can be
    heard."""
    if not isinstance(value, list) or len(value) > ALARMS_MAX:
        return None
    rows = [row for row in value if isinstance(row, list) and len(row) == 4]
    rows = [row for row in rows if all(_count(v) is not None for v in row)]
    return rows if len(rows) == len(value) else None


ENERGY = ("percent", "left_s", "draw_ua", "computing", "radio", "flash", "correction")


def _energy(value: Any) -> list[int] | None:
    """What a board with a battery knows of it, in the order of ENERGY."""
    if not isinstance(value, list) or len(value) != len(ENERGY) or any(_count(v) is None for v in value):
        return None
    return list(value)


def _waits(value: Any) -> list[list[Any]] | None:
    """Operators that do not run: vertex, what it waits for, position, hosts, number of its epoch
    (headwater.runtime.standing)."""
    if not isinstance(value, list) or len(value) > BACKLOG_MAX:
        return None
    for row in value:
        if not isinstance(row, list) or len(row) != 5 or any(_count(v) is None for v in (*row[:2], row[4])):
            return None
        if any(not isinstance(part, list) or any(_count(v) is None for v in part) for part in row[2:4]):
            return None
    return value


KEYS: dict[str, Callable[[Any], Any]] = {
    "alarms": _alarms, "backlog": _backlog, "battery": _count, "boot": _count, "crash": _crash,
    "deployment": _count, "dropped": _count, "energy": _energy, "free": _free, "log": _pair, "next": _id,
    "plan": _id, "refused": _count, "rssi": _number, "sleep": _count, "state": _count, "sync": _count,
    "time": _count, "up": _count, "version": _text, "waits": _waits,
}  # fmt: skip


def read(content: bytes) -> dict[str, Any] | None:
    """The status in these bytes; None if there is none."""
    try:
        status = msgpack.loads(content)
    except msgpack.PackError:
        return None
    if not isinstance(status, dict):
        return None
    return {key: check(status.get(key)) for key, check in KEYS.items() if key in status}
