"""Waits for the two calls of one request under one deadline, and ends both with it. The only place that decides which failure counts."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Any, Awaitable, Callable

from aiohttp import web

from tenure.proxy.errors import Outcome, ProxyError
from tenure.proxy.relay import Relay
from tenure.proxy.servers import Decoder, Prefiller

_logger = logging.getLogger("tenure.proxy")

# When D has failed: for P's own failure to arrive, which is often the reason, and for P's bootstrap server to say more.
REASON_SECONDS = 0.25
# D fails a request at the moment at which it tells P why, so P may know nothing yet.
_ASK_AGAIN_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the client got, and what that was."""

    response: web.StreamResponse
    outcome: Outcome


@dataclasses.dataclass
class Transfer:
    """One request's engines. decoder: the one that is called now. prefiller: None when the client named a peer that the proxy does not
    call."""

    transfer_id: str
    decoder: Decoder
    prefiller: Prefiller | None


@dataclasses.dataclass(frozen=True)
class Limits:
    """When a request ends at the latest. ending: done once the proxy itself ends. Loop time, seconds."""

    deadline: float
    request_timeout: float
    ending: asyncio.Future[None]


class Supervision:
    """Of one request."""

    def __init__(
        self,
        transfer: Transfer,
        relay: Relay,
        decode: asyncio.Task[web.StreamResponse],
        prefill: asyncio.Task[None] | None,
        ask_reason: Callable[[Prefiller, str], Awaitable[str]],
    ) -> None:
        self._transfer = transfer
        self._relay = relay
        self._decode = decode
        self._prefill = prefill
        self._ask_reason = ask_reason

    async def run(self, limits: Limits) -> Answer:
        """The answer, which ends with the reason when it had begun. ProxyError when it had not; ClientGone."""
        calls: list[asyncio.Task[Any]] = [call for call in (self._prefill, self._decode) if call is not None]
        try:
            response = await self._wait(limits)
            if self._relay.stream_error is None:
                return Answer(response, "answered")
            self._ask_for_checks()
            return Answer(response, "decode_failed")
        except ProxyError as error:
            # D's answer must not grow while the reason is written.
            await _end(calls)
            if error.outcome in ("prefill_failed", "decode_failed", "timed_out"):
                _logger.warning("transfer %s: %s", self._transfer.transfer_id, error.message)
                self._ask_for_checks()
            return Answer(await self._relay.fail(error), error.outcome)
        finally:
            await _end(calls)

    async def _wait(self, limits: Limits) -> web.StreamResponse:
        pending: set[asyncio.Future[Any]] = {self._decode, limits.ending}
        if self._prefill is not None:
            pending.add(self._prefill)
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.wait(pending, timeout=max(limits.deadline - now(), 0), return_when=asyncio.FIRST_COMPLETED)
            if self._decode.done():
                return await self._decoded(self._decode)
            if limits.ending.done():
                raise ProxyError(503, "ending", "the proxy is ending")
            if self._prefill is not None and self._prefill.done():
                pending.discard(self._prefill)
                error = self._prefill_error()
                # A D that has output has its KV; a P that fails after that is no reason to take the rest from the client.
                if error is not None and not self._relay.has_output:
                    raise error
            if now() >= limits.deadline:
                raise self._late(limits)

    async def _decoded(self, decode: asyncio.Task[web.StreamResponse]) -> web.StreamResponse:
        try:
            return decode.result()
        except ProxyError as error:
            raise await self._with_reason(error) from None

    async def _with_reason(self, error: ProxyError) -> ProxyError:
        """D's failure, with what P and its bootstrap server know of it: an engine tells its client no reason."""
        if error.outcome != "decode_failed" or self._prefill is None or self._transfer.prefiller is None:
            return error
        if not self._prefill.done():
            await asyncio.wait({self._prefill}, timeout=REASON_SECONDS)
        prefill_error = self._prefill_error()
        note = prefill_error.message if prefill_error else await self._known_reason(self._transfer.prefiller)
        return error.with_note(note) if note else error

    async def _known_reason(self, prefiller: Prefiller) -> str:
        """What P's bootstrap server knows of the transfer; empty when it is nothing, twice."""
        if reason := await self._ask_reason(prefiller, self._transfer.transfer_id):
            return reason
        await asyncio.sleep(_ASK_AGAIN_SECONDS)
        return await self._ask_reason(prefiller, self._transfer.transfer_id)

    def _prefill_error(self) -> ProxyError | None:
        if self._prefill is None or not self._prefill.done():
            return None
        error = self._prefill.exception()
        if error is not None and not isinstance(error, ProxyError):
            raise error
        return error

    def _late(self, limits: Limits) -> ProxyError:
        prefiller = self._transfer.prefiller
        if self._prefill is not None and prefiller is not None and not self._prefill.done():
            waited = f"prefill at {prefiller.url}"
        else:
            waited = f"decode at {self._transfer.decoder.url}"
        text = f"the request was not done within --request-timeout ({limits.request_timeout:g} s); it waited for {waited}"
        error = ProxyError(504, "timed_out", text)
        failed = self._prefill_error()
        return error if failed is None else error.with_note(failed.message)

    def _ask_for_checks(self) -> None:
        """A failed request has its engines looked at now: a restarted prefiller has another engine id."""
        self._transfer.decoder.recheck.set()
        if self._transfer.prefiller is not None:
            self._transfer.prefiller.recheck.set()


async def _end(calls: list[asyncio.Task[Any]]) -> None:
    """Ends both calls and waits for it: their connections are closed, which tells the engines to stop."""
    for call in calls:
        call.cancel()
    # No wait when both are done: an answer that was broken off would count as a client that went away.
    if not all(call.done() for call in calls):
        await asyncio.wait(calls)
    for call in calls:
        if not call.cancelled():
            call.exception()  # Known or without interest; asyncio reports those that nobody has seen.
