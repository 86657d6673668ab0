"""qwen3next with prefix_match_unit: hits that end inside a block of 1,152 tokens, from the store as from the engine."""

import pytest

from engine import Engine, prompt, require_same

UNIT, LENGTH, HIT = 128, 3000, 2944


@pytest.fixture(scope="session")
def engine():
    options = {"pool": "embedded", "embedded_memory": "1GiB"}
    started = Engine("qwen3next", options, prefix_match_unit=UNIT, module="tenure.vllm")  # As without its entry point.
    yield started
    started.close()


def test_a_hit_ends_at_the_last_unit_of_the_prompt(engine):
    tokens = prompt(LENGTH, seed=1)
    engine.ask(tokens)
    reference = engine.ask(tokens)
    assert reference.cached == HIT
    engine.forget_local()
    loaded = engine.ask(tokens)
    assert loaded.cached == HIT
    require_same(loaded, reference)


def test_a_longer_prompt_resumes_at_the_tail(engine):
    tokens = prompt(LENGTH, seed=2)
    engine.ask(tokens)
    longer = tokens[:HIT] + [9, 8, 7] * 30
    reference = engine.ask(longer)
    assert reference.cached == HIT
    other = tokens[:HIT] + [7, 8, 9] * 30
    engine.forget_local()
    assert engine.ask(other).cached == HIT
    engine.forget_local()
    again = engine.ask(longer)
    assert again.cached >= HIT
