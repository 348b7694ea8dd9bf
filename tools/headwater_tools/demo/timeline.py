"""What the timeline of a demo shows: looks at its parts, and is told what happens to them."""

from __future__ import annotations

from pathlib import Path

from ..simulator import timeline
from ..simulator.lanes import ALONE, CUT, DEAD, DOWN, RUNS, SECOND, UP, Lanes, Link, Move, Span, Waiting
from .links import Links
from .observer import Seen
from .operators import Moved

WORST = (DEAD, DOWN, CUT, UP)  # what a link is follows from its two ends


class Timeline:
    def __init__(self, parts: list[str], operators: list[str]) -> None:
        self.lanes = Lanes()
        self.lanes.operators = operators
        for part in parts:
            self.lanes.lane(part)

    def look(
        self, seen: Seen, parts: dict[str, str], places: dict[str, str], percent: dict[str, int]
    ) -> None:
        """`parts`: what each part is; `places`: operator -> host; `percent`: what batteries have left."""
        lanes = self.lanes
        lanes.begin_look(_us(seen.at_s))
        for part, what in parts.items():
            lanes.last(lanes.lane(part).states, what)
        for name, left in percent.items():
            lanes.charged(lanes.lane(name), left)
        for operator, host in places.items():
            if parts[host] in (UP, CUT):
                spans = lanes.lane(host).operators.setdefault(operator, [])
                lanes.last(spans, RUNS if parts[host] == UP else ALONE)
        on_boards = max(0, seen.accepted - seen.durable)
        everywhere = max(on_boards, seen.accepted - seen.landed)
        lanes.waiting.append(Waiting(lanes.end_us, on_boards, everywhere))

    def look_at_links(
        self, links: Links, carried: dict[str, int], at_s: float, parts: dict[str, str]
    ) -> None:
        """`carried`: bytes by link since the last look."""
        for name, count in carried.items():
            link = self.lanes.links.setdefault(name, Link(name, links.kinds[name]))
            states = {parts[end] for end in links.ends[name]}
            self.lanes.last(link.states, next(what for what in WORST if what in states))
            link.carried.append((_us(at_s), count))

    def happened(self, text: str, at_s: float) -> None:
        self.lanes.fault(text, text, _us(at_s))

    def moved(self, move: Moved, at_s: float) -> None:
        why = "planned" if move.planned else "its host is dead"
        at_us = _us(at_s)
        self.lanes.moves.append(Move(move.operator, move.giver, move.taker, why, at_us, move.planned))
        # It is told a moment later.
        for span in self.lanes.lane(move.giver).operators.get(move.operator, ())[-1:]:
            span.end_us = min(span.end_us, at_us)
        spans = self.lanes.lane(move.taker).operators.setdefault(move.operator, [])
        spans.append(Span(RUNS, at_us, self.lanes.end_us))

    def turn(self, at_s: float, words: str) -> None:
        """A line across all lanes."""
        self.lanes.switches.append((_us(at_s), words))

    def draw(self, path: Path, title: str) -> None:
        path.write_text(timeline.draw(self.lanes, title))


def _us(seconds: float) -> int:
    return int(seconds * SECOND)


__all__ = ["CUT", "DEAD", "DOWN", "UP", "Timeline"]
