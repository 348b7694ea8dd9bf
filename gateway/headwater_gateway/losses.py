"""Boards that a person declares lost (`hw board lost`), and inputs that a person closes.

A board is lost with the log number of its flash: all that is stored there counts no more, and nothing that it
says under that number is taken. The gateway tells the hosts of its process, again until each has confirmed
(headwater.runtime.losses); the registry keeps it beyond the process. The board comes back with a new log
number alone: its flash is erased, and it is provisioned again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.plan.model import OUTSIDE, Plan
from headwater.plan.reader import LEVELS
from headwater.storage.keyspace import LEFT

from . import UserError, registry
from .boards import Board
from .deployments.switching import Process
from .given_up import GivenUp

if TYPE_CHECKING:
    from .service import Service


class Losses:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.given_up = GivenUp(service)

    def declare(self, name: str, sure: bool) -> dict[str, Any]:
        """Declare a board lost, if `sure`; what follows from it."""
        service = self.service
        registry.number_of(service.db, name)
        board = service.boards.all[name]
        if board.is_lost:
            raise UserError(
                "board %s is declared lost already: to bring it back, erase its flash and provision it "
                "again (`hw provision %s --renew`)" % (name, name)
            )
        if not board.flash:
            raise UserError(
                "board %s has never reported to this gateway, so nothing is lost with it: leave it out of "
                "the process file, or put another board in its place; nothing was changed" % name
            )
        process = service.by_board.get(name)
        answer = {"board": name, "link": service.link_of(board), **self.follows(board, process)}
        if not sure:
            return {**answer, "declared": False}
        if process is not None and process.hosted is not None:
            hosted = process.hosted
            try:
                hosted.lose(name, board.flash)
            except ValueError as error:
                raise UserError("%s; nothing was changed" % error)
        service.boards.lose(board, board.flash)
        service.event("lost", "board %s is declared lost: what it says is refused" % name)
        for source in answer["sources"]:
            service.event("lost", _ended(name, source))
        return {**answer, "declared": True}

    def follows(self, board: Board, process: Process | None) -> dict[str, Any]:
        """What follows from the loss of a board: streams that end, operators that start elsewhere or nowhere,
        inputs that wait, and whether the level has a spare host afterwards."""
        if process is None or process.hosted is None:
            return {"process": None, "sources": [], "operators": [], "inputs": [], "level": None, "keep": []}
        hosted = process.hosted
        plan = hosted.plan
        number = plan.hosts.index(board.name)
        gone = self._gone(plan) | {number}
        ended = nowhere(plan, gone)
        operators = []
        for v in plan.vertices:
            if v.kind and hosted.host.where[v.index][2] == number:
                left = [plan.hosts[h] for h in v.hosts if h not in gone]
                operators.append({"operator": v.name, "candidates": left})
        return {
            "process": process.name,
            "sources": list(self._sources(process, number)),
            "operators": operators,
            "inputs": inputs_of(plan, ended),
            "level": LEVELS[plan.level],
            "keep": few(plan, gone),
        }

    def _gone(self, plan: Plan) -> set[int]:
        boards = self.service.boards.all
        return {n for n, name in enumerate(plan.hosts) if n and boards[name].is_lost}

    def _sources(self, process: Process, number: int) -> Iterable[dict[str, Any]]:
        """Where the streams of a board's sources end: the last entry that is here, and its time."""
        from .service import last_of

        assert process.hosted is not None
        plan = process.hosted.plan
        for v in plan.vertices:
            if v.kind or v.hosts[0] != number:
                continue
            found: dict[str, Any] = {"source": v.name, "stream": None, "xi": None, "ts_us": None}
            for e in plan.outs(v.index, 0):
                ends = [o for o in self.service.ends.all.values() if o.lake == e.lake and e.dst == OUTSIDE]
                ends = [o for o in ends if o.process == process.name]
                if ends:
                    found.update(stream=e.lake, xi=ends[-1].taken, ts_us=last_of(ends[-1])[0])
            yield found

    # ---- what goes on

    def seat(self, process: Process) -> None:
        """The hosts of a deployment learn which of its boards are lost."""
        hosted = process.hosted
        assert hosted is not None
        for name in hosted.plan.hosts[1:]:
            board = self.service.boards.all[name]
            if board.is_lost:
                hosted.lose(name, board.flash)

    def look(self, process: Process) -> None:
        """A gateway that has lost its database learns from the hosts what was declared."""
        hosted = process.hosted
        self.given_up.look(process)
        for number, (log, _) in hosted.host.lost.items() if hosted else ():
            board = self.service.boards.all[hosted.plan.hosts[number]] if hosted else None
            if board is not None and log not in board.lost and board.flash in (0, log):
                self.service.boards.lose(board, log)

    def shown(self, process: Process) -> list[dict[str, Any]]:
        """The lost boards of a process, for the state."""
        hosted = process.hosted
        assert hosted is not None
        found = []
        for number, (_, state) in sorted(hosted.host.lost.items()):
            name = hosted.plan.hosts[number]
            waits = [] if state == LEFT else [hosted.plan.hosts[h] for h in hosted.unconfirmed(number)]
            back = not self.service.boards.all[name].is_lost
            found.append({"board": name, "settled": state == LEFT, "waits": waits, "back": back})
        return found

    def unplaced(self, process: Process) -> list[str]:
        """Operators that may still run, and of which no living host is known: their results may exist only in
        a checkpoint that another host keeps."""
        hosted = process.hosted
        assert hosted is not None
        gone = self._gone(hosted.plan)
        found = []
        for v in hosted.plan.vertices:
            if v.kind and hosted.host.where[v.index][2] in gone and set(v.hosts) - gone:
                found.append(v.name)
        return found

    # ---- inputs

    def close(self, name: str | None, operator: str, which: str, reopen: bool) -> dict[str, Any]:
        """An operator goes on without one of its inputs, or takes it again."""
        service = self.service
        process, hosted = service.open_to_change(name)
        plan = hosted.plan
        try:
            v = hosted.operator(operator)
        except KeyError:
            known = ", ".join(v.name for v in plan.vertices if v.kind)
            raise UserError("process %s has no operator %s; it has %s" % (process.name, operator, known))
        ins = plan.ins(v.index)
        names = [plan.vertices[e.src].name for e in ins]
        found = [k for k in range(len(ins)) if which in (names[k], str(k))]
        if len(found) != 1:
            text = "operator %s has no input %s: it takes %s, in this order from 0; give a name or a number"
            raise UserError(text % (operator, which, ", ".join(names)))
        try:
            number = hosted.close(v.index, found[0], reopen, self._incarnation(process, ins[found[0]].src))
        except ValueError as error:
            raise UserError("operator %s: %s" % (operator, error))
        told = "takes its input from %s again" if reopen else "goes on without its input from %s"
        service.event("config", "%s.%s %s" % (process.name, operator, told % names[found[0]]))
        return {"process": process.name, "operator": operator, "input": names[found[0]], "number": number}

    def _incarnation(self, process: Process, src: int) -> int:
        """The present incarnation of a source: the log number of its board."""
        assert process.hosted is not None
        v = process.hosted.plan.vertices[src]
        if v.kind or not v.hosts[0]:
            return int(process.hosted.store.log_number) if not v.kind else 0
        return self.service.boards.all[process.hosted.plan.hosts[v.hosts[0]]].flash


def _ended(name: str, source: dict[str, Any]) -> str:
    what = source["stream"] or source["source"]
    if source["xi"] is None:
        return "board %s lost: its source %s ends" % (name, what)
    text = "board %s lost: %s ends; lost from xi %d" % (name, what, source["xi"] + 1)
    return text if source["ts_us"] is None else "%s, ts %d" % (text, source["ts_us"])


def nowhere(plan: Plan, gone: set[int]) -> set[int]:
    """Vertices that give nothing any more when these hosts are gone: their sources, operators without any
    candidate, and operators all of whose inputs come from such."""
    found = {v.index for v in plan.vertices if gone.issuperset(v.hosts if v.kind else v.hosts[:1])}
    for i in plan.order:
        ins = [e.src for e in plan.ins(i) if not e.delay_us]
        if ins and found.issuperset(ins):
            found.add(i)
    return found


def inputs_of(plan: Plan, ended: set[int]) -> list[dict[str, Any]]:
    """Inputs that come from a vertex that gives nothing any more, of operators that still take others."""
    return [
        {"operator": plan.vertices[e.dst].name, "input": plan.vertices[e.src].name}
        for e in plan.edges
        if e.dst != OUTSIDE and e.src in ended and e.dst not in ended
    ]


def few(plan: Plan, gone: set[int]) -> list[str]:
    """Operators whose checkpoints are kept by fewer hosts than the level asks for, without these hosts."""
    operators = [v for v in plan.vertices if v.kind and set(v.hosts) - gone and plan.level_of(v.index)]
    return [v.name for v in operators if len(set(plan.keepers(v.index)) - gone) <= plan.level_of(v.index)]
