"""Options of the vLLM connector, without vLLM: what is refused and how, and the reference page."""

import ctypes
import dataclasses
import typing

import pytest

from test_docs import section
from tenure import CacheConfig, GroupSpec
from tenure._native import StoreScheduler, StoreWorker
from tenure.vllm.options import PoolKind, StoreOptions


WRONG = [
    ({"pool": "memcached"}, ("pool", "memcached", "unix:PATH")),
    ({"pool": "unix:relative"}, ("pool", "unix:relative", "absolute")),
    ({"pool": 3}, ("pool", "3", "embedded")),
    ({"embeded_memory": "1GiB"}, ("embeded_memory", "1GiB", "did you mean embedded_memory?")),
    ({"embedded_memory": "much"}, ("embedded_memory", "much")),
    ({"embedded_memory": 0}, ("embedded_memory", "0", "more than 0")),
    ({"embedded_memory": True}, ("embedded_memory", "True", "8GiB")),
    ({"embedded_memory": 1 << 60}, ("embedded_memory", str(1 << 60), "this machine has")),
    ({"load_async": 1}, ("load_async", "1", "true or false")),
    ({"lease_ttl": 0}, ("lease_ttl", "0", "above 0")),
    ({"lease_ttl": float("nan")}, ("lease_ttl", "nan", "above 0")),
    ({"lookup_deadline": "soon"}, ("lookup_deadline", "soon", "seconds")),
    ({"load_threads": 0}, ("load_threads", "0", "from 1 to 64")),
    ({"search": "fast"}, ("search", "fast", "tail_first or exhaustive")),
    ({"lease": "none"}, ("lease", "none", "selective or all")),
    ({"key_format": "stock"}, ("key_format", "stock", "tenure or vllm")),
    ({"cache_prefix": 5}, ("cache_prefix", "5", "text")),
    ({"prefill_tp_sizes": [0]}, ("prefill_tp_sizes", "[0]", "above 0")),
    ({"lookup_rpc_port": 0}, ("lookup_rpc_port", "0", "remove it")),
    ({"custom_mem_pool": "NVLINK"}, ("custom_mem_pool", "NVLINK", "remove it")),
    ({"enable_group_semantics": "True"}, ("enable_group_semantics", "True", "remove it")),
    ({"lookup_async": False}, ("lookup_async", "False", "remove it")),
    ({"pool_mode": "open"}, ("pool_mode", "open", "closed or independent")),
    ({"pool_wait": -1}, ("pool_wait", "-1", "above 0")),
    ({"load_deadline": 3601}, ("load_deadline", "3601", "at most 3600")),
    ({"call_deadline": False}, ("call_deadline", "False", "above 0")),
    ({"enable_lookup": "no"}, ("enable_lookup", "no", "true or false")),
    ({"save_decode_cache": None}, ("save_decode_cache", "None", "true or false")),
    ({"enable_store_tp_lcm": 2}, ("enable_store_tp_lcm", "2", "true or false")),
    ({"enable_cross_layers_blocks": "yes"}, ("enable_cross_layers_blocks", "yes", "true or false")),
    ({"preferred_segment": ""}, ("preferred_segment", "''", "remove it")),
    ({"preferred_segment": 7}, ("preferred_segment", "7", "remove it")),
]
# What is no whole number there stock ignores, and so do we.
NEVER_WRONG = {"store_tp_size"}


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_a_wrong_option_is_one_line_with_name_value_and_remedy(options, words):
    with pytest.raises((ValueError, TypeError)) as refusal:
        StoreOptions.from_mapping(options)
    text = str(refusal.value)
    assert "\n" not in text
    assert not [word for word in words if word not in text], text


def test_every_option_can_be_wrong():
    assert {field.name for field in dataclasses.fields(StoreOptions)} - {name for options, _ in WRONG for name in options} == NEVER_WRONG


def test_stock_options_that_mean_the_same_are_taken():
    options = StoreOptions.from_mapping(
        {"load_async": True, "enable_lookup": False, "save_decode_cache": True, "cache_prefix": "a", "enable_group_semantics": "False",
         "store_tp_size": True, "enable_cross_layers_blocks": "True"}
    )
    assert (options.enable_lookup, options.save_decode_cache, options.cache_prefix) == (False, True, "a")
    assert options.store_tp_size is None  # As stock reads what is no whole number.
    assert options.enable_cross_layers_blocks


@pytest.mark.parametrize(
    ("pool", "kind", "keys"), [("embedded", "embedded", "tenure"), ("unix:/run/p.sock", "unix", "tenure"), ("mooncake", "mooncake", "vllm")]
)
def test_the_pool_decides_the_key_format(pool, kind, keys):
    options = StoreOptions.from_mapping({"pool": pool})
    assert (options.kind, options.keys) == (kind, keys)
    assert StoreOptions.from_mapping({"pool": pool, "key_format": "vllm"}).keys == "vllm"


def test_reference_page_has_every_option_with_its_default():
    page = {name: default.strip("` ") for name, default in section("vllm.md", "## Options (`kv_connector_extra_config`)").items()}
    defaults = {field.name: field.default for field in dataclasses.fields(StoreOptions)}
    text = {True: "true", False: "false", "": '""'}
    assert page == {name: text[value] if isinstance(value, (bool, str)) and value in text else str(value) for name, value in defaults.items()}


def test_reference_page_has_every_counter_in_order(independent_pool):
    config = CacheConfig([GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
    spaces = [[independent_pool.open_namespace("m@")]]
    scheduler = StoreScheduler(config, independent_pool, spaces, role="kv_both", world_size=1)
    memory = bytearray(64)
    address = (ctypes.c_char * 64).from_buffer(memory)
    base = ctypes.addressof(address)
    worker = StoreWorker(config, independent_pool, spaces, [[[(base, 32, 32)]]], [(base, 64)], 2, tp_rank=0, stripes=[1])
    names = [*scheduler.counters(), *worker.take_reports()["counters"]]
    worker.close()
    scheduler.close()
    pools = [f"external_tokens_{kind}" for kind in typing.get_args(PoolKind)]
    assert list(section("vllm.md", "`vllm:tenure_store_events_total` by `event`")) == [name.removesuffix("_total") for name in names] + pools
