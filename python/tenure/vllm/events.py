"""KV events: which blocks the store now holds, from the workers to vLLM's event publisher.

They travel in worker metadata, which every wrapper forwards (vLLM's MultiConnector drops events sent the other way). An event
is told once all ranks that hold different bytes of its chunk have stored theirs (store_connector spec, section 10).
"""

from __future__ import annotations

from typing import Iterable, Sequence

from vllm.distributed.kv_events import BlockStored, KVCacheEvent

MEDIUM = "cpu"
# Chunks that some holders have not stored; a holder that had its part already never reports it.
PENDING_MAX = 65_536
StoredChunk = tuple[int, bytes, bytes | None, int, tuple[int, ...]]


class EventQuorum:
    """Counts the workers that stored each chunk. One thread.

    num_workers: of the engine. replicas: per store group, how many workers hold the same bytes, so that one report stands for all.
    """

    def __init__(self, num_workers: int, replicas: Sequence[int]) -> None:
        if num_workers <= 0 or any(factor <= 0 for factor in replicas):
            raise ValueError(f"num_workers is {num_workers}, replicas {list(replicas)}; both must be above 0")
        self._num_workers = num_workers
        self._replicas = tuple(replicas)
        self._pending: dict[tuple[int, bytes], tuple[StoredChunk, int]] = {}  # By group and hash, oldest first.
        self._complete: list[StoredChunk] = []

    def add(self, chunks: Iterable[StoredChunk]) -> None:
        """One report of each chunk. The oldest that is not complete goes when there are PENDING_MAX of them."""
        for chunk in chunks:
            group, block_hash, *_ = chunk
            first, reports = self._pending.pop((group, block_hash), (chunk, 0))
            if (reports + 1) * self._replicas[group] >= self._num_workers:
                self._complete.append(first)
                continue
            self._pending[group, block_hash] = first, reports + 1
            if len(self._pending) > PENDING_MAX:
                del self._pending[next(iter(self._pending))]

    def take(self) -> list[KVCacheEvent]:
        """The events that are complete; each is given once."""
        complete, self._complete = self._complete, []
        return [_event(chunk) for chunk in complete]

    def clear(self) -> None:
        """Forgets all that was not taken."""
        self._pending.clear()
        self._complete.clear()


def _event(chunk: StoredChunk) -> KVCacheEvent:
    from vllm.v1.core.kv_cache_utils import BlockHash, maybe_convert_block_hash

    group, block_hash, parent, block_size, tokens = chunk
    return BlockStored(
        block_hashes=[maybe_convert_block_hash(BlockHash(block_hash))],
        parent_block_hash=None if parent is None else maybe_convert_block_hash(BlockHash(parent)),
        token_ids=list(tokens),
        block_size=block_size,
        lora_id=None,
        lora_name=None,
        medium=MEDIUM,
        group_idx=group,
    )
