"""What words cost a board that sends once a minute: the frames of simulated runs, each for what a profile
says of its bytes and of the frame. Words ride on reports (BEAT), which hosts send each other in any case. So
a third run, without reports, says what both cost together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.plan import placement
from headwater.process import Affine, Process
from headwater.process.check import check
from headwater.runtime.host import Host

from ...simulator.world import SECOND, Hardware, World
from .. import Measure, at_most

MINUTES = 40
SEED = 14
BAR = 2.0  # percent
HEAD_BYTES = placement.FRAME_BYTES - 22  # what carries a frame; its own head and seal are part of it
LINK = "wifi"


def process() -> Process:
    """Three boards, each with a source that is sent once a minute, and operators that any of them may run."""
    p = Process("minute", checkpoints="ecoc", level="peer", every=60, batch=60, batch_ms=60_000)
    names = ("one", "two", "three")
    for name in names:
        source = p.source("from_" + name, "v:i16", rate_hz=1, on=name)
        others = [n for n in names if n != name]
        p.lake("minute/" + name, (source >> Affine(num=2)).named("scale_" + name).on(name, backup=others))
    return p


class Air(World):
    """A world that counts what passes each board's radio, and the words in it."""

    def __init__(self, plan: Any) -> None:
        super().__init__(plan, SEED, hardware=Hardware(pace=Host.PACE))
        self.sent = [[0, 0] for _ in plan.hosts]  # frames, bytes with what carries them
        self.got = [[0, 0] for _ in plan.hosts]

    def send(self, sender: int, to: int, frame: bytes) -> None:
        for count in (self.sent[sender], self.got[to]):
            count[0] += 1
            count[1] += len(frame) + HEAD_BYTES
        super().send(sender, to, frame)

    def charge_nc(self, h: int, board: placement.Host) -> int:
        send, receive, frame = board.links[LINK]
        frames = self.sent[h][0] + self.got[h][0]
        return (self.sent[h][1] * send + self.got[h][1] * receive) // 1000 + frames * frame


def run(plan: Any, words: bool, reports: bool) -> Air:
    world = Air(plan)
    for node in world.nodes:
        world.boot(node)
        assert node.host is not None
        if not words:
            node.host.words = None
        if not reports:
            node.host.exchange.say_state = lambda: None  # type: ignore[method-assign]
    world.start_sensors()
    world.run(60 * SECOND)
    before = [list(map(list, counts)) for counts in (world.sent, world.got)]
    world.run((60 + 60 * MINUTES) * SECOND)
    for counts, was in zip((world.sent, world.got), before):
        for count, old in zip(counts, was):
            count[0] -= old[0]
            count[1] -= old[1]
    assert not world.errors, world.errors
    return world


def measures(boards: dict[str, placement.Host], say: Callable[[str], None]) -> list[Measure]:
    """Of the host to which words cost most. `boards`: what a kind of board draws, by name."""
    report = check(process())
    assert not report.errors(), [str(problem) for problem in report.errors()]
    plan = report.decoded
    told, without, silent = run(plan, True, True), run(plan, False, True), run(plan, False, False)
    hosts = range(1, len(told.nodes))
    for h in hosts:
        each = [(world.sent[h][0] + world.got[h][0]) / MINUTES for world in (told, without, silent)]
        say("board %d: %.2f frames a minute, %.2f without words, %.2f without reports" % (h, *each))
    out = []
    for name, board in boards.items():
        base_nc = board.base_na * 60 * MINUTES

        def share(other: Air, board: placement.Host = board, base_nc: int = base_nc) -> float:
            spent = [told.charge_nc(h, board) for h in hosts]
            less = [other.charge_nc(h, board) for h in hosts]
            return max(100 * (a - b) / (a + base_nc) for a, b in zip(spent, less))

        what = "words, %s: of the charge of a board that sends once a minute" % name
        out.append(at_most(what, round(share(without), 3), "%", BAR))
        out.append(
            Measure("words, %s: with the reports that carry them" % name, round(share(silent), 2), "%")
        )
    return out
