"""The HTTP side: endpoints, limits, and errors as OpenAI clients read them."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import Awaitable, Callable

import aiohttp
from aiohttp import web

from tenure.proxy import metrics, upstream
from tenure.proxy.errors import Outcome, ProxyError
from tenure.proxy.exchange import Exchange
from tenure.proxy.health import HealthChecks
from tenure.proxy.options import ProxyOptions
from tenure.proxy.relay import Relay
from tenure.proxy.sending import ClientGone
from tenure.proxy.servers import Fleet
from tenure.proxy.supervision import Answer

_logger = logging.getLogger("tenure.proxy")

COMPLETIONS = ("/v1/completions", "/v1/chat/completions")
_ENDPOINTS = (*COMPLETIONS, "/v1/models", "/health", "/metrics", "/status")


class Proxy:
    """The endpoints. One event loop; start() and close() run on it."""

    def __init__(self, options: ProxyOptions) -> None:
        self.options = options
        self.fleet = Fleet(options)
        self._metrics = metrics.Metrics(self.fleet, COMPLETIONS)

    async def start(self) -> None:
        """Begins to look at the engines; until one of each is found, requests are answered with 503."""
        self._ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A connection a call: an engine closes idle ones at its own time, and a request that meets that moment fails.
        self._session = self._new_session()
        self._checks_session = self._new_session()
        self._checks = HealthChecks(self.fleet, self.options, self._checks_session)
        self._exchange = Exchange(self.fleet, self.options, self._session, self._ending)

    def end_requests(self) -> None:
        """Every request ends with its reason; new ones are refused."""
        if not self._ending.done():
            self._ending.set_result(None)

    async def close(self) -> None:
        """After end_requests()."""
        await self._checks.close()
        await self._session.close()
        await self._checks_session.close()

    def application(self) -> web.Application:
        """What a runner serves."""
        made = web.Application(client_max_size=self.options.body_bytes_max, middlewares=[_as_error_body])
        for path in COMPLETIONS:
            made.router.add_post(path, self._complete)
        made.router.add_get("/v1/models", self._models)
        made.router.add_get("/health", self._health)
        made.router.add_get("/metrics", self._show_metrics)
        made.router.add_get("/status", self._status)
        return made

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        start = time.monotonic()
        request_id = str(uuid.uuid4())
        relay = Relay(request, request_id)
        outcome: Outcome = "internal_error"
        self._metrics.in_flight += 1
        try:
            answer = await self._admitted(request, relay, request_id)
            outcome = answer.outcome
            return answer.response
        except ProxyError as error:
            outcome = error.outcome
            error.headers["X-Request-Id"] = request_id
            raise
        except web.HTTPRequestEntityTooLarge:
            outcome = "refused"
            raise ProxyError(413, outcome, f"the body is above --body-bytes-max ({self.options.body_bytes_max} bytes)") from None
        except ClientGone as gone:
            outcome = "disconnected"
            return gone.stream
        except (asyncio.CancelledError, ConnectionError):
            outcome = "disconnected"
            raise
        finally:
            self._metrics.in_flight -= 1
            first_byte = None if relay.first_byte_at is None else relay.first_byte_at - start
            self._metrics.finished(request.path, outcome, first_byte, time.monotonic() - start)

    async def _admitted(self, request: web.Request, relay: Relay, request_id: str) -> Answer:
        if self._ending.done():
            raise ProxyError(503, "ending", "the proxy is ending")
        if self._metrics.in_flight > self.options.requests_max:
            raise ProxyError(503, "overloaded", f"{self.options.requests_max} requests are being served (--requests-max); try again later")
        return await self._exchange.serve(request, relay, request_id)

    async def _models(self, request: web.Request) -> web.Response:
        """A decoder's own list."""
        server = self.fleet.choose_decoder()
        headers = {"Authorization": request.headers["Authorization"]} if "Authorization" in request.headers else {}
        timeout = aiohttp.ClientTimeout(total=self.options.health_timeout)
        try:
            async with self._session.get(f"{server.url}/v1/models", headers=headers, timeout=timeout, allow_redirects=False) as answer:
                if answer.status >= 300:
                    raise await upstream.failed_answer(answer, "decode", server.url)
                body = await upstream.read_bounded(answer.content, upstream.ANSWER_BYTES_MAX)
                return web.Response(body=body, content_type=answer.content_type)
        except upstream.FAILURES as error:
            raise upstream.failed_call(error, "decode", server) from None

    async def _health(self, _request: web.Request) -> web.Response:
        if missing := self.fleet.missing():
            raise ProxyError(503, "no_server", "; ".join(missing))
        return web.json_response({"status": "ok"})

    async def _show_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=self._metrics.text(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def _status(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "ready": not self.fleet.missing(),
                "requests_in_flight": self._metrics.in_flight,
                "requests_max": self.options.requests_max,
                "prefillers": [server.status() for server in self.fleet.prefillers],
                "decoders": [server.status() for server in self.fleet.decoders],
            }
        )

    def _new_session(self) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.options.connect_timeout)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        return aiohttp.ClientSession(connector=connector, timeout=timeout, headers={"Accept-Encoding": "identity"})


@web.middleware
async def _as_error_body(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    """Every failure has the same body; none ends the process."""
    try:
        return await handler(request)
    except ProxyError as error:
        failed = error
    except web.HTTPException as error:
        if error.status < 400:
            raise
        served = f"{request.method} {request.path[:200]}: {error.reason}; served are {', '.join(_ENDPOINTS)}"
        failed = ProxyError(error.status, "refused", served)
    except ConnectionError:
        raise
    except Exception:
        _logger.exception("a request to %s failed", request.path)
        failed = ProxyError(500, "internal_error", "the proxy failed; its log has the reason")
    return web.Response(status=failed.status, body=failed.body(), headers=failed.headers, content_type="application/json")
