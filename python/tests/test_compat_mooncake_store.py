"""The stand-in for mooncake.store: codes and bytes as its users expect them. Beside the real one: tests/e2e/mooncake_test.py."""

import ctypes
import itertools

import pytest

from tenure.compat.mooncake_store import MooncakeDistributedStore, ReplicateConfig

_tenants = itertools.count()


@pytest.fixture
def store():
    store = MooncakeDistributedStore()
    assert store.setup("h", "P2PHANDSHAKE", 0, 0, "tcp", "", "embedded:64MiB", tenant_id=f"t{next(_tenants)}") == 0
    yield store
    store.remove_all(True)
    store.close()


@pytest.fixture
def memory(store):
    memory = (ctypes.c_char * 1024)(*bytes(range(256)) * 4)
    assert store.register_buffer(ctypes.addressof(memory), 1024) == 0
    yield memory
    store.unregister_buffer(ctypes.addressof(memory))


def test_calls_of_the_stock_vllm_connector(store, memory):
    base = ctypes.addressof(memory)
    keys = ["m@tp_rank:0@group:0@aa", "m@tp_rank:0@group:0@bb"]
    assert store.batch_is_exist(keys) == [0, 0]
    codes = store.batch_put_from_multi_buffers(keys, [[base, base + 100], [base + 200]], [[10, 20], [30]], ReplicateConfig())
    assert codes == [0, 0] and store.batch_is_exist(keys) == [1, 1] and store.batch_probe_key(keys) == [1, 1]
    assert store.batch_get_into_multi_buffers(keys, [[base + 512], [base + 600, base + 610]], [[30], [10, 20]]) == [30, 30]
    assert memory.raw[512:542] == memory.raw[0:10] + memory.raw[100:120]
    assert memory.raw[600:630] == memory.raw[200:230]
    assert store.batch_get_into_multi_buffers(["none"], [[base]], [[8]]) == [-704]
    assert store.remove_all(force=True) == 2


def test_calls_of_sglang(store, memory):
    base = ctypes.addressof(memory)
    assert store.put("warm-up", bytes(4096)) == 0
    assert store.is_exist("warm-up") == 1 and store.get("warm-up") == bytes(4096) and store.get_size("warm-up") == 4096
    assert store.batch_put_from(["a", "b"], [base, base + 8], [8, 8]) == [0, 0]
    assert store.batch_get_into(["a", "b", "c"], [base + 64, base + 72, base], [8, 8, 8]) == [8, 8, -704]
    assert memory.raw[64:80] == memory.raw[0:16]
    assert store.put_from("d", base, 16) == 0 and store.get_into("d", base + 128, 16) == 16
    assert store.remove("d") == 0 and store.remove("d") == -704 and store.health_check() == 0
    assert store.get_hostname() == "h"


def test_sizes_that_differ_are_told_and_nothing_is_copied(store, memory):
    base = ctypes.addressof(memory)
    before = memory.raw
    assert store.put_from("a", base, 32) == 0 and store.put_from("a", base, 32) == 0
    assert store.put_from("a", base, 33) == -705
    assert store.get_into("a", base + 64, 31) == -600 and memory.raw == before
    assert store.get_into("a", base + 100, 40) == 32 and memory.raw[132:] == before[132:]


def test_another_client_reads_what_one_put_as_bytes(store):
    other = MooncakeDistributedStore()
    assert other.setup("h", "", 0, 0, "tcp", "", "embedded:64MiB", tenant_id=f"t{next(_tenants) - 1}") == 0
    assert store.put_parts("k", b"ab", b"c") == 0 and store.put_batch(["l", "m"], [b"1", b"22"]) == 0
    assert other.get("k") == b"abc" and other.get_batch(["l", "m", "n"]) == [b"1", b"22", b""]
    assert other.get_size("m") == 2


def test_clients_register_memory_each_for_itself(store, memory):
    base = ctypes.addressof(memory)
    other = MooncakeDistributedStore()
    assert other.setup("h", "", 0, 0, "tcp", "", "embedded:64MiB") == 0
    assert other.put_from("k", base, 8) == -600
    assert other.register_buffer(base, 1024) == 0 and other.put_from("k", base, 8) == 0
    assert other.close() == 0 and store.put_from("k", base, 8) == 0


def test_tenants_do_not_meet(store):
    other = MooncakeDistributedStore()
    assert other.setup({"master_server_addr": "embedded:64MiB", "tenant_id": "someone else"}) == 0
    store.put("k", b"mine")
    assert other.is_exist("k") == 0 and other.get("k") == b""


def test_exist_leases_and_probe_does_not(store):
    store.put("k", b"v")
    pool = store._pool
    assert store.batch_probe_key(["k"]) == [1] and pool.stats()["held_leased_objects"] == 0
    assert store.batch_is_exist(["k"]) == [1] and pool.stats()["held_leased_objects"] == 1
    with pytest.raises(ValueError, match="policy is 'LastHitOnly'"):
        store.batch_probe_key(["k"], "LastHitOnly")


def test_bad_input_is_a_code(store, memory):
    base = ctypes.addressof(memory)
    assert store.put("", b"x") == -600 and store.put("k", b"") == -600
    assert store.register_buffer(base, 16) == -600 and store.register_buffer(0, 16) == -600
    assert store.unregister_buffer(12345) == -12
    assert store.batch_put_from(["k", "l"], [base, 8], [8, 8]) == [-600, -600], "an address that is not registered"
    assert store.batch_get_into_multi_buffers(["k"], [[base], [base]], [[1], [1]]) == [-600], "lists of unequal length"
    assert store.batch_is_exist(["k", "l"]) == [0, 0]


def test_store_without_a_pool_answers_codes(monkeypatch, tmp_path):
    monkeypatch.delenv("TENURE_SOCKET", raising=False)
    store = MooncakeDistributedStore()
    assert store.batch_is_exist(["a"]) == [-1] and store.health_check() == 1 and store.get("a") == b""
    assert store.setup("h", "", 0, 0, "tcp", "", "10.0.0.1:50051") == -600
    assert store.setup("h", "", 0, 0, "tcp", "", f"unix:{tmp_path}/none.sock") in (-600, -900)
    assert store.setup("h", "", 0, 0, "tcp", "", "embedded:none") == -600
    assert store.close() == 0 and store.setup("h", "", 0, 0, "tcp", "", "embedded:64MiB") == -600


def test_options_without_effect_are_warned_about_once(store, caplog, monkeypatch):
    monkeypatch.setattr("tenure.compat.mooncake_store._warned", False)
    config = ReplicateConfig()
    store.put("a", b"x", config)
    assert not caplog.records
    config.replica_num, config.with_hard_pin = 2, True
    store.put("b", b"x", config)
    store.put("c", b"x", config)
    assert [record.message for record in caplog.records] == [
        "ReplicateConfig: replica_num, with_hard_pin ignored; a Tenure pool has one copy of each object and no pins"
    ]


def test_full_pool_is_minus_200():
    store = MooncakeDistributedStore()
    assert store.setup({"master_server_addr": "embedded:1MiB", "tenant_id": "full"}) == 0
    codes = []
    for number in range(80):  # 64 fit; asking leases them, so that none can leave.
        codes.append(store.put(f"k{number}", bytes(16 * 1024)))
        store.is_exist(f"k{number}")
    assert codes[:50] == [0] * 50 and codes[-1] == -200 and set(codes) == {0, -200}
