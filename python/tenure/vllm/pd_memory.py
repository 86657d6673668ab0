"""A worker's KV cache for the P/D transfer: vLLM's tensors as regions of blocks, by the stock connector's rules, so that both kinds of
engines pair (pd_protocol spec, section 5). Addresses only; the tensors belong to vLLM.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal, Mapping, Sequence

from tenure._native import KvRegion
from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends, get_current_attn_backends_and_specs
from vllm.model_executor.models.utils import extract_layer_index
from vllm.utils.torch_utils import is_non_overlapping_and_dense
from vllm.v1.kv_cache_interface import AttentionSpec, CircularBufferSpec, KVCacheSpec, MambaSpec, MLAAttentionSpec, SlidingWindowMLASpec
from vllm.v1.worker.utils import select_common_block_size

if TYPE_CHECKING:
    import torch

    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig


@dataclasses.dataclass(frozen=True)
class PDMemory:
    """Regions in the order of the layers, and the distinct storages that hold them as (address, bytes)."""

    regions: list[KvRegion]
    storages: list[tuple[int, int]]


@dataclasses.dataclass
class _Region:
    layer: str
    base: int
    stride: int
    payload: int
    groups: list[int]
    num_blocks: int
    row_offset: int = -1
    hides_layers: bool = False


def physical_blocks_per_block(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> int:
    """Kernel blocks of one block of the scheduler in attention groups."""
    block_size = vllm_config.cache_config.block_size
    backends, specs = get_current_attn_backends_and_specs(vllm_config, kv_cache_config, get_current_attn_backends(vllm_config))
    return int(block_size // select_common_block_size(block_size, backends, specs))


def pd_memory(kv_caches: Mapping[str, torch.Tensor], kv_cache_config: KVCacheConfig, physical_blocks: int) -> PDMemory:
    """The regions of the transfer groups' layers. ValueError names the layer that cannot be transferred."""
    specs = layer_specs(kv_cache_config)
    group_of = kv_cache_config.transfer_group_index_by_layer
    regions: list[_Region] = []
    views: dict[tuple[int, int, int], _Region] = {}  # Of packed rows, by address, stride and payload.
    storages: dict[int, int] = {}
    for layer, cache in kv_caches.items():
        spec = specs.get(layer)
        if spec is None:
            continue  # Of a group that stays here.
        storage = cache.untyped_storage()
        storages.setdefault(storage.data_ptr(), storage.nbytes())
        packed = _packed_region(layer, cache, spec, group_of[layer])
        if packed is None:
            regions.extend(_own_regions(layer, cache, spec, group_of[layer], physical_blocks))
            continue
        key = (packed.base, packed.stride, packed.payload)
        if key not in views:
            views[key] = packed
            regions.append(packed)
        elif group_of[layer] not in views[key].groups:
            views[key].groups.append(group_of[layer])
    if not regions:
        raise ValueError("register_kv_caches has no layer of a transferable KV cache group; this model has nothing to hand over: remove the connector")
    return PDMemory([_to_native(region, specs[region.layer]) for region in regions], sorted(storages.items()))


def layer_specs(kv_cache_config: KVCacheConfig) -> dict[str, KVCacheSpec]:
    """The spec of each layer of the transfer groups."""
    specs: dict[str, KVCacheSpec] = {}
    for group in kv_cache_config.transfer_groups:
        by_layer = getattr(group.kv_cache_spec, "kv_cache_specs", {})
        specs.update({layer: by_layer.get(layer, group.kv_cache_spec) for layer in group.layer_names})
    return specs


def _packed_region(layer: str, cache: torch.Tensor, spec: KVCacheSpec, group: int) -> _Region | None:
    """The layer's part of a storage that is a run of rows with a block of every layer; None for any other storage."""
    if isinstance(spec, (MambaSpec, CircularBufferSpec)):
        return None
    storage = cache.untyped_storage()
    if cache.ndim == 1:
        heads_contiguous = False
        stride = spec.page_size_bytes if isinstance(spec, AttentionSpec) else 0
        num_blocks = storage.nbytes() // stride if stride else 0
    else:
        stride = cache.stride(0) * cache.element_size()
        num_blocks = cache.shape[0]
        heads_contiguous = cache.ndim == 4 and cache.stride(2) == cache.shape[3] and cache.stride(1) == cache.shape[2] * cache.shape[3]
        if num_blocks * stride != storage.nbytes():
            return None
    if stride == 0 or num_blocks == 0 or (heads_contiguous and not isinstance(spec, (MLAAttentionSpec, SlidingWindowMLASpec))):
        return None
    if cache.ndim > 1 and cache[0].is_contiguous() and 0 < cache[0].nbytes <= stride:
        base, payload, hides_layers = cache.data_ptr(), cache[0].nbytes, False
    else:
        base, payload, hides_layers = storage.data_ptr(), stride, True
    return _Region(layer, base, stride, payload, [group], num_blocks, base - storage.data_ptr(), hides_layers)


def _own_regions(layer: str, cache: torch.Tensor, spec: KVCacheSpec, group: int, physical_blocks: int) -> Sequence[_Region]:
    """One region of the layer, or one a head where a block's heads lie apart."""
    dense = cache.ndim > 1 and is_non_overlapping_and_dense(cache[0])
    if cache.ndim < 2 or (not dense and cache.ndim < 3):
        raise ValueError(f"layer {layer}: a KV tensor of shape {tuple(cache.shape)} with strides {cache.stride()} has no blocks; this model cannot be handed over")
    regions = []
    for part in [cache] if dense else [cache[:, head] for head in range(cache.shape[1])]:
        if not is_non_overlapping_and_dense(part[0]):
            raise ValueError(f"layer {layer}: a KV tensor of shape {tuple(cache.shape)} has strides {cache.stride()}; neither its blocks nor its heads are dense")
        stride = part.stride(0) * part.element_size()
        payload = stride
        if dense and isinstance(spec, AttentionSpec):
            payload, rest = divmod(spec.page_size_bytes, physical_blocks)
            if rest:
                raise ValueError(f"layer {layer}: a page of {spec.page_size_bytes} bytes is no whole number of bytes in each of {physical_blocks} kernel blocks")
        elif dense and isinstance(spec, MambaSpec):
            payload = spec.page_size_bytes
        if payload > stride:
            raise ValueError(f"layer {layer}: a block has {payload} bytes of KV, but the next begins after {stride}; this layout cannot be handed over")
        regions.append(_Region(layer, part.data_ptr(), stride, payload, [group], part.shape[0]))
    return regions


def _to_native(region: _Region, spec: KVCacheSpec) -> KvRegion:
    split: Literal["allowed", "padded_page", "block_scales"] = "allowed"
    if isinstance(spec, AttentionSpec):
        if spec.page_size_bytes > spec.unpadded_page_size_bytes:
            split = "padded_page"
        elif spec.kv_quant_mode.is_nvfp4:
            split = "block_scales"
    shared = len(region.groups) > 1
    return KvRegion(
        region.layer,
        layer_index=extract_layer_index(region.layer),
        group_index=-1 if shared else region.groups[0],
        shared_group_ids=region.groups,
        base_addr=region.base,
        block_bytes=region.stride,
        kv_bytes=region.payload,
        row_offset=region.row_offset,
        num_blocks=region.num_blocks,
        head_split=split,
        hides_layers=region.hides_layers,
    )
