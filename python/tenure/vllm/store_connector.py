"""TenureStoreConnector: Tenure's pools behind vLLM's KV connector interface.

    --kv-transfer-config '{"kv_connector": "TenureStoreConnector", "kv_role": "kv_both",
                           "kv_connector_extra_config": {"pool": "unix:/run/tenure/pool.sock"}}'

Two façades: SchedulerSide in the scheduler's process, WorkerSide in each worker's. Options: docs/reference/vllm.md. Calls and
their order: vLLM's KVConnectorBase_V1; vLLM calls each side from one thread.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Iterable

from tenure.vllm.model import check_supported, transfer_config
from tenure.vllm.messages import TenureMetadata
from tenure.vllm.options import StoreOptions
from tenure.vllm.plugin import register
from tenure.vllm.pools import check_pool, open_mooncake
from tenure.vllm.stats import TenurePromMetrics, TenureStats
from tenure.vllm.store_scheduler import SchedulerSide
from tenure.vllm.store_worker import WorkerSide
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

if TYPE_CHECKING:
    import torch

    from vllm.config import VllmConfig
    from vllm.distributed.kv_events import KVCacheEvent
    from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
    from vllm.forward_context import ForwardContext
    from vllm.v1.attention.backend import AttentionMetadata
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

_logger = logging.getLogger("vllm.tenure")  # Under vLLM's logger, so that its handlers and levels apply.
register()  # Also without the entry point: MultiConnector finds the class of its children's statistics by name.


class TenureStoreConnector(KVConnectorBase_V1, SupportsHMA):
    """The store connector. A request never fails because of the store, unless vLLM's kv_load_failure_policy is "fail"."""

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig | None = None) -> None:
        """Opens this process's pool. ValueError, TypeError or tenure.Error name what is wrong, before any memory is taken."""
        self._process = os.getpid()
        if kv_cache_config is None:
            raise ValueError("TenureStoreConnector needs kv_cache_config, which vLLM 0.32 or newer passes; update vLLM")
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        transfer = transfer_config(vllm_config)
        options = _checked_options(vllm_config)
        self._cache_hit_source = CacheHitSource.EXTERNAL_UNSPECIFIED if options.kind == "mooncake" else CacheHitSource.HOST
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        # Gives memory to a Mooncake cluster, loads and saves nothing; so what the model looks like does not matter.
        self._capacity_only = transfer.kv_role == "kv_consumer" and not options.enable_lookup and not options.save_decode_cache
        if self._capacity_only:
            self._segment = _mount_segment(options) if role == KVConnectorRole.WORKER else None
            return
        check_supported(vllm_config, kv_cache_config)
        if role == KVConnectorRole.SCHEDULER:
            _warn(vllm_config)
            self._scheduler = SchedulerSide(vllm_config, kv_cache_config, options)
        else:
            self._worker = WorkerSide(vllm_config, kv_cache_config, options)

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: VllmConfig) -> str | None:
        """None: any layout. The engine asks before it measures memory and workers make their connectors, so a wrong option ends it here."""
        _checked_options(vllm_config)
        return None

    @property
    def requires_kv_delivery(self) -> bool:
        """False: a save that is dropped is a later miss, nothing more."""
        return False

    def shutdown(self) -> None:
        """Ends copies, lookups and the pool. Idempotent, and nothing in a forked child, which owns none of them."""
        if getattr(self, "_process", None) != os.getpid():
            return
        worker, self._worker = getattr(self, "_worker", None), None
        scheduler, self._scheduler = getattr(self, "_scheduler", None), None
        segment, self._segment = getattr(self, "_segment", None), None
        if segment is not None:
            segment.close()
        if worker is not None:
            worker.close()
        if scheduler is not None:
            scheduler.close()

    def __del__(self) -> None:
        self.shutdown()

    # Scheduler side.

    def bind_gpu_block_pool(self, gpu_block_pool: BlockPool) -> None:
        if self._scheduler is not None:
            self._scheduler.bind_gpu_block_pool(gpu_block_pool)

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        return (0, False) if self._scheduler is None else self._scheduler.num_new_matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        if self._scheduler is not None:
            self._scheduler.update_state_after_alloc(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        return TenureMetadata() if self._scheduler is None else self._scheduler.build_meta(scheduler_output)

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        if self._scheduler is not None:
            self._scheduler.update_output(connector_output)

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return False, None  # Saves hold pins of their own.

    def request_finished_all_groups(self, request: Request, block_ids: tuple[list[int], ...]) -> tuple[bool, dict[str, Any] | None]:
        return False, None

    def register_finished_partial_tail(
        self, request: Request, block_ids: tuple[list[int], ...], partial_tail_offloads: list[tuple[int, int, int]]
    ) -> bool:
        return self._scheduler is not None and self._scheduler.register_finished_partial_tail(request, block_ids, partial_tail_offloads)

    def has_pending_push_work(self) -> bool:
        return self._scheduler is not None and self._scheduler.pending_jobs()

    def take_events(self) -> Iterable[KVCacheEvent]:
        return () if self._scheduler is None else self._scheduler.take_events()

    def reset_cache(self) -> bool | None:
        """Drops every object of this model from the pool. True when done, False when the pool did not answer, None in a worker."""
        return None if self._scheduler is None else self._scheduler.reset()

    # Worker side.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        if self._worker is not None:
            self._worker.register_kv_caches(kv_caches)

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        if self._worker is not None:
            self._worker.start_loads(self._step())

    def wait_for_layer_load(self, layer_name: str) -> None:
        return  # Whole requests are loaded before they are scheduled, or before the forward pass.

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: AttentionMetadata, **kwargs: Any) -> None:
        return  # Whole blocks are saved after the step.

    def wait_for_save(self) -> None:
        if self._worker is not None:
            self._worker.start_saves(self._step())

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        results = self.get_transfer_results(finished_req_ids)
        return results.finished_sending, results.finished_recving

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        loaded, failed = (set(), set()) if self._worker is None else self._worker.finished_loads()
        return KVConnectorTransferResults(finished_sending=set(), finished_recving=loaded, failed_recving=failed)

    def get_block_ids_with_load_errors(self) -> set[int]:
        return set() if self._worker is None else self._worker.failed_blocks()

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        return None if self._worker is None else self._worker.worker_meta()

    def _step(self) -> TenureMetadata:
        metadata = self._get_connector_metadata()
        if not isinstance(metadata, TenureMetadata):
            raise TypeError(f"the metadata of this step is a {type(metadata).__name__}; this is a defect of the engine's setup")
        return metadata

    # Both sides.

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        side = self._scheduler or self._worker
        return None if side is None else side.stats()

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        return TenureStats(data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: VllmConfig, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]
    ) -> TenurePromMetrics:
        return TenurePromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def _checked_options(vllm_config: VllmConfig) -> StoreOptions:
    options = StoreOptions.from_mapping(transfer_config(vllm_config).kv_connector_extra_config)
    check_pool(vllm_config, options)
    return options


def _mount_segment(options: StoreOptions) -> Any:
    if options.kind != "mooncake":
        raise ValueError(
            f"pool is {options.pool!r}, but kv_role kv_consumer with enable_lookup false and save_decode_cache false only gives memory to a "
            'cluster; use pool "mooncake", or enable_lookup true'
        )
    return open_mooncake(options)


def _warn(vllm_config: VllmConfig) -> None:
    if transfer_config(vllm_config).kv_load_failure_policy == "fail":
        _logger.warning(
            'kv_load_failure_policy is "fail": a request whose load fails ends with HTTP 500 and no text; set it to "recompute" in '
            "--kv-transfer-config to serve it from the prompt instead"
        )
