"""What travels between scheduler and workers inside vLLM's connector messages. Plain values, so that they pickle."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tenure.vllm.events import StoredChunk
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata


@dataclass
class TenureMetadata(KVConnectorMetadata):
    """A step's plan, as bytes that the compiled worker reads."""

    plan: bytes = b""


@dataclass
class TenureWorkerMetadata(KVConnectorWorkerMetadata):
    """What one worker, or several added up, did: workers that finished each save, and chunks stored.

    ended: workers whose synchronous load of each request is over, well or not; vLLM announces those of background loads only.
    """

    saved: dict[int, int] = field(default_factory=dict)
    events: list[StoredChunk] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """The sum of both."""
        if not isinstance(other, TenureWorkerMetadata):
            raise TypeError(f"worker metadata of {type(other).__name__} cannot be added to TenureWorkerMetadata")
        saved, ended = Counter(self.saved), Counter(self.ended)
        saved.update(other.saved)
        ended.update(other.ended)
        return TenureWorkerMetadata(dict(saved), [*self.events, *other.events], dict(ended))
