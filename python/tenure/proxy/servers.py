"""The engines behind the proxy: what is known of each, and which ones the next request goes to. One event loop; no locks."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from typing import Any, Collection, Sequence, TypeVar

from tenure.proxy.errors import ProxyError
from tenure.proxy.options import PrefillAddress, ProxyOptions


class Server:
    """One engine. Written by its health check and by requests that fail at it."""

    role = "server"

    def __init__(self, url: str) -> None:
        self.url = url
        self.healthy = False
        self.detail = "not checked yet"
        self.in_flight = 0
        # Requests that failed here and went to another engine.
        self.failovers = 0
        # Set to have it looked at now: a request failed there.
        self.recheck = asyncio.Event()
        self._since = time.monotonic()

    def set_health(self, healthy: bool, detail: str) -> bool:
        """Returns whether that is a change."""
        changed = healthy != self.healthy
        if changed:
            self._since = time.monotonic()
        self.healthy, self.detail = healthy, detail
        return changed

    def status(self) -> dict[str, Any]:
        """For /status."""
        seconds = round(time.monotonic() - self._since, 1)
        return {"url": self.url, "healthy": self.healthy, "detail": self.detail, "for_seconds": seconds, "in_flight": self.in_flight}


class Prefiller(Server):
    """P. engines: its data-parallel ranks and their engine ids, as its bootstrap server lists them now."""

    role = "prefill"

    def __init__(self, address: PrefillAddress) -> None:
        super().__init__(address.url)
        self.bootstrap = address.bootstrap
        self.engines: dict[int, str] = {}

    def status(self) -> dict[str, Any]:
        return {**super().status(), "bootstrap": self.bootstrap, "engines": {str(rank): name for rank, name in self.engines.items()}}


class Decoder(Server):
    """D."""

    role = "decode"


@dataclasses.dataclass(frozen=True)
class Route:
    """Where one request goes. The engine id is that of the moment of choice."""

    prefiller: Prefiller
    dp_rank: int
    engine_id: str
    decoder: Decoder


_Item = TypeVar("_Item")


class _Turns:
    """Round robin over a list that may change between two turns."""

    def __init__(self) -> None:
        self._turns = itertools.count()

    def next(self, items: Sequence[_Item]) -> _Item:
        return items[next(self._turns) % len(items)]


class Fleet:
    """All engines. P's data-parallel ranks take turns one by one, decoders independently of them, as with stock's proxy."""

    def __init__(self, options: ProxyOptions) -> None:
        self.prefillers = [Prefiller(address) for address in options.prefill]
        self.decoders = [Decoder(url) for url in options.decode]
        self._prefill_turns = _Turns()
        self._decode_turns = _Turns()

    def servers(self) -> list[Server]:
        """Every engine."""
        return [*self.prefillers, *self.decoders]

    def choose(self, without: Collection[Server] = ()) -> Route:
        """P's rank and the decoder of the next request, which are none of `without`. ProxyError 503 when there is none."""
        decoder = self.choose_decoder(without)
        ranks = [(server, rank) for server in self.prefillers if server.healthy and server not in without for rank in server.engines]
        if not ranks:
            raise _none_healthy(self.prefillers)
        prefiller, rank = self._prefill_turns.next(ranks)
        return Route(prefiller, rank, prefiller.engines[rank], decoder)

    def choose_decoder(self, without: Collection[Server] = ()) -> Decoder:
        """The next decoder, which is none of `without`. ProxyError 503 when there is none."""
        healthy = [server for server in self.decoders if server.healthy and server not in without]
        if not healthy:
            raise _none_healthy(self.decoders)
        return self._decode_turns.next(healthy)

    def missing(self) -> list[str]:
        """Why no request can be served, one text a role; empty when one can."""
        sides: tuple[Sequence[Server], ...] = (self.prefillers, self.decoders)
        return [_none_healthy(side).message for side in sides if not any(server.healthy for server in side)]


def _none_healthy(servers: Sequence[Server]) -> ProxyError:
    reasons = ", ".join(f"{server.url}: {server.detail}" for server in servers)
    return ProxyError(503, "no_server", f"no {'prefiller' if servers[0].role == 'prefill' else 'decoder'} is healthy ({reasons})")
