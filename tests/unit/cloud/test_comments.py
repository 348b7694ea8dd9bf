"""The comments of the tables, the tables themselves, and docs/spec.md name the same columns."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from headwater_tools import environment
from headwater_tools.environment import ROOT

environment.ensure("lake")

from headwater_cloud import comments, tables  # noqa: E402

SPEC = ROOT / "docs" / "spec.md"
SCHEMAS = {**tables.SCHEMAS, "elements": tables.ELEMENTS_ARROW}


def specified() -> dict[str, list[str]]:
    """The columns that docs/spec.md gives for each table; `elements` has those of a segment, then
    `landed`."""
    text = SPEC.read_text()
    section = text[text.index("\n## Tables\n") : text.index("\n## Acknowledgements\n")]
    lines = re.findall(r"^\| `(\w+)` \| .* \| (.*?) \|$", section, re.MULTILINE)
    found = {name: re.findall(r"\w+", columns) for name, columns in lines if name != "elements"}
    assert dict(lines)["settled"] == "those of `progress`"
    return {**found, "settled": found["progress"]}


def test_every_table_and_column_has_a_comment_and_no_other() -> None:
    assert {name: list(schema.names) for name, schema in SCHEMAS.items()} == {
        name: list(columns) for name, columns in comments.COLUMNS.items()
    }
    assert set(comments.TABLES) == set(SCHEMAS)
    texts = [*comments.TABLES.values(), *(t for c in comments.COLUMNS.values() for t in c.values())]
    assert not [text for text in texts if len(text) < 10 or not text.isascii()]


def test_the_specification_names_the_same_tables_and_columns() -> None:
    columns = {name: list(found) for name, found in comments.COLUMNS.items() if name != "elements"}
    assert specified() == columns
    assert "`elements` | one element | those of a segment, then `landed`" in SPEC.read_text()


@pytest.mark.parametrize("name", sorted(tables.SCHEMAS))
def test_comments_stand_in_the_schema_that_a_table_is_made_with(name: str) -> None:
    made = comments.schema(name, tables.SCHEMAS[name])
    assert made.equals(tables.SCHEMAS[name])
    assert made.field(0).metadata == {b"comment": comments.COLUMNS[name][made.field(0).name].encode()}
    assert isinstance(made, pa.Schema)
