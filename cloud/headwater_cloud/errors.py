"""What stops work on a lake through no fault of the code: says what, where, and what to do."""

from __future__ import annotations


class LakeError(Exception):
    pass


class LakeFailed(LakeError):
    """What the work on a lake needs has failed under it: it may be started again as it was."""


class LakeLocked(LakeError):
    """Another sink or maintenance works on this lake."""


class Fenced(LakeError):
    """Another sink has taken this lake over; this one has written nothing since."""


class LakeRestored(Exception):
    """The table of elements was taken back to an older version while the sink ran: it must begin anew."""


class AppendedElse(Exception):
    """The commit of a batch has not as many rows as the batch: readers of its files disagree about them."""


class TakenBack(Exception):
    """A batch had files whose rows are not those declared: its append was undone, and it is to come again."""


def sentence(error: BaseException) -> str:
    """What matters of what Java or Spark says: the innermost cause, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    told = [line for line in lines if not line.startswith(("at ", ":", "An error occurred while calling"))]
    return (causes or told or [type(error).__name__])[-1 if causes else 0].removeprefix("Caused by: ")[:400]
