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
