"""Inside vLLM's MultiConnector: statistics by class name, events in worker metadata, a lease of a child that is not chosen."""

import pytest

from engine import Engine, prompt, require_same


@pytest.fixture(scope="session")
def engine():
    children = [
        {"kv_connector": "TenureStoreConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"pool": "embedded", "embedded_memory": "128MiB"}},
        {"kv_connector": "TenureStoreConnector", "kv_role": "kv_both",
         "kv_connector_extra_config": {"pool": "embedded", "embedded_memory": "128MiB", "cache_prefix": "second"}},
    ]
    started = Engine("llama", {"connectors": children}, connector="MultiConnector")
    yield started
    started.close()


def test_hits_and_statistics(engine):
    tokens = prompt(300, seed=1)
    cold = engine.ask(tokens)
    engine.forget_local()
    loaded = engine.ask(tokens)
    assert loaded.cached == 288
    require_same(loaded, cold)
    names = {name for name, _ in engine.metrics()}
    assert "vllm:tenure_store_events" in names


def test_the_child_that_is_not_chosen_holds_no_lease(engine):
    tokens = prompt(300, seed=2)
    engine.ask(tokens)
    engine.forget_local()
    assert engine.ask(tokens).cached == 288
    engine.settle()
    for child in engine.connector._connectors:
        assert child._scheduler._pool.pool.stats()["held_leased_objects"] == 0
