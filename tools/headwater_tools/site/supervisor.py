"""Parts of a site under supervision: in which order they start, what becomes of one that ends, how all end.

No clock, process or terminal is known here: parts are objects with five methods, `say` takes the lines, `now`
is given. The rules:

- A part is started when the parts that it needs are up.
- A part that ends before it was up once ends everything: waiting does not put right what is wrong at a start.
- Later, it is reported with the last lines of its log and started again: after 1 s, and after twice as long
  each time it ends within a minute of its start, at most 30 s.
- The fifth end in a row within a minute of its start ends everything.
- Parts are stopped in the order that `stop` is given, each before the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import Failed

STEADY_S = 60.0  # a part that ends later than this after its start has no history
PAUSE_S = 1.0
PAUSE_MAX_S = 30.0
ENDS_MAX = 5
LINES = 8  # of a log, in a report

WAITS, STARTS, UP, PAUSES = "waits", "starts", "up", "pauses"


class Part(Protocol):
    name: str
    needs: tuple[str, ...]
    slow_s: float  # a start that takes longer is worth a line

    def start(self) -> None: ...

    def running(self) -> bool: ...

    def up(self) -> str:
        """What to say when it is up; empty while it is not."""

    def stop(self) -> None: ...

    def tail(self) -> list[str]:
        """The last lines of its log."""

    def place(self) -> str:
        """Where its log is."""


class Watched:
    """One part, and what became of it so far."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.state = WAITS
        self.was_up = False
        self.started_s = 0.0
        self.due_s = 0.0
        self.ends = 0  # in a row, each within a minute of its start
        self.told_slow = False

    def ended(self, now: float) -> float | None:
        """It has ended: after how many seconds it is started again; None: not at all."""
        if not self.was_up:
            return None
        self.ends = 1 if now - self.started_s >= STEADY_S else self.ends + 1
        if self.ends >= ENDS_MAX:
            return None
        return min(PAUSE_MAX_S, PAUSE_S * 2 ** (self.ends - 1))


class Supervisor:
    def __init__(self, say: Callable[[str, str], None], now: Callable[[], float]) -> None:
        """`say(name of a part, text)`."""
        self.say = say
        self.now = now
        self.watched: dict[str, Watched] = {}

    def add(self, part: Part) -> None:
        self.watched[part.name] = Watched(part)

    def is_up(self, name: str) -> bool:
        return self.watched[name].state == UP

    def all_up(self) -> bool:
        return all(one.state == UP for one in self.watched.values())

    def tick(self) -> None:
        """Look at every part once. Failed where one has ended for which there is no other try."""
        for one in self.watched.values():
            if one.state == WAITS and all(self._there(name) for name in one.part.needs):
                self._start(one)
            elif one.state == PAUSES and self.now() >= one.due_s:
                self._start(one)
            elif one.state in (STARTS, UP) and not one.part.running():
                self._ended(one)
            elif one.state == STARTS:
                self._look(one)

    def _there(self, name: str) -> bool:
        return name not in self.watched or self.watched[name].was_up

    def _start(self, one: Watched) -> None:
        one.state = STARTS
        one.started_s = self.now()
        one.told_slow = False
        one.part.start()

    def _look(self, one: Watched) -> None:
        text = one.part.up()
        if text:
            one.state = UP
            self.say(one.part.name, "up again: " + text if one.was_up else text)
            one.was_up = True
        elif not one.told_slow and self.now() - one.started_s > one.part.slow_s:
            one.told_slow = True
            self.say(one.part.name, "not up after %.0f s: see %s" % (one.part.slow_s, one.part.place()))

    def _ended(self, one: Watched) -> None:
        part = one.part
        lines = "".join("\n    " + line for line in part.tail()[-LINES:])
        pause_s = one.ended(self.now())
        if pause_s is None and not one.was_up:
            raise Failed("%s ended before it was up (%s):%s" % (part.name, part.place(), lines))
        if pause_s is None:
            text = "%s ended %d times, each within a minute of its start (%s):%s"
            raise Failed(text % (part.name, one.ends, part.place(), lines))
        self.say(part.name, "ended; it starts again in %.0f s (%s):%s" % (pause_s, part.place(), lines))
        one.state = PAUSES
        one.due_s = self.now() + pause_s

    def stop(self, order: Sequence[str]) -> None:
        """Stop what was started, in this order; a part that the order does not name comes last."""
        rest = [name for name in self.watched if name not in order]
        for name in [*order, *rest]:
            one = self.watched.get(name)
            if one is not None and one.state in (STARTS, UP):
                one.part.stop()
                one.state = WAITS
