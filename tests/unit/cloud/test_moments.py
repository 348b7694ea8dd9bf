"""Which version, and which of its rows, are a table at a moment."""

from __future__ import annotations

import pytest
from headwater_cloud.moments import At, at_moment, beside, rows_until

WHOLE = [(0, 100), (1, 200), (2, 300)]
SHORT = [(4, 400), (8, 800), (9, 900), (10, 1000)]  # 5 to 7 and all before 4 are not kept


@pytest.mark.parametrize(
    ("history", "moment", "expected"),
    (
        (WHOLE, None, At(2)),
        (WHOLE, 99, None),
        (WHOLE, 100, At(0)),
        (WHOLE, 299, At(1)),
        (WHOLE, 301, At(2)),
        (SHORT, 399, At(4, 399)),
        (SHORT, 400, At(8, 400)),  # 5 may have come before 401
        (SHORT, 799, At(8, 799)),
        (SHORT, 850, At(8)),
        (SHORT, 5000, At(10)),
    ),
)
def test_a_moment_is_a_version_or_the_rows_that_a_later_one_has_of_it(
    history: list[tuple[int, int]], moment: int | None, expected: At | None
) -> None:
    assert at_moment(history, moment) == expected


def test_the_other_tables_are_read_as_they_were_before_the_next_version() -> None:
    assert [beside(WHOLE, v) for v in (0, 1, 2)] == [(199, False), (299, False), (None, False)]
    assert [beside(SHORT, v) for v in (4, 8, 10)] == [(400, True), (899, False), (None, False)]
    assert [rows_until(SHORT, moment) for moment in (10, 400, 5000)] == [At(4, 10), At(8, 400), At(10, 5000)]
