"""Engines over a real Mooncake: stock's connector and Tenure's on one store, both directions, and the master's death."""

import json
import os
import signal

import pytest

import tenure
from engine import Engine, prompt, require_same
from faults import pool_of
from mooncake_processes import Master, Owner, end
from processes import EngineProcess
from waiting import until

LENGTH, HIT = 300, 288
STOCK = "MooncakeStoreConnector"
ALGORITHM = "sha256_cbor"  # Which the tests can compute too.


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """A master with one owner of 256 MiB, and the configuration of stock connectors in the environment."""
    folder = tmp_path_factory.mktemp("mooncake")
    master = Master(folder)
    owner = Owner(master, 256 << 20)
    config = folder / "mooncake.json"
    config.write_text(json.dumps({
        "master_server_address": master.address, "metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "mode": "standalone-store",
        "global_segment_size": 0, "local_buffer_size": "64mb",
    }))
    os.environ.update(MOONCAKE_CONFIG_PATH=str(config), MOONCAKE_REQUESTER_LOCAL_HOSTNAME="127.0.0.1")
    yield master
    owner.stop()
    master.stop()


@pytest.fixture(scope="session")
def engine(store):
    started = Engine("llama", {"pool": "mooncake", "call_deadline": 2.0, "load_deadline": 5.0, "lease_ttl": 2.0, "lookup_deadline": 5.0}, prefix_caching_hash_algo=ALGORITHM)
    yield started
    started.close()


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


def test_a_killed_master_is_a_miss(engine, store):
    """Last: nothing after it has a store."""
    tokens = prompt(LENGTH, seed=4)
    cold = engine.ask(tokens)
    engine.forget_local()
    end(store.process, signal.SIGKILL)
    require_same(engine.ask(tokens), cold)
    require_same(engine.ask(prompt(LENGTH, seed=5)), engine.ask(prompt(LENGTH, seed=5)))
