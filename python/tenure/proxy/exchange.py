"""One completion request: read, checked, and sent to a P and a D at the same time."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import aiohttp
from aiohttp import web

from tenure.proxy import bodies, upstream
from tenure.proxy.errors import ProxyError, refused
from tenure.proxy.options import ProxyOptions
from tenure.proxy.relay import Relay
from tenure.proxy.servers import Decoder, Fleet, Prefiller, Route
from tenure.proxy.supervision import REASON_SECONDS, Answer, Limits, Supervision, Transfer
from tenure.proxy.waiting import within

_REASON_BYTES_MAX = 1 << 20
_PASSED_HEADERS = ("Authorization", "traceparent", "tracestate")


class Exchange:
    """Serves completion requests, any number at a time. ending: done once the proxy ends."""

    def __init__(self, fleet: Fleet, options: ProxyOptions, session: aiohttp.ClientSession, ending: asyncio.Future[None]) -> None:
        self._fleet = fleet
        self._options = options
        self._session = session
        self._ending = ending
        self._key = os.environ.get("OPENAI_API_KEY", "")

    async def serve(self, request: web.Request, relay: Relay, request_id: str) -> Answer:
        """ProxyError, ClientGone, or CancelledError when the client goes away: in each case both calls are ended."""
        limits = Limits(asyncio.get_running_loop().time() + self._options.request_timeout, self._options.request_timeout, self._ending)
        body = bodies.parse(await self._read(request))
        bodies.check(body)
        peer = bodies.take_peer(body, self._options.allow_peer)
        headers = self._headers(request, request_id)
        if peer is None:
            return await self._through_both(request.path, body, headers, relay, limits, f"xfer-{request_id}")
        transfer = Transfer(str(peer["transfer_id"]), self._fleet.choose_decoder(), None)
        sent = {**body, "kv_transfer_params": peer}
        decode = asyncio.create_task(self._decode(relay, transfer.decoder, request.path, sent, headers))
        return await Supervision(transfer, relay, decode, None, self._reason).run(limits)

    async def _through_both(
        self, path: str, body: bodies.Body, headers: dict[str, str], relay: Relay, limits: Limits, transfer_id: str
    ) -> Answer:
        route = self._fleet.choose()
        to_decode = bodies.for_decode(body, transfer_id, route.engine_id, route.prefiller.bootstrap)
        prefill = asyncio.create_task(self._prefill(route, path, bodies.for_prefill(body, transfer_id), headers))
        decode = asyncio.create_task(self._decode(relay, route.decoder, path, to_decode, headers))
        transfer = Transfer(transfer_id, route.decoder, route.prefiller)
        return await Supervision(transfer, relay, decode, prefill, self._reason).run(limits)

    async def _read(self, request: web.Request) -> bytes:
        try:
            return await within(self._options.request_timeout, request.read())
        except asyncio.TimeoutError:
            raise ProxyError(408, "timed_out", "the request's body did not arrive within --request-timeout") from None
        except (web.RequestPayloadError, aiohttp.ClientPayloadError) as error:
            failed = refused(f"the body cannot be read: {error}")
            failed.headers["Connection"] = "close"  # Where the next request would begin is not known.
            raise failed from None

    def _headers(self, request: web.Request, request_id: str) -> dict[str, str]:
        headers = {name: request.headers[name] for name in _PASSED_HEADERS if name in request.headers}
        if self._key:
            headers.setdefault("Authorization", f"Bearer {self._key}")
        return {**headers, "X-Request-Id": request_id, "Content-Type": "application/json"}

    async def _prefill(self, route: Route, path: str, body: bodies.Body, headers: dict[str, str]) -> None:
        """P's call; its text is dropped. ProxyError when it fails."""
        server = route.prefiller
        server.in_flight += 1
        try:
            ranked = {**headers, "X-data-parallel-rank": str(route.dp_rank)}
            async with self._session.post(server.url + path, data=_encode(body), headers=ranked, allow_redirects=False) as answer:
                if answer.status >= 300:
                    raise await upstream.failed_answer(answer, "prefill", server.url)
                await upstream.read_bounded(answer.content, upstream.ANSWER_BYTES_MAX)
        except upstream.FAILURES as error:
            raise upstream.failed_call(error, "prefill", server) from None
        finally:
            server.in_flight -= 1

    async def _decode(self, relay: Relay, decoder: Decoder, path: str, body: bodies.Body, headers: dict[str, str]) -> web.StreamResponse:
        decoder.in_flight += 1
        try:
            return await relay.run(self._session, decoder, path, _encode(body), headers)
        except upstream.FAILURES as error:
            raise upstream.failed_call(error, "decode", decoder) from None
        finally:
            decoder.in_flight -= 1

    async def _reason(self, prefiller: Prefiller, transfer_id: str) -> str:
        """What P's bootstrap server knows of a failed transfer; empty when it knows nothing, as with stock's."""
        timeout = aiohttp.ClientTimeout(total=REASON_SECONDS)
        try:
            async with self._session.get(f"{prefiller.bootstrap}/status", timeout=timeout, allow_redirects=False) as answer:
                if answer.status != 200:
                    return ""
                return reason_of(json.loads(await upstream.read_bounded(answer.content, _REASON_BYTES_MAX)), transfer_id)
        except (*upstream.FAILURES, ValueError, RecursionError):
            return ""


def reason_of(status: Any, transfer_id: str) -> str:
    """The text that a bootstrap server's /status has about a transfer: {"mismatches": [{"transfer_id": ..., "text": ...}]}."""
    entries = status.get("mismatches") if isinstance(status, dict) else None
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("transfer_id") == transfer_id and isinstance(entry.get("text"), str):
            return str(entry["text"])[:1000]
    return ""


def _encode(body: bodies.Body) -> bytes:
    return json.dumps(body).encode()
