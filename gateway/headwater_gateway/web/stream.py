"""One stream of server-sent events: it ends when its reader disconnects or stops reading, when its session
ends, or when others need its place; then the reader is informed, so that it does not reconnect by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from aiohttp import web

from .access import Stream, Streams, address_of

WRITE_S = 30.0  # a reader that reads nothing for this long is gone
LOOK_S = 30.0  # between two checks that its session is still valid
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
CLOSED = b"event: closed\ndata: {}\n\n"

Send = Callable[[bytes], Awaitable[None]]


async def serve(
    request: web.Request,
    streams: Streams,
    holds: Callable[[], bool],
    talk: Callable[[Send], Awaitable[None]],
    cookie: str = "",
) -> web.StreamResponse:
    """Let `talk` send until one of the ends above. `holds`: whether the session is still valid."""
    place = streams.enter(address_of(request), cookie)
    answer = web.StreamResponse(headers=HEADERS)

    async def send(data: bytes) -> None:
        async with asyncio.timeout(WRITE_S):
            await answer.write(data)

    async def talking() -> None:
        await talk(send)

    try:
        await answer.prepare(request)
        task = asyncio.create_task(talking())
        try:
            await _wait(task, place, holds)
        finally:
            over = not task.done()
            task.cancel()
            results = await asyncio.gather(task, return_exceptions=True)
        if over:
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(1):
                    await answer.write(CLOSED)
        for result in results:
            if isinstance(result, TimeoutError) and request.transport is not None:
                request.transport.abort()
            elif isinstance(result, Exception) and not isinstance(result, ConnectionError):
                raise result
    except ConnectionError:
        pass  # the reader disconnected: it reconnects by itself
    finally:
        streams.leave(place)
    return answer


async def _wait(task: asyncio.Task[None], place: Stream, holds: Callable[[], bool]) -> None:
    ended = asyncio.create_task(place.ended.wait())
    try:
        while not task.done() and not ended.done() and holds():
            await asyncio.wait({task, ended}, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended.cancel()
