"""Changes of a process: the version in force, what each board must do for it, and when the next step is due.

A change drains first: every board is sent the new version and told to drain. When all of them have, and
nothing is left to the gateway itself either, the new version is in force from that moment on, durably; then
each board is told to run it. Until the first board runs it, the change can be cancelled. A restart in between
continues from there.

A process is undeployed by a change to a plan of the same boards without vertices. When everything is drained
the process has ended: its boards are free, and each is told to stop it, now or when it comes back
(`Boards.leave`).

This is sans-I/O: the service gives it a database and boards to speak to, and so does the simulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.data import msgpack
from headwater.plan import model as plans
from headwater.plan.model import Plan
from headwater.plan.reader import alike, numbered
from headwater.protocol.site_link import DRAIN, DRAINED, FORGET, LEFT_OUT, REFUSED, ROUND, RUN, RUNS, WANTED

from .. import UserError
from ..boards import Board, Boards, Deployment
from ..keys import Keys
from .history import Earlier, History
from .numbers import Numbers

if TYPE_CHECKING:
    from ..database.engine import Database
    from ..hosted import HostedProcess


class Process:
    """A process as it is deployed: its plan, and during a switch the next one."""

    def __init__(
        self, name: str, plan: bytes, since_us: int, coming: bytes | None, step: int, learn: int = 0
    ) -> None:
        self.name = name
        self.plan = plan
        self.since_us = since_us
        self.coming = coming
        self.step = step  # 0: runs; DRAIN; RUN: the new plan runs here, and not yet on every board
        self.learn = learn  # number of a deployment that was learned from boards, 0: none
        self.without: list[str] = []  # while it drains: boards that do not run the former version yet
        self.round = ROUND  # ... the round in which drained boards are asked for their state,
        self.made: list[int] | None = None  # ... and the result of the previous one, if all were drained
        self.hosted: HostedProcess | None = None


class Switching:
    """The part of the service that changes processes. The service provides what has no value here."""

    db: Database
    boards: Boards
    keys: Keys
    numbers: Numbers
    history: History
    processes: dict[str, Process]
    by_board: dict[str, Process]

    def site_us(self) -> int:
        raise NotImplementedError

    def event(self, kind: str, text: str) -> None:
        raise NotImplementedError

    def _save(self, process: Process) -> None:
        raise NotImplementedError

    def _gone(self, process: Process) -> None:
        """It was undeployed: delete what only the service knows about it."""
        raise NotImplementedError

    def _unplaced(self, process: Process) -> list[str]:
        """Operators of lost boards that no living host has taken over yet, although one may."""
        return []

    def _seat(self, process: Process) -> None:
        """Run the present plan of a process here, and want it on its boards."""
        raise NotImplementedError

    def _settled(self, process: Process | None, hosts: list[str]) -> None:
        """UserError while it is not known yet what runs there."""
        raise NotImplementedError

    def _only(self) -> str:
        if len(self.processes) != 1:
            raise UserError(
                "name the process with --process: there are %s" % (", ".join(self.processes) or "none")
            )
        return next(iter(self.processes))

    def open_to_change(self, name: str | None) -> tuple[Process, HostedProcess]:
        """The process of that name, or the only one, for a command that changes what runs now. UserError
        while it is being replaced, or while it is not known what runs."""
        process = self._process(name or self._only())
        self._settled(process, [])
        if process.coming is not None:
            raise UserError(being_changed(process))
        assert process.hosted is not None
        return process, process.hosted

    def _want(self, process: Process) -> None:
        data = process.plan if process.coming is None else process.coming
        hosts = plans.loads(data).hosts
        step = DRAIN if process.coming is not None else RUN if process.step == RUN else None
        if process.hosted:
            process.hosted.outbox.draining = step == DRAIN
        process.without = self._without(process) if step == DRAIN else []
        for name in hosts[1:]:
            if name in process.without:
                self._want_of(process.plan, name, None)
            else:
                self._want_of(data, name, step)

    def _want_of(self, data: bytes, name: str, step: int | None) -> None:
        hosts = plans.loads(data).hosts
        deployment = Deployment(data, hosts, name, self.boards.numbers, self.keys)
        self.boards.want(self.boards.all[name], deployment, step)

    def _without(self, process: Process) -> list[str]:
        """Boards of the former version that have no process, or have not reported yet. They get the former
        version first: without their operators the others could never make their entries safe. A board
        that refuses it, or skips it, takes the next version at once."""
        found = []
        for name in plans.loads(process.plan).hosts[1:]:
            board = self.boards.all[name]
            refuses = board.state == REFUSED or board.status.get("state") == LEFT_OUT
            if board.is_lost:
                continue
            if board.status.get("deployment") is None and not refuses and not self._stopped(process, board):
                found.append(name)
        return found

    def _stopped(self, process: Process, board: Board) -> bool:
        """It has stopped the process already, as it should: it had refused it, so nothing had to drain."""
        coming = process.coming
        if coming is None or not is_nothing(coming):
            return False
        there = Deployment(coming, plans.loads(coming).hosts, board.name, self.boards.numbers, self.keys)
        return bool(board.status.get("plan") == there.id)

    def _change(self, process: Process, plan: Plan, data: bytes) -> dict[str, Any]:
        present = plans.loads(process.plan)
        if plan.process_hash == present.process_hash and process.coming is None:
            if not alike(data, process.plan):
                raise UserError(
                    "process %s differs from what runs in its placement alone: operators move by activation, "
                    "not by deploying; change something else too, or leave it" % plan.name
                )
            return {**named(process.plan), "state": "unchanged"}
        if process.coming is not None or process.step:
            if process.coming is not None and alike(data, process.coming):
                return {**named(process.coming), "state": "draining"}
            raise UserError(being_changed(process))
        left = [name for name in present.hosts if name not in plan.hosts]
        left = [name for name in left if name not in self.boards.all or not self.boards.all[name].is_lost]
        if left:
            raise UserError(
                "the new version of %s leaves out %s, and a board cannot be taken out of a process that "
                "runs: keep it among the hosts of a source or an operator, or `hw undeploy %s` first"
                % (plan.name, ", ".join(left), plan.name)
            )
        process.coming = self.numbers.stamp(data)
        answer = named(process.coming)
        self.complete(process, DRAIN)
        self.event("switch", "process %(process)s drains for its deployment %(deployment)d" % answer)
        return {**answer, "state": "draining"}

    def complete(self, process: Process, step: int) -> None:
        """Complete a switch that is under way, at this step."""
        process.step = step
        self._save(process)
        self._want(process)

    def undeploy(self, name: str) -> dict[str, Any]:
        """Stop a process, when everything that its boards have accepted is safe."""
        process = self._process(name)
        self._settled(process, [])
        if process.coming is not None and is_nothing(process.coming):
            return {**named(process.coming), "state": "draining"}
        if process.coming is not None or process.step:
            raise UserError(being_changed(process))
        out = [board.name for board in self._of(name) if board.status.get("state") == LEFT_OUT]
        if out:
            raise UserError(
                "%s skips process %s, because it crashed there repeatedly: samples that the "
                "sensors there accepted cannot be made safe without it. Deploy a version that runs, or go "
                "back with `hw deploy --rollback %s`; then undeploy it" % (", ".join(out), name, name)
            )
        process.coming = self.numbers.stamp(nothing(process.plan))
        answer = named(process.coming)
        self.complete(process, DRAIN)
        self.event("switch", "process %s drains, and then it stops" % name)
        return {**answer, "state": "draining"}

    def earlier(self, name: str) -> list[Earlier]:
        """Earlier deployments of a process that differ from what runs, the newest first."""
        kept = self.history.of.get(name, [])
        process = self.processes.get(name)
        return [entry for entry in kept if process is None or not alike(entry.plan, process.plan)]

    def former(self, name: str, number: int | None = None) -> Earlier:
        """The deployment to go back to: the one of this number, or the newest."""
        if name not in self.processes and name not in self.history.of:
            known = sorted({*self.processes, *self.history.of})
            raise UserError("no process %s here; there are: %s" % (name, ", ".join(known) or "none"))
        kept = self.earlier(name)
        for entry in kept:
            if number in (None, entry.deployment):
                return entry._replace(plan=bytes(numbered(entry.plan, 0)))
        text = ", ".join(str(entry.deployment) for entry in kept) or "none"
        what = "no earlier version" if number is None else "no earlier deployment %d" % number
        raise UserError("the gateway has %s of process %s: it has %s" % (what, name, text))

    def cancel(self, name: str) -> dict[str, Any]:
        """Cancel a change that is still draining."""
        process = self._process(name)
        self._settled(process, [])
        if process.coming is None:
            raise UserError("process %s is not being changed: there is nothing to cancel" % name)
        early = [board.name for board in self._of(name) if board.step == DRAIN and board.state == RUNS]
        if early and not is_nothing(process.coming):
            raise UserError(
                "the change of %s cannot be cancelled: %s runs the new version already; bring the other "
                "boards back, then deploy the version that you want" % (name, ", ".join(early))
            )
        hosts = plans.loads(process.coming).hosts
        for board in hosts[1:]:
            if board in early:
                continue  # it had refused the process, and has stopped it: nothing is waiting there
            self.boards.want(
                self.boards.all[board],
                Deployment(process.coming, hosts, board, self.boards.numbers, self.keys),
                FORGET,
            )
        process.coming = None
        process.step = 0
        self._save(process)
        for board in early:
            self._want_of(process.plan, board, None)
        self.event("switch", "the change of process %s is cancelled" % name)
        return {"process": name, "state": "cancelled"}

    def _process(self, name: str) -> Process:
        if name not in self.processes:
            raise UserError("no process %s here; there are: %s" % (name, ", ".join(self.processes) or "none"))
        return self.processes[name]

    def _advance(self, process: Process) -> None:
        """Continue or end a switch, as the boards' answers allow."""
        plan = plans.loads(process.coming or process.plan) if process.step or process.coming else None
        if plan is None:
            for board in self._of(process.name):
                if board.step == FORGET and board.state == WANTED:
                    self._want(process)
            return
        boards = [self.boards.all[name] for name in plan.hosts[1:]]
        boards = [board for board in boards if not board.is_lost]
        if process.step == DRAIN:
            if process.without and process.without != self._without(process):
                self._want(process)
            if self._all_drained(process, boards):
                self._switch(process)
        elif all(b.state == RUNS for b in boards):
            process.step = 0
            self._save(process)
            self.event("switch", "process %s runs in its new version on every board" % process.name)

    def _all_drained(self, process: Process, boards: list[Board]) -> bool:
        """Whether nothing of the former version is unsafe anywhere. Boards report that one after the other,
        and entries of one may have moved to another that had reported before. So all are asked in rounds:
        if two rounds find everything safe, and nothing was produced in between, it was safe between them."""
        hosted = process.hosted
        assert hosted is not None
        if hosted.unsafe():
            hosted.press()
        if self._unplaced(process):
            process.made = None
            return False
        if hosted.unsafe() or not all(b.step == DRAIN and b.state in (DRAINED, RUNS) for b in boards):
            process.made = None
            return False
        asked = [b for b in boards if b.state == DRAINED]
        if all(b.told == process.round for b in asked):
            made = [hosted.made(), *[b.made for b in asked]]
            if made == process.made:
                return True
            process.made = made
            process.round += 1
        for board in asked:
            if board.round != process.round:
                self.boards.ask(board, process.round)
        return False

    def _switch(self, process: Process) -> None:
        """Everything of the former plan is safe: from now on the new one is in force."""
        assert process.coming is not None and process.hosted is not None
        former = process.hosted.plan
        now = self.site_us()
        if is_nothing(process.coming):
            self.history.add(process.name, process.plan, process.since_us, now, None)
            self._end(process, former)
            return
        self.history.add(process.name, process.plan, process.since_us, now, process.coming)
        process.plan, process.coming, process.step = process.coming, None, RUN
        process.since_us = now
        self._save(process)
        self.db.drop_space(former.name, former.hash)
        for name in former.hosts[1:]:
            self.by_board.pop(name, None)  # a lost board may be left out
        self._seat(process)
        self.event("switch", "process %s: the new version is in force" % process.name)

    def _end(self, process: Process, former: Plan) -> None:
        """Everything of a process that is undeployed is safe: it has ended."""
        assert process.coming is not None
        for name in former.hosts[1:]:
            del self.by_board[name]
            if not self.boards.all[name].is_lost:
                self.boards.leave(self.boards.all[name], process.coming)
        del self.processes[process.name]
        self.db.drop_space(former.name, former.hash)
        process.hosted = None
        self._gone(process)
        self.event(
            "switch", "process %s has stopped; nothing that was accepted is left behind" % process.name
        )

    def _of(self, process: str) -> list[Board]:
        return [self.boards.all[name] for name, p in self.by_board.items() if p.name == process]


def nothing(data: bytes) -> bytes:
    """The plan by which the boards of this one stop it: the same name and hosts, and no vertices."""
    form, process, _, _ = msgpack.loads(data)
    return bytes(msgpack.dumps([form, msgpack.dumps([*msgpack.loads(process)[:7], [], [], []]), [], 0]))


def is_nothing(data: bytes) -> bool:
    return not plans.loads(data).vertices


def being_changed(process: Process) -> str:
    """Why it cannot be changed now."""
    if process.coming is None:
        return "process %s is being changed already: wait until every board has switched" % process.name
    if is_nothing(process.coming):
        return "process %s is being undeployed: wait, or `hw undeploy --cancel %s`" % ((process.name,) * 2)
    return "process %s is being changed already: wait, or `hw deploy --cancel %s`" % ((process.name,) * 2)


def named(data: bytes) -> dict[str, Any]:
    """How a deployment is called."""
    plan = plans.loads(data)
    return {
        "process": plan.name,
        "version": plan.process_hash.hex(),
        "deployment": plan.deployment,
        "hash": plan.hash.hex(),
    }
