"""The pool contract through Python, on the pool in the process and on a daemon's: answers, memory in both forms, leases, closing,
and arguments that are refused."""

import contextlib
import ctypes
import gc
import threading
import time

import pytest
from conftest import make_hash, make_hashes
from daemon_process import Daemon

import tenure
from tenure import KeyAnswer, PutAnswer


def keys_of(name_space, *numbers):
    return [(name_space, make_hash(number)) for number in numbers]


@contextlib.contextmanager
def pool_of(kind, mode, folder):
    if kind == "embedded":
        with tenure.EmbeddedPool("1MiB", slab_bytes="64KiB", objects_max=8192, mode=mode) as pool:
            yield pool
        return
    daemon = Daemon(folder, "64MiB", mode)
    try:
        with tenure.DaemonPool(daemon.socket) as pool:
            yield pool
    finally:
        daemon.kill()


@pytest.fixture(params=["embedded", "daemon"])
def closed_pool(request, tmp_path_factory):
    with pool_of(request.param, "closed", tmp_path_factory.mktemp("closed")) as pool:
        yield pool


@pytest.fixture(params=["embedded", "daemon"])
def independent_pool(request, tmp_path_factory):
    with pool_of(request.param, "independent", tmp_path_factory.mktemp("independent")) as pool:
        yield pool


def test_bytes_come_back(closed_pool):
    name_space = closed_pool.open_namespace("model@tp_rank:0@")
    a, b = keys_of(name_space, 1, 2)
    assert closed_pool.put([a, b], [b"abc", [b"de", bytearray(b"f")]]) == [PutAnswer.STORED, PutAnswer.STORED]
    first, second, third = bytearray(3), bytearray(1), bytearray(2)
    assert closed_pool.get([a, b], [first, [second, third]]) == [KeyAnswer.PRESENT] * 2
    assert (first, second, third) == (b"abc", b"d", b"ef")
    assert closed_pool.get([a], [bytearray(4)]) == [KeyAnswer.SIZE_DIFFERS]
    assert closed_pool.probe(keys_of(name_space, 1, 3)) == [KeyAnswer.PRESENT, KeyAnswer.ABSENT]
    assert closed_pool.put([a, a], [b"xyz", b"wxyz"]) == [PutAnswer.EXISTS, PutAnswer.SIZE_DIFFERS]
    assert closed_pool.remove([a]) == [KeyAnswer.PRESENT]
    assert closed_pool.clear(name_space) == 1 and closed_pool.clear() == 0


def test_memory_is_named_by_address(independent_pool):
    memory = (ctypes.c_char * 64)(*range(64))
    address = ctypes.addressof(memory)
    (key,) = keys_of(independent_pool.open_namespace("m@"), 1)
    with pytest.raises(ValueError, match="not inside a registered buffer"):
        independent_pool.put_from([key], [[address]], [[8]])
    independent_pool.register_buffer(address, 64)
    assert independent_pool.put_from([key], [[address + 8, address]], [[8, 4]]) == [PutAnswer.STORED]
    assert independent_pool.get_into([key], [[address + 32]], [[12]]) == [KeyAnswer.PRESENT]
    assert memory.raw[32:44] == bytes(range(8, 16)) + bytes(range(4))
    with pytest.raises(ValueError, match="not inside a registered buffer"):
        independent_pool.get_into([key], [[address + 56]], [[12]])
    independent_pool.unregister_buffer(address)
    with pytest.raises(ValueError, match="no buffer is registered"):
        independent_pool.unregister_buffer(address)


def test_children_follow_parents(closed_pool):
    name_space = closed_pool.open_namespace("m@")
    parent, child = keys_of(name_space, 1, 2)
    assert closed_pool.closed_under_ancestors
    assert closed_pool.put([child], [b"c"], parents=[parent], kind="full") == [PutAnswer.WAITING]
    assert closed_pool.probe([child]) == [KeyAnswer.ABSENT]
    assert closed_pool.put([parent], [b"p"], parents=[None], kind="full") == [PutAnswer.STORED]
    assert closed_pool.probe([child]) == [KeyAnswer.PRESENT]
    closed_pool.remove([parent])
    assert closed_pool.probe([child]) == [KeyAnswer.ABSENT]


def test_lease_holds_until_it_is_released(independent_pool):
    name_space = independent_pool.open_namespace("m@")
    keys = [(name_space, value) for value in make_hashes(16)]
    sixteenth = bytes(independent_pool.stats()["capacity_bytes"] // 16)
    assert independent_pool.put(keys, [sixteenth] * 16).count(PutAnswer.STORED) == 16
    lease, answers = independent_pool.lease([*keys, (name_space, make_hash("none"))], 60.0)
    assert answers == [KeyAnswer.PRESENT] * 16 + [KeyAnswer.ABSENT]
    assert len(lease) == 16 and 50 < lease.deadline - time.monotonic() <= 60
    more = keys_of(name_space, 100)
    assert independent_pool.put(more, [sixteenth]) == [PutAnswer.REFUSED_FULL]
    assert independent_pool.stats()["held_leased_objects"] == 16
    lease.release()
    lease.release()
    assert len(lease) == 0 and lease.deadline == 0.0
    assert independent_pool.put(more, [sixteenth]) == [PutAnswer.STORED]


def test_lease_ends_with_its_object_or_its_block(independent_pool):
    (key,) = keys_of(independent_pool.open_namespace("m@"), 1)
    independent_pool.put([key], [b"a"])
    with independent_pool.lease([key], 60.0)[0]:
        assert independent_pool.stats()["held_leased_objects"] == 1
    assert independent_pool.stats()["held_leased_objects"] == 0
    lease = independent_pool.lease([key], 60.0)[0]
    del lease
    gc.collect()
    assert independent_pool.stats()["held_leased_objects"] == 0
    independent_pool.lease([key], 60.0)[0].forget()
    assert independent_pool.stats()["held_leased_objects"] == 1


def test_closed_pool_answers_with_an_error_and_leases_survive_it():
    pool = tenure.EmbeddedPool("256KiB", slab_bytes="64KiB")
    keys = keys_of(pool.open_namespace("m@"), 1)
    pool.put(keys, [b"a"])
    lease = pool.lease(keys, 60.0)[0]
    pool.close()
    pool.close()
    for call in (lambda: pool.probe(keys), lambda: pool.stats(), lambda: pool.open_namespace("n@"), lambda: pool.name):
        with pytest.raises(tenure.Error, match="closed"):
            call()
    lease.release()


def test_shared_pool_ends_with_its_last_object():
    pool = tenure.EmbeddedPool("256KiB", slab_bytes="64KiB", mode="independent")
    shared = pool.share()
    key = [(pool.open_namespace("m@"), make_hash(1))]
    assert pool.put(key, [b"a"]) == [PutAnswer.STORED]
    assert shared.probe([(shared.open_namespace("m@"), make_hash(1))]) == [KeyAnswer.PRESENT]
    with pytest.raises(ValueError, match="of another pool"):
        shared.probe(key)
    pool.close()
    assert shared.stats()["objects"] == 1
    shared.close()


def test_namespaces_belong_to_their_pool(closed_pool, independent_pool):
    mine = closed_pool.open_namespace("m@")
    assert mine == closed_pool.open_namespace("m@") and hash(mine) == hash(closed_pool.open_namespace("m@"))
    assert mine != closed_pool.open_namespace("n@") and mine != independent_pool.open_namespace("m@") and mine != "m@"
    with pytest.raises(ValueError, match="of another pool"):
        independent_pool.probe(keys_of(mine, 1))
    with pytest.raises(ValueError, match="of another pool"):
        independent_pool.clear(mine)


def test_calls_from_many_threads(independent_pool):
    name_space = independent_pool.open_namespace("m@")
    failures = []

    def work(worker):
        buffer = bytearray(32)
        for number in range(300):
            keys = keys_of(name_space, f"{worker} {number}")
            value = make_hash(number)
            independent_pool.put(keys, [value])
            if independent_pool.get(keys, [buffer]) == [KeyAnswer.PRESENT] and buffer != value:
                failures.append((worker, number))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert independent_pool.stats()["stored_total"] == 1200


def test_stats_are_integers_with_units(independent_pool):
    stats = independent_pool.stats()
    assert stats["capacity_bytes"] in (1 << 20, 64 << 20) and all(isinstance(value, int) for value in stats.values())
    assert all(name.endswith(("_bytes", "_total", "_objects", "objects", "namespaces")) for name in stats)


BAD_POOL_OPTIONS = {
    "capacity": {"capacity": "8GB "},
    "capacity is": {"capacity": 1},
    "this machine has": {"capacity": "100TiB"},
    "slab_bytes": {"capacity": "1MiB", "slab_bytes": 0},
    'mode is "open"': {"capacity": "1MiB", "mode": "open"},
    "shards": {"capacity": "1MiB", "slab_bytes": "64KiB", "shards": 3},
    "objects_max": {"capacity": "1MiB", "slab_bytes": "64KiB", "objects_max": -1},
    "high_watermark": {"capacity": "1MiB", "slab_bytes": "64KiB", "high_watermark": float("nan")},
    "low_watermark": {"capacity": "1MiB", "slab_bytes": "64KiB", "low_watermark": 0.99},
}


@pytest.mark.parametrize("text", BAD_POOL_OPTIONS)
def test_bad_options_are_named(text):
    options = BAD_POOL_OPTIONS[text]
    if text == "capacity":
        options = {"capacity": "8 giga"}
    with pytest.raises(ValueError, match=text):
        tenure.EmbeddedPool(**options)


BAD_CALLS = {
    "keys.0. is no": lambda pool, ns: pool.probe([b"a"]),
    "has a hash that is not bytes": lambda pool, ns: pool.probe([(ns, "a" * 32)]),
    "hash of a key": lambda pool, ns: pool.probe([(ns, b"short")]),
    "ttl is 0": lambda pool, ns: pool.lease(keys_of(ns, 1), 0),
    "ttl is nan": lambda pool, ns: pool.lease(keys_of(ns, 1), float("nan")),
    "ttl is inf": lambda pool, ns: pool.lease(keys_of(ns, 1), float("inf")),
    "buffers has 0 entries for 1": lambda pool, ns: pool.put(keys_of(ns, 1), []),
    "has an empty buffer": lambda pool, ns: pool.put(keys_of(ns, 1), [b""]),
    "buffers.0. is empty": lambda pool, ns: pool.put(keys_of(ns, 1), [[]]),
    "kind is": lambda pool, ns: pool.put(keys_of(ns, 1), [b"a"], kind="fool"),
    "parents has 2": lambda pool, ns: pool.put(keys_of(ns, 1), [b"a"], parents=[None, None]),
    "addresses has 2 entries and sizes 1": lambda pool, ns: pool.put_from(keys_of(ns, 1), [[1], [2]], [[1]]),
    "addresses.0. has 1 entries and sizes": lambda pool, ns: pool.put_from(keys_of(ns, 1), [[1]], [[]]),
    "is no integer from 0": lambda pool, ns: pool.put_from(keys_of(ns, 1), [[-1]], [[1]]),
    "addresses.0. is no sequence": lambda pool, ns: pool.put_from(keys_of(ns, 1), [1], [1]),
    "has the address 0": lambda pool, ns: pool.get_into(keys_of(ns, 1), [[0]], [[1]]),
    "has 0 bytes": lambda pool, ns: pool.get_into(keys_of(ns, 1), [[8]], [[0]]),
    "has 18446744073709551615 bytes": lambda pool, ns: pool.register_buffer(8, (1 << 64) - 1),
    "past the end": lambda pool, ns: pool.register_buffer((1 << 64) - 8, 16),
    "prefix|namespace": lambda pool, ns: pool.open_namespace(""),
    "NUL|nul": lambda pool, ns: pool.open_namespace("a\0b"),
}


@pytest.mark.parametrize("text", BAD_CALLS)
def test_bad_arguments_are_named_and_change_nothing(closed_pool, text):
    name_space = closed_pool.open_namespace("m@")
    with pytest.raises(ValueError, match=text):
        BAD_CALLS[text](closed_pool, name_space)
    assert closed_pool.stats()["objects"] == 0


def test_buffers_that_are_none_are_refused(closed_pool):
    keys = keys_of(closed_pool.open_namespace("m@"), 1)
    with pytest.raises(TypeError, match="buffers.0. is no buffer"):
        closed_pool.put(keys, [1])
    with pytest.raises(BufferError):
        closed_pool.get(keys, [b"read only"])
    with pytest.raises(BufferError):
        closed_pool.put(keys, [memoryview(bytes(8))[::2]])


def test_overlapping_registration_is_refused(closed_pool):
    closed_pool.register_buffer(4096, 100)
    for address, size in ((4096, 1), (4000, 97), (4195, 1)):
        with pytest.raises(ValueError, match="overlaps"):
            closed_pool.register_buffer(address, size)
    closed_pool.register_buffer(4196, 1)
