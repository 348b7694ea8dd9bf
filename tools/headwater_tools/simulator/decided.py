"""What operators of a world have decided, in the course that counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Epoch = tuple[int, int]
Decision = tuple[list[int], Any]  # where the operator stood, and the content
Given = tuple[int, int]  # log number of a gateway, and the number of its change; as before: by the operator


class Decided:
    """Every decision that any instance has taken. Of those of one number the newest epoch's counts, and of
    that the last: what an instance decided before a restart or another epoch went on without it was put out
    to no one."""

    def __init__(self, now: Callable[[], int]) -> None:
        self.now = now
        self.known: dict[int, dict[int, tuple[Epoch, Decision, Given]]] = {}  # operator -> number -> decision
        # (operator, number by which it gave up) -> what it had decided from that number on, in the course
        # that was given up: its consumers may have taken what followed from that.
        self.left: dict[tuple[int, int], list[Decision]] = {}
        # ... -> what all operators had decided by then, the course that was given up with the rest of it.
        self.until: dict[tuple[int, int], dict[int, list[Decision]]] = {}
        self.given_up: dict[
            int, tuple[int, int]
        ] = {}  # operator -> number by which it gave up last, and when
        self.looks: list[Callable[[int], None]] = []  # called with the operator, before it decides

    def watch(self, inst: Any) -> None:
        decide = inst.decide

        def watched(content: Any, given: tuple[int, int]) -> None:
            v = inst.vertex.index
            for look in self.looks:
                look(v)
            known = self.known.setdefault(v, {})
            number = inst.decided + 1
            if content[0] == "anew" and (number not in known or known[number][1][1][0] != "anew"):
                self.until[v, number] = {
                    w: self.course(w, max(of, default=0)) for w, of in self.known.items()
                }
                self.given_up[v] = (number, self.now())
                later = [n for n in sorted(known) if n >= number]
                self.left[v, number] = [known.pop(n)[1] for n in later]
            if number not in known or inst.epoch >= known[number][0]:
                known[number] = (inst.epoch, (list(inst.position()), content), given)
            decide(content, given)

        inst.decide = watched

    def course(self, v: int, upto: int) -> list[Decision]:
        """The decisions of an operator, the first `upto` of them."""
        known = self.known.get(v, {})
        return [known[number][1] for number in range(1, upto + 1) if number in known]

    def wrong(self, v: int, upto: int) -> str:
        """What of these decisions is not one change of a gateway after the other, or nothing."""
        known = self.known.get(v, {})
        last: Given = (0, 0)
        for number in range(1, upto + 1):
            given = known[number][2] if number in known else last
            if number in known and known[number][1][1][0] == "anew":
                last = given  # what was taken since its checkpoint is offered again
            if given != last and given[1] != (last[1] + 1 if given[0] == last[0] else 1):
                return "decision %d is change %d, after change %d" % (number, given[1], last[1])
            last = given
        return ""


class WatchedInstances(dict[int, Any]):
    """The operators of a host, each watched from its first moment."""

    def __init__(self, decided: Decided) -> None:
        super().__init__()
        self.decided = decided

    def __setitem__(self, v: int, inst: Any) -> None:
        self.decided.watch(inst)
        super().__setitem__(v, inst)
