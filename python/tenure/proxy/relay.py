"""D's half of a request: the call, and its answer on its way to the client."""

from __future__ import annotations

import time

import aiohttp
from aiohttp import web

from tenure.proxy import events, upstream
from tenure.proxy.errors import ProxyError
from tenure.proxy.sending import Sender
from tenure.proxy.servers import Decoder


class Relay:
    """Sends D's answer on. A stream goes event by event as it comes; nothing is sent to the client before D's first event, so that a
    failure until then is a status. Cancelling run() ends the call to D."""

    def __init__(self, request: web.Request, request_id: str) -> None:
        self._request = request
        self._request_id = request_id
        self._sender: Sender | None = None
        # Set once D has shown that it computes, so that it has its KV.
        self.has_output = False
        self.first_byte_at: float | None = None
        # D's own error event, which was sent on inside the stream.
        self.stream_error: str | None = None

    async def run(
        self, session: aiohttp.ClientSession, decoder: Decoder, path: str, body: bytes, headers: dict[str, str]
    ) -> web.StreamResponse:
        """The client's answer, sent. ProxyError or one of upstream.FAILURES when D fails; ClientGone."""
        async with session.post(decoder.url + path, data=body, headers=headers, allow_redirects=False) as answer:
            if answer.status >= 300:
                raise await upstream.failed_answer(answer, "decode", decoder.url)
            sender = await self._relay_events(answer, decoder.url) if _has_events(answer) else await self._relay_whole(answer)
        await sender.finish()
        return sender.stream

    async def fail(self, error: ProxyError) -> web.StreamResponse:
        """Ends the client's answer with the reason, when it has begun; otherwise raises the error, which becomes the answer."""
        if self._sender is None:
            raise error
        if self._sender.stream.content_length is None:
            await self._sender.end(error.event())
        else:
            self._sender.abort()
        return self._sender.stream

    async def _relay_whole(self, answer: aiohttp.ClientResponse) -> Sender:
        whole = await upstream.read_bounded(answer.content, upstream.ANSWER_BYTES_MAX)
        self.has_output = True
        sender = await self._begin(answer, {"Content-Length": str(len(whole))})
        await sender.write(whole)
        return sender

    async def _relay_events(self, answer: aiohttp.ClientResponse, url: str) -> Sender:
        splitter = events.EventSplitter()
        try:
            async for chunk in answer.content.iter_any():
                if whole := splitter.feed(chunk):
                    self._look_at(whole, url)
                    await self._send_event(whole, answer)
        except events.EventTooLong:
            raise upstream.AnswerTooLong(f"an event of its stream is above {events.EVENT_BYTES_MAX} bytes") from None
        if rest := splitter.rest():
            await self._send_event(rest, answer)
        if self._sender is None:
            raise aiohttp.ClientPayloadError("an empty stream")
        return self._sender

    def _look_at(self, whole: bytes, url: str) -> None:
        """Until D's first output, its events are read: an error as the first event becomes a status."""
        if self.has_output:
            return
        for value in events.values(whole):
            self.has_output = self.has_output or events.has_output(value)
            message = events.error_of(value)
            if message is not None and self._sender is None:
                raise upstream.failure("decode", url, message)
            self.stream_error = self.stream_error or message

    async def _send_event(self, data: bytes, answer: aiohttp.ClientResponse) -> None:
        # A proxy in front of this one must not collect the events.
        sender = self._sender or await self._begin(answer, {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        await sender.write(data)

    async def _begin(self, answer: aiohttp.ClientResponse, headers: dict[str, str]) -> Sender:
        stream = web.StreamResponse(status=answer.status, headers={**headers, "X-Request-Id": self._request_id})
        stream.headers["Content-Type"] = answer.headers.get("Content-Type", "application/json")
        self._sender = Sender(self._request, stream)
        self.first_byte_at = time.monotonic()
        await self._sender.begin()
        return self._sender


def _has_events(answer: aiohttp.ClientResponse) -> bool:
    return answer.content_type == "text/event-stream"
