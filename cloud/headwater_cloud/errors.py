"""Errors that stop work on a lake and are not defects of the code: what, where, and what to do."""

from __future__ import annotations


class LakeError(Exception):
    pass


class LakeFailed(LakeError):
    """Something that the work on a lake needs has failed: it may be restarted unchanged."""


class LakeLocked(LakeError):
    """Another sink or maintenance works on this lake."""


class Fenced(LakeError):
    """Another sink has taken this lake over; this one has written nothing since."""


class LakeRestored(Exception):
    """The table of elements was taken back to an older version while the sink ran: it must recover."""


class AppendedElse(Exception):
    """The commit of a batch has another number of rows than the batch: readers of its files disagree."""


class TakenBack(Exception):
    """A batch had files whose rows are not the declared ones: its append was undone, and it runs again."""


def sentence(error: BaseException) -> str:
    """The relevant part of an error of Java or Spark: the innermost cause, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    told = [line for line in lines if not line.startswith(("at ", ":", "An error occurred while calling"))]
    return (causes or told or [type(error).__name__])[-1 if causes else 0].removeprefix("Caused by: ")[:400]
