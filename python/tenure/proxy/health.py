"""Looks after the engines in the background: are they there, and which engine ids does a prefiller have now?

A restarted engine comes back by itself: its engine ids are read anew at each check, and at once after a request that failed.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import aiohttp

from tenure.proxy.options import ProxyOptions
from tenure.proxy.servers import Fleet, Prefiller, Server
from tenure.proxy.upstream import FAILURES, describe, message_of, read_bounded
from tenure.proxy.waiting import within

_logger = logging.getLogger("tenure.proxy")

# An engine in a long step answers late: one late answer is no reason to take it out of service.
LATE_ANSWERS_MAX = 3
# Many requests fail at one time; each asks for a check.
RECHECK_SECONDS_MIN = 0.1
_ANSWER_BYTES_MAX = 8 << 20


class Unhealthy(Exception):
    """What an engine or its bootstrap server answered is no good; the text says why."""


class HealthChecks:
    """One task an engine, on connections of its own: a check never waits behind requests."""

    def __init__(self, fleet: Fleet, options: ProxyOptions, session: aiohttp.ClientSession) -> None:
        self._options = options
        self._session = session
        self._tasks = [asyncio.create_task(self._watch(server)) for server in fleet.servers()]

    async def close(self) -> None:
        """Ends the checks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch(self, server: Server) -> None:
        late = 0
        while True:
            server.recheck.clear()
            try:
                await self._check(server)
            except asyncio.TimeoutError:
                late += 1
                if late >= LATE_ANSWERS_MAX or not server.healthy:
                    _set(server, False, f"no answer to a health check within {self._options.health_timeout:g} s")
            except Unhealthy as error:
                _set(server, False, describe(error))
            except Exception as error:  # A check that ends would leave the engine in its last state for ever.
                _logger.exception("the health check of %s failed", server.url)
                _set(server, False, describe(error))
            else:
                late = 0
                _set(server, True, "ok")
            await self._pause(server)

    async def _pause(self, server: Server) -> None:
        await asyncio.sleep(min(RECHECK_SECONDS_MIN, self._options.health_interval))
        try:
            await within(self._options.health_interval, server.recheck.wait())
        except asyncio.TimeoutError:
            pass

    async def _check(self, server: Server) -> None:
        await self._get(f"{server.url}/health")
        if isinstance(server, Prefiller):
            try:
                listed = await self._get(f"{server.bootstrap}/query")
            except Unhealthy as error:
                remedy = "the BOOTSTRAP of --prefill must be VLLM_MOONCAKE_BOOTSTRAP_PORT of that engine, or its bootstrap_server_address"
                raise Unhealthy(f"{error}; {remedy}") from None
            engines = parse_engines(server.bootstrap, listed)
            if server.engines and engines != server.engines:
                _logger.info("prefill %s: its engine ids are now %s", server.url, ", ".join(engines.values()))
            server.engines = engines

    async def _get(self, url: str) -> bytes:
        timeout = aiohttp.ClientTimeout(total=self._options.health_timeout)
        try:
            async with self._session.get(url, timeout=timeout, allow_redirects=False) as answer:
                body = await read_bounded(answer.content, _ANSWER_BYTES_MAX)
        except asyncio.TimeoutError:
            raise
        except FAILURES as error:
            raise Unhealthy(f"GET {url}: {describe(error)}") from None
        if answer.status != 200:
            raise Unhealthy(f"GET {url} gave status {answer.status}: {message_of(body)}")
        return body


def parse_engines(bootstrap: str, body: bytes) -> dict[int, str]:
    """Data-parallel rank to engine id, from the answer of a bootstrap server (P/D spec, section 2). Unhealthy when there is none."""
    try:
        entries: Any = json.loads(body)
        engines = {int(rank): entries[rank]["engine_id"] for rank in entries}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Unhealthy(f"GET {bootstrap}/query gave no list of engines; is that the bootstrap server of this prefiller?") from None
    if not all(isinstance(engine, str) and engine for engine in engines.values()) or any(rank < 0 for rank in engines):
        raise Unhealthy(f"GET {bootstrap}/query gave a malformed engine id or rank")
    if not engines:
        raise Unhealthy(f"no engine has registered at {bootstrap} yet")
    return dict(sorted(engines.items()))


def _set(server: Server, healthy: bool, detail: str) -> None:
    if server.set_health(healthy, detail):
        _logger.info("%s %s is %s", server.role, server.url, "healthy" if healthy else f"out of service: {detail}")
