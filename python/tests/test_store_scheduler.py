"""The compiled scheduler's side of a store connector: its calls, the caller's lists, threads and the interpreter's end."""

import ctypes
import os
import signal
import subprocess
import sys
import threading

import pytest
from conftest import make_hashes

import tenure
from tenure._native import StoreScheduler, StoreWorker


class Rig:
    """Eight chunks of 16 tokens in a pool, and a scheduler over it."""

    def __init__(self, pool, **options):
        self.config = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
        self.pool = pool
        self.spaces = [[pool.open_namespace("m@")]]
        self.hashes = make_hashes(8)
        pool.put([(self.spaces[0][0], value) for value in self.hashes], [b"x"] * 8)
        self.core = StoreScheduler(self.config, pool, self.spaces, **{"role": "kv_both", "world_size": 2} | options)

    def matched(self, request, tokens=129, computed=0):
        while (found := self.core.matched_tokens(request, self.hashes, tokens, computed)) is None:
            pass
        return found


@pytest.fixture(params=[True, False], ids=["inline", "background"])
def rig(request, independent_pool):
    made = Rig(independent_pool, inline_lookup=request.param, lookup_deadline=60)
    yield made
    made.core.close()
    assert independent_pool.stats()["held_leased_objects"] == 0


def test_a_load_and_a_save_from_question_to_unpinning(rig):
    core = rig.core
    assert rig.matched("a", computed=16) == 112
    core.allocated("a", [[1, 2, 3, 4, 5, 6, 7, 8, 9]], 112)
    core.begin_step([], [])
    plan, pins = core.finish_step()
    assert isinstance(plan, bytes) and rig.hashes[7] in plan and rig.hashes[0] not in plan and pins == []
    core.load_done("a")
    core.begin_step([], [])
    core.scheduled_new("a", rig.hashes, 129, 129, 128, 1)
    assert core.save_requests() == ["a"]
    core.current_blocks("a", [[1, 2, 3, 4, 5, 6, 7, 8, 9]])
    plan, [(job, blocks)] = core.finish_step()
    assert rig.hashes[0] in plan and blocks == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert core.completed(job, 1) is None and core.pending_jobs()
    assert core.completed(job, 1) == blocks and not core.pending_jobs()
    core.scheduled_cached("a", False, rig.hashes, 130, 129, 1)
    core.begin_step(["a"], [])
    plan, pins = core.finish_step()
    assert b"a" in plan and pins == []
    counters = core.counters()
    assert counters["prompt_tokens_total"] == 129 and counters["external_tokens_total"] == 112
    operations = core.operations()
    assert {name for name, *_ in operations} == {"lookup_probe", "lookup_lease"} and core.operations() == []
    assert all(seconds >= 0 and keys > 0 and size == failed == 0 and status == "ok" for _, seconds, keys, size, failed, status in operations)


def test_failed_loads_are_not_offered_again(rig):
    assert rig.matched("a") == 128
    rig.core.allocated("a", [list(range(1, 10))], 128)
    rig.core.finish_step()
    rig.core.load_failed("a")
    assert rig.matched("a") == 0 and rig.core.counters()["load_orders_failed_total"] == 1


def test_refused_loads_are_value_errors_and_end_as_failed_loads(rig):
    assert rig.matched("a") == 128
    with pytest.raises(ValueError, match="num_external is 64 for request a, which was offered 128"):
        rig.core.allocated("a", [[1, 2]], 64)
    rig.core.begin_step([], [])
    plan, _ = rig.core.finish_step()
    memory = (ctypes.c_char * 64)()
    base = ctypes.addressof(memory)
    worker = StoreWorker(rig.config, rig.pool, rig.spaces, [[[(base, 16, 16)]]], [(base, 64)], 4, tp_rank=0, stripes=[1])
    try:
        worker.load_now(plan)
        reports = worker.take_reports()
    finally:
        worker.close()
    assert (reports["loaded"], reports["failed"], reports["failed_blocks"]) == ([], ["a"], [1, 2])
    rig.core.load_failed("a")
    assert rig.matched("a") == 0


def test_lists_are_let_go(rig):
    class Hashes(list):
        """A list that can be watched."""

    hashes = Hashes(rig.hashes)
    before = sys.getrefcount(hashes)
    for request in range(20):
        while rig.core.matched_tokens(str(request), hashes, 129, 0) is None:
            pass
        rig.core.allocated(str(request), [], 0)
    rig.core.begin_step([str(request) for request in range(20)], [])
    rig.core.finish_step()
    rig.core.close()
    assert sys.getrefcount(hashes) == before


def test_bad_hashes_are_a_miss(rig):
    bad = [7] * 8
    while (found := rig.core.matched_tokens("a", bad, 129, 0)) is None:
        pass
    assert found == 0 and rig.core.counters()["lookup_misses_error_total"] == 1


def test_busy_threads_of_python_do_not_stop_it(rig):
    """Searches need the interpreter's lock while other threads and the caller want it."""
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=spin) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for request in range(30):
            assert rig.matched(str(request)) == 128
            rig.core.begin_step([str(request)], [])
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_second_thread_is_refused_and_does_no_harm(rig):
    refused = []

    def work():
        for request in range(300):
            try:
                rig.core.matched_tokens(f"other {request}", rig.hashes, 129, 0)
            except tenure.Error as error:
                refused.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    for request in range(300):
        try:
            rig.core.matched_tokens(str(request), rig.hashes, 129, 0)
        except tenure.Error as error:
            refused.append(str(error))
    thread.join()
    assert all("scheduler's thread only" in text for text in refused)


def test_closed_scheduler_offers_nothing(rig):
    rig.core.close()
    rig.core.close()
    assert rig.matched("a") == 0
    rig.core.begin_step([], [])
    assert rig.core.finish_step()[1] == []


def test_closed_pool_is_a_miss(closed_pool):
    pool = tenure.EmbeddedPool("1MiB", slab_bytes="64KiB")
    made = Rig(pool, inline_lookup=True)
    pool.close()
    assert made.matched("a") in (0, 128)
    with pytest.raises(tenure.Error, match="closed"):
        StoreScheduler(made.config, pool, made.spaces, role="kv_both", world_size=1)


def test_bad_arguments_are_named(independent_pool):
    for text, options in (
        ("role is", {"role": "both"}),
        ("world_size is 0", {"world_size": 0}),
        ("search is", {"search": "fast"}),
        ("lease is", {"lease": "none"}),
        ("lease_ttl is", {"lease_ttl": 0}),
        ("lookup_deadline is", {"lookup_deadline": -1}),
        ("lookup_threads is", {"lookup_threads": 0}),
        ("lookup_threads is", {"lookup_threads": 1000}),
    ):
        with pytest.raises(ValueError, match=text):
            Rig(independent_pool, **options)
    made = Rig(independent_pool)
    with pytest.raises(ValueError, match="num_tokens is -1"):
        made.core.matched_tokens("a", made.hashes, -1, 0)
    with pytest.raises(ValueError, match="scheduled is"):
        made.core.scheduled_new("a", made.hashes, 1, 1, 0, 1 << 60)
    with pytest.raises(ValueError, match="count is 0"):
        made.core.completed(1, 0)
    with pytest.raises(ValueError, match="one boundary"):
        made.core.finished_partial_tail("a", made.hashes, 1, 1, [[1]], [(0, 1, 16), (0, 1, 32)])
    with pytest.raises(TypeError):
        made.core.matched_tokens("a", tuple(made.hashes), 129, 0)
    made.core.close()


PROGRAM = """
import tenure
from tenure._native import StoreScheduler
pool = tenure.EmbeddedPool("1MiB", slab_bytes="64KiB", mode="independent")
config = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
core = StoreScheduler(config, pool, [[pool.open_namespace("m@")]], role="kv_both", world_size=1, lookup_threads=4)
for request in range(500):
    core.matched_tokens(str(request), [bytes([request % 256]) * 32] * 200, 3201, 0)
"""


def test_a_program_may_end_in_the_middle_of_lookups():
    for _ in range(5):
        ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr


FORKED = """
import ctypes, os, sys
import tenure
from tenure._native import DaemonHost, StoreScheduler, StoreWorker
host = DaemonHost(sys.argv[1], "64MiB")
pool = tenure.EmbeddedPool("1MiB", slab_bytes="64KiB", mode="independent")
config = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
spaces = [[pool.open_namespace("m@")]]
core = StoreScheduler(config, pool, spaces, role="kv_both", world_size=1, lookup_threads=4)
memory = (ctypes.c_char * 64)()
base = ctypes.addressof(memory)
worker = StoreWorker(config, pool, spaces, [[[(base, 16, 16)]]], [(base, 64)], 4, tp_rank=0, stripes=[1], load_threads=4)
child = os.fork()
if child == 0:
    core.close()
    host.close()
    del core, worker, host
    raise SystemExit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert core.matched_tokens("a", [b"h" * 32], 17, 0) in (None, 0)
assert tenure.DaemonPool(sys.argv[1]).probe([]) == []
worker.close()
core.close()
host.close()
"""


def test_a_forked_child_may_end_at_any_time(tmp_path):
    """It has copies without their threads; ending those must not wait for them."""
    with subprocess.Popen([sys.executable, "-c", FORKED, str(tmp_path / "pool.sock")], stderr=subprocess.PIPE, text=True, start_new_session=True) as program:
        try:
            _, error = program.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            raise
    assert program.returncode == 0, error
