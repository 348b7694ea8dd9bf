"""A virtual radio that runs beside a program: in a thread of its own, with lines for other processes.

A virtual board gets a serial line with its controller behind it, as MicroPython's unix port wants one; a
gateway in a process of its own a socket (`serve`). What a test does to the air goes through `do`, and happens
in the thread of the radio.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
import threading
import tty
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from bumble.transport.common import StreamPacketSink, StreamPacketSource

from .air import PER_EVENT, Radio
from .antenna import Antenna
from .served import GATEWAY, GATEWAY_ADDRESS, Socket

Result = TypeVar("Result")


def address_of(name: str) -> str:
    """The address of a board's radio: the same at each of its starts, and public, as an ESP32's."""
    digest = hashlib.sha256(name.encode()).digest()
    return "02:" + ":".join("%02X" % byte for byte in digest[:5])


class Line:
    """A serial line between a host in another process and its antenna."""

    def __init__(self, name: str, folder: Path) -> None:
        self.path = folder / (name + ".hci")
        self._ends = os.openpty()
        for end in self._ends:
            tty.setraw(end)
        # The far end stays open here too: a host that is killed closes its own, and reading would fail.
        self.path.unlink(missing_ok=True)
        self.path.symlink_to(os.ttyname(self._ends[1]))
        self._transports: list[asyncio.BaseTransport] = []

    async def open(self) -> tuple[StreamPacketSource, StreamPacketSink]:
        loop = asyncio.get_running_loop()
        near = self._ends[0]
        reading, source = await loop.connect_read_pipe(StreamPacketSource, open(near, "rb", closefd=False))
        writing, _ = await loop.connect_write_pipe(asyncio.Protocol, open(near, "wb", closefd=False))
        self._transports = [reading, writing]
        return source, StreamPacketSink(writing)

    def close(self) -> None:
        for transport in self._transports:
            with contextlib.suppress(OSError):
                transport.abort() if isinstance(transport, asyncio.WriteTransport) else transport.close()
        self.path.unlink(missing_ok=True)
        # After the transports, which end in the next round of the loop.
        asyncio.get_running_loop().call_soon(self._close_ends)

    def _close_ends(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                os.close(end)


class Station:
    """A radio in a thread. `with Station() as station:` ends it with all its lines."""

    def __init__(self, seed: int = 1, per_event: int = PER_EVENT, loss: float = 0.0) -> None:
        self.antennas: dict[str, Antenna] = {}
        self._lines: dict[str, Line | Socket] = {}
        self._silent: set[str] = set()
        self._folder = tempfile.TemporaryDirectory(prefix="hw-radio-")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="radio", daemon=True)
        self._thread.start()
        self.radio: Radio = self.do(lambda: Radio(seed, per_event, loss))

    def __enter__(self) -> Station:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        for name in list(self._lines):
            self.unplug(name)
        self.do(lambda: None)  # what `unplug` left for the next round of the loop
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._folder.cleanup()

    def do(self, action: Callable[[], Result]) -> Result:
        """Run this in the thread of the radio, where nothing else happens at that moment."""

        async def inside() -> Result:
            return action()

        return self.run(inside())

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run this in the thread of the radio, and wait for its end."""
        done: Future[Result] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result()

    def plug(self, name: str) -> Path:
        """Power up the radio of a board: the serial line at which its controller is, until `unplug`."""
        self.unplug(name)

        async def make() -> Path:
            line = Line(name, Path(self._folder.name))
            self._power(name, address_of(name), *await line.open())
            self._lines[name] = line
            return line.path

        return self.run(make())

    def unplug(self, name: str) -> None:
        """The board has no power: its radio is gone without a word."""

        def cut() -> None:
            line = self._lines.pop(name, None)
            self._no_power(name)
            if line:
                line.close()

        self.do(cut)

    def serve(self, name: str = GATEWAY, address: str = GATEWAY_ADDRESS) -> Path:
        """A socket at which a host in another process has a controller for as long as it is connected."""

        async def make() -> Path:
            socket = Socket(
                Path(self._folder.name) / (name + ".sock"),
                lambda source, sink: self._power(name, address, source, sink),
                lambda: self._no_power(name),
            )
            await socket.open()
            self._lines[name] = socket
            return socket.path

        return self.run(make())

    def _power(self, name: str, address: str, source: StreamPacketSource, sink: StreamPacketSink) -> None:
        antenna = self.antennas[name] = Antenna(name, self.radio, address, source, sink)
        if name in self._silent:
            self.radio.silence(antenna)

    def _no_power(self, name: str) -> None:
        antenna = self.antennas.pop(name, None)
        if antenna:
            antenna.power_off()
            self.radio.remove_controller(antenna)
            self.radio.silence(antenna, False)

    def silence(self, name: str, on: bool = True) -> None:
        """The board is out of range, or back; also one that has no power now."""

        def change() -> None:
            (self._silent.add if on else self._silent.discard)(name)
            if name in self.antennas:
                self.radio.silence(self.antennas[name], on)

        self.do(change)

    def cut(self, name: str) -> int:
        """End all connections of a board at once; how many there were."""
        return self.do(lambda: self.radio.cut(self.antennas[name]) if name in self.antennas else 0)

    def carried(self, one: str, other: str) -> int:
        """Bytes that went through the air between these two, in both directions."""
        return self.do(lambda: self.radio.carried_bytes.get(frozenset((one, other)), 0))
