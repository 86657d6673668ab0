"""Addresses, key prefixes, identity and refusals, from vLLM's own configuration objects, without an engine."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from tenure import Error, EmbeddedPool
from tenure.vllm.identity import check_identity
from tenure.vllm.memory import kv_memory
from tenure.vllm.model import ModelStore, Parallelism, check_supported
from tenure.vllm.options import StoreOptions
from tenure.vllm.pools import check_pool
from vllm.v1.kv_cache_interface import CrossAttentionSpec, FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec, MLAAttentionSpec, SlidingWindowSpec

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
            distributed_executor_backend=backend, nnodes=nodes, rank=0, data_parallel_index=0,
        ),
        cache_config=SimpleNamespace(
            block_size=16, enable_prefix_caching=True, prefix_match_unit=None, prefix_caching_hash_algo="sha256", cache_dtype="auto",
            get_resolved_kv_cache_layout=lambda: SimpleNamespace(name=layout),
        ),
        model_config=SimpleNamespace(
            model=model, revision=None, dtype=dtype, quantization=quantization, hf_overrides=overrides or {}, get_total_num_kv_heads=lambda: kv_heads
        ),
        speculative_config=None, kv_events_config=None,
        kv_transfer_config=SimpleNamespace(engine_id="test", kv_connector_extra_config={}),
    )


def groups(*specs, layout="LBHNC"):
    return KVCacheConfig(
        num_blocks=8, kv_cache_tensors=[], kv_cache_layout=layout,
        kv_cache_groups=[KVCacheGroupSpec([f"layer.{index}"], spec) for index, spec in enumerate(specs)],
    )


def store(config, kv, *, options=None, **ranks):
    return ModelStore(config, kv, StoreOptions.from_mapping(options or {}), dataclasses.replace(Parallelism.of_config(config), **ranks))


STOCK_KEYS = {"key_format": "vllm"}


def test_stock_keys_of_one_rank():
    assert store(engine(), groups(full(), window()), options=STOCK_KEYS).worker_prefixes() == [
        ["Model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@"],
        ["Model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1@"],
    ]


@pytest.mark.parametrize(
    ("sizes", "kv_heads", "spec", "count"),
    [
        (dict(tp=4), 8, full(), 4),
        (dict(tp=8), 2, full(), 2),
        (dict(tp=8), 2, mamba(), 8),
        (dict(tp=8), 2, MLAAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=torch.float32), 1),
        (dict(tp=8, pp=2), 4, full(), 8),
        (dict(tp=4, dcp=2), 8, full(), 4),
        (dict(tp=2, pcp=2), 8, full(), 4),
        (dict(tp=6), 4, full(), 6),
    ],
)
def test_a_lookup_asks_for_every_part(sizes, kv_heads, spec, count):
    prefixes = store(engine(kv_heads=kv_heads, **sizes), groups(spec), options=STOCK_KEYS).lookup_prefixes()
    assert len(prefixes[0]) == count and len(set(prefixes[0])) == count


def test_what_a_worker_writes_is_what_a_lookup_asks_for():
    config = engine(tp=4, kv_heads=2)
    kv = groups(full(), mamba())
    asked = store(config, kv).lookup_prefixes()
    written = [store(config, kv, tp_rank=rank).worker_prefixes() for rank in range(4)]
    for group in (0, 1):
        assert sorted({prefix for worker in written for prefix in worker[group]}) == sorted(asked[group])


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
