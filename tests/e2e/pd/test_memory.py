"""vLLM's KV tensors as regions: one a layer, one a head where heads lie apart, rows that layers share, states."""

import types

import pytest
import torch

from tenure.vllm.pd_memory import pd_memory
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, MLAAttentionSpec

BLOCKS, HEADS, TOKENS, CONTENT = 8, 2, 16, 64
FULL = FullAttentionSpec(block_size=TOKENS, num_kv_heads=HEADS, head_size=CONTENT // 2, dtype=torch.float32)
PAGE = HEADS * TOKENS * CONTENT * 4
MLA = MLAAttentionSpec(block_size=TOKENS, num_kv_heads=1, head_size=CONTENT, dtype=torch.float32)
MLA_PAGE = TOKENS * CONTENT * 4


def config(*groups):
    """What pd_memory reads of vLLM's KVCacheConfig: (spec, names of layers) of each transfer group."""
    made = [types.SimpleNamespace(kv_cache_spec=spec, layer_names=names) for spec, names in groups]
    index = {name: group for group, (_, names) in enumerate(groups) for name in names}
    return types.SimpleNamespace(transfer_groups=made, transfer_group_index_by_layer=index)


def names(*numbers):
    return [f"model.layers.{number}.attn" for number in numbers]


def test_layers_of_one_storage_are_regions_of_it():
    storage = torch.zeros(2 * BLOCKS * PAGE // 4)
    first, second = (half.view(BLOCKS, HEADS, TOKENS, CONTENT) for half in storage.chunk(2))
    memory = pd_memory(dict(zip(names(0, 1), (first, second))), config((FULL, names(0, 1))), 1)
    assert memory.storages == [(storage.data_ptr(), 2 * BLOCKS * PAGE)]
    assert [(region.base_addr, region.block_bytes, region.kv_bytes, region.num_blocks, region.group_index) for region in memory.regions] == [
        (first.data_ptr(), PAGE, PAGE, BLOCKS, 0),
        (second.data_ptr(), PAGE, PAGE, BLOCKS, 0),
    ]


def test_kernel_blocks_have_their_share_of_a_page():
    cache = torch.zeros(2 * BLOCKS, HEADS, TOKENS // 2, CONTENT)
    (region,) = pd_memory({names(0)[0]: cache}, config((FULL, names(0))), 2).regions
    assert (region.block_bytes, region.kv_bytes, region.num_blocks) == (PAGE // 2, PAGE // 2, 2 * BLOCKS)


def test_heads_that_lie_apart_are_regions_of_their_own():
    cache = torch.zeros(HEADS, BLOCKS, TOKENS, CONTENT).transpose(0, 1)
    # Another layer in the storage, so that it is no run of rows.
    storage = torch.zeros(cache.numel() + 4)
    cache = storage[: cache.numel()].view(HEADS, BLOCKS, TOKENS, CONTENT).transpose(0, 1)
    memory = pd_memory({names(0)[0]: cache}, config((FULL, names(0))), 1)
    assert [(region.base_addr - cache.data_ptr(), region.kv_bytes) for region in memory.regions] == [
        (0, PAGE // HEADS),
        (BLOCKS * PAGE // HEADS, PAGE // HEADS),
    ]


def test_layers_that_share_rows_are_views_of_them():
    rows = torch.zeros(BLOCKS, 2, TOKENS, CONTENT)
    memory = pd_memory({name: rows[:, index] for index, name in enumerate(names(0, 1))}, config((MLA, names(0, 1))), 1)
    assert [(region.base_addr - rows.data_ptr(), region.block_bytes, region.kv_bytes) for region in memory.regions] == [
        (0, 2 * MLA_PAGE, MLA_PAGE),
        (MLA_PAGE, 2 * MLA_PAGE, MLA_PAGE),
    ]
    assert memory.storages == [(rows.data_ptr(), 2 * BLOCKS * MLA_PAGE)]


def test_one_view_of_two_groups_is_one_shared_region():
    rows = torch.zeros(BLOCKS, TOKENS, CONTENT)
    memory = pd_memory({name: rows for name in names(0, 1)}, config((MLA, names(0)), (MLA, names(1))), 1)
    assert [(region.layer_name, region.group_index) for region in memory.regions] == [(names(0)[0], -1)]


def test_states_are_whole_pages():
    spec = MambaSpec(block_size=64, shapes=((100,),), dtypes=(torch.int8,), page_size_padded=256)
    storage = torch.zeros(BLOCKS * 256, dtype=torch.int8)
    cache = storage.as_strided((BLOCKS, 1, 1, 100), (256, 256, 256, 1))
    (region,) = pd_memory({names(0)[0]: cache}, config((spec, names(0))), 4).regions
    assert (region.block_bytes, region.kv_bytes, region.num_blocks) == (256, spec.page_size_bytes, BLOCKS)


def test_layers_of_other_groups_stay_and_a_cache_of_none_is_refused():
    cache = torch.zeros(BLOCKS, HEADS, TOKENS, CONTENT)
    both = {name: cache for name in names(0, 1)}
    assert len(pd_memory(both, config((FULL, names(1))), 1).regions) == 1
    with pytest.raises(ValueError, match="no layer of a transferable KV cache group"):
        pd_memory(both, config(), 1)


def test_a_block_that_is_longer_than_its_stride_is_refused():
    cache = torch.zeros(BLOCKS, HEADS, TOKENS // 2, CONTENT)
    with pytest.raises(ValueError, match=r"layer model\.layers\.0\.attn: a block has"):
        pd_memory({names(0)[0]: cache}, config((FULL, names(0))), 1)
