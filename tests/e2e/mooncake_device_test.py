"""KV that a worker names to a real Mooncake instead of copying it, with the host's memory in the device's place.

`./dev test-mooncake` runs it; tools/gpu_check.sh, with TENURE_TEST_DEVICE, on a device. Staging memory is smaller than a block here, so
what is stored and loaded has not gone through it. Late calls and refusals: python/tests/test_mooncake_device.py.
"""

import itertools
import os
import random
import signal
import sys

import pytest

sys.path[:0] = [os.path.dirname(__file__), os.path.join(os.path.dirname(__file__), "../../python/tests")]
from device_engine import DeviceEngine, hashes_of  # noqa: E402
from mooncake_processes import MIB, Master, Owner, raw_client  # noqa: E402
from mooncake_test import config, end_at_once  # noqa: E402, F401

import tenure  # noqa: E402

PIECE = 64 << 10
BLOCK = 3 * PIECE
BLOCKS = [1, 2, 3, 4]
KIND, _, ORDINAL = os.environ.get("TENURE_TEST_DEVICE", "cpu:0").partition(":")
DEVICE = (KIND, int(ORDINAL or 0))
_prefixes = itertools.count()


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    master = Master(tmp_path_factory.mktemp("master"))
    yield master
    master.stop()


@pytest.fixture(scope="module", params=["own segment", "another's segment"])
def pools(request, master):
    """A pool with little staging memory, one with enough, and Mooncake's own client."""
    owner = Owner(master, 64 * MIB) if request.param == "another's segment" else None
    gives = {} if owner is None else {"mode": "standalone-store", "global_segment_size": 0}
    with tenure.MooncakePool(config(master, **gives), staging_bytes=4096) as small:
        with tenure.MooncakePool(config(master, mode="standalone-store", global_segment_size=0), staging_bytes=MIB) as large:
            raw = raw_client(master)
            yield small, large, raw
            raw.close()
    if owner is not None:
        owner.stop()


@pytest.fixture
def engines(pools):
    made = []
    prefix = tenure.namespace_prefix(f"model-{next(_prefixes)}", 0)

    def make(pool, **options):
        made.append(DeviceEngine(pool, prefix=prefix, piece_bytes=PIECE, **{"device": DEVICE} | options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def saved(engine, hashes, seed):
    engine.fill(BLOCKS, seed)
    engine.save(f"save {seed}", hashes, BLOCKS)
    reports = engine.worker.take_reports()
    assert reports["counters"]["saved_keys_total"] == len(BLOCKS), reports
    return [engine.block(block) for block in BLOCKS]


def loaded(engine, hashes, request="load"):
    places = [block + 10 for block in BLOCKS]
    engine.load(request, hashes, places)
    reports = engine.worker.take_reports()
    assert reports["loaded"] == [request], reports
    return [engine.block(block) for block in places]


def test_an_object_has_the_bytes_of_stock_connectors(pools, engines):
    small, _, raw = pools
    engine, hashes = engines(small), hashes_of("a", len(BLOCKS))
    blocks = saved(engine, hashes, 1)
    texts = [engine.key_text(value) for value in hashes]
    assert [raw.get_size(text) for text in texts] == [BLOCK] * len(BLOCKS)
    assert [raw.get(text) for text in texts] == blocks


def test_what_stock_connectors_write_is_loaded(pools, engines):
    small, _, raw = pools
    engine, hashes = engines(small), hashes_of("a", len(BLOCKS))
    engine.fill(BLOCKS, 2)
    blocks = [engine.block(block) for block in BLOCKS]
    places = [list(zip(*engine.places(block))) for block in BLOCKS]
    for address, size in engine.regions:
        assert raw.register_buffer(address, size) == 0
    codes = raw.batch_put_from_multi_buffers(
        [engine.key_text(value) for value in hashes], [list(addresses) for addresses, _ in places], [list(sizes) for _, sizes in places]
    )
    for address, _ in engine.regions:
        assert raw.unregister_buffer(address) == 0
    assert codes == [0] * len(BLOCKS)
    assert loaded(engine, hashes) == blocks


@pytest.mark.parametrize("named_first", [True, False])
def test_objects_are_the_same_named_and_staged(pools, engines, named_first):
    small, large, _ = pools
    named, staged = engines(small), engines(large, device=None)
    writer, reader = (named, staged) if named_first else (staged, named)
    hashes = hashes_of("a", len(BLOCKS))
    blocks = saved(writer, hashes, 3)
    assert loaded(reader, hashes) == blocks


def test_threads_save_and_load_at_one_time_and_mix_nothing_up(pools, engines):
    small, _, _ = pools
    seed = random.randrange(1 << 32)
    print("seed", seed)
    engine = engines(small, load_threads=4)
    prompts = {number: hashes_of((seed, number), 4) for number in range(4)}
    blocks = {number: [1 + 4 * number + index for index in range(4)] for number in prompts}
    for number, hashes in prompts.items():
        engine.fill(blocks[number], f"{seed} {number}")
        engine.save(f"save {number}", hashes, blocks[number], wait=0)
    assert engine.worker.drain(30)
    wanted = {number: [engine.block(block) for block in blocks[number]] for number in prompts}
    for _ in range(5):
        order = list(prompts)
        random.Random(seed).shuffle(order)
        engine.fill(range(1, 32), seed)
        for number, place in zip(order, prompts):
            engine.load(f"load {number}", prompts[number], blocks[place], wait=0)
        assert engine.worker.drain(30)
        assert sorted(engine.worker.take_reports()["loaded"]) == [f"load {number}" for number in prompts]
        for number, place in zip(order, prompts):
            assert [engine.block(block) for block in blocks[place]] == wanted[number], f"seed {seed}"


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK + 1, PIECE])
def test_an_object_of_another_size_is_not_loaded_and_goes(pools, engines, size):
    small, _, raw = pools
    engine, hashes = engines(small), hashes_of("a", len(BLOCKS))
    saved(engine, hashes, 4)
    wrong = engine.key_text(hashes[2])
    assert raw.remove(wrong, True) == 0 and raw.put(wrong, bytes(size)) == 0
    outside = [engine.block(block) for block in BLOCKS]
    engine.load("load", hashes, [11, 12, 13, 14])
    reports = engine.worker.take_reports()
    assert (reports["failed"], reports["failed_blocks"]) == (["load"], [13])
    assert reports["counters"]["load_keys_wrong_size_total"] == 1
    assert raw.is_exist(wrong) == 0 and [engine.block(block) for block in BLOCKS] == outside


def test_memory_can_be_registered_again_when_its_worker_has_ended(pools, engines):
    """Mooncake refuses memory that it knows; a worker would stage its bytes then, and this pool has no room for them."""
    small, _, _ = pools
    engine, hashes = engines(small), hashes_of("a", len(BLOCKS))
    for seed in (5, 6):
        blocks = saved(engine, hashes, seed)
        assert loaded(engine, hashes, f"load {seed}") == blocks
        assert small.clear(engine.name_space) == len(BLOCKS)
        engine.restart()


def test_copies_of_an_owner_that_stands_still_are_reported_when_they_have_ended(tmp_path):
    """With deadlines of a second. What Mooncake still does to a block after its report would belong to other tokens."""
    master = Master(tmp_path, client_ttl=600)
    owner = Owner(master, 64 * MIB)
    options = config(master, mode="standalone-store", global_segment_size=0)
    with tenure.MooncakePool(options, transfer_timeout=1.0, lease_ttl=600.0) as pool:
        engine, hashes = DeviceEngine(pool, device=DEVICE, piece_bytes=PIECE, load_deadline=1.0), hashes_of("a", len(BLOCKS))
        blocks = saved(engine, hashes, 7)
        os.kill(owner.process.pid, signal.SIGSTOP)
        engine.load("load", hashes, [11, 12, 13, 14], wait=0)
        job = engine.save("save", hashes_of("b", len(BLOCKS)), [21, 22, 23, 24], wait=0)
        assert not engine.worker.drain(3.0)
        reports = engine.worker.take_reports()
        assert not reports["loaded"] and not reports["failed"] and not reports["saved"], "blocks are given away under Mooncake's hands"
        os.kill(owner.process.pid, signal.SIGCONT)
        assert engine.worker.drain(90.0)
        reports = engine.worker.take_reports()
        assert reports["saved"] == {job: 1} and reports["loaded"] + reports["failed"] == ["load"]
        if reports["loaded"]:
            assert [engine.block(block) for block in (11, 12, 13, 14)] == blocks
        engine.close()
    owner.stop()
    master.stop()
