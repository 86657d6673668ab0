"""Engines over a real Mooncake: stock's connector and Tenure's on one store, both directions, and the master's death."""

import json
import os
import signal
import threading

import pytest

import tenure
from engine import Engine, prompt, require_same
from faults import load_listener, neighbour, pool_of, stand_still_once, store_keys, watch_hashes
from mooncake_processes import Master, Owner, end
from processes import EngineProcess
from slow_store import outlast_a_slow_get
from waiting import until

LENGTH, HIT = 300, 288
LONG = 8010
EVICTED = 0.1
STOCK = "MooncakeStoreConnector"
ALGORITHM = "sha256_cbor"  # Which the tests can compute too.


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mooncake")


@pytest.fixture(scope="session")
def master(folder):
    """One that evicts a tenth when it is full, and takes an owner that stands still for a living one: its objects stay."""
    started = Master(folder, eviction_ratio=EVICTED, client_ttl=600)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def owner(folder, master):
    """The owner of 256 MiB, and the configuration of stock connectors in the environment."""
    started = Owner(master, 256 << 20)
    config = folder / "mooncake.json"
    config.write_text(json.dumps({
        "master_server_address": master.address, "metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "mode": "standalone-store",
        "global_segment_size": 0, "local_buffer_size": "64mb",
    }))
    os.environ.update(MOONCAKE_CONFIG_PATH=str(config), MOONCAKE_REQUESTER_LOCAL_HOSTNAME="127.0.0.1")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def engine(owner):
    started = Engine("llama", {"pool": "mooncake", "call_deadline": 2.0, "load_deadline": 5.0, "lease_ttl": 2.0, "lookup_deadline": 5.0}, prefix_caching_hash_algo=ALGORITHM)
    watch_hashes(started)
    yield started
    started.close()


def store_hit(engine, tokens):
    engine.forget_local()
    return engine.ask(tokens)


def until_stored(engine, tokens, seconds=60):
    """Waits until every block of a prompt is in the store; an engine in another process does not say when its saves are done."""
    chain = tenure.HashChain(ALGORITHM, 32, tenure.none_hash(ALGORITHM))
    chain.append(tokens[:HIT])
    pool = pool_of(engine)
    (prefix,) = engine.connector._scheduler._model.lookup_prefixes()[0]
    keys = [(pool.open_namespace(prefix), value) for value in chain.hashes]
    present = lambda: all(answer is tenure.KeyAnswer.PRESENT for answer in pool.probe(keys))
    until(present, lambda: f"the store has {pool.probe(keys)}", seconds)


def test_a_hit_has_the_tokens_of_a_local_hit(engine):
    tokens = prompt(LENGTH, seed=1)
    cold = engine.ask(tokens)
    engine.forget_local()
    loaded = engine.ask(tokens)
    assert loaded.cached == HIT
    require_same(loaded, cold)


def test_stock_writes_and_tenure_reads_and_back(engine):
    stock = EngineProcess("llama", {"load_async": True}, connector=STOCK, in_process=True, prefix_caching_hash_algo=ALGORITHM)
    try:
        theirs = prompt(LENGTH, seed=2)
        written, _, cached = stock.ask(theirs)
        assert cached == 0
        until_stored(engine, theirs)
        read = engine.ask(theirs)
        assert read.cached == HIT and read.tokens == written

        ours = prompt(LENGTH, seed=3)
        cold = engine.ask(ours)
        until_stored(engine, ours)
        tokens, _, cached = stock.ask(ours)
        assert cached == HIT and tokens == cold.tokens
    finally:
        stock.stop()


def test_an_engine_that_stores_other_bytes_under_the_same_keys_is_refused(engine):
    with pytest.raises(AssertionError, match="set cache_prefix"):
        EngineProcess("llama", {"pool": "mooncake"}, in_process=True, dtype="bfloat16", prefix_caching_hash_algo=ALGORITHM).stop()
    apart = EngineProcess("llama", {"pool": "mooncake", "cache_prefix": "bf16"}, in_process=True, dtype="bfloat16", prefix_caching_hash_algo=ALGORITHM)
    apart.stop()


def test_keys_evicted_between_lookup_and_load(engine):
    """The engine's process stands still until its lease has run out and another client has made the master evict a share of all objects."""
    tokens = prompt(LONG, seed=6)
    cold = engine.ask(tokens)
    keys = store_keys(engine)
    assert len(keys) == LONG // 32
    engine.forget_local()
    before = {name: engine.counter(name) for name in ("load_orders_failed", "load_keys_absent")}
    with neighbour(engine, "mooncake") as evicted_keys:
        with load_listener(engine, stand_still_once()):
            answer = engine.ask(tokens)
        evicted = evicted_keys()
    assert EVICTED / 3 <= evicted / len(keys) <= EVICTED * 3
    require_same(answer, cold)
    assert engine.counter("load_orders_failed") == before["load_orders_failed"] + 1
    assert engine.counter("load_keys_absent") == before["load_keys_absent"] + evicted


def test_a_get_that_takes_a_minute_holds_nobody_past_its_deadline(engine, owner):
    """The owner of all bytes stands still from a lookup's answer on: that load is given up after 5 s, and others go on without the store."""
    prompts = [prompt(LENGTH, seed=80 + index) for index in range(4)]
    cold = engine.ask(*prompts)
    outlast_a_slow_get(engine, owner.process, prompts, cold)
    until(lambda: store_hit(engine, prompts[0]).cached == HIT, "the engine finds nothing again", 120)
    for tokens, reference in zip(prompts, cold):  # What the minute's calls still did has no effect on what is served.
        require_same(store_hit(engine, tokens), reference)


def test_a_killed_master_is_a_miss(engine, master):
    """Last: nothing after it has a store."""
    prompts = [prompt(LENGTH, seed=20 + index) for index in range(6)]
    cold = engine.ask(*prompts)
    engine.forget_local()
    killer = threading.Timer(0.02, lambda: end(master.process, signal.SIGKILL))
    killer.start()
    answers = engine.ask(*prompts)
    killer.join()
    for answer, reference in zip(answers, cold):
        require_same(answer, reference)
    require_same(store_hit(engine, prompts[0]), cold[0])  # Without any master.
    require_same(engine.ask(prompt(LENGTH, seed=30)), engine.ask(prompt(LENGTH, seed=30)))
