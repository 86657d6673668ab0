"""What the connector reports to vLLM's metrics: operations under stock's names, and Tenure's counters.

An operation record is {duration_seconds, num_keys, num_bytes, status, num_failed_keys}, one list an operation name
(store_connector spec, section 9). Counters travel as increments under _COUNTERS. Plain values, so that they pickle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

Operation = tuple[str, float, int, int, int, str]

_COUNTERS = "tenure_counters"
_PREFIX = "vllm:mooncake_store_operation"
_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


@dataclass
class TenureStats(KVConnectorStats):
    """Records of one interval; scheduler's and workers' are added up by vLLM."""

    def __post_init__(self) -> None:
        if not self.data:
            self.reset()

    @staticmethod
    def since(last: dict[str, int], operations: Iterable[Operation], counters: dict[str, int]) -> TenureStats | None:
        """What has come since the last call, None for nothing: (name, seconds, keys, bytes, failed keys, status) tuples, and the growth
        of the counters over those in `last`, which becomes a copy of them."""
        data: dict[str, list[dict[str, Any]]] = {}
        for name, seconds, keys, size, failed, status in operations:
            record = {"duration_seconds": seconds, "num_keys": keys, "num_bytes": size, "status": status, "num_failed_keys": failed}
            data.setdefault(name, []).append(record)
        grown = {
            name.removesuffix("_total"): value - last.get(name, 0) for name, value in counters.items() if value != last.get(name, 0)
        }
        last.update(counters)
        if grown:
            data[_COUNTERS] = [grown]
        return TenureStats(data) if data else None

    def reset(self) -> None:
        """Forgets everything."""
        self.data: dict[str, list[dict[str, Any]]] = {}

    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not self.data

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Adds the records of `other`."""
        for name, records in other.data.items():
            self.data.setdefault(name, []).extend(records)
        return self

    def reduce(self) -> dict[str, int | float]:
        """One figure a name for vLLM's log line."""
        reduced: dict[str, int | float] = {}
        for name in sorted(self.data):
            records = self.data[name]
            if name == _COUNTERS:
                for record in records:
                    for counter, value in record.items():
                        reduced[counter] = reduced.get(counter, 0) + value
            elif records:
                reduced.update(_reduce_operation(name, records))
        return reduced


def _reduce_operation(name: str, records: list[dict[str, Any]]) -> dict[str, int | float]:
    seconds = sorted(float(record["duration_seconds"]) for record in records)
    rank = max(0, min(len(seconds) - 1, int(0.9 * len(seconds) - 1e-12)))
    return {
        f"{name}_count": len(records),
        f"{name}_avg_ms": round(sum(seconds) / len(seconds) * 1e3, 3),
        f"{name}_p90_ms": round(seconds[rank] * 1e3, 3),
        f"{name}_total_keys": sum(record["num_keys"] for record in records),
        f"{name}_total_bytes": sum(record["num_bytes"] for record in records),
        f"{name}_failed_keys": sum(record["num_failed_keys"] for record in records),
        f"{name}_error_count": sum(record["status"] == "error" for record in records),
    }


class TenurePromMetrics(KVConnectorPromMetrics):
    """The same records as Prometheus metrics: stock's five families, and one counter family for each of Tenure's counters."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        labels = [*labelnames, "operation", "status"]
        histogram: Any = self._histogram_cls  # vLLM types each of them as a metric of any kind.
        counter: Any = self._counter_cls
        self._seconds = histogram(
            name=f"{_PREFIX}_time_seconds", documentation="Time of a store operation.", buckets=list(_BUCKETS), labelnames=labels
        )
        self._counts = {
            field: counter(name=f"{_PREFIX}{suffix}_total", documentation=text, labelnames=labels)
            for field, suffix, text in (
                ("calls", "", "Store operations."),
                ("num_keys", "_keys", "Keys of store operations."),
                ("num_bytes", "_bytes", "Bytes that store operations asked for."),
                ("num_failed_keys", "_failed_keys", "Keys that failed in store operations."),
            )
        }
        self._counters = counter(
            name="vllm:tenure_store_events_total", documentation="Tenure's counters, by event.", labelnames=[*labelnames, "event"]
        )

    def observe(self, transfer_stats_data: dict[str, Any] | None, engine_idx: int = 0) -> None:
        """Adds the records of one interval."""
        engine = self.per_engine_labelvalues[engine_idx]
        for name, records in (transfer_stats_data or {}).items():
            for record in records:
                if name == _COUNTERS:
                    for event, value in record.items():
                        self._counters.labels(*engine, event).inc(value)
                    continue
                labels = [*engine, name, record["status"]]
                self._seconds.labels(*labels).observe(record["duration_seconds"])
                for field, counter in self._counts.items():
                    counter.labels(*labels).inc(1 if field == "calls" else record[field])
