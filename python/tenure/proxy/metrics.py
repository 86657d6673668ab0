"""The proxy's figures in Prometheus' text format; docs/reference/proxy.md explains each. Label sets are closed."""

from __future__ import annotations

import bisect
import collections
from typing import Iterable, Sequence, get_args

from tenure.proxy.errors import Outcome
from tenure.proxy.servers import Fleet

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OUTCOMES: tuple[str, ...] = get_args(Outcome)
_BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class _Histogram:
    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(_BOUNDS, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str) -> Iterable[str]:
        total = 0
        for bound, count in zip((*(f"{bound:g}" for bound in _BOUNDS), "+Inf"), self._counts):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self._sum:.6f}"
        yield f"{name}_count {total}"


class Metrics:
    """Written by requests, read by GET /metrics."""

    def __init__(self, fleet: Fleet, paths: Sequence[str]) -> None:
        self._fleet = fleet
        self._paths = paths
        self._requests: collections.Counter[tuple[str, str]] = collections.Counter()
        self._first_byte = _Histogram()
        self._whole = _Histogram()
        self.in_flight = 0

    def finished(self, path: str, outcome: Outcome, first_byte_seconds: float | None, seconds: float) -> None:
        """A request's end. Times count for those that were answered."""
        self._requests[path, outcome] += 1
        if outcome == "answered":
            self._whole.add(seconds)
            self._first_byte.add(seconds if first_byte_seconds is None else first_byte_seconds)

    def text(self) -> str:
        """The page."""
        lines: list[str] = []

        def metric(name: str, kind: str, text: str, values: Iterable[str]) -> None:
            lines.extend((f"# HELP {name} {text}", f"# TYPE {name} {kind}", *values))

        def of_servers(name: str, value: str) -> Iterable[str]:
            for server in self._fleet.servers():
                yield f'{name}{{role="{server.role}",server="{server.url}"}} {int(getattr(server, value))}'

        name = "tenure_proxy_requests_total"
        counted = [(path, outcome) for path in self._paths for outcome in _OUTCOMES]
        values = (f'{name}{{path="{path}",outcome="{outcome}"}} {self._requests[path, outcome]}' for path, outcome in counted)
        metric(name, "counter", "Requests that ended, by what became of them.", values)
        name = "tenure_proxy_requests_in_flight"
        metric(name, "gauge", "Requests being served.", [f"{name} {self.in_flight}"])
        name = "tenure_proxy_first_byte_seconds"
        metric(name, "histogram", "From a request's header to the first byte of its answer.", self._first_byte.lines(name))
        name = "tenure_proxy_request_seconds"
        metric(name, "histogram", "From a request's header to the end of its answer.", self._whole.lines(name))
        name = "tenure_proxy_server_healthy"
        metric(name, "gauge", "1 while an engine is given requests.", of_servers(name, "healthy"))
        name = "tenure_proxy_server_calls_in_flight"
        metric(name, "gauge", "Calls under way at an engine.", of_servers(name, "in_flight"))
        name = "tenure_proxy_failovers_total"
        metric(name, "counter", "Requests that failed at an engine and went to another one.", of_servers(name, "failovers"))
        return "\n".join(lines) + "\n"
