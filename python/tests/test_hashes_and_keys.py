"""Hash chains and key texts against published vectors (store_connector spec, sections 14.7 to 14.9)."""

import pytest

import tenure


def test_chain_is_the_published_one():
    none = tenure.none_hash("sha256_cbor")
    assert none.hex() == "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0"
    chain = tenure.HashChain("sha256_cbor", 4, none)
    chain.append([0, 1])
    assert len(chain) == 0 and chain.hashes == []
    chain.append(range(2, 12))
    assert [value.hex()[:8] for value in chain.hashes] == ["c49ab11f", "9d0a7c92", "f96dd657"]
    assert tenure.event_integer(chain.hashes[0]) == 1088283741995145368


@pytest.mark.parametrize(
    "extras, start",
    [
        ({"cache_salt": "s"}, "133f45b0"),
        ({"lora": ("a", "/p")}, "4e8903d5"),
        ({"items": [("id0", 1, 2)]}, "a8c58f28"),
    ],
)
def test_extras_change_the_first_hash(extras, start):
    chain = tenure.HashChain("sha256_cbor", 4, tenure.none_hash("sha256_cbor"), **extras)
    chain.append([0, 1, 2, 3])
    assert chain.hashes[0].hex().startswith(start)


def test_xxhash_needs_a_seed():
    assert tenure.none_hash("xxhash_cbor", "0").hex() == "1ebe36576dcb573f26b99533a20aaeca"
    with pytest.raises(tenure.Error, match="PYTHONHASHSEED"):
        tenure.none_hash("xxhash_cbor")


def test_keys_are_stock_keys():
    prefix = tenure.namespace_prefix(tenure.model_name("org/test-model/"), 1)
    assert prefix == "test-model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:1@"
    assert tenure.key_text(prefix, bytes(range(16))) == prefix + bytes(range(16)).hex()
    prefix = tenure.namespace_prefix(
        "Llama-3", 4, tp=3, pcp=1, dcp=1, pp=2, cache_prefix="tenantA", store_namespace="@store_pp:2@store_format:tp_shared_mqa"
    )
    assert prefix == "tenantA@Llama-3@store_pp:2@store_format:tp_shared_mqa@tp_rank:3@pcp1@dcp1@pp_rank:2@group:4@"
    assert tenure.mooncake_group_id("m", bytes(16)) == "vllm-mooncake-store:m@" + "00" * 16


def test_ranks_and_layouts():
    assert tenure.replication_factor(tp_size=8, total_kv_heads=2) == 4
    assert tenure.lookup_ranks(4, tp_size=8) == [(0, 0, 0, 0), (1, 0, 0, 0)]
    assert tenure.lookup_ranks(1, tp_size=4, dcp_size=2) == [(0, 0, 0, 0), (1, 0, 1, 0), (2, 0, 0, 0), (3, 0, 1, 0)]
    layout = tenure.resolve_store_layout(store_tp_size=4, cache_layout="LBHNC", tp_size=2, total_kv_heads=8)
    assert (layout.kind, layout.shards, layout.shards_of(1, 2)) == ("tp_sharded", 4, (2, 4))
    assert layout.store_namespace == "@store_tp:4@store_pp:1@store_format:tp_shared_lbhnc"


BAD_CALLS = {
    "algorithm is sha256,": lambda: tenure.none_hash("sha256"),
    "none_hash has 3 bytes": lambda: tenure.HashChain("sha256_cbor", 4, b"abc"),
    "hash_block_size is 0": lambda: tenure.HashChain("sha256_cbor", 0, bytes(32)),
    "items.0..offset|items...offset": lambda: tenure.HashChain("sha256_cbor", 4, bytes(32), items=[("a", -1, 1)]),
    "prompt_embeds.. has 1 bytes": lambda: tenure.HashChain("sha256_cbor", 4, bytes(32), prompt_embeds=[b"a"]),
    "model is empty": lambda: tenure.namespace_prefix("", 0),
    "model has the control character": lambda: tenure.namespace_prefix("a\n", 0),
    "group is 64": lambda: tenure.namespace_prefix("a", 64),
    "tp, pcp, dcp, pp is -1": lambda: tenure.namespace_prefix("a", 0, tp=-1),
    "hash holds|hash has": lambda: tenure.key_text("a@", b"abc"),
    "replicas is 3": lambda: tenure.lookup_ranks(3, tp_size=2),
    "tp_size is 0": lambda: tenure.lookup_ranks(1, tp_size=0),
    "total_kv_heads is 0": lambda: tenure.replication_factor(total_kv_heads=0),
}


@pytest.mark.parametrize("text", BAD_CALLS)
def test_bad_arguments_are_named(text):
    with pytest.raises(ValueError, match=text):
        BAD_CALLS[text]()
