"""Observations of a running site: how far every stream has come, and when parts were down."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ..boards.virtual import VirtualBoard


@dataclass
class Seen:
    """How far the streams of sources have come, in samples, at one moment."""

    at_s: float
    accepted: int  # sealed in the flash of boards
    durable: int  # in the database of the gateway
    landed: int  # acknowledged by the lake


@dataclass
class Spell:
    """A period in which something was down."""

    part: str
    what: str
    from_s: float
    to_s: float = 0.0


@dataclass
class Ledger:
    """What one source accepted: of each incarnation the last ξ."""

    last: dict[int, int] = field(default_factory=dict)


class Watch:
    def __init__(self, sources: dict[str, tuple[VirtualBoard, str]]) -> None:
        """`sources`: stream in the lake -> (board, source)."""
        self.sources = sources
        self.began = time.monotonic()
        self.seen: list[Seen] = []
        self.spells: list[Spell] = []
        self.permanent = 0
        self._last: dict[str, tuple[int, int]] = dict.fromkeys(sources, (0, 0))

    def now(self) -> float:
        return time.monotonic() - self.began

    def down(self, part: str, what: str) -> Spell:
        spell = Spell(part, what, self.now())
        self.spells.append(spell)
        return spell

    def up(self, spell: Spell) -> None:
        spell.to_s = self.now()

    def accepted(self) -> dict[str, dict[int, int]]:
        """Stream -> incarnation -> last ξ that its board's ledger has."""
        found: dict[str, dict[int, int]] = {}
        for stream, (board, source) in self.sources.items():
            last = found.setdefault(stream, {})
            for row in board.accepted():
                if row.source == source:
                    last[row.incarnation] = max(last.get(row.incarnation, 0), row.xi + row.n - 1)
        return found

    def look(self, state: dict[str, Any] | None) -> Seen:
        """Note how far everything has come; `state` is the gateway's, None while it is down."""
        if state is not None:
            for s in state["streams"]:
                if s["stream"] in self._last:
                    durable, landed = self._last[s["stream"]]
                    self._last[s["stream"]] = (max(durable, s["durable"]), max(landed, s["acked"]))
        accepted = sum(sum(last.values()) for last in self.accepted().values())
        durable = sum(d for d, _ in self._last.values())
        landed = sum(a for _, a in self._last.values())
        self.seen.append(Seen(self.now(), accepted, durable, landed))
        return self.seen[-1]

    def everything_landed(self, state: dict[str, Any] | None) -> bool:
        """Whether the lake has acknowledged everything that the boards accepted and the operators put out."""
        if state is None:
            return False
        acked = {(s["stream"], int(s["incarnation"], 16)): s["acked"] for s in state["streams"]}
        for stream, last in self.accepted().items():
            if not last or any(acked.get((stream, inc), 0) < xi for inc, xi in last.items()):
                return False
        return all(s["acked"] >= s["durable"] for s in state["streams"])
