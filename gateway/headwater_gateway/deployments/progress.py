"""Where a process runs and what it waits for: the words of `hw gateway state`, `hw deploy --wait`, the page.

A process "runs" when each of its boards has reported, since its last start, that it runs this deployment, and
is not silent. A deployment that was only sent, stored or started has a word of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.plan import model as plans
from headwater.protocol.site_link import DRAIN, DRAINED, DRAINING, LEFT_OUT, REFUSED, RUNS, STORED

from ..boards import Board

if TYPE_CHECKING:
    from .switching import Process

GOOD_S = 60  # a board that ran this long since its crash is well again

# What a board does with its wanted deployment.
RUNNING, STARTS, CRASHES, REFUSES, SILENT, DRAINS, IS_DRAINED, WAITS, IS_LOST = (
    "runs", "starts", "crashes", "refuses", "silent", "drains", "drained", "waits", "lost",
)  # fmt: skip


class Standing(NamedTuple):
    word: str
    text: str  # a sentence; empty if there is nothing to report


def of_board(board: Board, link: str, silent_s: float) -> Standing:
    """How far a board is with its wanted deployment. `link`: up, silent, lost, gone or never seen."""
    name = board.name
    if board.is_lost:
        return Standing(IS_LOST, "%s is declared lost" % name)
    if link == "never seen":
        return Standing(SILENT, "%s was never seen" % name)
    if board.learn or not board.heard:
        return Standing(SILENT, "%s has not reported since the gateway started" % name)
    if link in ("lost", "gone"):
        return Standing(SILENT, "%s is silent for %s" % (name, duration(silent_s)))
    if board.leaving is not None:
        return Standing(WAITS, "%s has to stop its former process first" % name)
    if board.state == REFUSED:
        return Standing(REFUSES, "%s refuses it: %s" % (name, board.why))
    if board.status.get("state") == LEFT_OUT:
        return Standing(CRASHES, "%s skips it: it crashed repeatedly: %s" % (name, _crash(board)))
    if board.state == RUNS:
        return _running(board)
    if board.state == STORED:
        return Standing(WAITS, "%s has it and does not drain yet" % name)
    if board.state == DRAINING:
        return Standing(DRAINS, "%s drains: %d entries there are not safe yet" % (name, board.unsafe))
    if board.state == DRAINED:
        return Standing(IS_DRAINED, "%s is drained, and does not run it yet" % name)
    sent = "%d of %d bytes" % (board.offset, len(board.wanted.data)) if board.wanted else "nothing"
    return Standing(WAITS, "%s is being sent it: %s so far" % (name, sent))


def _running(board: Board) -> Standing:
    status = board.status
    if board.wanted is None or status.get("plan") != board.wanted.id:
        return Standing(STARTS, "%s has it and starts it" % board.name)
    crash, boot, up_s = status.get("crash"), status.get("boot"), status.get("up")
    if crash and boot and crash[0] == boot - 1 and isinstance(up_s, int) and up_s < GOOD_S:
        return Standing(
            CRASHES, "%s crashed, and started again %d s ago: %s" % (board.name, up_s, _crash(board))
        )
    return Standing(RUNNING, "")


def _crash(board: Board) -> str:
    crash = board.status.get("crash")
    return str(crash[1]) if crash else "its reason is not known"


def of_process(process: Process, standings: dict[str, Standing]) -> tuple[str, list[str]]:
    """What a process does, in one word, and what it waits for, in sentences."""
    from .switching import is_nothing

    fine = (RUNNING, IS_DRAINED, IS_LOST) if process.step == DRAIN else (RUNNING, IS_LOST)
    waits = [standing.text for standing in standings.values() if standing.word not in fine]
    if process.step == DRAIN:
        hosted = process.hosted
        if not waits and hosted is not None and hosted.unsafe():
            waits = ["the gateway holds %d entries that are not safe yet" % hosted.unsafe()]
        if waits:
            waits += _without_host(process, standings)
        ends = process.coming is not None and is_nothing(process.coming)
        return "stops" if ends else "drains", waits
    if process.step:
        return "switches", waits
    return "waits" if waits else "runs", waits


def _without_host(process: Process, standings: dict[str, Standing]) -> list[str]:
    """Operators all of whose hosts are declared lost: a process that holds entries for one never drains."""
    lost = {name for name, standing in standings.items() if standing.word == IS_LOST}
    plan = plans.loads(process.plan) if lost else None
    found = []
    for v in plan.vertices if plan else ():
        hosts = [plan.hosts[h] for h in v.hosts] if plan else []
        if v.kind and lost.issuperset(hosts):
            found.append(
                "operator %s takes nothing any more, since no host is left that may run it, and what is sent "
                "to it is never safe: cancel the change, bring a board back (`hw provision %s --renew`), and "
                "change the process then" % (v.name, hosts[0])
            )
    return found


def duration(seconds: float) -> str:
    """Seconds for people."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return "%d %s" % (seconds // size, unit)
    return "%d s" % seconds


def earlier(entries: list[Any]) -> list[dict[str, Any]]:
    """Earlier deployments, for the state."""
    from .switching import named

    return [
        {**named(entry.plan), "since_us": entry.since_us, "until_us": entry.until_us} for entry in entries
    ]
