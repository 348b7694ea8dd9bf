"""Bluetooth: goodput of the link, heap after reconnects, and what it costs a board.

Boards are 32-bit MicroPython with the real NimBLE host and the code that is shipped; the gateway's end is its
radio on bleak. Both meet on the virtual radio, so this is goodput over a virtual link: no transmitter was
used, and a board's serial line takes about 50 kB/s, less on a machine that is busy (docs/testing.md). What a
busy machine takes from the measurement is reported, and nothing is deducted for it.

goodput: bytes of frames beside what the air allows, one board. The air allows 244 bytes in a packet.
boards: the same for three boards at once, each beside the mean of all.
reconnects: free heap of a board after a connection was cut, or was left, again and again.
cost: heap and code that Bluetooth adds to a whole board that runs SP1, MQTT over TLS included; the smallest
heap in which that has both links.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .. import environment
from ..boards.virtual import ECG
from ..image import builder
from . import Measure, at_least, at_most
from .runtime import process_of

if TYPE_CHECKING:
    from .support.ble_ends import Flow

SUMMARY = "goodput of Bluetooth over the virtual radio; heap after reconnects; heap and code that it adds"
SECTIONS = ("goodput", "boards", "reconnects", "cost")
BAR = 0.9  # of what the air allows
SHARE = 0.1  # of the mean: how far a board's goodput may lie from it
LOSS = 0.2  # of the connection events
PACKET = 244  # bytes of a value that fills one packet of the radio
SECONDS, SECONDS_QUICK = 8.0, 1.0  # of each direction
SECONDS_LOSS = 24.0  # so that chance makes little of the boards' shares
BATCH = 60  # of SP1, as in the bench `runtime`
ENCRYPTION = ("cipher", "aes")  # modules that only links like Bluetooth need
HEAP_BYTES, CODE_BYTES = 8 * 1024, 12 * 1024
BOTH_HEAP = 92  # KiB in which SP1 is to have both links
BOTH_LEAST, BOTH_MOST = 88, 128  # KiB: where the smallest heap that works is searched
ELEMENTS, ELEMENTS_QUICK = 50_000, 10_000
LOOKS, LOOKS_QUICK = (100, 500), (3, 6)  # connections after which the heap is compared


class Case(NamedTuple):
    interval_ms: float
    per_event: int
    up: bool

    @property
    def name(self) -> str:
        way = "up" if self.up else "down"
        return "%s, %g ms, %d packets an event" % (way, self.interval_ms, self.per_event)

    @property
    def air(self) -> float:
        """Bytes a second that it allows where no event fails."""
        return self.per_event * PACKET * 1000 / self.interval_ms


CASES = (Case(15, 4, True), Case(30, 4, True), Case(50, 4, True), Case(30, 4, False))
AT_ONCE = (Case(30, 4, True), Case(30, 4, False))
BOARDS = ("chest", "wrist", "hip")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--section", choices=SECTIONS, action="append", help="all of them")
    parser.add_argument(
        "--quick", action="store_true", help="a second of fewer goodputs, a few reconnects, no search"
    )


def run(args: argparse.Namespace, say: Callable[[str], None]) -> list[Measure]:
    environment.ensure("bluetooth")
    sections = args.section or SECTIONS
    measures: list[Measure] = []
    with tempfile.TemporaryDirectory(prefix="hw-ble-") as name:
        folder = Path(name)
        if "goodput" in sections:
            measures += _goodput(folder, args.quick, say)
        if "boards" in sections:
            measures += _boards(folder, args.quick, say)
        if "reconnects" in sections:
            measures += _reconnects(folder, LOOKS_QUICK if args.quick else LOOKS, say)
        if "cost" in sections:
            measures += _cost(say)
            measures += _both_links(ELEMENTS_QUICK if args.quick else ELEMENTS, not args.quick, say)
    return measures


def _goodput(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Measure]:
    measures = []
    all_flows = []
    for case in CASES[1::2] if quick else CASES:
        for loss, flows in _measured(folder, case, BOARDS[:1], quick, say):
            ((ratio, flow),) = flows
            name = "%s%s: goodput of what the air allows" % (case.name, loss)
            measures.append(at_least(name, round(ratio, 3), "", BAR))
            all_flows.append(flow)
    return measures + _busy("one board", all_flows)


def _boards(folder: Path, quick: bool, say: Callable[[str], None]) -> list[Measure]:
    measures = []
    all_flows = []
    for case in AT_ONCE:
        for loss, flows in _measured(folder, case, BOARDS, quick, say):
            ratios = [ratio for ratio, _ in flows]
            mean = sum(ratios) / len(ratios)
            far = max(abs(ratio / mean - 1) for ratio in ratios)
            name = "three boards, %s%s: " % (case.name, loss)
            measures += [
                at_least(name + "least goodput of what the air allows", round(min(ratios), 3), "", BAR),
                at_most(name + "farthest from its share", round(100 * far, 1), "%", 100 * SHARE),
            ]
            all_flows += [flow for _, flow in flows]
    return measures + _busy("three boards", all_flows)


def _busy(what: str, flows: list[Flow]) -> list[Measure]:
    """What other programs of this machine took from the measurement."""
    missed, waited = max(flow.late for flow in flows), max(flow.waited for flow in flows)
    return [
        Measure("%s: connection events that a busy machine missed, most" % what, round(100 * missed, 1), "%"),
        Measure("%s: time that a board waited for a processor, most" % what, round(100 * waited, 1), "%"),
    ]


def _measured(
    folder: Path, case: Case, names: tuple[str, ...], quick: bool, say: Callable[[str], None]
) -> Iterator[tuple[str, list[tuple[float, Flow]]]]:
    """Without loss and with it: how that is called, and of each board its goodput beside what the air
    allows."""
    from headwater_gateway.bluetooth.ways import FRAME_MAX

    from .support.ble_ends import Ends

    with Ends(folder, list(names), case.interval_ms, case.per_event) as ends:
        for loss, seconds in ((0.0, SECONDS), (LOSS, SECONDS_LOSS)):
            frames = int((SECONDS_QUICK if quick else seconds) * case.air * (1 - loss) / FRAME_MAX)
            flows = []
            for board, flow in ends.flows(case.up, frames, loss).items():
                air = case.air * (1 - flow.lost)
                flows.append((flow.bytes_s / air, flow))
                say(
                    "  %s, %s: %.1f kB/s, the air allows %.1f; %.1f %% of the events failed, %.1f %% missed"
                    % (case.name, board, flow.bytes_s / 1000, air / 1000, 100 * flow.lost, 100 * flow.late)
                )
                say(
                    "    the board computed %.0f %% of the time, and waited for a processor for %.0f %%"
                    % (100 * flow.computed, 100 * flow.waited)
                )
            yield ", %g %% of the events fail" % (100 * loss) if loss else "", flows


def _reconnects(folder: Path, looks: tuple[int, int], say: Callable[[str], None]) -> list[Measure]:
    from .support.ble_ends import Ends

    first, last = looks
    with Ends(folder, ["again"], 7.5, 4) as ends:
        free = {n: ends.free_after("again", n) for n in range(1, last + 1)}
    say(
        "  free heap by reconnect: "
        + ", ".join("%d: %d B" % (n, free[n]) for n in sorted({1, 2, first, last}))
    )
    gone = free[first] - free[last]
    name = "free heap at reconnect %d, less than at %d" % (last, first)
    return [Measure(name, gone, "B", 0, gone == 0)]


def _cost(say: Callable[[str], None]) -> list[Measure]:
    """Of a whole board at rest, with MQTT over TLS in each case."""
    from .support import whole_board
    from .support.whole_board import Radios

    found = {radios: whole_board.rest(process_of(BATCH), ECG, radios) for radios in Radios}
    plain, beside, both = found[Radios.NONE], found[Radios.GATEWAY], found[Radios.BOTH]
    say(
        "  live heap at rest: %d B, with Bluetooth %d B, connected %d B"
        % (plain.live, both.live, both.connected)
    )
    sizes = builder.module_sizes()

    def code(modules: frozenset[str]) -> int:
        added = sorted("headwater/%s.py" % name.replace(".", "/") for name in modules - plain.modules)
        for name in added:
            say("  %6d B of .mpy  %s" % (sizes[name], name))
        return sum(sizes[name] for name in added)

    unused = plain.modules.intersection((*builder.BLUETOOTH, *ENCRYPTION))
    return [
        at_most("heap that Bluetooth adds to a board, at rest", both.live - plain.live, "B", HEAP_BYTES),
        at_most("heap, with a connection open", both.connected - plain.live, "B", HEAP_BYTES),
        at_most("code that Bluetooth adds to a board, .mpy", code(both.modules), "B", CODE_BYTES),
        at_most(
            "code, on a board without Bluetooth", sum(sizes["headwater/%s.py" % n] for n in unused), "B", 0
        ),
        at_most("heap, on one whose gateway has Bluetooth", beside.live - plain.live, "B", 0),
        at_most("code, on one whose gateway has Bluetooth", code(beside.modules), "B", 0),
    ]


def _both_links(elements: int, search: bool, say: Callable[[str], None]) -> list[Measure]:
    """SP1 on a whole board whose broker goes away and comes back: Bluetooth carries meanwhile."""
    from .support import whole_board
    from .support.piped_board import least_heap

    process = process_of(BATCH)

    def works(heap: int, count: int) -> bool:
        life = whole_board.run(process, "sp1/ecg", ECG, count, heap, True)
        if isinstance(life, str):
            say("  %d KiB, %d elements: %s" % (heap, count, life))
            return False
        say("  %d KiB: %s" % (heap, ", ".join("%s %g" % pair for pair in life._asdict().items())))
        return life.whole

    if search:
        least = least_heap(works, BOTH_LEAST, BOTH_MOST, elements)
        return [at_most("smallest heap in which SP1 has both links", least, "KiB", BOTH_HEAP)]
    good = works(BOTH_MOST, elements)
    what = "SP1 with both links in %d KiB, %d elements" % (BOTH_MOST, elements)
    return [Measure(what, "works" if good else "fails", "", "works", good)]
