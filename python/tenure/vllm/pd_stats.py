"""What TenurePDConnector reports to vLLM's metrics: stock's columns for its log line, and Tenure's counters (pd_protocol spec, section 5).

P knows of writes and expiries, D of failed receives. Plain values, so that they pickle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

_WRITES = ("transfer_duration", "bytes_transferred", "num_descriptors")
_FAILURES = ("num_failed_transfers", "num_failed_recvs", "num_kv_expired_reqs")
_COUNTERS = "tenure_counters"
_MB = 2**20


@dataclass
class TenurePDStats(KVConnectorStats):
    """Records of one interval; those of all workers are added up by vLLM.

    data: seconds, bytes and pieces of each write, a 1 for each failure, and a list of Tenure's counters by name.
    """

    def __post_init__(self) -> None:
        if not self.data:
            self.reset()

    @staticmethod
    def of(writes: Sequence[tuple[float, int, int]], counters: Mapping[str, int]) -> TenurePDStats | None:
        """Writes as (seconds, bytes, pieces), and counts since the last call, stock's failures among them; None for nothing."""
        stats = TenurePDStats()
        for seconds, size, pieces in writes:
            for column, value in zip(_WRITES, (seconds, size, pieces)):
                stats.data[column].append(value)
        for column in _FAILURES:
            stats.data[column].extend([1] * counters.get(column, 0))
        others = {name: value for name, value in counters.items() if name not in _FAILURES and value}
        if others:
            stats.data[_COUNTERS].append(others)
        return None if stats.is_empty() else stats

    def reset(self) -> None:
        """Forgets everything."""
        self.data: dict[str, list[Any]] = {column: [] for column in (*_WRITES, *_FAILURES, _COUNTERS)}

    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not any(self.data.values())

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Adds the records of `other`."""
        for column, values in other.data.items():
            self.data.setdefault(column, []).extend(values)
        return self

    def reduce(self) -> dict[str, int | float]:
        """Stock's figures for vLLM's log line; 0 where there was no write."""
        seconds = sorted(self.data["transfer_duration"])
        count = len(seconds)
        megabytes = sum(self.data["bytes_transferred"]) / _MB
        return {
            "Num successful transfers": count,
            "Avg xfer time (ms)": round(sum(seconds) / count * 1e3, 3) if count else 0,
            "P90 xfer time (ms)": round(_percentile(seconds, 0.9) * 1e3, 3) if count else 0,
            "Avg MB per transfer": round(megabytes / count, 3) if count else 0,
            "Throughput (MB/s)": round(megabytes / sum(seconds), 3) if sum(seconds) > 0 else 0,
            "Avg number of descriptors": round(sum(self.data["num_descriptors"]) / count, 1) if count else 0,
            "Num failed transfers": len(self.data["num_failed_transfers"]),
            "Num failed recvs": len(self.data["num_failed_recvs"]),
            "Num KV expired reqs": len(self.data["num_kv_expired_reqs"]),
        }


def _percentile(ascending: Sequence[float], share: float) -> float:
    """Between the two nearest values, as numpy does."""
    at = (len(ascending) - 1) * share
    low, high = math.floor(at), math.ceil(at)
    return ascending[low] + (ascending[high] - ascending[low]) * (at - low)


class TenurePDPromMetrics(KVConnectorPromMetrics):
    """The same records as Prometheus metrics."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        # vLLM types each of them as a metric of any kind.
        histogram: Any = self._histogram_cls
        counter: Any = self._counter_cls
        self._seconds = histogram(
            name="vllm:tenure_pd_write_seconds",
            documentation="Time of a write of KV into a decode worker.",
            buckets=[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0],
            labelnames=labelnames,
        )
        self._bytes = counter(
            name="vllm:tenure_pd_written_bytes_total", documentation="Bytes of KV written into decode workers.", labelnames=labelnames
        )
        self._events = counter(
            name="vllm:tenure_pd_events_total", documentation="Failures and other counters of the P/D connector.", labelnames=[*labelnames, "event"]
        )

    def observe(self, transfer_stats_data: dict[str, Any] | None, engine_idx: int = 0) -> None:
        """Adds the records of one interval."""
        engine = self.per_engine_labelvalues[engine_idx]
        data = transfer_stats_data or {}
        for seconds in data.get("transfer_duration", ()):
            self._seconds.labels(*engine).observe(seconds)
        if written := sum(data.get("bytes_transferred", ())):
            self._bytes.labels(*engine).inc(written)
        for column in _FAILURES:
            if count := len(data.get(column, ())):
                self._events.labels(*engine, column.removeprefix("num_")).inc(count)
        for counters in data.get(_COUNTERS, ()):
            for event, value in counters.items():
                self._events.labels(*engine, event).inc(value)
