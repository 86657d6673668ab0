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
    started = Engine(
        "llama", {"connectors": children}, connector="MultiConnector", kv_events_config={"enable_kv_cache_events": True, "publisher": "null"}
    )
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


def test_events_of_every_child_come_through(engine):
    """MultiConnector forwards no events of workers, so ours travel in the metadata of their reports."""
    tokens = prompt(300, seed=3)
    with engine.heard_events() as events:
        engine.ask(tokens)
        engine.ask(prompt(40, seed=4))  # One more step, which brings the last reports.
    blocks = [tokens[at : at + 32] for at in range(0, 288, 32)]
    told = [list(event.token_ids) for event in events if event.medium == "cpu" and list(event.token_ids) in blocks]
    assert sorted(told) == sorted(blocks * len(engine.connector._connectors))
