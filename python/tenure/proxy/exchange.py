"""One completion request: read, checked, and sent to a P and a D at the same time; to others when they fail."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
from typing import Any

import aiohttp
from aiohttp import web

from tenure.proxy import bodies, upstream
from tenure.proxy.errors import ProxyError, refused
from tenure.proxy.options import ProxyOptions
from tenure.proxy.relay import Relay
from tenure.proxy.servers import Fleet, Prefiller, Route, Server
from tenure.proxy.supervision import REASON_SECONDS, Answer, Limits, Supervision, Transfer
from tenure.proxy.waiting import within

_logger = logging.getLogger("tenure.proxy")

_REASON_BYTES_MAX = 1 << 20
_PASSED_HEADERS = ("Authorization", "traceparent", "tracestate")


@dataclasses.dataclass(frozen=True)
class _Call:
    """What an engine is sent."""

    path: str
    body: bodies.Body
    headers: dict[str, str]

    def encoded(self) -> bytes:
        return json.dumps(self.body).encode()


@dataclasses.dataclass(frozen=True)
class _Completion:
    """A client's request, read and checked. headers: those that are passed on."""

    request_id: str
    path: str
    body: bodies.Body
    headers: dict[str, str]

    def headers_of(self, name: str) -> dict[str, str]:
        """Of an engine's call."""
        return {**self.headers, "X-Request-Id": name, "Content-Type": "application/json"}


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
        completion = _Completion(request_id, request.path, body, self._headers(request))
        if peer is None:
            return await self._through_both(completion, relay, limits)
        transfer = Transfer(str(peer["transfer_id"]), self._fleet.choose_decoder(), None)
        call = _Call(request.path, {**body, "kv_transfer_params": peer}, completion.headers_of(request_id))
        decode = asyncio.create_task(self._decode(relay, transfer, call, set()))
        return await Supervision(transfer, relay, decode, None, self._reason).run(limits)

    async def _through_both(self, completion: _Completion, relay: Relay, limits: Limits) -> Answer:
        """Again without the engine that failed, as long as the client has nothing of an answer and there is another one."""
        failed: set[Server] = set()
        culprit: Server | None = None
        earlier: ProxyError | None = None
        attempt = 0
        while True:
            attempt += 1
            try:
                route = self._fleet.choose(failed)
            except ProxyError as none_left:
                raise earlier or none_left from None
            if culprit is not None:
                culprit.failovers += 1
            transfer, prefill, decode = self._begin(completion, attempt, route, relay, failed)
            try:
                return await Supervision(transfer, relay, decode, prefill, self._reason).run(limits)
            except ProxyError as error:
                earlier = error.after(earlier)
                if error.outcome not in ("prefill_failed", "decode_failed"):
                    raise earlier from None
            # A P that failed is often why D did; a D that has not failed by itself may serve the next attempt.
            culprit = route.prefiller if _has_failed(prefill) else transfer.decoder
            failed.add(culprit)

    def _begin(
        self, completion: _Completion, attempt: int, route: Route, relay: Relay, failed: set[Server]
    ) -> tuple[Transfer, asyncio.Task[None], asyncio.Task[web.StreamResponse]]:
        """Both calls of an attempt. Each has ids of its own: what an engine still does for an earlier one is not mistaken for it."""
        name = completion.request_id if attempt == 1 else f"{completion.request_id}-{attempt}"
        transfer = Transfer(f"xfer-{name}", route.decoder, route.prefiller)
        headers = completion.headers_of(name)
        to_prefill = _Call(completion.path, bodies.for_prefill(completion.body, transfer.transfer_id), headers)
        sent = bodies.for_decode(completion.body, transfer.transfer_id, route.engine_id, route.prefiller.bootstrap)
        to_decode = _Call(completion.path, sent, headers)
        prefill = asyncio.create_task(self._prefill(route, to_prefill))
        decode = asyncio.create_task(self._decode(relay, transfer, to_decode, failed))
        return transfer, prefill, decode

    async def _read(self, request: web.Request) -> bytes:
        try:
            return await within(self._options.request_timeout, request.read())
        except asyncio.TimeoutError:
            raise ProxyError(408, "timed_out", "the request's body did not arrive within --request-timeout") from None
        except (web.RequestPayloadError, aiohttp.ClientPayloadError) as error:
            failed = refused(f"the body cannot be read: {error}")
            failed.headers["Connection"] = "close"  # Where the next request would begin is not known.
            raise failed from None

    def _headers(self, request: web.Request) -> dict[str, str]:
        headers = {name: request.headers[name] for name in _PASSED_HEADERS if name in request.headers}
        if self._key:
            headers.setdefault("Authorization", f"Bearer {self._key}")
        return headers

    async def _prefill(self, route: Route, call: _Call) -> None:
        """P's call; its text is dropped. ProxyError when it fails."""
        server = route.prefiller
        server.in_flight += 1
        try:
            ranked = {**call.headers, "X-data-parallel-rank": str(route.dp_rank)}
            async with self._session.post(server.url + call.path, data=call.encoded(), headers=ranked, allow_redirects=False) as answer:
                if answer.status >= 300:
                    raise await upstream.failed_answer(answer, "prefill", server.url)
                await upstream.read_bounded(answer.content, upstream.ANSWER_BYTES_MAX)
        except upstream.FAILURES as error:
            raise upstream.failed_call(error, "prefill", server) from None
        finally:
            server.in_flight -= 1

    async def _decode(self, relay: Relay, transfer: Transfer, call: _Call, failed: set[Server]) -> web.StreamResponse:
        """D's call. A D that cannot be connected to has fetched nothing, so the next one gets the same transfer, and P's call goes on."""
        earlier: ProxyError | None = None
        while True:
            decoder = transfer.decoder
            decoder.in_flight += 1
            try:
                return await relay.run(self._session, decoder, call.path, call.encoded(), call.headers)
            except upstream.FAILURES as error:
                earlier = upstream.failed_call(error, "decode", decoder).after(earlier)
                if not upstream.never_reached(error):
                    raise earlier from None
            finally:
                decoder.in_flight -= 1
            failed.add(decoder)
            decoder.recheck.set()
            try:
                transfer.decoder = self._fleet.choose_decoder(failed)
            except ProxyError:
                raise earlier from None
            decoder.failovers += 1
            _logger.warning("transfer %s: %s; it goes to %s", transfer.transfer_id, earlier.message, transfer.decoder.url)

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


def _has_failed(call: asyncio.Task[None]) -> bool:
    """Whether it ended by itself, with an error."""
    return call.done() and not call.cancelled() and call.exception() is not None
