"""KV that a Mooncake pool names to Mooncake instead of copying it, as in a device's memory, over a stand-in for Mooncake's client.

What must hold: the same objects as through staging memory; nothing reads or writes a block before its step is done or after its job
is reported, however late Mooncake is. The real one is tests/e2e/mooncake_device_test.py.
"""

import contextlib
import ctypes
import threading
import time

import pytest
from device_engine import DeviceEngine, hashes_of
from test_mooncake_pool import CALL_TIMEOUT, FakeConfig, FakeStore, keys_of, make_pool, mooncake, run_program  # noqa: F401

import tenure
from tenure import KeyAnswer
from tenure._native import MooncakeStorePool

LATE = 3 * CALL_TIMEOUT


@pytest.fixture
def fake(mooncake):  # noqa: F811
    pool, store = make_pool()
    yield pool, store
    store.blocked.set()
    pool.close()


@pytest.fixture
def engines(fake):
    """Makes engines over the fake's pool and closes them."""
    made = []

    def make(**options):
        made.append(DeviceEngine(fake[0], **options))
        return made[-1]

    yield make
    fake[1].blocked.set()
    for engine in made:
        engine.close()


class Held:
    """Holds one kind of the store's calls until let(): before it moves bytes, after that, or half-way through."""

    def __init__(self, store, name):
        self.begun, self._let = threading.Semaphore(0), threading.Event()
        call = getattr(store, name)

        def held(*arguments):
            self.begun.release()
            assert self._let.wait(30)
            return call(*arguments)

        setattr(store, name, held)

    def wait(self):
        assert self.begun.acquire(timeout=30)

    def let(self):
        self._let.set()


def named(store, name):
    """Every (address, size) that calls of this name get from now on, object by object."""
    calls, call = [], getattr(store, name)

    def seen(keys, addresses, sizes, *rest):
        calls.extend(list(zip(*pair)) for pair in zip(addresses, sizes))
        return call(keys, addresses, sizes, *rest)

    setattr(store, name, seen)
    return calls


def test_a_block_is_one_object_of_its_pieces_and_is_not_copied(fake, engines):
    pool, store = fake
    engine, hashes = engines(), hashes_of("a", 3)
    puts, gets = named(store, "batch_put_from_multi_buffers"), named(store, "batch_get_into_multi_buffers")
    engine.fill([1, 2, 3], 1)
    job = engine.save("a", hashes, [1, 2, 3])
    assert engine.worker.take_reports()["saved"] == {job: 1}
    assert puts == [engine.places(block) for block in (1, 2, 3)]
    assert [store.objects[engine.key_text(value)] for value in hashes] == [engine.block(block) for block in (1, 2, 3)]
    engine.load("b", hashes, [11, 12, 13])
    assert engine.worker.take_reports()["loaded"] == ["b"]
    assert gets == [engine.places(block) for block in (11, 12, 13)]
    assert [engine.block(block) for block in (11, 12, 13)] == [engine.block(block) for block in (1, 2, 3)]
    assert pool.stats()["stored_total"] == 3 and pool.stats()["stored_bytes_total"] == 9 * 256 and pool.stats()["gets_total"] == 3


@pytest.mark.parametrize("writer, reader", [(("cpu", 0), None), (None, ("cpu", 0))])
def test_objects_are_the_same_named_and_staged(engines, writer, reader):
    hashes = hashes_of("a", 4)
    writer, reader = engines(device=writer), engines(device=reader)
    writer.fill([1, 2, 3, 4], 2)
    writer.save("a", hashes, [1, 2, 3, 4])
    reader.load("b", hashes, [5, 6, 7, 8])
    assert reader.worker.take_reports()["loaded"] == ["b"]
    assert [reader.block(block) for block in (5, 6, 7, 8)] == [writer.block(block) for block in (1, 2, 3, 4)]


def test_a_block_larger_than_staging_memory_is_stored(engines, fake):
    _, store = fake
    engine, hashes = engines(piece_bytes=4096), hashes_of("a", 2)
    engine.fill([1, 2], 3)
    engine.save("a", hashes, [1, 2])
    assert store.objects[engine.key_text(hashes[0])] == engine.block(1)
    engine.load("b", hashes, [3, 4])
    assert engine.worker.take_reports()["loaded"] == ["b"] and engine.block(4) == engine.block(2)


def test_a_late_get_keeps_its_blocks_until_it_has_ended(fake, engines):
    _, store = fake
    engine, hashes = engines(load_deadline=CALL_TIMEOUT), hashes_of("a", 2)
    engine.fill([1, 2], 4)
    engine.save("a", hashes, [1, 2])
    engine.worker.take_reports()
    get = Held(store, "batch_get_into_multi_buffers")
    engine.load("b", hashes, [11, 12], wait=0)
    get.wait()
    assert not engine.worker.drain(LATE)
    reports = engine.worker.take_reports()
    assert (reports["loaded"], reports["failed"], reports["failed_blocks"]) == ([], [], []), "the blocks may still be written"
    get.let()
    assert engine.worker.drain(30)
    assert engine.worker.take_reports()["loaded"] == ["b"] and engine.block(12) == engine.block(2)


def test_a_late_get_that_fails_half_way_is_reported_when_it_has_ended(fake, engines):
    _, store = fake
    engine, hashes = engines(load_deadline=CALL_TIMEOUT), hashes_of("a", 2)
    engine.fill([1, 2], 5)
    engine.save("a", hashes, [1, 2])

    def tear(keys, addresses, sizes):
        ctypes.memset(addresses[0][0], 0xEE, sizes[0][0])
        return [-800] * len(keys)

    store.batch_get_into_multi_buffers = tear
    get = Held(store, "batch_get_into_multi_buffers")
    engine.load("b", hashes, [11, 12], wait=0)
    get.wait()
    before = engine.memory()
    assert not engine.worker.drain(LATE) and not engine.worker.take_reports()["failed"] and engine.memory() == before
    get.let()
    assert engine.worker.drain(30)
    reports = engine.worker.take_reports()
    assert (reports["loaded"], reports["failed"], reports["failed_blocks"]) == ([], ["b"], [11, 12])
    assert reports["counters"]["load_keys_unavailable_total"] == 2


# Mooncake gives a transfer up after 30 to 60 s, and then it may go on when the call has ended. Here every failed one is given up.
GIVEN_UP = {"call_timeout": 5.0, "transfer_timeout": 5.0, "staging_bytes": 4096, "given_up_after": 1e-6}


@pytest.fixture
def giving_up(mooncake):  # noqa: F811
    made = []

    def make(late_bytes_max):
        made.append(MooncakeStorePool(FakeStore(), FakeConfig(), (), **GIVEN_UP, late_bytes_max=late_bytes_max))
        return made[-1], FakeStore.made[-1]

    yield make
    for pool in made:
        pool.close()


def test_blocks_of_a_transfer_that_was_given_up_wait_for_its_bytes(giving_up):
    pool, store = giving_up(LATE)
    engine, hashes = DeviceEngine(pool), hashes_of("a", 2)
    engine.save("a", hashes, [1, 2])
    written = threading.Event()

    def give_up(keys, addresses, sizes):
        threading.Timer(LATE / 4, lambda: (ctypes.memset(addresses[0][0], 0xEE, sizes[0][0]), written.set())).start()
        return [-800] * len(keys)

    store.batch_get_into_multi_buffers = give_up
    engine.load("b", hashes, [11, 12])
    assert written.is_set() and engine.worker.take_reports()["failed_blocks"] == [11, 12]
    engine.close()


def test_staging_memory_of_a_transfer_that_was_given_up_is_kept(giving_up):
    pool, store = giving_up(2.0)
    keys = keys_of(pool, 1)
    pool.put(keys, [b"abc"])
    get, places = store.batch_get_into_multi_buffers, []
    store.batch_get_into_multi_buffers = lambda keys, addresses, sizes: places.append(addresses[0][0]) or [-800]
    for _ in range(2):
        assert pool.get(keys, [bytearray(3)]) == [KeyAnswer.UNAVAILABLE]
    assert len(set(places)) == 2, "bytes of one get may still come into another's"
    store.batch_get_into_multi_buffers = get
    with pytest.raises(tenure.PoolUnavailable, match="not known to have ended"):
        pool.get(keys, [bytearray(3)])
    deadline, buffer = time.monotonic() + 30, bytearray(3)
    while buffer != b"abc":
        assert time.monotonic() < deadline
        with contextlib.suppress(tenure.PoolUnavailable):
            pool.get(keys, [buffer])


def test_a_late_put_keeps_its_blocks_until_it_has_ended(fake, engines):
    _, store = fake
    engine, hashes = engines(), hashes_of("a", 2)
    engine.fill([1, 2], 6)
    put = Held(store, "batch_put_from_multi_buffers")
    job = engine.save("a", hashes, [1, 2], wait=0)
    put.wait()
    assert not engine.worker.drain(LATE)
    assert engine.worker.take_reports()["saved"] == {}, "the blocks may still be read"
    put.let()
    assert engine.worker.drain(30)
    assert engine.worker.take_reports()["saved"] == {job: 1}
    assert store.objects[engine.key_text(hashes[1])] == engine.block(2)


def test_questions_about_a_put_have_the_calls_deadline(fake, engines):
    _, store = fake
    engine = engines()
    store.blocked.clear()
    job = engine.save("a", hashes_of("a", 2), [1, 2], wait=LATE + 20)
    reports = engine.worker.take_reports()
    assert reports["saved"] == {job: 1} and reports["counters"]["failed_save_jobs_total"] == 1
    store.blocked.set()
    assert "put" not in store.calls


def test_threads_of_a_worker_wait_for_their_own_calls_only(fake, engines):
    _, store = fake
    engine = engines(load_threads=2)
    prompts = {name: hashes_of(name, 2) for name in "ab"}
    for number, (name, hashes) in enumerate(prompts.items()):
        engine.fill([1 + 2 * number, 2 + 2 * number], number)
        engine.save(name, hashes, [1 + 2 * number, 2 + 2 * number])
    put, get = Held(store, "batch_put_from_multi_buffers"), Held(store, "batch_get_into_multi_buffers")
    engine.save("c", hashes_of("c", 2), [5, 6], wait=0)
    put.wait()
    for number, (name, hashes) in enumerate(prompts.items()):
        engine.load(f"load of {name}", hashes, [11 + 2 * number, 12 + 2 * number], wait=0)
        get.wait()
    get.let()
    put.let()
    assert engine.worker.drain(30)
    assert sorted(engine.worker.take_reports()["loaded"]) == ["load of a", "load of b"]
    assert [engine.block(block) for block in (11, 12, 13, 14)] == [engine.block(block) for block in (1, 2, 3, 4)]


@pytest.mark.parametrize("size", [3 * 256 - 1, 3 * 256 + 1, 256])
def test_an_object_of_another_size_is_not_loaded_and_is_removed(fake, engines, size):
    _, store = fake
    engine, hashes = engines(), hashes_of("a", 2)
    engine.save("a", hashes, [1, 2])
    key = engine.key_text(hashes[1])
    store.objects[key] = bytes(size)
    if size < 3 * 256:  # As the real one answers.
        get = store.batch_get_into_multi_buffers
        store.batch_get_into_multi_buffers = lambda keys, *rest: [-800 if name == key else code for name, code in zip(keys, get(keys, *rest))]
    engine.load("b", hashes, [11, 12])
    reports = engine.worker.take_reports()
    assert (reports["failed"], reports["failed_blocks"]) == (["b"], [12])
    assert reports["counters"]["load_keys_wrong_size_total"] == 1 and key not in store.objects


def test_storages_are_registered_once_and_until_the_workers_end(fake, engines):
    _, store = fake
    engine = engines(load_threads=3)
    assert store.buffers == engine.regions
    engine.close()
    engine.close()
    assert store.buffers == []
    again = engines()
    assert store.buffers == again.regions
    del again


def test_memory_that_mooncake_does_not_register_is_staged(fake, engines, capfd):
    _, store = fake
    register, refused = store.register_buffer, []

    def refuse_the_second(address, size):
        refused.append((address, size))
        return -600 if len(refused) == 2 else register(address, size)

    store.register_buffer = refuse_the_second
    engine, hashes = engines(), hashes_of("a", 2)
    assert refused == engine.regions and store.buffers == [], "half of the memory is of no use"
    puts = named(store, "batch_put_from_multi_buffers")
    engine.fill([1, 2], 7)
    engine.save("a", hashes, [1, 2])
    engine.load("b", hashes, [3, 4])
    assert engine.worker.take_reports()["loaded"] == ["b"] and engine.block(4) == engine.block(2)
    (first,), (second,) = puts
    low, size = store.registered
    assert low <= first[0] and second[0] + second[1] <= low + size
    lines = [line for line in capfd.readouterr().err.splitlines() if "register_buffer answered -600" in line]
    assert len(lines) == 1 and "go through memory of the host" in lines[0]


def test_other_pools_and_host_memory_register_nothing(fake, engines):
    _, store = fake
    engines(device=None)
    assert store.buffers == []
    with tenure.EmbeddedPool("1MiB", slab_bytes="64KiB", objects_max=8192) as pool:
        engine, hashes = DeviceEngine(pool), hashes_of("a", 2)
        engine.fill([1, 2], 8)
        engine.save("a", hashes, [1, 2])
        engine.load("b", hashes, [3, 4])
        assert engine.block(4) == engine.block(2)
        engine.close()


def test_a_pool_that_ends_first_lets_a_late_call_go(mooncake):  # noqa: F811
    """The process is going away then; its threads must not wait for Mooncake."""
    pool, store = make_pool()
    engine, hashes = DeviceEngine(pool), hashes_of("a", 2)
    engine.save("a", hashes, [1, 2])
    get = Held(store, "batch_get_into_multi_buffers")
    engine.load("b", hashes, [3, 4], wait=0)
    get.wait()
    ended, close = threading.Event(), store.close
    store.close = lambda: (close(), ended.set())
    pool.close()
    engine.worker.close()
    assert engine.worker.take_reports()["failed"] == ["b"] and not store.closed
    get.let()
    assert ended.wait(30) and store.closed
    engine.scheduler.close()


@pytest.mark.parametrize("end", ["", "engine.close()\npool.close()\n", "pool.close()\n", "get.let()\n"])
def test_process_ends_cleanly_while_a_get_still_blocks(tmp_path, end):
    if end.startswith("engine"):
        end = "get.let()\n" + end  # A worker's end waits for its calls.
    done = run_program(
        tmp_path,
        "from test_mooncake_device import Held\n"
        "from device_engine import DeviceEngine, hashes_of\n"
        "engine, hashes = DeviceEngine(pool), hashes_of('a', 2)\n"
        "engine.save('a', hashes, [1, 2])\n"
        "get = Held(store, 'batch_get_into_multi_buffers')\n"
        "engine.load('b', hashes, [3, 4], wait=0)\n"
        "get.wait()\n"
        "print('blocks', flush=True)\n" + end + "sys.exit(7)\n",
    )
    assert (done.returncode, done.stdout) == (7, "blocks\n"), done.stderr
