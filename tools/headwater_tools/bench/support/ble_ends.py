"""The two ends of a link over the virtual radio: boards with the real NimBLE host, and the gateway's radio on
bleak. Both run the link and the carrier that are shipped; there is no host above them, so that what is
measured is the link.

What a board does is told by frames (on_board/board_bench_ble.py).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bumble.device import ConnectionParametersPreferences
from headwater.offboard.interfaces import Readable
from headwater.protocol.ble_carrier import BleCarrier
from headwater.protocol.ble_info import GATEWAY
from headwater.protocol.ble_link import WINDOW_MAX
from headwater_gateway.bluetooth.radio import BleakRadio
from headwater_gateway.bluetooth.ways import FRAME_MAX
from headwater_gateway.site_clock import mono_us

from ...boards.virtual import VirtualBoard
from ...errors import UserError
from ...radio.adapter import adapter
from ...radio.air import Air
from ...radio.bleak_backend import Client, Scanner
from ...radio.station import Station

KEY = b"\x5a" * 32
ADDRESS = "F0:00:00:00:00:FE"
SLOTS = 4
TICK_S = 0.25  # as the gateway's service
PATIENCE_S = 60  # a busy machine starves processes for seconds
GREETING, HEARD = b"g", b"A"  # what a board is told, and what it answers to that and to a command
SUPERVISION_MS = 6000


class Flow(NamedTuple):
    """Goodput of one board, and what happened to its connection meanwhile."""

    bytes_s: float
    lost: float  # share of the connection events that failed
    late: float  # ... that passed because this machine was busy
    computed: float  # share of the time in which the board's process computed
    waited: float  # ... in which it wanted to, and other programs had the processors


class Stream:
    """Frames that arrive from one board, or go to it."""

    def __init__(self) -> None:
        self.times: list[float] = []  # when each frame of data came
        self.left = 0  # frames of data to send
        self.told: bytes | None = None  # the last answer


class Gateway:
    """The gateway's end; its methods run in the thread of the radio."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.streams = {name: Stream() for name in names}
        self.frame = b"x" * FRAME_MAX
        self.busy = False  # frames are measured

    async def start(self, station: Station, interval_ms: float) -> None:
        device, self.antenna = await adapter(station.radio, ADDRESS)
        asked = ConnectionParametersPreferences(
            connection_interval_min=interval_ms,
            connection_interval_max=interval_ms,
            supervision_timeout=SUPERVISION_MS,
        )
        self.radio = BleakRadio("", Scanner.of(device), Client.of(device, asked))
        self.carrier = BleCarrier(
            GATEWAY, KEY, self.radio, self._take, None, FRAME_MAX, SLOTS, WINDOW_MAX, WINDOW_MAX
        )
        self.carrier.tell(lambda _carrier, _name: None, self._fill)
        self.carrier.knows(self.names)
        self.work = [asyncio.create_task(self.radio.run(self.carrier)), asyncio.create_task(self._ticks())]

    async def _ticks(self) -> None:
        while True:
            self.carrier.tick(mono_us())
            for name in self.names:
                if not self.busy and self.connected(name):
                    self.carrier.send(name, GREETING)  # a connection that is not used would be left
            self.radio.wake()
            await asyncio.sleep(TICK_S)

    async def stop(self) -> None:
        for task in self.work:
            task.cancel()
        await asyncio.gather(*self.work, return_exceptions=True)

    def say(self, name: str, frame: bytes) -> None:
        if not self.carrier.send(name, frame):
            raise UserError("the link to %s took no frame" % name)
        self.radio.wake()

    def leave(self, name: str) -> None:
        for slot in self.carrier.slots:
            if slot.name == name:
                self.radio.close(slot.link.handle)

    def connected(self, name: str) -> bool:
        return self.carrier.reaches(name)

    def give(self, name: str, count: int) -> None:
        """Send so many frames of data."""
        self.streams[name].left = count
        self._fill()
        self.radio.wake()

    def _fill(self) -> None:
        for name, stream in self.streams.items():
            while stream.left and self.carrier.room(name) and self.carrier.send(name, self.frame):
                stream.left -= 1

    def _take(self, _carrier: BleCarrier, sender: str, frame: Readable) -> bool:
        stream = self.streams[sender]
        if len(frame) == FRAME_MAX:
            stream.times.append(time.monotonic())
        elif bytes(frame) != HEARD:
            stream.told = bytes(frame)
        return True


def _processor_s(board: VirtualBoard) -> tuple[float, float]:
    """Seconds in which the threads of a board computed, and in which one of them waited for a processor."""
    computed = waited = 0
    for task in Path("/proc/%d/task" % (board.pid() or 0)).glob("*/schedstat"):
        ran, stood, _ = task.read_text().split()
        computed += int(ran)
        waited = max(waited, int(stood))
    return computed / 1e9, waited / 1e9


class Ends:
    """A gateway and boards, connected."""

    def __init__(self, folder: Path, names: list[str], interval_ms: float, per_event: int, seed: int = 1):
        logging.getLogger("bumble").setLevel(logging.CRITICAL)  # it warns of each connection that was cut
        self.names = names
        self.station = Station(seed, per_event)
        self.gateway = Gateway(names)
        self.station.run(self.gateway.start(self.station, interval_ms))
        self.boards = {
            name: VirtualBoard(name, folder / name, {}, KEY, program=("board_bench_ble",), radio=self.station)
            for name in names
        }
        try:
            for board in self.boards.values():
                board.start()
            self.meet()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Ends:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        for board in self.boards.values():
            board.kill()
        self.station.run(self.gateway.stop())
        self.station.close()

    def meet(self) -> None:
        """Until all are connected."""
        self.until(lambda: all(self.gateway.connected(name) for name in self.names), "connect")

    def until(self, holds: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
        end = time.monotonic() + patience_s
        while not self.station.do(lambda: bool(holds())):
            if time.monotonic() > end:
                said = ["%s: %s" % (b.name, " | ".join(list(b.lines)[-3:])) for b in self.boards.values()]
                said.append("gateway: %s" % self.gateway.carrier.ended)
                raise UserError("boards do not %s in %g s: %s" % (what, patience_s, "; ".join(said)))
            time.sleep(0.01)

    def flows(self, up: bool, frames: int, loss: float) -> dict[str, Flow]:
        """So many frames of data from each board, or to each, at once."""
        streams, say = self.gateway.streams, self.gateway.say
        airs = {name: self._air(name) for name in self.names}

        def begin() -> list[tuple[int, int]]:
            for name in self.names:
                streams[name].times.clear()
                streams[name].told = None
                say(name, b"%c%d" % (b"u" if up else b"d", frames))
                if not up:
                    self.gateway.give(name, frames)
            self.gateway.busy = True
            self.station.radio.loss = loss
            return [(air.lost, air.late) for air in airs.values()]

        def end() -> None:
            self.gateway.busy = False
            self.station.radio.loss = 0.0

        def ended() -> bool:
            return all(len(s.times) >= frames if up else s.told is not None for s in streams.values())

        before = self.station.do(begin)
        begun_s = time.monotonic()
        used = {name: _processor_s(board) for name, board in self.boards.items()}
        self.until(ended, "%s %d frames" % ("send" if up else "take", frames), PATIENCE_S + frames / 10)
        whole_s = time.monotonic() - begun_s
        flows = {}
        for (name, air), (lost, late) in zip(airs.items(), before, strict=True):
            stream = streams[name]
            seconds = stream.times[-1] - stream.times[0] if up else int((stream.told or b"")[1:]) / 1e6
            events = seconds / air.interval
            now = _processor_s(self.boards[name])
            flows[name] = Flow(
                (frames - 1) * FRAME_MAX / seconds,
                (air.lost - lost) / events,
                (air.late - late) / events,
                (now[0] - used[name][0]) / whole_s,
                (now[1] - used[name][1]) / whole_s,
            )
        self.station.do(end)
        return flows

    def _air(self, name: str) -> Air:
        air = self.station.do(
            lambda: self.station.radio.between(self.station.antennas[name], self.gateway.antenna)
        )
        if air is None:
            raise UserError("%s is not connected" % name)
        return air

    def free_after(self, name: str, connection: int) -> int:
        """End the connection to a board, by a cut or, every second time, by leaving it: the free heap of the
        board after that. Then it is connected again."""
        board, stream = self.boards[name], self.gateway.streams[name]
        stream.told = None
        self.station.do(lambda: self.gateway.say(name, b"h%d" % connection))
        self.until(lambda: stream.told, "answer")
        if connection % 2:
            self.station.cut(name)
        else:
            self.station.do(lambda: self.gateway.leave(name))
        said = board.wait_for("free %d " % connection, PATIENCE_S)
        self.meet()
        return int(said.split()[2])
