"""Engines that share the machine's daemon: in this process, in another, with two ranks; and the daemon's faults.

llama in float32, where also a cold run is an oracle.
"""

import threading

import pytest

from engine import Engine, prompt, require_same
from faults import load_listener, neighbour, pool_of, stand_still_once, store_keys, watch_hashes
from processes import Daemon, EngineProcess
from slow_store import outlast_a_slow_get
from waiting import until

LENGTH, HIT = 300, 288
LONG = 8010


@pytest.fixture(scope="session")
def daemon(tmp_path_factory):
    started = Daemon(tmp_path_factory.mktemp("daemon"))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def options(daemon):
    return {"pool": f"unix:{daemon.socket}", "call_deadline": 5.0, "load_deadline": 5.0, "lookup_deadline": 3.0, "lease_ttl": 2.0}


@pytest.fixture(scope="session")
def engine(options):
    started = Engine("llama", options)
    watch_hashes(started)
    yield started
    started.close()


def store_hit(engine, tokens):
    engine.forget_local()
    return engine.ask(tokens)


def until_stored(engine, objects, seconds=60):
    """Waits until the pool has that many objects; an engine in another process does not say when its saves are done."""
    stored = lambda: pool_of(engine).stats()["objects"]
    until(lambda: stored() >= objects, lambda: f"{stored()} objects are stored, not {objects}", seconds)


def until_connected(engine, seconds=20):
    pools = (pool_of(engine), engine.worker._worker._engine_pool.pool)  # Each side has a connection of its own.
    until(lambda: all(pool.connected for pool in pools), "the engine's pool does not come back", seconds)


def test_a_hit_has_the_tokens_of_a_local_hit(engine):
    tokens = prompt(LENGTH, seed=1)
    cold = engine.ask(tokens)
    loaded = store_hit(engine, tokens)
    assert loaded.cached == HIT
    require_same(loaded, cold)


def test_another_engine_reads_what_this_one_wrote(engine, options):
    tokens = prompt(LENGTH, seed=2)
    cold = engine.ask(tokens)
    other = EngineProcess("llama", options, in_process=True)
    try:
        answer, logprob, cached = other.ask(tokens)
        assert cached == HIT
        assert answer == cold.tokens and abs(logprob - cold.logprobs[0]) < 1e-3
        mine = prompt(LENGTH, seed=3)
        before = pool_of(engine).stats()["objects"]
        written, _, _ = other.ask(mine)
        until_stored(engine, before + HIT // 32)
    finally:
        other.stop()
    engine.forget_local()
    read = engine.ask(mine)
    assert read.cached == HIT and read.tokens == written


def test_two_ranks_share_nothing_with_one_and_everything_with_themselves(engine, options):
    tokens = prompt(LENGTH, seed=4)
    cold = engine.ask(tokens)
    # Two ranks spin on both processors, and the daemon may wait for one longer than its usual deadlines.
    patient = {**options, "call_deadline": 60.0, "load_deadline": 120.0, "lookup_deadline": 60.0}
    ranks = EngineProcess(
        "llama", patient, in_process=False, tensor_parallel_size=2,
        environment={"VLLM_CPU_OMP_THREADS_BIND": "0|1", "VLLM_LOGGING_LEVEL": "INFO"},
    )
    try:
        before = pool_of(engine).stats()["objects"]
        first, _, cached = ranks.ask(tokens)
        until_stored(engine, before + 2 * HIT // 32)
        assert cached == 0 and first == cold.tokens  # Other layout, other identity: a miss, never a failed load.
        again, _, cached = ranks.ask(tokens, forget=True)
        assert cached == HIT and again == cold.tokens
        _remove_one_rank(engine, ranks)
        answer, _, cached = ranks.ask(tokens, forget=True)
        assert cached == 0 and answer == cold.tokens  # Half a hit is none.
    finally:
        ranks.stop()
    require_same(store_hit(engine, tokens), cold)


def _remove_one_rank(engine, ranks):
    """Takes away what rank 1 of the engine with two ranks stored."""
    line = next(line for line in ranks.lines if "the first of its key prefixes is" in line)
    prefix = line.split()[-1].replace("@tp_rank:0@", "@tp_rank:1@")
    pool = pool_of(engine)
    assert pool.clear(pool.open_namespace(prefix)) > 0


def test_an_engine_of_another_dtype_misses(engine, options):
    tokens = prompt(LENGTH, seed=5)
    engine.ask(tokens)
    other = EngineProcess("llama", options, in_process=True, dtype="bfloat16")
    try:
        assert other.ask(tokens)[2] == 0
    finally:
        other.stop()


def test_flipped_bytes_are_never_served(engine, daemon):
    tokens = prompt(LENGTH, seed=6)
    cold = engine.ask(tokens)
    engine.forget_local()
    daemon.flip_bytes()
    require_same(engine.ask(tokens), cold)
    require_same(store_hit(engine, tokens), cold)


def test_a_tenth_of_the_keys_evicted_between_lookup_and_load(engine, daemon):
    """The engine's process stands still until its lease has run out and a neighbour's objects have pushed some of its own out."""
    tokens = prompt(LONG, seed=7)
    pool = pool_of(engine)
    pool.clear()
    cold = engine.ask(tokens)
    keys = store_keys(engine)
    assert len(keys) == LONG // 32
    engine.forget_local()
    before = {name: engine.counter(name) for name in ("load_orders_failed", "load_keys_absent")}
    with neighbour(engine, daemon.socket, len(keys) // 10) as evicted_keys:
        with load_listener(engine, stand_still_once()):
            answer = engine.ask(tokens)
        evicted = evicted_keys()
    assert 0.08 <= evicted / len(keys) <= 0.12
    require_same(answer, cold)
    assert engine.counter("load_orders_failed") == before["load_orders_failed"] + 1
    assert engine.counter("load_keys_absent") == before["load_keys_absent"] + evicted
    engine.settle_leases()
    pool.clear()


def test_a_get_that_takes_a_minute_holds_nobody_past_its_deadline(engine, daemon):
    """The daemon stands still from a lookup's answer on: that load is given up after 5 s, and later requests are misses."""
    prompts = [prompt(LENGTH, seed=80 + index) for index in range(4)]
    cold = engine.ask(*prompts)
    outlast_a_slow_get(engine, daemon.process, prompts, cold)
    until_connected(engine)
    engine.settle_leases()
    for _ in range(2):  # What the minute's calls still do has no effect on what is served.
        for tokens, reference in zip(prompts, cold):
            require_same(store_hit(engine, tokens), reference)
    assert store_hit(engine, prompts[0]).cached == HIT


def test_a_killed_daemon_is_a_miss_and_its_successor_serves(engine, daemon):
    prompts = [prompt(LENGTH, seed=20 + index) for index in range(6)]
    cold = engine.ask(*prompts)
    engine.forget_local()
    killer = threading.Timer(0.05, lambda: daemon.process.kill())
    killer.start()
    answers = engine.ask(*prompts)
    killer.join()
    for answer, reference in zip(answers, cold):
        require_same(answer, reference)
    daemon.process.wait(20)
    require_same(store_hit(engine, prompts[0]), cold[0])  # Without any daemon.
    daemon.start()
    until_connected(engine)
    engine.forget_local()
    engine.ask(prompts[0])
    loaded = store_hit(engine, prompts[0])
    assert loaded.cached == HIT
    require_same(loaded, cold[0])
