"""Why the gateway refuses a frame: every reason there is.

Counts by these are shown on the page and are labels in the metrics, so no text from outside may become
one. A reason that is not listed here is counted as `OTHER`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.offboard import reasons
from headwater.protocol import refusals
from headwater.protocol.sessions import OPENED, TAKEN

UNKNOWN_BOARD = "unknown board"
NO_PROCESS = "of a board without a process"
TOPIC = "topic"
NOT_SITE = "not a message of the site link"
STATUS = "status unreadable"
SIZE = "deployment of another size"
DAMAGED = "deployment damaged"
FRAME = reasons.text(refusals.FRAME)
REVOKED = reasons.text(refusals.REVOKED)
BARE = reasons.text(refusals.BARE)
SEALS = tuple(reasons.text(refusals.SEAL + why) for why in range(len(reasons.OF_SEALS)))
OTHER = "other"

ALL = (
    UNKNOWN_BOARD, NO_PROCESS, TOPIC, NOT_SITE, STATUS, SIZE, DAMAGED,
    *(reasons.text(reason) for reason in range(refusals.LAST + 1)),
    *(text for why, text in enumerate(SEALS) if why not in (TAKEN, OPENED)),
    OTHER,
)  # fmt: skip


def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """All counts together, by reasons of the closed set alone."""
    total: dict[str, int] = {}
    for each in counts:
        for reason, n in each.items():
            known = reason if reason in ALL else OTHER
            total[known] = total.get(known, 0) + n
    return total
