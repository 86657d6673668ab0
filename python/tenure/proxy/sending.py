"""The client's side of an answer: writes that a cancelled request leaves whole, and an end for clients that take nothing."""

from __future__ import annotations

import asyncio
from typing import Awaitable

import aiohttp
from aiohttp import web

# For the end of an answer to leave, when its client is slow.
END_SECONDS = 0.5
# Below asyncio's mark of 64 KiB, from which on a write waits for the client.
_WAITS_FROM_BYTES = 32 << 10


class ClientGone(Exception):
    """The client does not take its answer. stream: what it was being sent."""

    def __init__(self, stream: web.StreamResponse) -> None:
        super().__init__("the client is gone")
        self.stream = stream


class Sender:
    """One answer on its way. A write that waits for the client is not cancelled with its caller, since aiohttp's later writes on the
    connection would then fail: end() waits for it, or breaks the connection."""

    def __init__(self, request: web.Request, stream: web.StreamResponse) -> None:
        self.stream = stream
        self._request = request
        self._waiting: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """Sends status and header. ClientGone."""
        await self._told(self.stream.prepare(self._request))

    async def write(self, data: bytes) -> None:
        """Returns once the client keeps up. ClientGone."""
        transport = self._request.transport
        if transport is not None and transport.get_write_buffer_size() + len(data) < _WAITS_FROM_BYTES:
            await self._told(self.stream.write(data))
            return
        self._waiting = asyncio.ensure_future(self.stream.write(data))
        self._waiting.add_done_callback(_forget)
        await self._told(asyncio.shield(self._waiting))

    async def finish(self) -> None:
        """The end of a whole answer. ClientGone."""
        await self._told(self.stream.write_eof())

    async def end(self, last: bytes) -> None:
        """The end of an answer that failed, `last` being its reason. Bounded; never fails."""
        ending = asyncio.ensure_future(self._end(last))
        ending.add_done_callback(_forget)
        await asyncio.wait({ending}, timeout=END_SECONDS)
        if not ending.done():
            self.abort()

    def abort(self) -> None:
        """Breaks the connection: an answer with a length cannot say that it failed."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _end(self, last: bytes) -> None:
        if self._waiting is not None:
            await self._waiting
        await self.stream.write(last)
        await self.stream.write_eof()

    async def _told(self, writing: Awaitable[object]) -> None:
        try:
            await writing
        except (ConnectionResetError, aiohttp.ClientConnectionError):
            raise ClientGone(self.stream) from None


def _forget(done: asyncio.Future[None]) -> None:
    """A failed write of a connection that is given up needs no report."""
    if not done.cancelled():
        done.exception()
