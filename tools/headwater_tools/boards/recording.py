"""A CSV file as the sensor of a virtual board: checked here, in full, before the board starts.

One row is one sample. Columns are the fields of the source's alphabet: by the names in the first row, or,
where the first row has numbers, in their order. The board gets rows of fixed width
(`boards/on_board/board_site.py` plays them), so that it can go to any row without reading the file into its
heap.
"""

from __future__ import annotations

import csv
import math
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from headwater.data.alphabet import TYPES, Alphabet

from ..errors import UserError


def pack(csv_file: Path, alphabet: Alphabet, source: str, target: Path, once: bool) -> int:
    """Write the rows of a CSV file to `target`, as the board reads them; how many. `once`: the board gives
    nothing more after the last one, instead of beginning again."""
    try:
        with open(csv_file, newline="", encoding="utf-8-sig") as f:
            rows = _numbered(f)
    except UnicodeDecodeError:
        raise UserError("%s is not text in UTF-8: --sensor %s=FILE takes a CSV file" % (csv_file, source))
    except csv.Error as error:
        raise UserError("%s cannot be read as CSV: %s" % (csv_file, error))
    if rows and _is_header(rows[0][1]):
        order = _columns(csv_file, rows[0][1], alphabet, source)
        rows = rows[1:]
    else:
        order = list(range(len(alphabet.names)))
        _count(csv_file, rows, alphabet, source)
    if not rows:
        raise UserError("%s has no rows: source %s takes one row for each sample" % (csv_file, source))
    layout = struct.Struct("<" + alphabet.codes)
    head = "%s %s\n" % (alphabet.text, "once" if once else "again")
    with open(target, "wb") as out:
        out.write(head.encode())
        for number, row in rows:
            out.write(layout.pack(*_values(csv_file, number, row, order, alphabet)))
    return len(rows)


def _numbered(lines: Iterable[str]) -> list[tuple[int, list[str]]]:
    """The rows that are not empty, with their line numbers."""
    reader = csv.reader(lines, skipinitialspace=True)
    return [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]


def _is_header(row: Sequence[str]) -> bool:
    """Whether this row names columns: no cell of it is a number."""
    return not any(_number(cell) is not None for cell in row)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _columns(path: Path, head: Sequence[str], alphabet: Alphabet, source: str) -> list[int]:
    """Where the fields of the alphabet are in a row."""
    names = [cell.strip() for cell in head]
    missing = [name for name in alphabet.names if name not in names]
    if missing:
        raise UserError(
            "%s has no column %s: source %s has the fields %s, and the first row names the columns %s"
            % (path, ", ".join(missing), source, alphabet.text, ", ".join(names))
        )
    twice = [name for name in alphabet.names if names.count(name) > 1]
    if twice:
        raise UserError("%s: column %s is there twice: leave one of them out" % (path, twice[0]))
    return [names.index(name) for name in alphabet.names]


def _count(path: Path, rows: Sequence[tuple[int, list[str]]], alphabet: Alphabet, source: str) -> None:
    """Without names every row must have exactly the fields."""
    for number, row in rows:
        if len(row) != len(alphabet.names):
            raise UserError(
                "%s:%d has %d columns, and source %s has %d fields, %s: name the columns in the first row"
                % (path, number, len(row), source, len(alphabet.names), alphabet.text)
            )


def _values(
    path: Path, number: int, row: Sequence[str], order: Sequence[int], alphabet: Alphabet
) -> list[int | float]:
    found: list[int | float] = []
    for at, name, kind in zip(order, alphabet.names, alphabet.types, strict=True):
        text = row[at].strip() if at < len(row) else ""
        value = _number(text)
        if value is None or not math.isfinite(value):
            raise UserError("%s:%d: '%s' is not a number for column %s" % (path, number, text, name))
        _, _, low, high = TYPES[kind]
        if low is None:
            found.append(value)
            continue
        whole = int(text) if text.lstrip("+-").isdigit() else round(value)
        if not low <= whole <= high:
            raise UserError(
                "%s:%d: %s in column %s does not fit %s: give %d to %d"
                % (path, number, text, name, kind, low, high)
            )
        found.append(whole)
    return found
