"""A worker's side: vLLM's KV tensors and steps to the compiled StoreWorker, and its reports back.

Conversion only. Called from the worker's main thread; copies run on the StoreWorker's own threads.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Mapping

from tenure._native import StoreWorker
from tenure.vllm.identity import check_identity
from tenure.vllm.memory import KVMemory, kv_memory
from tenure.vllm.messages import TenureWorkerMetadata
from tenure.vllm.model import ModelStore, Parallelism, transfer_config
from tenure.vllm.pools import EnginePool, open_worker_pool
from tenure.vllm.stats import Operation, TenureStats

if TYPE_CHECKING:
    import torch

    from tenure.vllm.messages import TenureMetadata
    from tenure.vllm.options import StoreOptions
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

_logger = logging.getLogger("vllm.tenure")  # Under vLLM's logger, so that its handlers and levels apply.
_DRAIN_SECONDS = 5.0


class WorkerSide:
    """What the connector does in a worker's process."""

    def __init__(self, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig, options: StoreOptions) -> None:
        self._options = options
        self._kv_cache_config = kv_cache_config
        self._several_groups = len(kv_cache_config.kv_cache_groups) > 1
        self._model = ModelStore(vllm_config, kv_cache_config, options, Parallelism.of_worker(vllm_config))
        if self._model.layout.kind == "rank_local":
            _logger.warning(
                "store_tp_size or prefill_tp_sizes cannot be served with this model and layout; objects are kept apart under %s",
                self._model.layout.store_namespace,
            )
        self._can_put = transfer_config(vllm_config).kv_role in ("kv_producer", "kv_both") or options.save_decode_cache
        self._engine_pool: EnginePool = open_worker_pool(vllm_config, options)
        if options.keys == "vllm":
            try:
                check_identity(self._engine_pool.pool, self._model)
            except Exception:
                self._engine_pool.close()
                raise
        self._worker: StoreWorker | None = None
        self.memory: KVMemory | None = None  # Known from register_kv_caches on.
        self._loaded: set[str] = set()
        self._failed: set[str] = set()
        self._failed_blocks: set[int] = set()
        self._saved: dict[int, int] = {}
        self._ended: dict[str, int] = {}
        self._stored: list[tuple[int, bytes, bytes | None, int, tuple[int, ...]]] = []
        self._operations: list[Operation] = []
        self._counters: dict[str, int] = {}
        self._last_counters: dict[str, int] = {}

    def register_kv_caches(self, kv_caches: Mapping[str, torch.Tensor | list[torch.Tensor]]) -> None:
        """The engine's KV tensors; copies can begin."""
        if not kv_caches:
            raise ValueError("this worker has no KV cache, so loads and saves of the engine would never end; remove the connector")
        layers = [
            layer for group in self._model.group_ids for layer in self._kv_cache_config.kv_cache_groups[group].layer_names
        ]
        self.memory = memory = kv_memory(kv_caches, layers, self._kv_cache_config.num_blocks, self._model)
        pool = self._engine_pool.pool
        self._worker = StoreWorker(
            self._model.config,
            pool,
            [[pool.open_namespace(prefix) for prefix in prefixes] for prefixes in self._model.worker_prefixes()],
            memory.pieces,
            memory.regions,
            self._kv_cache_config.num_blocks,
            tp_rank=self._model.ranks.tp_rank,
            stripes=self._model.replicas,
            retention=self._model.retention,
            can_put=self._can_put,
            load_threads=self._options.load_threads,
            load_deadline=self._options.load_deadline,
            events=self._model.events,
            device=None if memory.device[0] == "cpu" else memory.device,
        )

    def start_loads(self, metadata: TenureMetadata) -> None:
        """Begins this step's loads; synchronous ones are done on return."""
        if self._worker is None:
            return
        if self._model.load_async:
            self._worker.start_loads(metadata.plan, _stream())
        else:
            self._worker.load_now(metadata.plan, _stream())

    def start_saves(self, metadata: TenureMetadata) -> None:
        """Begins this step's saves, after what the engine has issued so far."""
        if self._worker is not None:
            self._worker.start_saves(metadata.plan, _stream())

    def finished_loads(self) -> tuple[set[str], set[str]]:
        """Requests whose loads ended since the last call, and those of them that failed (several groups only)."""
        self._collect()
        loaded, self._loaded = self._loaded, set()
        failed, self._failed = self._failed, set()
        return loaded, failed

    def failed_blocks(self) -> set[int]:
        """Blocks whose loads failed since the last call (one group only)."""
        self._collect()
        blocks, self._failed_blocks = self._failed_blocks, set()
        return blocks

    def worker_meta(self) -> TenureWorkerMetadata | None:
        """Saves done, chunks stored and synchronous loads over since the last call."""
        self._collect()
        if not self._saved and not self._stored and not self._ended:
            return None
        report = TenureWorkerMetadata(self._saved, self._stored, self._ended)
        self._saved, self._stored, self._ended = {}, [], {}
        return report

    def stats(self) -> TenureStats | None:
        """Operations and counters since the last call."""
        self._collect()
        operations, self._operations = self._operations, []
        return TenureStats.since(self._last_counters, operations, self._counters)

    def close(self) -> None:
        """Waits a little for copies under way, then ends them and the pool. Idempotent."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.drain(_DRAIN_SECONDS)
            worker.close()
        self._engine_pool.close()

    def _collect(self) -> None:
        if self._worker is None:
            return
        reports = self._worker.take_reports()
        ended = [*reports["loaded"], *reports["failed"]]
        if self._model.load_async:
            self._loaded.update(ended)
        else:
            # vLLM asks for the failed blocks of a synchronous load only; our scheduler's side must hear of its end as well.
            self._ended.update({request: self._ended.get(request, 0) + 1 for request in ended})
        if self._several_groups:
            self._failed.update(reports["failed"])
        else:
            self._failed_blocks.update(reports["failed_blocks"])
        for job, count in reports["saved"].items():
            self._saved[job] = self._saved.get(job, 0) + count
        self._stored.extend((group, block_hash, parent, size, tuple(tokens)) for group, block_hash, parent, size, tokens in reports["events"])
        self._operations.extend(reports["operations"])
        self._counters = reports["counters"]


def _stream() -> int:
    """The handle of the stream on which the engine's step runs; 0 on the CPU, where the step is done."""
    import torch

    return torch.cuda.current_stream().cuda_stream if torch.cuda.is_available() else 0
