"""What moves cost a board: SP1 on three hosts, a board of 32-bit MicroPython, a second host and the gateway.

The other two are real hosts in this process. A board at rest with backups and a battery is compared with one
whose process has no backups; then an operator after the other is handed over, taken, or taken over because
its host falls silent. The heap is looked at after every frame and every tick, each time after a collection.
What a single call needs meanwhile is not seen so: it is in the smallest heap in which all of it works.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.plan.model import Plan
from headwater.process import Process
from headwater.protocol.clock import Clock
from headwater.runtime.host import Host
from headwater.storage.log import Log
from headwater.testing.cut_flash import CutFlash

from ...boards import energy
from ...examples import sp1
from .. import Measure, at_most
from . import piped_board
from .piped_board import DATA, KEY, PLAN, Gateway

REST_BYTES = 6 * 1024
MOVE_BYTES = 12 * 1024
ELEMENTS = 36_000  # 100 s at rest: the reserve is computed after 60
MOVES = 900  # batches after that: 150 s
BOARD, OTHER = 1, 2
HEAP = 128  # KiB; looks need no small heap
HEAP_LEAST, HEAP_MOST = 48, 128
PROFILE = "esp32"

NONE, REST, GIVE, FLEE, TAKE, TAKE_OVER = "none", "rest", "give", "flee", "take", "take_over"
DURING = {
    REST: "asking other hosts for bids",
    GIVE: "handing operators over",
    FLEE: "fleeing from a low battery",
    TAKE: "taking operators",
    TAKE_OVER: "taking over operators of a silent host",
}


def process_of(mode: str) -> Process:
    """SP1, its operators on the board, or first on the other host; the gateway as third candidate."""
    first, second = ("wrist", "chest") if mode in (TAKE, TAKE_OVER) else ("chest", "wrist")
    backup = () if mode == NONE else (second, "gateway")
    return sp1.build(every=500, level="local", hosts=("chest", first, first), heap_kb=256, backup=backup)


class Site(Gateway):
    """The gateway and the second host."""

    def __init__(self, plan: Plan, mode: str) -> None:
        self.mode = mode
        self.other: Any = None
        self.waiting: list[tuple[int, bytes]] = []
        super().__init__(plan, len(plan.hosts) - 1)
        self.operators = [v.index for v in plan.vertices if v.kind]
        flash = CutFlash(64, 4096)
        Log.format(flash, 78)
        log = Log(flash)
        log.mount()
        nonces = iter(range(1 << 41, 1 << 62))
        keys = dict.fromkeys((0, BOARD), KEY)
        self.other = Host(plan, OTHER, log, keys, Clock(), self.send, lambda: next(nonces))
        self.other.start(self.now)
        self.settle()

    def send(self, to: int, frame: Any) -> None:
        if to == BOARD:
            self.frames.append(bytes(frame))
        else:
            self.waiting.append((to, bytes(frame)))

    def deliver(self, to: int, frame: bytes) -> None:
        self.waiting.append((to, frame))
        self.settle()

    def settle(self) -> None:
        """Deliver what the two have said to each other."""
        while self.waiting:
            to, frame = self.waiting.pop(0)
            host = self.other if to else self.host
            if host and not (to and self.silent):
                host.receive(frame, self.now)
                host.settle()

    @property
    def moving(self) -> bool:
        return self.outbox.last.get(self.outbox.raw_edge, 0) >= ELEMENTS

    @property
    def silent(self) -> bool:
        return self.mode == TAKE_OVER and self.moving

    def tick(self) -> None:
        super().tick()
        if not self.silent:
            self.other.tick(self.now)
        to = {GIVE: OTHER, TAKE: BOARD}.get(self.mode)
        if self.moving and to is not None:
            for v in self.operators:
                if self.host.where[v][2] != to:
                    self.host.ask_move(v, to, self.now)
                    break
        self.settle()

    def runs_at(self) -> set[int]:
        return {self.host.where[v][2] for v in self.operators}


def run(folder: Path, mode: str, heap: int, say: Callable[[str], None]) -> dict[str, int] | str:
    """A board in this heap in KiB -> bytes that are live, by when; why it failed, if it did."""
    process = process_of(mode)
    site = Site(process.plan(), mode)
    profile = folder / "profile"
    draws = energy.board(PROFILE)
    assert draws
    profile.write_text(json.dumps(energy.given(draws)))
    moves = 0 if mode in (NONE, REST) else MOVES
    words = (mode, PLAN, DATA, ELEMENTS, moves, profile)
    got = piped_board.run(folder, "moves", process, site, words, "%dk" % heap, {}, say)
    if "after" not in got:
        return "out of memory" if "MemoryError:" in got else "failed"
    if not piped_board.all_there(got, site, ELEMENTS):
        return "lost some"
    expected = OTHER if mode in (GIVE, FLEE) else BOARD
    if site.runs_at() != {expected}:
        return "operators run on hosts %s" % sorted(site.runs_at())
    for word in got.get("loaded", []):
        say("  %s: %s" % (mode, " ".join(word)))
    return {word: int(got[word][0][0]) for word in ("rest", "most", "after")}


def measured(folder: Path, search: bool, say: Callable[[str], None]) -> list[Measure]:
    found: dict[str, dict[str, int]] = {}
    failed = []
    for mode in (NONE, *DURING):
        lives = run(folder, mode, HEAP, say)
        if isinstance(lives, str):
            failed.append(Measure("SP1 on three hosts, " + mode, lives, "", "works", False))
            continue
        found[mode] = lives
        say("  %-9s %s" % (mode, ", ".join("%s %d B" % pair for pair in lives.items())))
    if failed:
        return failed
    none = found[NONE]["rest"]
    out = [
        Measure("SP1 without backups, live heap at rest", none, "B"),
        at_most("moves and a battery, heap at rest beside that", found[REST]["rest"] - none, "B", REST_BYTES),
    ]
    for mode, what in DURING.items():
        out.append(at_most("heap while " + what, found[mode]["most"] - none, "B", MOVE_BYTES))
    if search:
        out += _smallest_heaps(folder, say)
    return out


def _smallest_heaps(folder: Path, say: Callable[[str], None]) -> list[Measure]:
    least = {}
    for mode in (NONE, *DURING):

        def works(heap: int, _: int, mode: str = mode) -> bool:
            return not isinstance(run(folder, mode, heap, lambda _: None), str)

        least[mode] = piped_board.least_heap(works, HEAP_LEAST, HEAP_MOST, ELEMENTS)
        say("  %s: the smallest heap that works has %d KiB" % (mode, least[mode]))
    out = [Measure("smallest heap, SP1 without backups", least[NONE], "KiB")]
    bar = least[NONE] + REST_BYTES // 1024
    out.append(at_most("smallest heap with moves and a battery", least[REST], "KiB", bar))
    for mode in [mode for mode in DURING if mode != REST]:
        what = DURING[mode]
        bar = least[NONE] + MOVE_BYTES // 1024
        out.append(at_most("smallest heap, " + what, least[mode], "KiB", bar))
    return out
