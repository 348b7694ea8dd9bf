"""What every run under faults promises. The modules of the runs add what is theirs."""

from __future__ import annotations

from typing import Any


def broken(ending: Any, *none: str) -> list[str]:
    """What is wrong: counts that have to be 0, by their names in `ending`, and a run that proves nothing."""
    found = above(ending, 0, *none)
    if not ending.accepted:
        found.append("no board accepted a sample")
    return found


def above(ending: Any, most: int, *names: str) -> list[str]:
    """The counts of these names that are higher than that, in words."""
    return ["%d %s" % (n, name.replace("_", " ")) for name in names if (n := getattr(ending, name)) > most]
