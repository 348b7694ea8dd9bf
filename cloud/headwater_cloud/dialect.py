"""The two dialects of SQL in which a lake is queried: Spark's, and that of DataFusion, which delta-rs uses.

The queries of `views.py` and `queries.py` use what both understand in the same way. Where the two differ,
they use a dialect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Dialect(Protocol):
    def quoted(self, text: str) -> str:
        """A string."""

    def named(self, name: str) -> str:
        """The name of a column or a table, with the case of its letters."""

    def item(self, column: str, index: int) -> str:
        """An item of a list; the first one has index 0."""

    def items(self, column: str) -> str:
        """A row for each item of a list."""

    def micros(self, column: str) -> str:
        """A timestamp in microseconds since 1970."""

    def moment(self, us: int) -> str:
        """A timestamp of this number of microseconds since 1970."""

    def ranks(self, values: Sequence[str], group: str) -> list[str]:
        """Columns that `percentile` needs beside the values, where rows are grouped by these columns."""

    def percentile(self, value: str, percent: int) -> str:
        """The smallest value that this percentage of the values of a group does not exceed."""


class _Spark:
    def quoted(self, text: str) -> str:
        return "'%s'" % text.replace("\\", "\\\\").replace("'", "\\'")

    def named(self, name: str) -> str:
        return "`%s`" % name.replace("`", "``")

    def item(self, column: str, index: int) -> str:
        return "%s[%d]" % (column, index)

    def items(self, column: str) -> str:
        return "explode(%s)" % column

    def micros(self, column: str) -> str:
        return "unix_micros(%s)" % column

    def moment(self, us: int) -> str:
        return "timestamp_micros(%d)" % us

    def ranks(self, values: Sequence[str], group: str) -> list[str]:
        return []

    def percentile(self, value: str, percent: int) -> str:
        """To one ten-thousandth of the rows: exact for up to ten thousand of them."""
        return "percentile_approx(%s, CAST(%s AS double))" % (value, percent / 100)


class _DataFusion:
    def quoted(self, text: str) -> str:
        return "'%s'" % text.replace("'", "''")

    def named(self, name: str) -> str:
        return '"%s"' % name.replace('"', '""')

    def item(self, column: str, index: int) -> str:
        return "%s[%d]" % (column, index + 1)

    def items(self, column: str) -> str:
        return "unnest(%s)" % column

    def micros(self, column: str) -> str:
        return "CAST(%s AS bigint)" % column

    def moment(self, us: int) -> str:
        return "arrow_cast(%d, 'Timestamp(Microsecond, Some(\"UTC\"))')" % us

    def ranks(self, values: Sequence[str], group: str) -> list[str]:
        """By sorting: DataFusion's estimate is between two values, and not one of them."""
        rank = "row_number() OVER (PARTITION BY %s ORDER BY %s) AS %s_rank"
        size = "count(*) OVER (PARTITION BY %s) AS group_size" % group
        return [size, *(rank % (group, value, value) for value in values)]

    def percentile(self, value: str, percent: int) -> str:
        return "min(%s) FILTER (WHERE %s_rank * 100 >= group_size * %d)" % (value, value, percent)


SPARK: Dialect = _Spark()
DATAFUSION: Dialect = _DataFusion()
