"""Where operators run, as boards tell it on their consoles, and the moves that follow from that.

It needs no gateway, so it knows what happens while that is away. A board writes a line when an operator
begins, pauses or ends there, with the number of elements that it has taken from each input by then.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

SETTLES_S = 1.0  # two consoles are read by two threads: this long after a line the others are known as well

_LINE = re.compile(r"^(\w+): operator (\w+) (runs|pauses|ends), taken ([\d ]*)$")


@dataclass(frozen=True)
class Told:
    """One line."""

    at_s: float  # of time.monotonic
    host: str
    operator: str
    what: str
    taken: tuple[int, ...]


@dataclass(frozen=True)
class Moved:
    operator: str
    giver: str
    taker: str
    at_s: float
    planned: bool
    paused_s: float  # for so long it ran nowhere, where that is known
    replayed: int  # elements that the giver had taken, and the taker took again


class Operators:
    def __init__(self, places: Mapping[str, str]) -> None:
        """`places`: operator -> the host where the process file lets it begin."""
        self.places = dict(places)
        self._lock = threading.Lock()
        self._told: list[Told] = []
        self._paused: dict[tuple[str, str], Told] = {}  # operator, host -> when it paused there last

    def hear(self, line: str) -> None:
        """A line of any board's console."""
        found = _LINE.match(line)
        if found:
            taken = tuple(int(n) for n in found[4].split())
            told = Told(time.monotonic(), found[1], found[2], found[3], taken)
            with self._lock:
                if told.what == "pauses":
                    self._paused[told.operator, told.host] = told
                elif told.what == "runs":
                    self._paused.pop((told.operator, told.host), None)  # it was not handed over
                    self._told.append(told)

    def news(self) -> list[Moved]:
        """The moves since the last call; a move is known a moment after it happened."""
        until = time.monotonic() - SETTLES_S
        with self._lock:
            ripe = [told for told in self._told if told.at_s <= until]
            self._told = [told for told in self._told if told.at_s > until]
            return [self._moved(told) for told in ripe if self.places[told.operator] != told.host]

    def _moved(self, told: Told) -> Moved:
        giver = self.places[told.operator]
        self.places[told.operator] = told.host
        paused = self._paused.pop((told.operator, giver), None)
        if paused is None:
            return Moved(told.operator, giver, told.host, told.at_s, False, 0.0, 0)
        again = sum(max(0, a - b) for a, b in zip(paused.taken, told.taken, strict=True))
        gone = max(0.0, told.at_s - paused.at_s)
        return Moved(told.operator, giver, told.host, told.at_s, True, gone, again)
