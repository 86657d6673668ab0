"""store_tp_size: engines of one rank and of two share objects that are cut by heads, both ways. llama in float32, over a daemon."""

import pytest

from engine import Engine, prompt
from faults import pool_of
from processes import Daemon, EngineProcess
from waiting import until

LENGTH, HIT = 300, 288
SHARDS = 2


@pytest.fixture(scope="session")
def options(tmp_path_factory):
    """With deadlines that two ranks, which spin on both processors, do not make the daemon miss."""
    daemon = Daemon(tmp_path_factory.mktemp("daemon"))
    yield {
        "pool": f"unix:{daemon.socket}", "store_tp_size": SHARDS, "call_deadline": 60.0, "load_deadline": 120.0, "lookup_deadline": 60.0,
    }
    daemon.stop()


@pytest.fixture(scope="session")
def one(options):
    started = Engine("llama", options)
    yield started
    started.close()


@pytest.fixture(scope="session")
def two(options, one):
    started = EngineProcess(
        "llama", options, in_process=False, tensor_parallel_size=2, environment={"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    )
    yield started
    started.stop()


def until_stored(one, objects):
    stored = lambda: pool_of(one).stats()["objects"]
    until(lambda: stored() >= objects, lambda: f"{stored()} objects are stored, not {objects}", 60)


def test_the_layout_is_cut_by_heads(one):
    layout = one.connector._scheduler._model.layout
    assert (layout.kind, layout.shards) == ("tp_sharded", SHARDS)


def test_two_ranks_read_what_one_wrote(one, two):
    tokens = prompt(LENGTH, seed=1)
    cold = one.ask(tokens)
    until_stored(one, SHARDS * HIT // 32)
    answer, _, cached = two.ask(tokens)
    assert cached == HIT and answer == cold.tokens


def test_one_rank_reads_what_two_wrote(one, two):
    tokens = prompt(LENGTH, seed=2)
    before = pool_of(one).stats()["objects"]
    written, _, cached = two.ask(tokens)
    until_stored(one, before + SHARDS * HIT // 32)
    assert cached == 0
    read = one.ask(tokens)
    assert read.cached == HIT and read.tokens == written


def test_a_chunk_without_one_of_its_shards_is_none(one, two):
    tokens = prompt(LENGTH, seed=3)
    cold = one.ask(tokens)
    ((_, second),) = one.connector._scheduler._model.lookup_prefixes()
    pool = pool_of(one)
    assert pool.clear(pool.open_namespace(second)) > 0
    answer, _, cached = two.ask(tokens)
    assert cached == 0 and answer == cold.tokens
