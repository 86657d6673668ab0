"""TenurePDConnector: prefill and decode on different engines, behind vLLM's KV connector interface.

    --kv-transfer-config '{"kv_connector": "TenurePDConnector", "kv_role": "kv_producer",
                           "kv_connector_extra_config": {"kv_lease_duration": 30}}'

Speaks the protocol of vLLM's MooncakeConnector, and to it with transport mooncake. Two façades: PDSchedulerSide in the scheduler's
process, PDWorkerSide in each worker's. Options: docs/reference/vllm-pd.md. vLLM calls each side from one thread.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenure._native import RenewalSender
from tenure.vllm.model import transfer_config
from tenure.vllm.pd_model import check_supported, keeps_last_token, windows
from tenure.vllm.pd_options import CurveKeys, PDOptions, check_role
from tenure.vllm.pd_scheduler import PDSchedulerSide, check_cut
from tenure.vllm.pd_stats import TenurePDPromMetrics, TenurePDStats
from tenure.vllm.pd_worker import PDWorkerSide
from tenure.vllm.plugin import register
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

if TYPE_CHECKING:
    import torch

    from vllm.config import VllmConfig
    from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
    from vllm.forward_context import ForwardContext
    from vllm.v1.attention.backend import AttentionMetadata
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

register()  # Also without the entry point: MultiConnector finds the class of its children's statistics by name.


@dataclass
class TenurePDMetadata(KVConnectorMetadata):
    """A step's orders for the two halves of every worker, as bytes that the compiled endpoints read."""

    prefill: bytes = b""
    decode: bytes = b""


class TenurePDConnector(KVConnectorBase_V1, SupportsHMA):
    """The P/D connector. A request whose KV does not arrive is computed at D, unless vLLM's kv_load_failure_policy is "fail"."""

    _cache_hit_source = CacheHitSource.P2P

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig | None = None) -> None:
        """ValueError, TypeError, RuntimeError or tenure.Error names what is wrong, before any memory is taken."""
        self._process = os.getpid()
        self._scheduler: PDSchedulerSide | None = None
        self._worker: PDWorkerSide | None = None
        self._renewals: RenewalSender | None = None
        if kv_cache_config is None:
            raise ValueError("TenurePDConnector needs kv_cache_config, which vLLM 0.32 or newer passes; update vLLM")
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        kv_role, options, keys = _checked_options(vllm_config)
        check_supported(vllm_config, kv_cache_config)
        self._loaded_groups: tuple[int, ...] = tuple(kv_cache_config.transfer_group_ids)
        if role == KVConnectorRole.WORKER:
            self._worker = PDWorkerSide(vllm_config, kv_cache_config, options, keys)
            return
        if keeps_last_token(kv_cache_config) and kv_role != "kv_consumer":
            check_cut(_probe_request())
        if options.kv_lease_duration is not None and kv_role != "kv_producer":
            self._renewals = RenewalSender(
                options.kv_lease_duration,
                renew_without_step=options.renew_without_step,
                connector_timeout=options.connector_timeout,
                curve_server_key=keys.public,
            )
        self._scheduler = PDSchedulerSide(
            kv_role,
            windows(kv_cache_config),
            select=kv_cache_config.select_transfer_block_ids,
            keeps_last_token=keeps_last_token(kv_cache_config),
            request_timeout=options.request_timeout,
            renewals=self._renewals,
            allow_peer=options.allow_peer,
        )

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: VllmConfig) -> str | None:
        """Heads outside of tokens, so that a rank's heads are one run of bytes; any layout where all ranks have all of it (MLA).

        The engine asks before it measures memory and workers make their connectors, so a wrong option ends it here."""
        _checked_options(vllm_config)
        model = vllm_config.model_config
        return None if model is None or model.use_mla else "LBHNC"

    def shutdown(self) -> None:
        """Ends threads, sockets and the bootstrap server. Idempotent, and nothing in a forked child, which owns none of them."""
        if getattr(self, "_process", None) != os.getpid():
            return
        worker, self._worker = self._worker, None
        renewals, self._renewals = self._renewals, None
        for part in (worker, renewals):
            if part is not None:
                part.close()

    def __del__(self) -> None:
        self.shutdown()

    # Scheduler side.

    def on_new_request(self, request: Request) -> None:
        if self._scheduler is not None:
            self._scheduler.on_new_request(request)

    def get_loaded_kv_cache_group_ids(self, request: Request) -> tuple[int, ...]:
        return self._loaded_groups

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        return (0, False) if self._scheduler is None else self._scheduler.num_new_matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        if self._scheduler is not None:
            self._scheduler.update_state_after_alloc(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        return TenurePDMetadata() if self._scheduler is None else TenurePDMetadata(*self._scheduler.take_orders())

    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        if self._scheduler is not None:
            self._scheduler.update_output(connector_output)

    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(self, request: Request, block_ids: tuple[list[int], ...]) -> tuple[bool, dict[str, Any] | None]:
        return self._scheduler is not None and self._scheduler.request_finished(request, block_ids), None

    def has_pending_push_work(self) -> bool:
        return self._scheduler is not None and self._scheduler.has_orders()

    # Worker side.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        if self._worker is not None:
            self._worker.register_kv_caches(kv_caches)

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        metadata = self._get_connector_metadata()
        if self._worker is not None and isinstance(metadata, TenurePDMetadata):
            self._worker.start_step(metadata.prefill, metadata.decode)

    def wait_for_layer_load(self, layer_name: str) -> None:
        return  # Whole requests are pulled before they are scheduled.

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: AttentionMetadata, **kwargs: Any) -> None:
        return  # D's pulls fetch what P has computed.

    def wait_for_save(self) -> None:
        return

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        results = self.get_transfer_results(finished_req_ids)
        return results.finished_sending, results.finished_recving

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        sent, received, failed = (set(), set(), set()) if self._worker is None else self._worker.transfer_results()
        return KVConnectorTransferResults(finished_sending=sent, finished_recving=received, failed_recving=failed)

    def get_block_ids_with_load_errors(self) -> set[int]:
        return set() if self._worker is None else self._worker.failed_blocks()

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        if self._worker is not None:
            return self._worker.stats()
        return None if self._scheduler is None else TenurePDStats.of([], self._scheduler.counters())

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats | None:
        return TenurePDStats(data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: VllmConfig, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]
    ) -> TenurePDPromMetrics:
        return TenurePDPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)


def _checked_options(vllm_config: VllmConfig) -> tuple[str, PDOptions, CurveKeys]:
    transfer = transfer_config(vllm_config)
    role, options = check_role(transfer.kv_role), PDOptions.from_mapping(transfer.kv_connector_extra_config, os.environ)
    return role, options, options.curve_keys(role)


def _probe_request() -> Request:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    return Request("tenure-probe", [1, 2, 3], SamplingParams(max_tokens=1), None)
