"""Where the blocks of each store group lie in vLLM's KV tensors, as addresses.

The same bytes in the same order as the stock connector stores (store_connector spec, section 3), so that mixed fleets share
objects. Addresses only; the tensors belong to vLLM.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Mapping, Sequence

from vllm.v1.kv_cache_interface import group_kernel_blocks

if TYPE_CHECKING:
    import torch

    from tenure.vllm.model import ModelStore

Piece = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class KVMemory:
    """Registered storages as (address, bytes), and the pieces of one block.

    pieces: per store group, per shard, (base, stride, size): block b of the group has `size` bytes at base + b * stride, and its object
    is their concatenation. device: ("cpu", 0) or what holds the tensors.
    """

    regions: list[tuple[int, int]]
    pieces: list[list[list[Piece]]]
    device: tuple[str, int]


def kv_memory(kv_caches: Mapping[str, torch.Tensor | list[torch.Tensor]], layers: Sequence[str], num_blocks: int, store: ModelStore) -> KVMemory:
    """The memory of the layers of the store groups. ValueError names the layer that cannot be stored.

    All store tensors belong to every group: groups overlay the same storages, and a block id belongs to one group at a time.
    """
    wanted = set(layers)
    tensors = []
    for name, value in kv_caches.items():
        if name in wanted:
            tensors.append(group_kernel_blocks(value if not isinstance(value, list) else value[0], num_blocks))
    if not tensors:
        raise ValueError(f"register_kv_caches has none of the {len(wanted)} layers that the store holds; this is a defect of the engine's setup")
    regions = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    device = (tensors[0].device.type, tensors[0].device.index or 0)
    shards = _sharded_pieces(tensors, store) if store.layout.kind == "tp_sharded" else [_rank_local_pieces(tensors, num_blocks)]
    return KVMemory(sorted(regions.items()), [shards for _ in store.group_ids], device)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill one run of memory without holes, in any order of the dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _rank_local_pieces(tensors: Sequence[torch.Tensor], num_blocks: int) -> list[Piece]:
    pieces: dict[int, Piece] = {}  # By address; the first view of it counts.

    def add(address: int, block_bytes: int) -> None:
        pieces.setdefault(address, (address, block_bytes, block_bytes))

    for tensor in tensors:
        stride = tensor.stride(0) * tensor.element_size()
        storage = tensor.untyped_storage()
        if not _is_dense(tensor[0]):
            for head in range(tensor.shape[1]):
                part = tensor[:, head]
                if not _is_dense(part[0]):
                    raise ValueError(f"a KV tensor of shape {tuple(tensor.shape)} has strides {tensor.stride()}; neither its blocks nor its heads are dense")
                add(part.data_ptr(), part.stride(0) * part.element_size())
        elif stride * num_blocks == storage.nbytes():
            add(storage.data_ptr(), stride)  # Blocks of all layers are packed in this storage.
        else:
            add(tensor.data_ptr(), stride)
    return list(pieces.values())


def _sharded_pieces(tensors: Sequence[torch.Tensor], store: ModelStore) -> list[list[Piece]]:
    first, end = store.layout.shards_of(store.ranks.tp_rank, store.ranks.tp_size)
    shards: list[list[Piece]] = [[] for _ in range(first, end)]
    for tensor in tensors:
        if tensor.dim() != 4:
            raise ValueError(f"a KV tensor has the shape {tuple(tensor.shape)}; store_tp_size needs (blocks, heads, tokens, content): remove store_tp_size")
        _, heads, tokens, content = tensor.shape
        block, head, token, _ = (stride * tensor.element_size() for stride in tensor.stride())
        content_bytes = content * tensor.element_size()
        heads_a_shard = heads // len(shards)
        if "lbhnc" in store.layout.store_namespace:
            if (token, head) != (content_bytes, tokens * content_bytes):
                raise ValueError(f"a KV tensor of shape {tuple(tensor.shape)} has strides {tensor.stride()}; layout LBHNC packs heads: remove store_tp_size")
            for index, shard in enumerate(shards):
                shard.append((tensor.data_ptr() + index * heads_a_shard * head, block, heads_a_shard * head))
        else:
            if (head, token) != (content_bytes, heads * content_bytes):
                raise ValueError(f"a KV tensor of shape {tuple(tensor.shape)} has strides {tensor.stride()}; layout LBNHC packs tokens: remove store_tp_size")
            for index, shard in enumerate(shards):
                at = tensor.data_ptr() + index * heads_a_shard * head
                shard.extend((at + position * token, block, heads_a_shard * head) for position in range(tokens))
    return shards
