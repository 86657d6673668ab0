"""A worker's side from Python: plans of a scheduler's side in, bytes moved, reports out, and arguments that are refused."""

import ctypes

import pytest
from conftest import make_hashes
from device_engine import save_plan

import tenure
from tenure._native import StoreScheduler, StoreWorker

BLOCKS, BLOCK_BYTES = 64, 256
CONFIG = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)


class Engine:
    """Memory, a scheduler's side and a worker's side over one pool."""

    def __init__(self, pool, **options):
        self.pool = pool
        self.memory = (ctypes.c_ubyte * (BLOCKS * BLOCK_BYTES))(*(i * 7 % 251 for i in range(BLOCKS * BLOCK_BYTES)))
        self.scheduler = StoreScheduler(CONFIG, pool, [[self.name_space]], role="kv_both", world_size=1, inline_lookup=True)
        self.worker = self.make(**options)

    @property
    def name_space(self):
        return self.pool.open_namespace("model@")

    def make(self, **options):
        address = ctypes.addressof(self.memory)
        arguments = {
            "config": CONFIG,
            "pool": self.pool,
            "namespaces": [[self.name_space]],
            "pieces": [[[(address, BLOCK_BYTES, BLOCK_BYTES)]]],
            "regions": [(address, BLOCKS * BLOCK_BYTES)],
            "num_blocks": BLOCKS,
            "tp_rank": 0,
            "stripes": [1],
            "retention": 0,
        }
        return StoreWorker(**arguments | options)

    def block(self, index):
        return bytes(self.memory[index * BLOCK_BYTES : (index + 1) * BLOCK_BYTES])

    def save_plan(self, request, hashes, blocks):
        return save_plan(self.scheduler, request, hashes, blocks)

    def load_plan(self, request, hashes, blocks):
        tokens = 16 * len(hashes) + 1
        assert self.scheduler.matched_tokens(request, hashes, tokens, 0) == 16 * len(hashes)
        self.scheduler.allocated(request, [blocks], 16 * len(hashes))
        self.scheduler.begin_step([], [])
        plan, jobs = self.scheduler.finish_step()
        assert not jobs
        return plan


@pytest.fixture
def engine(closed_pool):
    engine = Engine(closed_pool, events=True)
    yield engine
    engine.worker.close()
    engine.scheduler.close()


def test_what_was_saved_is_loaded(engine):
    hashes = make_hashes(3)
    plan, job = engine.save_plan("a", hashes, [1, 2, 3])
    engine.worker.start_saves(plan)
    assert engine.worker.drain(30)
    reports = engine.worker.take_reports()
    assert reports["saved"] == {job: 1}
    assert [(event[0], event[1], event[2], event[3]) for event in reports["events"]] == [
        (0, hashes[0], None, 16),
        (0, hashes[1], hashes[0], 16),
        (0, hashes[2], hashes[1], 16),
    ]
    assert [(name, keys, size, failed, status) for name, _, keys, size, failed, status in reports["operations"]] == [
        ("save_exists", 3, 0, 0, "ok"),
        ("save_put", 3, 3 * BLOCK_BYTES, 0, "ok"),
    ]
    assert reports["counters"]["saved_bytes_total"] == 3 * BLOCK_BYTES
    engine.worker.load_now(engine.load_plan("b", hashes, [11, 12, 13]))
    reports = engine.worker.take_reports()
    assert (reports["loaded"], reports["failed"], reports["failed_blocks"]) == (["b"], [], [])
    assert [engine.block(block) for block in (11, 12, 13)] == [engine.block(block) for block in (1, 2, 3)]
    assert engine.worker.take_reports()["loaded"] == []


def test_a_lost_key_fails_its_request_by_block(engine):
    hashes = make_hashes(3)
    plan, _ = engine.save_plan("a", hashes, [1, 2, 3])
    engine.worker.start_saves(plan)
    assert engine.worker.drain(30)
    plan = engine.load_plan("b", hashes, [11, 12, 13])
    engine.pool.remove([(engine.name_space, hashes[2])])
    engine.worker.start_loads(plan)
    assert engine.worker.drain(30)
    reports = engine.worker.take_reports()
    assert (reports["loaded"], reports["failed"], reports["failed_blocks"]) == ([], ["b"], [13])
    assert reports["counters"]["load_keys_absent_total"] == 1


def test_every_job_is_reported_also_after_close(engine):
    plan, job = engine.save_plan("a", make_hashes(3), [1, 2, 3])
    engine.worker.close()
    engine.worker.close()
    engine.worker.start_saves(plan)
    assert engine.worker.take_reports()["saved"] == {job: 1}
    assert engine.worker.drain(1)


def test_a_worker_that_may_not_put_reports_jobs_as_done(engine):
    plan, job = engine.save_plan("a", make_hashes(3), [1, 2, 3])
    reader = engine.make(can_put=False)
    reader.start_saves(plan)
    assert reader.take_reports()["saved"] == {job: 1}
    assert engine.pool.stats()["objects"] == 0
    reader.close()


def test_bytes_that_are_no_plan_are_refused(engine):
    plan, _ = engine.save_plan("a", make_hashes(3), [1, 2, 3])
    for wrong in (b"", b"\xff" + plan[1:], plan[:-1], plan + b"\0"):
        for take in (engine.worker.start_loads, engine.worker.load_now, engine.worker.start_saves):
            with pytest.raises(ValueError, match="plan"):
                take(wrong)


def test_arguments_are_named(engine):
    address = ctypes.addressof(engine.memory)
    other = tenure.EmbeddedPool("1MiB", slab_bytes="64KiB", objects_max=8192)
    for message, options in (
        ("num_blocks is 1", {"num_blocks": 1}),
        (r"pieces\[0\]\[0\]\[0\]", {"num_blocks": BLOCKS + 1}),
        (r"pieces\[0\]\[0\]\[0\]", {"pieces": [[[(address - 1, BLOCK_BYTES, BLOCK_BYTES)]]]}),
        (r"regions\[0\]", {"regions": [(0, 16)]}),
        ("stripes", {"stripes": []}),
        ("tp_rank is -1", {"tp_rank": -1}),
        ("retention is 8", {"retention": 8}),
        ("retention is -16", {"retention": -16}),
        ("load_threads is 0", {"load_threads": 0}),
        ("load_deadline is 0", {"load_deadline": 0.0}),
        ("of another pool", {"namespaces": [[other.open_namespace("model@")]]}),
        ("give one entry a group", {"namespaces": []}),
        ("npu:0", {"device": ("npu", 0)}),
    ):
        with pytest.raises(ValueError, match=message):
            engine.make(**options)
    other.close()


def test_a_device_without_a_driver_is_one_clear_line(engine):
    try:
        engine.make(device=("cuda", 99)).close()
    except tenure.PoolUnavailable as error:
        assert "cuda:99" in str(error) and "\n" not in str(error)
    else:
        pytest.fail("no machine has a hundred devices")
