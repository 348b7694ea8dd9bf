"""What kinds of boards draw: `firmware/profiles/NAME/energy.toml`, and the work of operator types in
`firmware/profiles/work.toml`. A kind without the first file runs on mains.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from headwater.plan.profile_reader import KEYS, WITHOUT_WIFI
from headwater.process.energy import MC_PER_MAH, OTHER, Board

from ..errors import UserError
from ..image import profiles

FILE = "energy.toml"
WORK = "work.toml"
ASSUMED = "esp32"  # the kind of a host that declares none

_LINK = ("send_byte_pc", "receive_byte_pc", "frame_nc")
# Links that the program of a board has; which of them a board uses is in its configuration.
SPOKEN = ("wifi", "ble")


def board(name: str) -> Board | None:
    """The energy profile of a kind of board; None if it runs on mains."""
    path = profiles.FOLDER / name / FILE
    if not path.exists():
        return None
    given = _read(path)
    numbers = {}
    for key in Board.__dataclass_fields__:
        if key not in ("name", "discharge", "links"):
            numbers[key] = _number(path, given, key)
    curve = given.pop("discharge", None)
    links = {}
    for link, table in given.pop("links", {}).items():
        first, second, frame = [_number(path, table, key) for key in _LINK]
        _nothing_left(path, table)
        links[link] = (first, second, frame)
    _nothing_left(path, given)
    if sorted(links) != sorted(SPOKEN):
        tables = " and ".join("[links.%s]" % link for link in SPOKEN)
        raise UserError("%s: give %s, each with %s" % (path, tables, ", ".join(_LINK)))
    return Board(name=name, discharge=_discharge(path, curve), links=links, **numbers)


def given(board: Board, capacity_mc: int | None = None) -> dict[str, Any]:
    """What a board is told of its energy, in its configuration: `headwater.plan.profile_reader` reads it."""
    found: dict[str, Any] = {
        "capacity_mc": board.battery_mah * MC_PER_MAH if capacity_mc is None else capacity_mc,
        "discharge": [list(point) for point in board.discharge],
        "links": {name: list(costs) for name, costs in board.links.items()},
    }
    if board.awake_ble_ua is not None:
        found[WITHOUT_WIFI] = board.awake_ble_ua
    for key in KEYS[1:]:
        found[key] = getattr(board, key)
    return found


def work() -> dict[str, int]:
    """Hundredths of a unit of work for each element, by operator type; OTHER for types not listed."""
    path = profiles.FOLDER / WORK
    given = _read(path)
    found = {kind: _number(path, given, kind) for kind in list(given)}
    if OTHER not in found:
        raise UserError("%s has no %s" % (path, OTHER))
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise UserError("%s is not valid TOML: %s" % (path, error))


def _number(path: Path, given: dict[str, Any], key: str) -> int:
    value = given.pop(key, None)
    if type(value) is not int or value < 0:
        raise UserError("%s: %s is %r, give a whole number of 0 or more" % (path, key, value))
    return value


def _nothing_left(path: Path, given: dict[str, Any]) -> None:
    if given:
        raise UserError("%s: unknown key '%s'" % (path, min(given)))


def _discharge(path: Path, curve: Any) -> tuple[tuple[int, int], ...]:
    text = "%s: discharge needs pairs of millivolts and percent, both rising, up to 100 percent"
    try:
        points = tuple((int(mv), int(percent)) for mv, percent in curve)
    except (TypeError, ValueError):
        raise UserError(text % path)
    rising = all(a < b and p < q for (a, p), (b, q) in zip(points, points[1:]))
    if len(points) < 2 or not rising or points[0][1] < 0 or points[-1][1] != 100:
        raise UserError(text % path)
    return points
