"""What a timeline shows, in a lane for each host: its battery, operators, moves, faults.

The simulator's recorder fills it from a history, `hw demo` from what boards and gateway tell. Times are
microseconds since the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SECOND = 1_000_000

# What a host is.
UP, DOWN, ASLEEP, CUT, DEAD = "up", "down", "asleep", "cut off", "dead"
# What an operator is on a host: it runs, it runs without one of its producers, it does not run yet.
RUNS, ALONE, BEGINS = "in touch", "not in touch", "begins"


@dataclass
class Span:
    """Something that lasts: a state of a host, or of an operator on it."""

    what: str
    start_us: int
    end_us: int


@dataclass(frozen=True)
class Move:
    """An operator goes from a host to another one."""

    operator: str
    giver: str
    taker: str
    why: str
    at_us: int
    planned: bool


@dataclass
class Mark:
    """A fault, or several of one kind that follow each other closely."""

    kind: str
    text: str
    at_us: int
    times: int = 1


@dataclass
class Lane:
    """One host."""

    name: str
    states: list[Span] = field(default_factory=list)
    battery: list[tuple[int, int]] = field(default_factory=list)  # time, percent
    operators: dict[str, list[Span]] = field(default_factory=dict)


@dataclass
class Link:
    """What lies between two: what it is, and what it carried."""

    name: str
    kind: str
    states: list[Span] = field(default_factory=list)
    carried: list[tuple[int, int]] = field(default_factory=list)  # time, bytes since the look before


@dataclass
class Waiting:
    """Samples that were accepted and wait, at one moment."""

    at_us: int
    on_boards: int  # and nowhere else
    everywhere: int  # on their way to the lake


class Lanes:
    TOGETHER_US = 3 * SECOND  # marks of one kind become one mark within this time

    def __init__(self) -> None:
        self.lanes: dict[str, Lane] = {}
        self.operators: list[str] = []  # in the order of the plan
        self.moves: list[Move] = []
        self.marks: list[Mark] = []
        self.switches: list[tuple[int, str]] = []  # when another plan came into force, and which
        self.waiting: list[Waiting] = []
        self.links: dict[str, Link] = {}  # by name, in the order in which they are drawn
        self.calm_us = 0  # when faults stopped
        self.end_us = 0  # of the last look
        self.before_us = 0  # ... and of the one before

    def lane(self, name: str) -> Lane:
        return self.lanes.setdefault(name, Lane(name))

    def begin_look(self, now_us: int) -> None:
        self.before_us = self.end_us
        self.end_us = now_us

    def fault(self, kind: str, text: str, now_us: int) -> None:
        last = next((m for m in reversed(self.marks) if m.kind == kind), None)
        if last is not None and now_us - last.at_us < self.TOGETHER_US:
            last.times += 1
        else:
            self.marks.append(Mark(kind, text or kind, now_us))

    def charged(self, lane: Lane, percent: int) -> None:
        """What a battery has left, at this look."""
        if not lane.battery or lane.battery[-1][1] != percent:
            lane.battery.append((self.end_us, percent))

    def last(self, spans: list[Span], what: str) -> None:
        """Something was so since the last look."""
        goes_on = bool(spans) and spans[-1].end_us >= self.before_us
        if goes_on and spans[-1].what == what:
            spans[-1].end_us = self.end_us
        else:
            spans.append(Span(what, spans[-1].end_us if goes_on else self.end_us, self.end_us))
