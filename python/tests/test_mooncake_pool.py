"""The Mooncake pool over a stand-in for Mooncake's client: configuration, answers, deadlines, late calls, the end. The real one is
tests/e2e/mooncake_test.py."""

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
import time
import types

import pytest
from conftest import make_hash, make_hashes

import tenure
from tenure import KeyAnswer, PutAnswer
from tenure._native import StoreScheduler
from tenure.mooncake import parse_size

CALL_TIMEOUT = 0.3


class FakeStore:
    """Keeps bytes by key with Mooncake's codes. `blocked` holds every call until it is set; `code` replaces every code."""

    made = []

    def __init__(self):
        FakeStore.made.append(self)
        self.objects = {}
        self.calls = []
        self.leased = set()
        self.blocked = threading.Event()
        self.blocked.set()
        self.code = None
        self.raising = None
        self.closed = False
        self.setup_code = 0
        self.buffers = []  # (address, size), but for the first one: the pool's staging memory.

    def _enter(self, call, count):
        assert not self.closed, f"{call} after close ends the process with Mooncake 0.3.14"
        self.calls.append(call)
        # The bound keeps a failing test from hanging; a call that runs into it fails.
        assert self.blocked.wait(30)
        if self.raising:
            raise self.raising
        return None if self.code is None else [self.code] * count

    def setup(self, *arguments):
        self.setup_arguments = arguments
        self._enter("setup", 1)
        return self.setup_code

    def register_buffer(self, address, size):
        if not hasattr(self, "registered"):
            self.registered = (address, size)
        elif any(first == address for first, _ in self.buffers):
            return -600
        else:
            self.buffers.append((address, size))
        return 0

    def unregister_buffer(self, address):
        assert not self.closed
        known = [buffer for buffer in self.buffers if buffer[0] == address]
        for buffer in known:
            self.buffers.remove(buffer)
        return 0 if known else -12

    def batch_probe_key(self, keys):
        return self._enter("probe", len(keys)) or [int(key in self.objects) for key in keys]

    def batch_is_exist(self, keys):
        self.leased.update(keys)
        return self._enter("exist", len(keys)) or [int(key in self.objects) for key in keys]

    def batch_put_from_multi_buffers(self, keys, addresses, sizes, config):
        codes = self._enter("put", len(keys))
        if codes is None:
            for key, key_addresses, key_sizes in zip(keys, addresses, sizes):
                value = b"".join(ctypes.string_at(a, s) for a, s in zip(key_addresses, key_sizes))
                self.objects.setdefault(key, value)
        return codes or [0] * len(keys)

    def batch_get_into_multi_buffers(self, keys, addresses, sizes):
        codes = self._enter("get", len(keys)) or [
            -704 if key not in self.objects else (-600 if len(self.objects[key]) > sum(size) else len(self.objects[key]))
            for key, size in zip(keys, sizes)
        ]
        for key, key_addresses, key_sizes, code in zip(keys, addresses, sizes, codes):
            at = 0
            for address, size in zip(key_addresses, key_sizes):
                part = self.objects[key][at : at + size] if code > 0 else b""
                ctypes.memmove(address, part, len(part))
                at += size
        return codes

    def batch_remove(self, keys, force):
        assert force
        return self._enter("remove", len(keys)) or [0 if self.objects.pop(key, None) is not None else -704 for key in keys]

    def get_size(self, key):
        self._enter("size", 1)
        return len(self.objects[key])

    def remove_by_regex(self, pattern, force):
        import re

        gone = [key for key in self.objects if re.search(pattern, key)]
        for key in gone:
            del self.objects[key]
        return len(gone)

    def remove_all(self, force):
        count = len(self.objects)
        self.objects.clear()
        return count

    def close(self):
        self.closed = True


class FakeConfig:
    preferred_segment = ""


@pytest.fixture
def mooncake(monkeypatch):
    """A module `mooncake.store` whose stores are FakeStores."""
    package, module = types.ModuleType("mooncake"), types.ModuleType("mooncake.store")
    module.MooncakeDistributedStore, module.ReplicateConfig = FakeStore, FakeConfig
    monkeypatch.setitem(sys.modules, "mooncake", package)
    monkeypatch.setitem(sys.modules, "mooncake.store", module)
    for name in ("MOONCAKE_CONFIG_PATH", "MOONCAKE_REQUESTER_LOCAL_HOSTNAME", "MOONCAKE_PREFERRED_SEGMENT"):
        monkeypatch.delenv(name, raising=False)
    FakeStore.made.clear()
    return module


# In the master's place; nobody takes the connections.
MASTER = socket.create_server(("127.0.0.1", 0), backlog=4096)


def config(**options):
    address = f"127.0.0.1:{MASTER.getsockname()[1]}"
    return tenure.MooncakeConfig(**{"master_server_address": address, "protocol": "tcp", "local_hostname": "h", **options})


def make_pool(**options):
    options = {"call_timeout": CALL_TIMEOUT, "transfer_timeout": CALL_TIMEOUT, "staging_bytes": 4096, **options}
    pool = tenure.MooncakePool(config(), **options)
    return pool, FakeStore.made[-1]


@pytest.fixture
def fake(mooncake):
    pool, store = make_pool()
    yield pool, store
    store.blocked.set()
    pool.close()


def keys_of(pool, *numbers):
    name_space = pool.open_namespace("model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@")
    return [(name_space, make_hash(number, 16)) for number in numbers]


def test_setup_is_that_of_stock_connectors(mooncake):
    pool, store = make_pool()
    assert store.setup_arguments == ("h", "P2PHANDSHAKE", 4 << 30, 4 << 30, "tcp", "", config().master_server_address)
    assert store.registered[1] == 2 * 4096
    pool.close()
    tenure.MooncakePool(config(tenant_id="t", mode="standalone-store", global_segment_size=0)).close()
    assert FakeStore.made[-1].setup_arguments[-4:] == (None, False, "", "t")


def test_keys_are_stock_keys_and_bytes_come_back(fake):
    pool, store = fake
    a, b = keys_of(pool, 1, 2)
    assert pool.put([a, b], [b"abc", [b"de", b"f"]]) == [PutAnswer.STORED] * 2
    assert list(store.objects) == ["model@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@" + make_hash(n, 16).hex() for n in (1, 2)]
    first, second = bytearray(3), [bytearray(1), bytearray(2)]
    assert pool.get([a, b], [first, second]) == [KeyAnswer.PRESENT] * 2
    assert first == b"abc" and second == [b"d", b"ef"]
    assert pool.get([a], [bytearray(4)]) == [KeyAnswer.SIZE_DIFFERS] == pool.get([a], [bytearray(2)])
    assert pool.probe(keys_of(pool, 1, 3)) == [KeyAnswer.PRESENT, KeyAnswer.ABSENT]
    assert pool.remove(keys_of(pool, 1, 3)) == [KeyAnswer.PRESENT, KeyAnswer.ABSENT]


def test_only_a_lease_leases(fake):
    pool, store = fake
    (key,) = keys_of(pool, 1)
    pool.put([key], [b"a"])
    pool.probe([key])
    assert not store.leased
    lease, answers = pool.lease([key], 60.0)
    assert answers == [KeyAnswer.PRESENT] and len(lease) == 1 and len(store.leased) == 1
    # The master's TTL, 10 s, is shorter than what was asked.
    assert 5 < lease.deadline - time.monotonic() <= 10


def test_put_says_what_mooncake_does_not(fake):
    pool, store = fake
    (key,) = keys_of(pool, 1)
    assert pool.put([key, key], [b"abc", b"abc"]) == [PutAnswer.STORED, PutAnswer.EXISTS]
    assert pool.put([key], [b"abc"]) == [PutAnswer.EXISTS] and pool.put([key], [b"ab"]) == [PutAnswer.SIZE_DIFFERS]
    assert store.calls.count("put") == 1, "a present key was put again, which would renew its lease"
    store.objects.clear()
    store.batch_put_from_multi_buffers = lambda keys, *_rest: [0] * len(keys)  # Another writer has the keys.
    assert pool.put([key, key], [b"abc", b"abc"]) == [PutAnswer.NOT_STORED] * 2
    store.batch_put_from_multi_buffers = lambda keys, *_rest: [-200] * len(keys)
    assert pool.put([key], [b"abc"]) == [PutAnswer.REFUSED_FULL]


def test_batches_larger_than_the_staging_buffer(fake):
    pool, store = fake
    keys = keys_of(pool, *range(10))
    values = [bytes([number]) * 1500 for number in range(10)]
    assert pool.put(keys, values) == [PutAnswer.STORED] * 10
    buffers = [bytearray(1500) for _ in range(10)]
    assert pool.get(keys, buffers) == [KeyAnswer.PRESENT] * 10 and buffers == values
    assert store.calls.count("put") == 5
    assert pool.put(keys_of(pool, 99), [bytes(5000)]) == [PutAnswer.REFUSED_SIZE]
    assert pool.get(keys_of(pool, 99), [bytearray(5000)]) == [KeyAnswer.SIZE_DIFFERS]


def test_clear_is_of_one_namespace(fake):
    pool, store = fake
    other = pool.open_namespace("model.tp_rank:0@pcp0@")
    pool.put(keys_of(pool, 1, 2) + [(other, make_hash(1))], [b"a", b"b", b"c"])
    store.objects["modelXtp_rank:0@pcp0@" + "00" * 16] = b"not ours"
    assert pool.clear(other) == 1 and len(store.objects) == 3
    assert pool.clear() == 3


CALLS = {
    "probe": lambda pool, keys: pool.probe(keys),
    "lease": lambda pool, keys: pool.lease(keys, 1.0),
    "put": lambda pool, keys: pool.put(keys, [b"new"] * len(keys)),
    "get": lambda pool, keys: pool.get(keys, [bytearray(3) for _ in keys]),
    "remove": lambda pool, keys: pool.remove(keys),
    "clear": lambda pool, keys: pool.clear(),
}


@pytest.mark.parametrize("name", CALLS)
def test_blocked_store_is_an_answer_within_the_deadline(fake, name):
    pool, store = fake
    keys = keys_of(pool, 1)
    store.remove_all = lambda force: store.batch_remove([], True) and 0
    store.blocked.clear()
    for _ in range(2):  # The second finds the thread busy with the first.
        start = time.monotonic()
        with pytest.raises(tenure.PoolUnavailable, match="no answer within"):
            CALLS[name](pool, keys)
        assert time.monotonic() - start < CALL_TIMEOUT + 5
    store.blocked.set()


def test_late_get_touches_no_memory_of_the_caller(fake):
    pool, store = fake
    keys = keys_of(pool, 1)
    pool.put(keys, [b"old"])
    buffer = bytearray(b"...")
    store.blocked.clear()
    with pytest.raises(tenure.PoolUnavailable):
        pool.get(keys, [buffer])
    buffer[:] = b"new"  # By now the memory belongs to something else.
    store.blocked.set()
    assert pool.get(keys, [bytearray(3)]) == [KeyAnswer.PRESENT]  # Runs after the late one.
    assert buffer == b"new"


def test_late_put_stores_the_bytes_of_its_call(fake):
    pool, store = fake
    (key,) = keys_of(pool, 1)
    value = bytearray(b"old")
    store.blocked.clear()
    with pytest.raises(tenure.PoolUnavailable):
        pool.put([key], [value])
    value[:] = b"new"
    store.blocked.set()
    buffer = bytearray(3)
    pool.get([key], [buffer])
    assert buffer in (b"old", bytes(3)) and b"new" not in store.objects.values()


def test_questions_do_not_wait_for_copies(fake):
    pool, store = fake
    release = threading.Event()
    store.batch_get_into_multi_buffers = lambda keys, *_rest: [release.wait(30) and -704]
    (key,) = keys_of(pool, 1)
    with pytest.raises(tenure.PoolUnavailable):
        pool.get([key], [bytearray(1)])
    assert pool.probe([key]) == [KeyAnswer.ABSENT]
    release.set()


def test_close_during_a_late_call_closes_the_store_after_it(mooncake):
    pool, store = make_pool()
    keys = keys_of(pool, 1)
    ended = threading.Event()
    close = store.close
    store.close = lambda: (close(), ended.set())
    store.blocked.clear()
    with pytest.raises(tenure.PoolUnavailable):
        pool.probe(keys)
    pool.close()
    assert not store.closed
    with pytest.raises(tenure.Error, match="closed"):
        pool.probe(keys)
    store.blocked.set()
    assert ended.wait(30) and store.closed


def test_store_whose_master_is_gone_is_left_open(mooncake):
    """Mooncake's close would hold the interpreter's lock until the master answers."""
    pool, store = make_pool()
    store.code = -900
    pool.close()
    assert not store.closed
    pool, store = make_pool()
    pool.close()
    assert store.closed


@pytest.mark.parametrize("code", [-1, -200, -800, -900, -901])
def test_error_codes_are_no_hits(fake, code):
    pool, store = fake
    keys = keys_of(pool, 1)
    pool.put(keys, [b"a"])
    store.code = code
    assert pool.probe(keys) == [KeyAnswer.UNAVAILABLE] == pool.get(keys, [bytearray(1)])
    lease, answers = pool.lease(keys, 1.0)
    assert answers == [KeyAnswer.UNAVAILABLE] and len(lease) == 0


def test_what_mooncake_raises_or_cuts_short_is_unavailable(fake):
    pool, store = fake
    keys = keys_of(pool, 1)
    store.raising = RuntimeError("engine is gone")
    with pytest.raises(tenure.PoolUnavailable, match="batch_probe_key failed.*engine is gone"):
        pool.probe(keys)
    store.raising = None
    store.batch_probe_key = lambda keys: []
    with pytest.raises(tenure.PoolUnavailable, match="answered 0 codes for 1 keys"):
        pool.probe(keys)
    store.batch_probe_key = lambda keys: ["x"]
    with pytest.raises(tenure.PoolUnavailable):
        pool.probe(keys)


def test_lookup_over_a_store_that_blocks_is_a_miss(fake):
    pool, store = fake
    rules = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
    hashes = make_hashes(50)
    name_space = pool.open_namespace("m@")
    pool.put([(name_space, value) for value in hashes], [b"x"] * 50)
    lookup = tenure.Lookup(rules, pool, [[name_space]])
    assert lookup.find(hashes, 801).length == 800 and len(store.leased) == 50
    store.blocked.clear()
    assert lookup.find(hashes, 801).outcome == "miss by error"
    store.blocked.set()


def test_too_old_or_missing_mooncake_is_refused_before_memory(mooncake, monkeypatch):
    monkeypatch.delattr(FakeStore, "batch_probe_key")
    with pytest.raises(tenure.Error, match="no batch_probe_key.*0.3.14"):
        tenure.MooncakePool(config())
    assert not FakeStore.made
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    with pytest.raises(tenure.Error, match="cannot be imported.*0.3.14"):
        tenure.MooncakePool(config())


def test_setup_of_mooncake_is_not_begun_without_a_master(mooncake):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    start = time.monotonic()
    with pytest.raises(tenure.PoolUnavailable, match=f"master_server_address is '{address}', where nothing answered within 0.3 s"):
        tenure.MooncakePool(config(master_server_address=address), setup_timeout=0.3)
    assert time.monotonic() - start < 5
    assert not FakeStore.made
    # Where only Mooncake can tell, it is asked.
    for address in ("etcd://127.0.0.1:1", "a-master-without-port"):
        tenure.MooncakePool(config(master_server_address=address), setup_timeout=5.0, staging_bytes=4096).close()


def test_refused_setup_and_blocked_setup_are_unavailable(mooncake, monkeypatch):
    monkeypatch.setattr(FakeStore, "setup", lambda self, *arguments: -900)
    with pytest.raises(tenure.PoolUnavailable, match="answered -900.*master_server_address"):
        make_pool()
    assert not FakeStore.made[-1].closed, "a store that was not set up must not be called"
    release = threading.Event()
    monkeypatch.setattr(FakeStore, "setup", lambda self, *arguments: release.wait(30) and 0)
    with pytest.raises(tenure.PoolUnavailable, match="no answer within 0.1 s"):
        make_pool(setup_timeout=0.1)
    release.set()


def test_pool_declares_its_differences(fake):
    pool, _ = fake
    assert pool.name == "mooncake" and not pool.closed_under_ancestors
    assert pool.differences == ["one_lease_ttl", "no_pin", "not_stored_answer", "no_checksum", "own_watermark"]
    assert pool.stats()["stored_total"] == 0


@pytest.mark.parametrize(
    "value, expected",
    [("2GB", 2 << 30), ("1.5mb", 1572864), ("3 kb", 3072), ("10", 10), (2.9, 2), (7, 7), ("8B", 8), (" 1gb ", 1 << 30)],
)
def test_sizes_are_read_as_stock_connectors_do(value, expected):
    assert parse_size("global_segment_size", value) == expected


@pytest.mark.parametrize("value", ["", "1tb", "x", "-1", None, True, float("nan"), "1 000", [1]])
def test_bad_sizes_are_named(value):
    with pytest.raises(ValueError, match="global_segment_size is"):
        parse_size("global_segment_size", value)


def test_config_file_is_that_of_stock_connectors(tmp_path, monkeypatch, caplog):
    path = tmp_path / "mooncake.json"
    path.write_text(
        json.dumps(
            {"master_server_address": "m:1", "metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "device_name": "",
             "mode": "standalone-store", "global_segment_size": 0, "local_buffer_size": "64mb", "tenant_id": " ",
             "some_other_tool": 1}
        )
    )
    monkeypatch.setenv("MOONCAKE_CONFIG_PATH", str(path))
    monkeypatch.setenv("MOONCAKE_REQUESTER_LOCAL_HOSTNAME", "10.0.0.1")
    monkeypatch.setenv("MOONCAKE_PREFERRED_SEGMENT", "10.0.0.2:17")
    config = tenure.MooncakeConfig.from_environment()
    assert (config.local_buffer_size, config.tenant_id, config.local_hostname) == (64 << 20, "default", "10.0.0.1")
    assert config.preferred_segment == "10.0.0.2:17"
    assert "some_other_tool" in caplog.text and "ignored" in caplog.text


BAD_FILES = {
    "cannot be read": None,
    "is not JSON": "{",
    "is a JSON list": "[]",
    "master_server_address is missing": "{}",
    "did you mean global_segment_size": '{"master_server_address": "m:1", "global_segment_sise": 1}',
    'mode is .both.; use "embedded"': '{"master_server_address": "m:1", "mode": "both"}',
    "local_buffer_size is 0": '{"master_server_address": "m:1", "local_buffer_size": 0}',
    "gives memory to the store": '{"master_server_address": "m:1", "global_segment_size": 0}',
    "set it to 0": '{"master_server_address": "m:1", "mode": "standalone-store"}',
    "protocol is 7": '{"master_server_address": "m:1", "protocol": 7}',
    "tenant_id is 7": '{"master_server_address": "m:1", "tenant_id": 7}',
    "enable_offload is .yes": '{"master_server_address": "m:1", "enable_offload": "yes"}',
    "enable_group_semantics is true": '{"master_server_address": "m:1", "enable_group_semantics": "True"}',
}


@pytest.mark.parametrize("text", BAD_FILES)
def test_bad_config_files_are_one_line_that_names_the_option(tmp_path, text):
    path = tmp_path / "mooncake.json"
    if BAD_FILES[text] is not None:
        path.write_text(BAD_FILES[text])
    with pytest.raises((ValueError, TypeError), match=text) as raised:
        tenure.MooncakeConfig.from_file(path)
    assert "\n" not in str(raised.value) and str(path) in str(raised.value)


def test_missing_environment_is_named(monkeypatch):
    monkeypatch.delenv("MOONCAKE_CONFIG_PATH", raising=False)
    with pytest.raises(ValueError, match="MOONCAKE_CONFIG_PATH is not set"):
        tenure.MooncakeConfig.from_environment()


PROGRAM = f"""
import sys, types
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_mooncake_pool import FakeConfig, FakeStore, keys_of, make_pool
import tenure
module = types.ModuleType("mooncake.store")
module.MooncakeDistributedStore, module.ReplicateConfig = FakeStore, FakeConfig
sys.modules["mooncake"], sys.modules["mooncake.store"] = types.ModuleType("mooncake"), module
pool, store = make_pool()
"""


def run_program(tmp_path, text):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + text)
    return subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)


def test_process_ends_cleanly_while_a_call_still_blocks(tmp_path):
    """The thread left behind asks for the interpreter while that goes away; the process must end with its own status."""
    for _ in range(5):
        done = run_program(
            tmp_path,
            "store.blocked.clear()\n"
            "try:\n"
            "    pool.probe(keys_of(pool, 1))\n"
            "except tenure.PoolUnavailable as error:\n"
            "    print('unavailable', flush=True)\n"
            "pool.close()\n"
            "store.blocked.set()\n"
            "sys.exit(7)\n",
        )
        assert (done.returncode, done.stdout) == (7, "unavailable\n"), done.stderr


@pytest.mark.parametrize("end", ["", "del pool\n", "pool.close()\n"])
def test_process_ends_cleanly_while_lookups_and_leases_hold_the_pool(tmp_path, end):
    """They outlive the interpreter as globals do; the pool's threads must be gone by then, and the store closed."""
    done = run_program(
        tmp_path,
        "rules = tenure.CacheConfig([tenure.GroupSpec('full', 16)], hash_block_size=16, scheduler_block_size=16)\n"
        "keys = keys_of(pool, 1, 2)\n"
        "pool.put(keys, [b'x', b'y'])\n"
        "lease, _ = pool.lease(keys, 10.0)\n"
        "lookup = tenure.Lookup(rules, pool, [[keys[0][0]]])\n"
        "result = lookup.find([key[1] for key in keys], 33)\n"
        "close = store.close\n"
        "store.close = lambda: (print('closed', flush=True), close())\n"
        "print(result.length, flush=True)\n" + end,
    )
    assert (done.returncode, done.stdout) == (0, "32\nclosed\n"), done.stderr


def test_closed_pool_answers_those_who_still_hold_it(mooncake):
    pool, store = make_pool()
    keys = keys_of(pool, 1)
    pool.put(keys, [b"a"])
    lease, _ = pool.lease(keys, 10.0)
    rules = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
    lookup = tenure.Lookup(rules, pool, [[keys[0][0]]])
    pool.close()
    pool.close()
    assert store.closed
    with pytest.raises(tenure.Error, match="closed"):
        lookup.find([keys[0][1]], 17)
    lease.release()


def test_key_texts_of_any_prefix_are_whole(mooncake):
    """Prefixes of text beyond ASCII take another way to Python than the others."""
    pool, store = make_pool()
    for prefix in ("m@", "modèle-\N{GREEK SMALL LETTER ALPHA}@"):
        key = (pool.open_namespace(prefix), make_hash(1))
        assert pool.put([key], [b"a"]) == [PutAnswer.STORED]
        assert list(store.objects)[-1] == prefix + make_hash(1).hex() == tenure.key_text(prefix, make_hash(1))
    pool.close()


def make_scheduler(pool, hashes, **options):
    """The scheduler's side of a connector over `pool`, in which every hash is."""
    rules = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
    name_space = pool.open_namespace("m@")
    pool.put([(name_space, value) for value in hashes], [b"x"] * len(hashes))
    return StoreScheduler(rules, pool, [[name_space]], **{"role": "kv_both", "world_size": 1} | options)


def ask(core, request, hashes):
    """The answer to a new request's lookup, asked for until it comes."""
    while (found := core.matched_tokens(request, hashes, 16 * len(hashes) + 1, 0)) is None:
        time.sleep(0.001)
    return found


def test_background_lookups_call_in_their_own_thread(fake):
    pool, store = fake
    hashes = make_hashes(8)
    core = make_scheduler(pool, hashes, lookup_deadline=60.0)
    threads = set()
    for name in ("batch_probe_key", "batch_is_exist"):
        call = getattr(store, name)
        setattr(store, name, lambda keys, call=call: (threads.add(threading.get_native_id()), call(keys))[1])
    assert ask(core, "a", hashes) == 128 and len(store.leased) == 8
    lookup_threads = set(threads)
    threads.clear()
    pool.probe(keys_of(pool, 1))
    assert len(lookup_threads) == 1 and lookup_threads.isdisjoint(threads), "a lookup waited for the pool's lane"
    core.close()


def test_lookup_that_blocks_is_a_miss_within_its_deadline_and_stops_nobody_else(fake):
    pool, store = fake
    hashes = make_hashes(8)
    core = make_scheduler(pool, hashes, lookup_deadline=0.2)
    exist = store.batch_is_exist
    blocking = threading.Event()
    store.batch_is_exist = lambda keys: blocking.set() or exist(keys)
    store.blocked.clear()
    assert core.matched_tokens("a", hashes, 129, 0) is None
    assert blocking.wait(30)
    store.batch_is_exist = exist
    assert [ask(core, request, hashes) for request in ("a", "b", "c")] == [0, 0, 0]
    counters = core.counters()
    assert counters["lookup_misses_deadline_total"] == 3 and counters["lookup_hits_total"] == 0
    assert store.calls.count("exist") == 1
    store.blocked.set()
    for request in range(1000):  # The thread comes back when the late call ends; an ask before that may still be a miss.
        if ask(core, f"d{request}", hashes) == 128:
            break
    else:
        pytest.fail("lookups are not served after a late call")
    core.close()


LONG = 2048  # Chunks of a prompt whose lease goes to the store in two calls at one time.


def replace_exist(store, second_half, on_second):
    """Calls `on_second(keys)` in place of the store for keys of which one is in `second_half`."""
    exist = store.batch_is_exist
    store.batch_is_exist = lambda keys: on_second(keys) if second_half & set(keys) else exist(keys)


def test_long_lookups_ask_for_both_halves_at_one_time(fake):
    pool, store = fake
    hashes = make_hashes(LONG)
    core = make_scheduler(pool, hashes, lookup_deadline=60.0)
    together = threading.Barrier(2, timeout=30)
    exist = store.batch_is_exist
    halves = []

    def both(keys):
        together.wait()
        halves.append(keys)
        return exist(keys)

    store.batch_is_exist = both
    assert ask(core, "a", hashes) == 16 * LONG
    assert sorted(map(len, halves)) == [LONG // 2, LONG // 2]
    assert {key for half in halves for key in half} == set(store.objects) == store.leased
    core.close()


def test_a_hole_in_the_second_half_is_a_shorter_hit(fake):
    pool, store = fake
    hashes = make_hashes(LONG)
    core = make_scheduler(pool, hashes, lookup_deadline=60.0)
    hole = LONG * 3 // 4 + 1
    del store.objects[list(store.objects)[hole]]
    assert ask(core, "a", hashes) == 16 * hole
    core.close()


def test_a_half_that_fails_is_a_miss(fake):
    pool, store = fake
    hashes = make_hashes(LONG)
    core = make_scheduler(pool, hashes, lookup_deadline=60.0)

    def fail(keys):
        raise RuntimeError("no master")

    for failing in (0, LONG - 1):
        exist = store.batch_is_exist
        replace_exist(store, {list(store.objects)[failing]}, fail)
        assert ask(core, f"at {failing}", hashes) == 0
        store.batch_is_exist = exist
        assert ask(core, f"after {failing}", hashes) == 16 * LONG
    assert core.counters()["lookup_misses_error_total"] == 2
    core.close()


def test_a_second_half_that_blocks_is_a_miss_and_later_lookups_do_without_its_thread(fake):
    pool, store = fake
    hashes = make_hashes(LONG)
    core = make_scheduler(pool, hashes, lookup_deadline=60.0)
    blocked, exist = threading.Event(), store.batch_is_exist
    replace_exist(store, {list(store.objects)[LONG - 1]}, lambda keys: blocked.wait(30) and exist(keys))
    assert ask(core, "a", hashes) == 0
    store.batch_is_exist = exist
    assert ask(core, "b", hashes) == 16 * LONG
    assert core.counters()["lookup_misses_error_total"] == 1
    blocked.set()
    core.close()


def test_close_leaves_a_lookup_that_blocks_behind_and_the_store_is_closed_after_it(mooncake):
    pool, store = make_pool()
    hashes = make_hashes(8)
    core = make_scheduler(pool, hashes, lookup_deadline=0.05)
    ended = threading.Event()
    close = store.close
    store.close = lambda: (close(), ended.set())
    store.blocked.clear()
    assert ask(core, "a", hashes) == 0
    core.close()
    pool.close()
    assert ask(core, "b", hashes) == 0 and not store.closed
    del core, pool
    store.blocked.set()
    assert ended.wait(30) and store.closed


def test_process_ends_cleanly_while_a_lookup_still_blocks(tmp_path):
    for end in ("", "core.close()\npool.close()\n", "store.blocked.set()\n", "del core, pool\nstore.blocked.set()\n"):
        done = run_program(
            tmp_path,
            "from test_mooncake_pool import ask, make_scheduler\n"
            "from conftest import make_hashes\n"
            "hashes = make_hashes(8)\n"
            "core = make_scheduler(pool, hashes, lookup_deadline=0.05)\n"
            "store.blocked.clear()\n"
            "print(ask(core, 'a', hashes), flush=True)\n" + end + "sys.exit(7)\n",
        )
        assert (done.returncode, done.stdout) == (7, "0\n"), done.stderr
