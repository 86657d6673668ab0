"""What vLLM's configuration says of a model's KV cache, as Tenure's rules take it: groups, keys and identity.

Everything is derived from values that scheduler and workers share, so that both sides name the same objects. Store groups
are vLLM's transferable prefix-cacheable groups, renumbered from 0 (store_connector spec, sections 1 and 3).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from tenure._native import (
    CacheConfig,
    GroupSpec,
    StoreLayout,
    lookup_ranks,
    model_name,
    namespace_prefix,
    replication_factor,
    resolve_store_layout,
)
from tenure.vllm.options import StoreOptions
from vllm.v1.core.kv_cache_utils import resolve_dcp_kv_cache_spec, resolve_kv_cache_block_sizes
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

if TYPE_CHECKING:
    from vllm.config import KVTransferConfig, VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec


def transfer_config(vllm_config: VllmConfig) -> KVTransferConfig:
    """What --kv-transfer-config says; an engine with a connector has it."""
    if vllm_config.kv_transfer_config is None:
        raise ValueError("TenureStoreConnector needs kv_transfer_config; pass --kv-transfer-config")
    return vllm_config.kv_transfer_config


def check_supported(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> None:
    """Refuses what no store can serve. ValueError lists every reason."""
    groups = kv_cache_config.prefix_cacheable_group_ids
    if not groups:
        raise ValueError("TenureStoreConnector needs at least one prefix-cacheable KV cache group; this model has none: remove the connector")
    reasons = []
    for group in groups:
        spec = _inner(kv_cache_config.kv_cache_groups[group].kv_cache_spec)
        if isinstance(spec, CrossAttentionSpec):
            reasons.append(f"group {group}: cross attention")
        elif isinstance(spec, MambaSpec) and spec.mamba_cache_mode != "align":
            reasons.append(f'group {group}: mamba_cache_mode is {spec.mamba_cache_mode!r}; use --mamba-cache-mode align')
    pcp = vllm_config.parallel_config.prefill_context_parallel_size
    if len(groups) > 1 and pcp > 1:
        reasons.append(f"prefill context parallel size {pcp} with {len(groups)} KV cache groups; use 1")
    if getattr(vllm_config.model_config, "enable_return_routed_experts", False):
        reasons.append("--enable-return-routed-experts; remove it, since experts of loaded tokens are not known")
    if reasons:
        raise ValueError("TenureStoreConnector does not support: " + "; ".join(reasons))


def _inner(spec: KVCacheSpec) -> KVCacheSpec:
    return spec.first_spec if isinstance(spec, UniformTypeKVCacheSpecs) else spec


def _layer_specs(spec: KVCacheSpec) -> tuple[KVCacheSpec, ...]:
    return tuple(spec.kv_cache_specs.values()) if isinstance(spec, UniformTypeKVCacheSpecs) else (spec,)


def _group_spec(group: KVCacheGroupSpec, dcp_size: int) -> GroupSpec:
    resolved = resolve_dcp_kv_cache_spec(group.kv_cache_spec, dcp_size)
    spec, size = _inner(resolved), resolved.block_size
    if isinstance(spec, MambaSpec):
        return GroupSpec("state", size, eagle=group.is_eagle_group)
    if isinstance(spec, SlidingWindowSpec):
        return GroupSpec("window", size, window=spec.sliding_window, eagle=group.is_eagle_group)
    if isinstance(spec, ChunkedLocalAttentionSpec):
        return GroupSpec("chunked", size, chunk=spec.attention_chunk_size, eagle=group.is_eagle_group)
    if isinstance(spec, FullAttentionSpec):
        return GroupSpec("full", size, eagle=group.is_eagle_group)
    raise ValueError(f"TenureStoreConnector does not know KV cache groups of {type(spec).__name__}; use a model without them")


@dataclasses.dataclass(frozen=True)
class Parallelism:
    """Sizes of an engine's process groups, and where this worker stands in them (zeros in the scheduler)."""

    tp_size: int
    pp_size: int
    pcp_size: int
    dcp_size: int
    tp_rank: int = 0
    pp_rank: int = 0
    pcp_rank: int = 0
    dcp_rank: int = 0

    @staticmethod
    def of_config(vllm_config: VllmConfig) -> Parallelism:
        """The sizes alone."""
        config = vllm_config.parallel_config
        return Parallelism(
            config.tensor_parallel_size,
            config.pipeline_parallel_size,
            config.prefill_context_parallel_size,
            config.decode_context_parallel_size,
        )

    @staticmethod
    def of_worker(vllm_config: VllmConfig) -> Parallelism:
        """This worker's place; needs vLLM's process groups."""
        from vllm.distributed.parallel_state import get_dcp_group, get_pcp_group, get_pp_group, get_tensor_model_parallel_rank

        sizes = Parallelism.of_config(vllm_config)
        return dataclasses.replace(
            sizes,
            tp_rank=get_tensor_model_parallel_rank(),
            pp_rank=get_pp_group().rank_in_group if sizes.pp_size > 1 else 0,
            pcp_rank=get_pcp_group().rank_in_group if sizes.pcp_size > 1 else 0,
            dcp_rank=get_dcp_group().rank_in_group if sizes.dcp_size > 1 else 0,
        )

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes as the rules' functions name them."""
        return {"tp_size": self.tp_size, "pcp_size": self.pcp_size, "dcp_size": self.dcp_size, "pp_size": self.pp_size}


class ModelStore:
    """One model's KV cache in a store: the rules' configuration and the names of its objects. Immutable.

    group_ids: vLLM's group of each store group. replicas: per store group, how many tensor-parallel ranks hold the same bytes.
    """

    def __init__(self, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig, options: StoreOptions, ranks: Parallelism) -> None:
        self.ranks = ranks
        self.group_ids: tuple[int, ...] = tuple(kv_cache_config.prefix_cacheable_group_ids)
        groups = [kv_cache_config.kv_cache_groups[group] for group in self.group_ids]
        self.block_size, self.hash_block_size = resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)
        alignment = kv_cache_config.cache_hit_alignment_tokens
        speculative = vllm_config.speculative_config
        specs = [_group_spec(group, ranks.dcp_size) for group in groups]
        self.config = CacheConfig(
            specs,
            hash_block_size=self.hash_block_size,
            scheduler_block_size=self.block_size,
            fine=alignment is not None and alignment < self.block_size,
            use_eagle=speculative is not None and speculative.use_eagle_block_drop(),
        )
        self.state_groups = frozenset(index for index, spec in enumerate(specs) if spec.kind == "state")
        self.retention: int | None = kv_cache_config.prefix_cache_retention_interval
        self.events = bool(vllm_config.kv_events_config and vllm_config.kv_events_config.enable_kv_cache_events)
        # vLLM cuts what a load is to bring to whole blocks, since it computes the end of a hit anew.
        self.loads_whole_blocks = any(group.kv_cache_spec.prefix_replay_tokens > 0 for group in kv_cache_config.kv_cache_groups)
        # vLLM has no way to recompute a failed synchronous load of several groups (it would end the engine).
        self.load_async = options.load_async or len(kv_cache_config.kv_cache_groups) > 1
        kv_heads = vllm_config.model_config.get_total_num_kv_heads()
        self.replicas = [_replicas(group.kv_cache_spec, ranks, kv_heads) for group in groups]
        self.layout = _store_layout(vllm_config, kv_cache_config, groups, options, ranks, kv_heads)
        self.identity = _identity(vllm_config, kv_cache_config, groups, self)
        store_namespace = self.layout.store_namespace
        if options.keys == "vllm" and ranks.pp_size > 1 and ranks.pcp_size > 1:
            # Stock derives the stage from the rank as if there were no context parallelism, so two stages write one key.
            raise ValueError(
                f"key_format is \"vllm\" with pipeline parallel size {ranks.pp_size} and prefill context parallel size {ranks.pcp_size}, where "
                'workers of stock connectors write different bytes under one key; set key_format to "tenure"'
            )
        if options.keys == "tenure":
            store_namespace += f"@tenure:{self.identity_digest}"
        self._names = {
            "model": model_name(vllm_config.model_config.model),
            "cache_prefix": options.cache_prefix,
            "store_namespace": store_namespace,
        }

    @property
    def identity_digest(self) -> str:
        """32 hex digits that differ when any part of the identity does."""
        text = json.dumps(self.identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def lookup_prefixes(self) -> list[list[str]]:
        """Per store group the key prefix of every rank (or shard) whose part a hit needs, in stock's order."""
        if self.layout.kind == "tp_sharded":
            ranks = [(shard, 0, 0, pp) for shard in range(self.layout.shards) for pp in range(self.ranks.pp_size)]
            return [[self._prefix(group, rank) for rank in ranks] for group in range(len(self.group_ids))]
        return [
            [self._prefix(group, rank) for rank in lookup_ranks(replicas, **self.ranks.sizes)] for group, replicas in enumerate(self.replicas)
        ]

    def worker_prefixes(self) -> list[list[str]]:
        """Per store group the key prefixes of this worker's own objects: one, or one a shard it owns."""
        at = self.ranks
        if self.layout.kind == "tp_sharded":
            first, end = self.layout.shards_of(at.tp_rank, at.tp_size)
            return [[self._prefix(group, (shard, 0, 0, at.pp_rank)) for shard in range(first, end)] for group in range(len(self.group_ids))]
        return [
            [self._prefix(group, (at.tp_rank // replicas, at.pcp_rank, at.dcp_rank, at.pp_rank))] for group, replicas in enumerate(self.replicas)
        ]

    def identity_prefix(self) -> str:
        """Where the identity object of stock's key format lies."""
        return self._prefix(0, (0, 0, 0, 0)) + "tenure-identity@"

    def _prefix(self, group: int, rank: tuple[int, int, int, int]) -> str:
        tp, pcp, dcp, pp = rank
        return namespace_prefix(group=group, tp=tp, pcp=pcp, dcp=dcp, pp=pp, **self._names)


def _replicas(spec: KVCacheSpec, ranks: Parallelism, kv_heads: int) -> int:
    layers = _layer_specs(spec)
    return replication_factor(
        tp_size=ranks.tp_size,
        dcp_size=ranks.dcp_size,
        any_state=any(isinstance(layer, MambaSpec) for layer in layers),
        all_latent=all(isinstance(layer, (MLAAttentionSpec, SlidingWindowMLASpec)) for layer in layers),
        total_kv_heads=kv_heads,
    )


def layout_name(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> str:
    """vLLM's name of the KV cache layout, such as LBHNC."""
    if kv_cache_config.kv_cache_layout is not None:
        return str(kv_cache_config.kv_cache_layout)
    return str(vllm_config.cache_config.get_resolved_kv_cache_layout().name)


def _store_layout(
    vllm_config: VllmConfig,
    kv_cache_config: KVCacheConfig,
    groups: list[KVCacheGroupSpec],
    options: StoreOptions,
    ranks: Parallelism,
    kv_heads: int,
) -> StoreLayout:
    return resolve_store_layout(
        store_tp_size=options.store_tp_size,
        prefill_tp_sizes=options.prefill_tp_sizes,
        enable_store_tp_lcm=options.enable_store_tp_lcm,
        cache_layout=layout_name(vllm_config, kv_cache_config),
        num_store_groups=len(groups),
        exactly_full_attention=type(groups[0].kv_cache_spec) is FullAttentionSpec,
        cross_layers_blocks=options.enable_cross_layers_blocks,
        total_kv_heads=kv_heads,
        **ranks.sizes,
    )


def _identity(
    vllm_config: VllmConfig, kv_cache_config: KVCacheConfig, groups: list[KVCacheGroupSpec], store: ModelStore
) -> dict[str, Any]:
    """What two engines must share to read each other's bytes. Plain JSON values."""
    from vllm.model_executor.layers.mamba.mamba_utils import get_conv_state_layout

    cache, model = vllm_config.cache_config, vllm_config.model_config
    shared = store.layout.kind in ("tp_sharded", "shared_mqa")
    identity: dict[str, Any] = {
        "model": model.model,
        "revision": model.revision,
        "dtype": str(model.dtype),
        "cache_dtype": str(cache.cache_dtype),
        "quantization": str(model.quantization),
        "overrides": repr(model.hf_overrides) if isinstance(model.hf_overrides, dict) else getattr(model.hf_overrides, "__qualname__", ""),
        "layout": layout_name(vllm_config, kv_cache_config),
        "hash": [cache.prefix_caching_hash_algo, os.environ.get("PYTHONHASHSEED")],
        "block_sizes": [store.block_size, store.hash_block_size],
        "groups": [[type(_inner(group.kv_cache_spec)).__name__, len(group.layer_names), group.kv_cache_spec.block_size] for group in groups],
        "parallel": None if shared else [store.ranks.tp_size, store.ranks.pp_size, store.ranks.pcp_size, store.ranks.dcp_size],
        "page_sizes": None if shared else [group.kv_cache_spec.page_size_bytes for group in groups],
    }
    if store.state_groups:
        identity["conv_state_layout"] = get_conv_state_layout()
    return identity
