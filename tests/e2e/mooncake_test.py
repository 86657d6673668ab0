"""Tenure over a real Mooncake master on loopback: the pool contract, lookups, faults, and the compatibility API beside the real one.

One suite of contract tests runs over every pool; where a pool declares a difference, the stated difference is tested instead.
`./dev test-mooncake` runs it. Waiting for leases of a real master needs real time: LEASE_SECONDS.
"""

import ctypes
import hashlib
import itertools
import os
import random
import signal
import statistics
import sys
import threading
import time
import types

import pytest

sys.path.insert(0, os.path.dirname(__file__))
from mooncake_processes import LEASE_SECONDS, MIB, Master, Owner, end, free_ports, raw_client  # noqa: E402

import tenure  # noqa: E402
from tenure import KeyAnswer, PutAnswer  # noqa: E402
from tenure._native import StoreScheduler  # noqa: E402
from tenure.compat import mooncake_store as compat  # noqa: E402

PRESENT, ABSENT = KeyAnswer.PRESENT, KeyAnswer.ABSENT
CALL_TIMEOUT = 1.0
TRANSFER_TIMEOUT = 3.0
# Beyond its deadline a call may wait for a core of this machine.
SLACK = 1.5
_prefixes = itertools.count()


def config(master, **options):
    return tenure.MooncakeConfig(
        **{"master_server_address": master.address, "metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "local_hostname": "127.0.0.1",
           "global_segment_size": 64 * MIB, "local_buffer_size": 16 * MIB, **options}
    )


def mooncake_pool(master, **options):
    timeouts = {"call_timeout": CALL_TIMEOUT, "transfer_timeout": TRANSFER_TIMEOUT, "lease_ttl": LEASE_SECONDS, "staging_bytes": 4 * MIB}
    return tenure.MooncakePool(config(master, **options), **timeouts)


class EndAtOnce:
    """Ends the process of the tests without Python's and Mooncake's clean-up.

    Some tests take a client's master away. Mooncake 0.3.14 cannot close such a client, and its threads go on to the end of the
    process, where they meet destroyed globals (a fault in one of twelve runs). How ours ends, python/tests/test_mooncake_pool.py tests.
    """

    status = 1

    def pytest_sessionfinish(self, exitstatus):
        self.status = int(exitstatus)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self.status)


@pytest.fixture(scope="session", autouse=True)
def end_at_once(request):
    request.config.pluginmanager.register(EndAtOnce())


@pytest.fixture(scope="session")
def master(tmp_path_factory):
    master = Master(tmp_path_factory.mktemp("master"))
    yield master
    master.stop()


@pytest.fixture(scope="session")
def shared_mooncake(master):
    with mooncake_pool(master) as pool:
        yield pool


@pytest.fixture(scope="session")
def raw(master, shared_mooncake):
    store = raw_client(master)
    yield store
    store.close()


@pytest.fixture(params=["mooncake", "embedded_independent", "embedded_closed"])
def pool(request, shared_mooncake):
    if request.param == "mooncake":
        yield shared_mooncake
    else:
        with tenure.EmbeddedPool("16MiB", slab_bytes="256KiB", mode=request.param.removeprefix("embedded_")) as embedded:
            yield embedded


def fresh_namespace(pool):
    return pool.open_namespace(tenure.namespace_prefix(f"model-{next(_prefixes)}", 0))


def hash_of(number):
    return hashlib.sha256(str(number).encode()).digest()


def keys_of(name_space, *numbers):
    return [(name_space, hash_of(number)) for number in numbers]


def put_all(pool, keys):
    """1,000 bytes under each key; again where a put was late, as on a busy machine."""
    deadline = time.monotonic() + 30
    while not set(pool.put(keys, [bytes(1000)] * len(keys))) <= {PutAnswer.STORED, PutAnswer.EXISTS}:
        assert time.monotonic() < deadline


def get(pool, key, size):
    buffer = bytearray(size)
    (answer,) = pool.get([key], [buffer])
    return answer, bytes(buffer)


# --- the contract -----------------------------------------------------------------------------------------------------------


def test_declared_differences_are_those_of_its_kind(pool):
    known = ["one_lease_ttl", "no_pin", "not_stored_answer", "no_checksum", "own_watermark"]
    assert pool.differences == (known if pool.name == "mooncake" else [])


def test_bytes_come_back_whole_or_not_at_all(pool):
    name_space = fresh_namespace(pool)
    keys = keys_of(name_space, *range(50))
    values = [random.Random(number).randbytes(1 + number * 997) for number in range(50)]
    assert pool.put(keys, [[value[: len(value) // 2], value[len(value) // 2 :]] if len(value) > 1 else value for value in values]) == [
        PutAnswer.STORED
    ] * 50
    for key, value in zip(keys, values):
        assert get(pool, key, len(value)) == (PRESENT, value)
        assert get(pool, key, len(value) + 1) == (KeyAnswer.SIZE_DIFFERS, bytes(len(value) + 1))
    assert get(pool, keys[9], 10)[0] == KeyAnswer.SIZE_DIFFERS
    assert get(pool, keys_of(name_space, "none")[0], 10)[0] == ABSENT


def test_put_of_a_present_key_changes_nothing(pool):
    (key,) = keys_of(fresh_namespace(pool), 1)
    assert pool.put([key, key], [b"first", b"other"]) == [PutAnswer.STORED, PutAnswer.EXISTS]
    assert pool.put([key], [b"third"]) == [PutAnswer.EXISTS]
    assert pool.put([key], [b"longer than it"]) == [PutAnswer.SIZE_DIFFERS]
    assert get(pool, key, 5) == (PRESENT, b"first")


def test_lease_is_for_what_is_there(pool):
    keys = keys_of(fresh_namespace(pool), 1, 2)
    pool.put(keys[:1], [b"a"])
    lease, answers = pool.lease(keys, 60.0)
    assert answers == [PRESENT, ABSENT] and len(lease) == 1
    bound = LEASE_SECONDS if "one_lease_ttl" in pool.differences else 60.0
    assert 0 < lease.deadline - time.monotonic() <= bound
    lease.release()


def test_removed_is_absent_at_once_leased_or_not_and_a_new_put_is_new(pool):
    (key,) = keys_of(fresh_namespace(pool), 1)
    pool.put([key], [b"old"])
    lease, _ = pool.lease([key], 60.0)
    assert pool.remove([key]) == [PRESENT] and pool.probe([key]) == [ABSENT] and pool.remove([key]) == [ABSENT]
    assert pool.put([key], [b"newer"]) == [PutAnswer.STORED]
    lease.release()
    assert get(pool, key, 5) == (PRESENT, b"newer")


def test_clear_is_of_one_namespace(pool):
    mine, other = fresh_namespace(pool), fresh_namespace(pool)
    pool.put(keys_of(mine, 1, 2, 3) + keys_of(other, 1), [b"a"] * 4)
    assert pool.clear(mine) == 3
    assert pool.probe(keys_of(mine, 1) + keys_of(other, 1)) == [ABSENT, PRESENT]


def test_bad_input_is_refused_by_name_and_changes_nothing(pool):
    (key,) = keys_of(fresh_namespace(pool), 1)
    for text, call in {
        "ttl is -1": lambda: pool.lease([key], -1),
        "has an empty buffer": lambda: pool.put([key], [b""]),
        "not inside a registered buffer": lambda: pool.put_from([key], [[4096]], [[1 << 40]]),
        "has 0 bytes": lambda: pool.put_from([key], [[4096]], [[0]]),
        "hash of a key": lambda: pool.probe([(key[0], b"abc")]),
        "NUL": lambda: pool.open_namespace("a\0b"),
    }.items():
        with pytest.raises(ValueError, match=text):
            call()
    assert pool.probe([key]) == [ABSENT]


# --- what only the real store can show ----------------------------------------------------------------------------------------


def is_leased(raw, text):
    """Mooncake refuses to remove what is leased; what is not goes."""
    code = raw.remove(text)
    assert code in (0, -706), code
    return code == -706


def test_keys_and_bytes_are_those_of_stock_connectors(shared_mooncake, raw):
    prefix = tenure.namespace_prefix("Llama-3", 2, tp=1, cache_prefix="tenant")
    name_space = shared_mooncake.open_namespace(prefix)
    text = tenure.key_text(prefix, hash_of(1))
    assert text == "tenant@Llama-3@tp_rank:1@pcp0@dcp0@pp_rank:0@group:2@" + hash_of(1).hex()
    shared_mooncake.put(keys_of(name_space, 1), [[b"ab", b"c"]])
    assert raw.is_exist(text) == 1 and raw.get(text) == b"abc"
    other = tenure.key_text(prefix, hash_of(2))
    assert raw.put(other, b"xyz") == 0
    assert get(shared_mooncake, keys_of(name_space, 2)[0], 3) == (PRESENT, b"xyz")


def test_probe_leases_nothing_and_a_released_lease_runs_on(shared_mooncake, raw):
    name_space = fresh_namespace(shared_mooncake)
    keys = keys_of(name_space, 1, 2)
    texts = [tenure.key_text(name_space.prefix, key[1]) for key in keys]
    shared_mooncake.put(keys, [b"a", b"b"])
    assert shared_mooncake.probe(keys) == [PRESENT, PRESENT]
    lease, _ = shared_mooncake.lease(keys[:1], 60.0)
    lease.release()
    assert is_leased(raw, texts[0]), "the declared difference one_lease_ttl: a release does nothing"
    assert not is_leased(raw, texts[1]), "a probe leased the key"


def test_lookup_leases_its_load_set_and_nothing_else(shared_mooncake, raw):
    groups = [tenure.GroupSpec("full", 16), tenure.GroupSpec("window", 16, window=32), tenure.GroupSpec("state", 16)]
    rules = tenure.CacheConfig(groups, hash_block_size=16, scheduler_block_size=16)
    spaces = [[fresh_namespace(shared_mooncake) for _rank in range(2)] for _group in groups]
    hashes = [hash_of(number) for number in range(40)]
    for name_space in itertools.chain(*spaces):
        keys = [(name_space, value) for value in hashes]
        assert set(shared_mooncake.put(keys, [b"x"] * 40)) == {PutAnswer.STORED}
    result = tenure.Lookup(rules, shared_mooncake, spaces).find(hashes, 641)
    assert result.length == 640
    load_set = set(rules.load_set(result.hit))
    leased = {
        (group, index, rank)
        for group, names in enumerate(spaces)
        for rank, name_space in enumerate(names)
        for index, value in enumerate(hashes)
        if is_leased(raw, tenure.key_text(name_space.prefix, value))
    }
    assert leased == {(group, index, rank) for group, index in load_set for rank in range(2)}
    assert len(leased) == (40 + 2 + 1) * 2


def test_lookups_agree_with_the_rule_over_random_stores(shared_mooncake):
    seed = random.randrange(1 << 32)
    generator = random.Random(seed)
    groups = [tenure.GroupSpec("full", 16), tenure.GroupSpec("window", 16, window=48)]
    rules = tenure.CacheConfig(groups, hash_block_size=16, scheduler_block_size=16)
    hits = {"hits": 0, "misses": 0}
    for case in range(30):
        spaces = [[fresh_namespace(shared_mooncake)] for _group in groups]
        hashes = [hash_of((seed, case, number)) for number in range(30)]
        present = [{index for index in range(30) if generator.random() < 0.9} for _group in groups]
        for group, indices in enumerate(present):
            keys = [(spaces[group][0], hashes[index]) for index in sorted(indices)]
            shared_mooncake.put(keys, [b"x"] * len(keys))
        expected = rules.find_hit(30, 481, lambda group, index: index in present[group])
        for search in ("tail_first", "exhaustive"):
            found = tenure.Lookup(rules, shared_mooncake, spaces, search=search).find(hashes, 481)
            assert found.hit.length == expected.length, f"seed {seed} case {case} {search}"
        hits["hits" if expected else "misses"] += 1
    print("seed", seed, hits)
    assert hits["hits"] > 0


def test_full_store_refuses_or_evicts_and_loses_no_leased_key(tmp_path):
    master = Master(tmp_path)
    try:
        with mooncake_pool(master, global_segment_size=16 * MIB) as pool:
            name_space = fresh_namespace(pool)
            leased = keys_of(name_space, *range(8))
            pool.put(leased, [bytes(256 << 10)] * 8)
            pool.lease(leased, 60.0)
            answers = [pool.put(keys_of(name_space, number), [bytes(256 << 10)])[0] for number in range(100, 200)]
            assert set(answers) <= {PutAnswer.STORED, PutAnswer.REFUSED_FULL, PutAnswer.NOT_STORED}
            assert PutAnswer.STORED in answers
            assert pool.probe(leased) == [PRESENT] * 8
    finally:
        master.stop()


def test_put_that_meets_another_writer_is_not_stored(shared_mooncake, raw):
    """The declared difference not_stored_answer: Mooncake answers such a put with 0, as if it had stored the bytes."""
    name_space = fresh_namespace(shared_mooncake)
    (key,) = keys_of(name_space, 1)
    text = tenure.key_text(name_space.prefix, key[1])
    memory = (ctypes.c_char * 4096)(*b"other")
    assert raw.register_buffer(ctypes.addressof(memory), 4096) == 0
    assert raw.batch_put_session_start([text], [5]) == [0]
    assert shared_mooncake.put([key, key], [b"mine!", b"mine!"]) == [PutAnswer.NOT_STORED] * 2
    assert shared_mooncake.probe([key]) == [ABSENT]
    assert raw.batch_put_from_multi_buffer_ranges([text], [[ctypes.addressof(memory)]], [[5]], [[0]]) == [5]
    assert raw.batch_put_session_end([text]) == [0]
    assert shared_mooncake.put([key], [b"mine!"]) == [PutAnswer.EXISTS] and get(shared_mooncake, key, 5) == (PRESENT, b"other")
    assert raw.unregister_buffer(ctypes.addressof(memory)) == 0


def test_bytes_that_change_in_the_store_are_delivered(shared_mooncake, raw):
    """The declared difference no_checksum. The pool's segment lies in this process, so a test can reach what it holds."""
    name_space = fresh_namespace(shared_mooncake)
    (key,) = keys_of(name_space, 1)
    assert shared_mooncake.put([key], [b"whole"]) == [PutAnswer.STORED]
    (replica,) = raw.get_replica_desc(tenure.key_text(name_space.prefix, key[1]))
    place = replica.get_memory_descriptor().buffer_descriptor.buffer_address
    assert ctypes.string_at(place, 5) == b"whole"
    ctypes.memmove(place, b"torn!", 5)
    assert get(shared_mooncake, key, 5) == (PRESENT, b"torn!")
    assert shared_mooncake.stats()["checksum_failures_total"] == 0


def test_master_evicts_at_its_own_watermark(tmp_path):
    """The declared difference own_watermark: by the contract 55 of 64 objects would stay, and stats() would count the others."""
    master = Master(tmp_path, eviction_high_watermark_ratio=0.5)
    try:
        with mooncake_pool(master, global_segment_size=16 * MIB) as pool:
            keys = keys_of(fresh_namespace(pool), *range(60))
            for key in keys:
                pool.put([key], [bytes(256 << 10)])
            deadline = time.monotonic() + 20
            while (left := pool.probe(keys).count(PRESENT)) > 40:
                assert time.monotonic() < deadline, f"{left} of 60 objects are left"
            assert left > 0 and pool.stats()["evicted_total"] == 0
    finally:
        master.stop()


def test_lookup_costs_little_more_than_the_bare_question(shared_mooncake, raw):
    """32k tokens of full attention: against one batch_is_exist of the load set, whose keys are texts already."""
    rules = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
    hashes = [hash_of(("cost", number)) for number in range(2048)]
    name_space = fresh_namespace(shared_mooncake)
    shared_mooncake.put([(name_space, value) for value in hashes], [b"x"] * len(hashes))
    texts = [tenure.key_text(name_space.prefix, value) for value in hashes]
    lookup = tenure.Lookup(rules, shared_mooncake, [[name_space]])
    seconds = {"lookup": [], "bare": []}
    for _ in range(40):
        start = time.perf_counter()
        assert raw.batch_is_exist(texts) == [1] * len(texts)
        middle = time.perf_counter()
        assert lookup.find(hashes, 32769).length == 32768
        seconds["bare"].append(middle - start)
        seconds["lookup"].append(time.perf_counter() - middle)
    bare, found = (statistics.median(seconds[name]) for name in ("bare", "lookup"))
    print(f"lookup of 32k tokens: {found * 1e3:.2f} ms, bare batch_is_exist of its {len(texts)} keys: {bare * 1e3:.2f} ms, {found / bare:.2f}x")
    assert found < 5 * bare  # The figure itself is for a quiet machine.


# --- faults -------------------------------------------------------------------------------------------------------------------


def every_call(pool, keys, deadline_factor=1):
    """Runs each call; each must be a miss, an answer or PoolUnavailable in time. Returns what they were."""
    rules = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
    lookup = tenure.Lookup(rules, pool, [[keys[0][0]]])
    buffers = [bytearray(b"." * 1000) for _ in keys]
    calls = {
        "probe": (lambda: pool.probe(keys), CALL_TIMEOUT),
        "lease": (lambda: pool.lease(keys, 1.0)[1], CALL_TIMEOUT),
        "get": (lambda: pool.get(keys, buffers), TRANSFER_TIMEOUT),
        "put": (lambda: pool.put([(keys[0][0], os.urandom(32))], [bytes(1000)]), TRANSFER_TIMEOUT),
        "remove": (lambda: pool.remove([(keys[0][0], os.urandom(32))]), CALL_TIMEOUT),
        "lookup": (lambda: lookup.find([key[1] for key in keys], 16 * len(keys) + 1), 3 * CALL_TIMEOUT),
    }
    outcomes = {}
    for name, (call, limit) in calls.items():
        start = time.monotonic()
        try:
            outcomes[name] = call()
        except tenure.PoolUnavailable as error:
            outcomes[name] = str(error)
        seconds = time.monotonic() - start
        assert seconds < limit + SLACK, f"{name} took {seconds:.1f} s"
    return outcomes, buffers


def assert_no_hit(outcomes):
    for name, outcome in outcomes.items():
        if name == "lookup":
            assert not outcome, outcomes
        elif not isinstance(outcome, str):
            assert not {PRESENT, PutAnswer.STORED, PutAnswer.EXISTS} & set(outcome), outcomes


def test_kill_of_the_master_is_misses_in_time(tmp_path):
    master = Master(tmp_path)
    with mooncake_pool(master) as pool:
        keys = keys_of(fresh_namespace(pool), *range(10))
        put_all(pool, keys)
        end(master.process)
        for _ in range(2):
            outcomes, _buffers = every_call(pool, keys)
            assert_no_hit(outcomes)
        print(outcomes)
        start = time.monotonic()
    assert time.monotonic() - start < 10, "close does not wait for a dead master"
    master.stop()


def test_stopped_master_is_misses_in_time(tmp_path):
    master = Master(tmp_path)
    with mooncake_pool(master) as pool:
        keys = keys_of(fresh_namespace(pool), *range(10))
        put_all(pool, keys)
        os.kill(master.process.pid, signal.SIGSTOP)
        outcomes, _buffers = every_call(pool, keys)
        assert_no_hit(outcomes)
        os.kill(master.process.pid, signal.SIGCONT)
        deadline = time.monotonic() + 40
        while True:  # The late calls end one after the other, then the pool answers again.
            try:
                if pool.probe(keys) == [PRESENT] * 10:
                    break
            except tenure.PoolUnavailable:
                assert time.monotonic() < deadline
    master.stop()


def test_background_lookups_over_a_stopped_master_are_misses_in_time(tmp_path):
    """Their thread waits in Mooncake; who asks does not, nor does the end."""
    master = Master(tmp_path)
    owner = Owner(master, 64 * MIB)
    rules = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
    # A client that is left open must not bring memory to a later master.
    with mooncake_pool(master, mode="standalone-store", global_segment_size=0) as pool:
        name_space = fresh_namespace(pool)
        hashes = [hash_of(number) for number in range(10)]
        put_all(pool, [(name_space, value) for value in hashes])
        core = StoreScheduler(rules, pool, [[name_space]], role="kv_both", world_size=1, lookup_deadline=1.0)
        requests = (f"request-{number}" for number in itertools.count())

        def ask():
            request, start = next(requests), time.monotonic()
            while (found := core.matched_tokens(request, hashes, 161, 0)) is None:
                time.sleep(0.001)
            assert time.monotonic() - start < 1.0 + SLACK
            return found

        assert ask() == 160
        os.kill(master.process.pid, signal.SIGSTOP)
        assert [ask(), ask()] == [0, 0]
        os.kill(master.process.pid, signal.SIGCONT)
        deadline = time.monotonic() + 40
        while ask() != 160:
            assert time.monotonic() < deadline, "lookups are not served after the master has come back"
        os.kill(master.process.pid, signal.SIGSTOP)
        assert ask() == 0
        start = time.monotonic()
        core.close()
        assert time.monotonic() - start < 2 + SLACK
    assert time.monotonic() - start < 10, "close does not wait for a stopped master"
    os.kill(master.process.pid, signal.SIGCONT)
    owner.stop()
    master.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_lost_owner_of_a_segment_is_misses_in_time(tmp_path, number):
    master = Master(tmp_path)
    owner = Owner(master, 64 * MIB)
    try:
        with mooncake_pool(master, mode="standalone-store", global_segment_size=0) as pool:
            name_space = fresh_namespace(pool)
            keys = keys_of(name_space, *range(10))
            put_all(pool, keys)
            os.kill(owner.process.pid, number)
            outcomes, buffers = every_call(pool, keys)
            # For 10 s the master still says that the keys are there; what counts is that no bytes come.
            assert isinstance(outcomes["get"], str) or PRESENT not in outcomes["get"], outcomes["get"]
            assert all(buffer == b"." * 1000 for buffer in buffers)
            print(signal.Signals(number).name, outcomes)
            owner.stop()
    finally:
        owner.stop()
        master.stop()


def test_no_thread_of_the_process_waits_for_a_lost_master(tmp_path):
    """Calls, late ones and the end of the pool: none holds the interpreter's lock while it waits."""
    master = Master(tmp_path)
    pool = mooncake_pool(master)
    keys = keys_of(fresh_namespace(pool), *range(10))
    put_all(pool, keys)
    os.kill(master.process.pid, signal.SIGSTOP)
    stop, pauses = threading.Event(), [0.0]

    def watch():
        last = time.monotonic()
        while not stop.wait(0.01):
            pauses[0] = max(pauses[0], time.monotonic() - last)
            last = time.monotonic()

    thread = threading.Thread(target=watch)
    thread.start()
    every_call(pool, keys)
    pool.close()
    master.stop()
    stop.wait(5)  # The late calls end, since the master is gone now.
    stop.set()
    thread.join()
    print(f"longest pause of another thread: {pauses[0]:.2f} s")
    assert pauses[0] < SLACK


def test_closed_pool_never_reaches_mooncake(master):
    """Mooncake 0.3.14 ends the process when its closed client is asked."""
    pool = mooncake_pool(master)
    keys = keys_of(fresh_namespace(pool), 1)
    threads = [threading.Thread(target=lambda: [_swallow(pool.probe, keys) for _ in range(200)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    pool.close()
    for thread in threads:
        thread.join()
    with pytest.raises(tenure.Error, match="closed"):
        pool.probe(keys)


def _swallow(call, *arguments):
    try:
        call(*arguments)
    except tenure.Error:
        pass


def test_unreachable_master_is_one_line_that_names_the_option(tmp_path):
    master = Master(tmp_path)
    master.stop()
    start = time.monotonic()
    with pytest.raises(tenure.PoolUnavailable, match="master_server_address is .*refused.*start a Mooncake master") as raised:
        tenure.MooncakePool(config(master), setup_timeout=2.0)
    assert time.monotonic() - start < 20 and "\n" not in str(raised.value)  # Mooncake alone: 94 s.


def test_master_that_never_answers_is_unavailable_in_time(tmp_path):
    master = Master(tmp_path)
    os.kill(master.process.pid, signal.SIGSTOP)
    start = time.monotonic()
    with pytest.raises(tenure.PoolUnavailable) as raised:
        tenure.MooncakePool(config(master), setup_timeout=2.0)
    # Mooncake's setup goes on. It is late then, so the end of the pool waits for nothing.
    assert time.monotonic() - start < 20 and "\n" not in str(raised.value)  # Mooncake alone: 94 s.
    master.stop()


def test_master_may_come_after_its_client(tmp_path):
    (port,) = free_ports(1)
    masters = []
    late = threading.Timer(1.0, lambda: masters.append(Master(tmp_path, rpc_port=port)))
    late.start()
    try:
        options = config(types.SimpleNamespace(address=f"127.0.0.1:{port}"))
        with tenure.MooncakePool(options, setup_timeout=20.0, staging_bytes=4 * MIB) as pool:
            assert pool.probe(keys_of(fresh_namespace(pool), 1)) == [ABSENT]
    finally:
        late.join()
        masters[0].stop()


# --- the compatibility API beside the real one ----------------------------------------------------------------------------------


def compat_store():
    store = compat.MooncakeDistributedStore()
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", "embedded:64MiB", tenant_id=f"t{next(_prefixes)}") == 0
    return store


def conversation(store, config_class, key):
    """One client's calls; yields (what, answer)."""
    memory = (ctypes.c_char * 4096)(*bytes(range(256)) * 16)
    base = ctypes.addressof(memory)
    replicate = config_class()
    a, b, c, none = (key + name for name in "abcn")
    yield "register", store.register_buffer(base, 4096)
    yield "register again", store.register_buffer(base, 4096)
    yield "put", store.put(a, b"hello")
    yield "put again", store.put(a, b"hallo")
    yield "put of nothing", store.put(b, b"")
    yield "put without a key", store.put("", b"x")
    yield "get", store.get(a)
    yield "get of nothing", store.get(none)
    yield "size", store.get_size(a)
    yield "size of nothing", store.get_size(none)
    yield "put from", store.put_from(b, base, 100)
    yield "batch put", store.batch_put_from([c, c], [base, base + 1], [10, 10])
    yield "multi put", store.batch_put_from_multi_buffers([key + "m", b], [[base, base + 100], [base]], [[10, 20], [100]], replicate)
    yield "exist", store.is_exist(a)
    yield "batch exist", store.batch_is_exist([a, none, b, key + "m"])
    yield "batch exist of nothing", store.batch_is_exist([])
    yield "probe", store.batch_probe_key([a, none])
    yield "get into", store.get_into(b, base + 1000, 100)
    yield "bytes", memory.raw[1000:1100]
    yield "get into longer", store.get_into(a, base + 1200, 50)
    yield "bytes of longer", memory.raw[1200:1205]
    yield "get into shorter", store.get_into(b, base + 1000, 50)
    yield "get into of nothing", store.get_into(none, base + 1000, 50)
    yield "batch get into", store.batch_get_into([b, none], [base + 1400, base + 1600], [100, 10])
    yield "multi get", store.batch_get_into_multi_buffers([key + "m", none], [[base + 2000, base + 2100], [base]], [[25, 5], [4]])
    yield "bytes of multi", memory.raw[2000:2025] + memory.raw[2100:2105]
    yield "multi get too short", store.batch_get_into_multi_buffers([key + "m"], [[base + 2000]], [[25]])
    yield "remove", store.remove(a, True)
    yield "remove again", store.remove(a, True)
    yield "exist after", store.is_exist(a)
    yield "remove all", store.remove_all(True)
    yield "unregister", store.unregister_buffer(base)


def test_compat_answers_as_mooncake_does(tmp_path):
    master = Master(tmp_path)
    import mooncake.store

    real, ours = raw_client(master, 64 * MIB), compat_store()
    try:
        pairs = list(
            zip(
                conversation(real, mooncake.store.ReplicateConfig, "key-"),
                conversation(ours, compat.ReplicateConfig, "key-"),
                strict=True,
            )
        )
    finally:
        real.close()
        master.stop()
    assert len(pairs) > 30
    for (what, theirs), (_what, mine) in pairs:
        assert mine == theirs, f"{what}: Mooncake answers {theirs!r}, tenure.compat {mine!r}"


def test_compat_survives_use_after_close():
    store = compat_store()
    assert store.close() == 0 == store.close()
    assert store.batch_is_exist(["a"]) == [-1] == store.batch_put_from(["a"], [1], [1])
    assert store.get("a") == b"" and store.health_check() == 1
