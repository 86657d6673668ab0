"""What vLLM's configuration says to a P/D pair: transfer groups, and where a worker stands among the others."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tenure.vllm.pd_options import ANY_HOST, PDOptions, check_host
from vllm.v1.kv_cache_interface import MambaSpec, SlidingWindowSpec

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

_LOOPBACK = ("localhost", "127.0.0.1", "::1", "")


def check_supported(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> None:
    """Refuses what cannot be handed over. ValueError lists every reason."""
    reasons = []
    if not kv_cache_config.transfer_group_ids:
        reasons.append("a model without a transferable KV cache group; remove the connector")
    parallel = vllm_config.parallel_config
    for name, size in (("prefill", parallel.prefill_context_parallel_size), ("decode", parallel.decode_context_parallel_size)):
        if size > 1:
            reasons.append(f"{name} context parallel size {size}; use 1")
    if getattr(vllm_config.model_config, "enable_return_routed_experts", False):
        reasons.append("--enable-return-routed-experts; remove it, since experts of tokens that P computed are not known")
    if reasons:
        raise ValueError("TenurePDConnector does not support: " + "; ".join(reasons))


def windows(kv_cache_config: KVCacheConfig) -> list[tuple[int, int]]:
    """(tokens of the sliding window or 0, tokens of a block) of each transfer group."""
    specs = [group.kv_cache_spec for group in kv_cache_config.transfer_groups]
    return [(spec.sliding_window if isinstance(spec, SlidingWindowSpec) else 0, spec.block_size) for spec in specs]


def kv_groups(kv_cache_config: KVCacheConfig, physical_blocks: int) -> list[tuple[bool, int]]:
    """(holds recurrent states, kernel blocks of one block) of each transfer group."""
    states = [isinstance(group.kv_cache_spec, MambaSpec) for group in kv_cache_config.transfer_groups]
    return [(is_state, 1 if is_state else physical_blocks) for is_state in states]


def keeps_last_token(kv_cache_config: KVCacheConfig) -> bool:
    """Whether D computes a prompt's last token itself, from the state before it: recurrent states, or a replayed window."""
    return kv_cache_config.has_mamba_layers or any(group.kv_cache_spec.prefix_replay_tokens > 0 for group in kv_cache_config.kv_cache_groups)


@dataclasses.dataclass(frozen=True)
class PDPlace:
    """A worker among those of its engine, and its engine among others.

    rank: (tp size, tp rank, pp size, pp rank). dp_rank: as the bootstrap server knows the engine. host: where peers reach this worker.
    runs_bootstrap: it is the one whose process has the engine's bootstrap server. bootstrap_host: where that one is.
    """

    rank: tuple[int, int, int, int]
    dp_rank: int
    host: str
    runs_bootstrap: bool
    bootstrap_host: str

    @staticmethod
    def of_worker(vllm_config: VllmConfig) -> PDPlace:
        """This process's place; needs vLLM's process groups."""
        from vllm.distributed.parallel_state import get_pp_group, get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size
        from vllm.utils.network_utils import get_ip

        parallel = vllm_config.parallel_config
        tp_rank, pp_rank, host = get_tensor_model_parallel_rank(), get_pp_group().rank_in_group, check_host(get_ip())
        dp_rank = parallel.data_parallel_rank_local if parallel.local_engines_only else parallel.data_parallel_index
        bootstrap_host = parallel.master_addr if parallel.nnodes_within_dp > 1 else parallel.data_parallel_master_ip
        if parallel.local_engines_only or bootstrap_host in _LOOPBACK:
            bootstrap_host = host  # The server listens where peers reach its worker, which is on this machine.
        return PDPlace(
            rank=(get_tensor_model_parallel_world_size(), tp_rank, parallel.pipeline_parallel_size, pp_rank),
            dp_rank=dp_rank or 0,
            host=host,
            runs_bootstrap=tp_rank == 0 and pp_rank == 0 and not dp_rank,
            bootstrap_host=bootstrap_host,
        )

    def bootstrap_url(self, options: PDOptions) -> str:
        """Where the engine's workers register."""
        host, port = options.bootstrap_host_and_port or (self.bootstrap_host, options.bootstrap_port)
        if options.bootstrap_host_and_port is None and options.bootstrap_listen_host not in ("", *ANY_HOST):
            host = options.bootstrap_listen_host  # It listens there only.
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def agree(self, value: int) -> int:
        """The value of the engine's first worker; every worker of the engine calls it, as often as the others."""
        from vllm.distributed.parallel_state import get_pp_group, get_tp_group

        for group in (get_pp_group(), get_tp_group()):
            if group.world_size > 1:
                value = group.broadcast_object(value, src=0)
        return int(value)
