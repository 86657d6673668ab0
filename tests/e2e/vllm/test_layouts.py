"""Addresses, key prefixes, identity and refusals, from vLLM's own configuration objects, without an engine."""

import dataclasses

import pytest
import torch

from configurations import WIDTHS, engine, full, groups, mamba, window
from tenure import Error, EmbeddedPool
from tenure.vllm.identity import check_identity
from tenure.vllm.memory import kv_memory
from tenure.vllm.model import ModelStore, Parallelism, check_supported
from tenure.vllm.options import StoreOptions
from tenure.vllm.pools import _instance, check_pool
from vllm.v1.kv_cache_interface import CrossAttentionSpec, MLAAttentionSpec

def store(config, kv, *, options=None, **ranks):
    return ModelStore(config, kv, StoreOptions.from_mapping(options or {}), dataclasses.replace(Parallelism.of_config(config), **ranks))


STOCK_KEYS = {"key_format": "vllm"}


def test_stock_keys_of_one_rank():
    assert store(engine(), groups(full(), window()), options=STOCK_KEYS).worker_prefixes() == [
        ["Model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@"],
        ["Model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1@"],
    ]


LATENT = MLAAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=torch.float32)


@pytest.mark.parametrize(
    ("sizes", "kv_heads", "spec", "ranks"),
    [
        (dict(tp=8, pp=2), 4, full(), [(t, 0, 0, p) for t in range(4) for p in range(2)]),
        (dict(tp=8, pp=2), 4, LATENT, [(0, 0, 0, 0), (0, 0, 0, 1)]),
        (dict(tp=4, dcp=2), 8, full(), [(0, 0, 0, 0), (1, 0, 1, 0), (2, 0, 0, 0), (3, 0, 1, 0)]),
        (dict(tp=4, dcp=2), 8, LATENT, [(0, 0, 0, 0), (1, 0, 1, 0), (2, 0, 0, 0), (3, 0, 1, 0)]),
        (dict(tp=2, pcp=2), 8, full(), [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (1, 1, 0, 0)]),
        (dict(tp=2, pcp=2), 8, LATENT, [(0, 0, 0, 0), (0, 1, 0, 0)]),
    ],
)
def test_stock_keys_of_every_rank_in_stock_order(sizes, kv_heads, spec, ranks):
    """store_connector spec, section 14.7. (tensor, prefill context, decode context, pipeline)"""
    prefixes = store(engine(kv_heads=kv_heads, **sizes), groups(spec), options=STOCK_KEYS).lookup_prefixes()
    assert prefixes == [[f"Model@tp_rank:{t}@pcp{c}@dcp{d}@pp_rank:{p}@group:0@" for t, c, d, p in ranks]]


@pytest.mark.parametrize(
    ("sizes", "kv_heads", "spec", "count"),
    [
        (dict(tp=4), 8, full(), 4),
        (dict(tp=8), 2, full(), 2),
        (dict(tp=8), 2, mamba(), 8),
        (dict(tp=8), 2, LATENT, 1),
        (dict(tp=8, pp=2), 4, full(), 8),
        (dict(tp=4, dcp=2), 8, full(), 4),
        (dict(tp=2, pcp=2), 8, full(), 4),
        (dict(tp=6), 4, full(), 6),
    ],
)
def test_a_lookup_asks_for_every_part(sizes, kv_heads, spec, count):
    prefixes = store(engine(kv_heads=kv_heads, **sizes), groups(spec), options=STOCK_KEYS).lookup_prefixes()
    assert len(prefixes[0]) == count and len(set(prefixes[0])) == count


@pytest.mark.parametrize(
    ("sizes", "specs"),
    [
        (dict(tp=4), (full(), mamba())), (dict(tp=4, pp=2), (full(), mamba())), (dict(tp=4, dcp=2), (full(), window())),
        (dict(tp=2, pcp=2), (full(),)), (dict(tp=4, pp=3, pcp=2, dcp=4), (LATENT,)),
    ],
)
def test_what_the_workers_write_is_what_a_lookup_asks_for(sizes, specs):
    config, kv = engine(kv_heads=2, **sizes), groups(*specs)
    tp, pp, pcp, dcp = (sizes.get(name, 1) for name in ("tp", "pp", "pcp", "dcp"))
    asked = store(config, kv).lookup_prefixes()
    written = [
        store(config, kv, tp_rank=t, pp_rank=p, pcp_rank=c, dcp_rank=t % dcp).worker_prefixes()
        for t in range(tp) for p in range(pp) for c in range(pcp)
    ]
    for group in range(len(specs)):
        assert sorted({prefix for worker in written for prefix in worker[group]}) == sorted(asked[group])


def test_data_parallel_engines_share_keys_and_not_their_own_pools():
    first, second = engine(), engine()
    second.parallel_config.data_parallel_index = 1
    assert store(first, groups(full())).lookup_prefixes() == store(second, groups(full())).lookup_prefixes()
    options = StoreOptions.from_mapping({})
    assert _instance(first, options) != _instance(second, options)


def test_stock_keys_that_two_stages_would_share_are_refused():
    with pytest.raises(ValueError, match='key_format is "vllm" with pipeline parallel size 2 and prefill context parallel size 2.*"tenure"'):
        store(engine(pp=2, pcp=2), groups(full()), options=STOCK_KEYS)


@pytest.mark.parametrize(
    "other",
    [
        dict(model="other/Model"), dict(dtype=torch.bfloat16), dict(tp=2), dict(layout="LBNHC"), dict(quantization="fp8"),
        dict(overrides={"rope_theta": 1e6}),
    ],
)
def test_engines_that_differ_share_no_key(other):
    mine = store(engine(), groups(full())).lookup_prefixes()
    theirs = store(engine(**other), groups(full(), layout=other.get("layout", "LBHNC"))).lookup_prefixes()
    assert not {name for group in mine for name in group} & {name for group in theirs for name in group}


def test_group_sizes_are_part_of_the_identity():
    assert store(engine(), groups(full(16))).identity_digest != store(engine(), groups(full(16, head_size=64))).identity_digest


def test_identity_object_of_stock_keys_is_compared():
    with EmbeddedPool("64MiB") as pool:
        first = store(engine(), groups(full()), options=STOCK_KEYS)
        check_identity(pool, first)
        check_identity(pool, store(engine(), groups(full()), options=STOCK_KEYS))
        with pytest.raises(Error, match=r"dtype: theirs 'torch.float32', ours 'torch.bfloat16'.*cache_prefix"):
            check_identity(pool, store(engine(dtype=torch.bfloat16), groups(full()), options=STOCK_KEYS))
        check_identity(pool, store(engine(dtype=torch.bfloat16), groups(full()), options={**STOCK_KEYS, "cache_prefix": "b"}))


def test_layers_that_share_a_storage_have_a_piece_each():
    storage = torch.zeros(2 * 8 * 2 * 16 * 64)
    layers = [storage[at * 8 * 2048 : (at + 1) * 8 * 2048].view(8, 2, 16, 64) for at in range(2)]
    memory = kv_memory({"layer.0": layers[0], "layer.1": layers[1]}, ["layer.0", "layer.1"], 8, store(engine(), groups(full())))
    base, size = storage.data_ptr(), 2048 * 4
    assert memory.regions == [(base, storage.untyped_storage().nbytes())]
    assert memory.pieces == [[[(base, size, size), (base + 8 * size, size, size)]]]


def test_a_storage_of_whole_blocks_is_one_piece():
    layer = torch.zeros(8, 2, 16, 64)
    memory = kv_memory({"layer.0": layer}, ["layer.0"], 8, store(engine(), groups(full())))
    assert memory.pieces == [[[(layer.data_ptr(), 8192, 8192)]]]


@pytest.mark.parametrize(
    ("layout", "shape", "offsets", "size"),
    [
        # LBHNC: a shard is a run of heads. LBNHC: it has a piece in each token.
        ("LBHNC", (8, 4, 4, 3), [[384], [480]], 96),
        ("LBNHC", (8, 4, 2, 3), [[192, 240], [216, 264]], 24),
    ],
)
def test_shards_of_rank_one_of_two(layout, shape, offsets, size):
    config = engine(tp=2, kv_heads=8, layout=layout)
    sharded = store(config, groups(full(), layout=layout), options={"store_tp_size": 4}, tp_rank=1)
    assert sharded.layout.kind == "tp_sharded"
    blocks, heads, tokens, content = shape
    tensor = torch.zeros(blocks, heads, tokens, content)
    if layout == "LBNHC":
        tensor = torch.zeros(blocks, tokens, heads, content).transpose(1, 2)
    memory = kv_memory({"layer.0": tensor}, ["layer.0"], blocks, sharded)
    in_block_two = [[base + 2 * stride - tensor.data_ptr() for base, stride, _ in shard] for shard in memory.pieces[0]]
    assert in_block_two == offsets
    assert {piece[2] for shard in memory.pieces[0] for piece in shard} == {size}


@pytest.mark.parametrize(
    ("layout", "tensor", "words"),
    [
        ("LBHNC", torch.zeros(8, 4, 12), "the shape .* needs .blocks, heads, tokens, content.*remove store_tp_size"),
        ("LBHNC", torch.zeros(8, 2, 4, 3).transpose(1, 2), "layout LBHNC packs heads: remove store_tp_size"),
        ("LBNHC", torch.zeros(8, 4, 2, 3), "layout LBNHC packs tokens: remove store_tp_size"),
    ],
)
def test_tensors_that_cannot_be_cut_into_shards_are_refused(layout, tensor, words):
    sharded = store(engine(tp=2, kv_heads=8, layout=layout), groups(full(), layout=layout), options={"store_tp_size": 4})
    with pytest.raises(ValueError, match=words):
        kv_memory({"layer.0": tensor}, ["layer.0"], 8, sharded)


def test_tensors_without_dense_blocks_or_heads_are_refused():
    with pytest.raises(ValueError, match="neither its blocks nor its heads are dense"):
        kv_memory({"layer.0": torch.zeros(8, 4, 2, 6)[:, :, :, ::2]}, ["layer.0"], 8, store(engine(), groups(full())))


@pytest.mark.parametrize(
    ("kv", "config", "words"),
    [
        (groups(), engine(), "at least one prefix-cacheable"),
        (groups(full(), mamba(mode="none")), engine(), "mamba_cache_mode is 'none'"),
        (groups(full(), window()), engine(pcp=2), "prefill context parallel size 2 with 2 KV cache groups"),
        (groups(full(), CrossAttentionSpec(block_size=16, **WIDTHS)), engine(), "group 1: cross attention"),
    ],
)
def test_models_that_no_store_can_serve_are_refused(kv, config, words):
    with pytest.raises(ValueError, match=words):
        check_supported(config, kv)


def test_an_embedded_pool_is_the_memory_of_one_host():
    with pytest.raises(ValueError, match='pool is "embedded".*use pool "mooncake"'):
        check_pool(engine(nodes=2), StoreOptions.from_mapping({}))


def test_mooncake_without_a_configuration_is_refused(monkeypatch):
    monkeypatch.delenv("MOONCAKE_CONFIG_PATH", raising=False)
    with pytest.raises(ValueError, match="MOONCAKE_CONFIG_PATH"):
        check_pool(engine(), StoreOptions.from_mapping({"pool": "mooncake"}))


@pytest.mark.parametrize("pool", ["unix:/run/tenure.sock", "mooncake"])
def test_hashes_of_one_process_are_refused_on_a_shared_pool(monkeypatch, pool):
    """They would be put for ever and never read."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    config = engine()
    config.cache_config.prefix_caching_hash_algo = "xxhash"
    check_pool(config, StoreOptions.from_mapping({}))  # One engine alone computes all hashes itself.
    with pytest.raises(ValueError, match="xxhash.*PYTHONHASHSEED.*sha256_cbor"):
        check_pool(config, StoreOptions.from_mapping({"pool": pool}))
