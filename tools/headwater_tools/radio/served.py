"""Virtual adapters for other processes: HCI over a socket of this machine.

The air outlives a gateway that is killed, so both are processes of their own: the air is in the process of a
`Station`, which listens at a socket. Each connection to it gets a controller; when the connection ends, its
controller has no power, without a word to anybody, as the adapter of a machine that fails. The program of a
gateway at such a socket is `radio/gateway.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from bumble.device import Device
from bumble.transport.common import StreamPacketSink, StreamPacketSource

from .adapter import adapter_at

GATEWAY, GATEWAY_ADDRESS = "gateway", "F0:00:00:00:00:FE"  # of a site's gateway; static random, as bumble's


class _Plug(StreamPacketSource):
    """One connection from a host."""

    def __init__(self, made: Callable[[_Plug, asyncio.WriteTransport], None], lost: Callable[[_Plug], None]):
        super().__init__()
        self._made, self._lost = made, lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._made(self, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(self)


class Socket:
    """`plugged(source, sink)` at each connection, `unplugged()` at its end. One host at a time: a new one
    takes the place of the one before."""

    def __init__(
        self,
        path: Path,
        plugged: Callable[[StreamPacketSource, StreamPacketSink], object],
        unplugged: Callable[[], object],
    ) -> None:
        self.path = path
        self._plugged, self._unplugged = plugged, unplugged
        self._server: asyncio.Server | None = None
        self._now: tuple[_Plug, asyncio.WriteTransport] | None = None

    async def open(self) -> None:
        self.path.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Plug(self._made, self._lost), self.path)

    def close(self) -> None:
        if self._server:
            self._server.close()
        if self._now:
            plug, transport = self._now
            self._lost(plug)
            transport.abort()
        self.path.unlink(missing_ok=True)

    def _made(self, plug: _Plug, transport: asyncio.WriteTransport) -> None:
        if self._now:
            before, its = self._now
            self._lost(before)
            its.abort()
        self._now = plug, transport
        self._plugged(plug, StreamPacketSink(transport))

    def _lost(self, plug: _Plug) -> None:
        if self._now and self._now[0] is plug:
            self._now = None
            self._unplugged()


async def device_at(path: Path, address: str = GATEWAY_ADDRESS, name: str = GATEWAY) -> Device:
    """A host in this process, whose controller is behind the socket of a station."""
    loop = asyncio.get_running_loop()
    transport, source = await loop.create_unix_connection(StreamPacketSource, str(path))
    return await adapter_at(source, StreamPacketSink(transport), address, name)
