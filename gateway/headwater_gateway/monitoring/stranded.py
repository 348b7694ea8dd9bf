"""What boards sound by themselves, and operators of which no candidate is there: facts for `alarms.judge`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headwater.plan.model import OUTSIDE, Plan
from headwater.protocol.site_link import RUNS
from headwater.runtime.host import Host
from headwater.runtime.signals import BY_LEVEL, BY_SILENCE

from .alarms import OperatorFacts, SoundFacts, span

if TYPE_CHECKING:
    from ..boards import Board
    from ..deployments.switching import Process
    from ..service import Service

AWAY = {
    "lost": "is silent for %s",
    "gone": "is silent for %s",
    "never seen": "was never seen",
}


def sounds(service: Service) -> Iterator[SoundFacts]:
    """Every alarm that a board of this site has."""
    for process in service.processes.values():
        plan = process.hosted.plan if process.hosted else None
        for alarm in plan.alarms if plan else ():
            assert plan is not None
            board = service.boards.all[plan.hosts[alarm.host]]
            row = reported(board, alarm.index)
            cause = row[1] if row else 0
            yield SoundFacts(
                board=board.name,
                name=alarm.name,
                stream=plan.vertices[alarm.src].name,
                driver=alarm.driver,
                silent_s=alarm.silent_ms / 1000,
                by_level=bool(cause & BY_LEVEL),
                by_silence=bool(cause & BY_SILENCE),
                audible=not row or bool(row[3]),
                known=row is not None and service.link_of(board) == "up",
            )


def reported(board: Board, index: int) -> list[int] | None:
    """What a board that runs its deployment has reported of an alarm: its number, why it is on, seconds that
    it stays muted, whether it can be heard."""
    if board.state != RUNS:
        return None
    return next((row for row in board.status.get("alarms") or () if row[0] == index), None)


def shown(service: Service, process: Process) -> list[dict[str, Any]]:
    """The alarms of the boards of a process, for people and machines. `state`: "sounds", "muted", "quiet", or
    "unknown" while the board is away."""
    hosted = process.hosted
    assert hosted is not None
    found = []
    for alarm in hosted.plan.alarms:
        board = service.boards.all[hosted.plan.hosts[alarm.host]]
        row = reported(board, alarm.index) if service.link_of(board) == "up" else None
        v = hosted.plan.vertices[alarm.src]
        state = "unknown"
        if row is not None:
            state = "quiet" if not row[1] else "muted" if row[2] else "sounds"
        found.append(
            {
                "name": alarm.name,
                "host": board.name,
                "stream": v.name,
                "driver": alarm.driver,
                "silent_ms": alarm.silent_ms,
                "field": v.outs[alarm.sport].names[alarm.field] if alarm.field >= 0 else None,
                "state": state,
                "audible": None if row is None else bool(row[3]),
            }
        )
    return found


def late(plan: Plan) -> list[dict[str, Any]]:
    """Streams whose `within_ms` cannot be kept when the host of an operator dies, and what can."""
    beat, _, step = Host.PACE
    least_ms = max(3 * max(beat // 1000, plan.batch_ms), 2 * step // 1000)
    return [
        {"stream": e.lake, "within_ms": e.within_ms, "least_ms": least_ms}
        for e in plan.edges
        if e.dst == OUTSIDE and 0 < e.within_ms <= least_ms and _moves(plan, e.src)
    ]


def _moves(plan: Plan, vertex: int) -> bool:
    """Whether an operator on the way to this stream may start on another host."""
    above = {vertex}
    for e in reversed(plan.edges):
        if e.dst in above:
            above.add(e.src)
    return any(plan.vertices[v].kind and len(plan.vertices[v].hosts) > 1 for v in above)


def quieten(service: Service) -> None:
    """Have boards be silent as long as their alarms are muted here. What a frame loses is said again."""
    now_us = service.site_us()
    for process in service.processes.values():
        hosted = process.hosted
        for alarm in hosted.plan.alarms if hosted else ():
            assert hosted is not None
            name = hosted.plan.hosts[alarm.host]
            row = reported(service.boards.all[name], alarm.index)
            until_us = service.observer.watch.mutes.get("board.alarm/%s.%s" % (name, alarm.name), 0)
            left_s = max(0, -(-(until_us - now_us) // 1_000_000))
            if row and row[1] and bool(row[2]) != bool(left_s):
                hosted.host.signals.mute(alarm.index, left_s)


def nowhere(service: Service, deaf: Callable[[str], bool]) -> Iterator[OperatorFacts]:
    """Operators of which every candidate is away. The gateway itself is never away. `deaf(board)`: its
    silence means nothing now."""
    for process in service.processes.values():
        plan = process.hosted.plan if process.hosted else None
        for v in plan.vertices if plan else ():
            assert plan is not None
            if not v.kind or 0 in v.hosts:
                continue
            boards = [service.boards.all[plan.hosts[h]] for h in v.hosts]
            links = [service.link_of(board) for board in boards]
            if any(link not in AWAY for link in links):
                continue
            silent = [_silent_s(service, process, board) for board in boards]
            yield OperatorFacts(
                process=process.name,
                name=v.name,
                candidates=tuple(
                    (board.name, _why(board, link, silent_s))
                    for board, link, silent_s in zip(boards, links, silent, strict=True)
                ),
                since_s=min(silent),
                known=not any(deaf(board.name) for board in boards)
                and process.coming is None
                and not process.step,
            )


def _silent_s(service: Service, process: Process, board: Board) -> float:
    return max(0.0, (service.site_us() - (board.seen_us or process.since_us)) / 1e6)


def _why(board: Board, link: str, silent_s: float) -> str:
    text = AWAY[link]
    text = text % span(silent_s) if "%s" in text else text
    battery = board.status.get("battery")
    return text + (", its battery had %.2f V" % (battery / 1000) if battery else "")
