"""vLLM's configuration of engines and KV cache groups, as much of it as the connector reads, without an engine."""

from types import SimpleNamespace

import torch

from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec, SlidingWindowSpec

WIDTHS = dict(num_kv_heads=2, head_size=32, dtype=torch.float32)


def full(block_size=16, **changes):
    return FullAttentionSpec(block_size=block_size, **{**WIDTHS, **changes})


def window(block_size=16, size=64):
    return SlidingWindowSpec(block_size=block_size, sliding_window=size, **WIDTHS)


def mamba(block_size=16, mode="align"):
    return MambaSpec(block_size=block_size, shapes=((4, 8),), dtypes=(torch.float32,), mamba_cache_mode=mode)


def engine(
    *, tp=1, pp=1, pcp=1, dcp=1, kv_heads=2, layout="LBHNC", backend="uni", nodes=1, model="org/Model", dtype=torch.float32, quantization=None,
    overrides=None,
):
    """As much of a VllmConfig as the connector reads."""
    return SimpleNamespace(
        parallel_config=SimpleNamespace(
            tensor_parallel_size=tp, pipeline_parallel_size=pp, prefill_context_parallel_size=pcp, decode_context_parallel_size=dcp,
            distributed_executor_backend=backend, nnodes=nodes, rank=0, data_parallel_index=0, world_size=tp * pp * pcp,
        ),
        cache_config=SimpleNamespace(
            block_size=16, enable_prefix_caching=True, prefix_match_unit=None, prefix_caching_hash_algo="sha256", cache_dtype="auto",
            get_resolved_kv_cache_layout=lambda: SimpleNamespace(name=layout),
        ),
        model_config=SimpleNamespace(
            model=model, revision=None, dtype=dtype, quantization=quantization, hf_overrides=overrides or {}, get_total_num_kv_heads=lambda: kv_heads
        ),
        speculative_config=None, kv_events_config=None,
        kv_transfer_config=SimpleNamespace(engine_id="test", kv_role="kv_both", kv_connector_extra_config={}),
    )


def groups(*specs, layout="LBHNC"):
    return KVCacheConfig(
        num_blocks=8, kv_cache_tensors=[], kv_cache_layout=layout,
        kv_cache_groups=[KVCacheGroupSpec([f"layer.{index}"], spec) for index, spec in enumerate(specs)],
    )
