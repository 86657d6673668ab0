"""Requests in odd states: preempted, waiting for blocks, aborted, failing by policy; and the events of what is stored.

llama in float32 with room for few blocks, so that requests push each other out.
"""

import pytest

from engine import Engine, prompt, require_same
from faults import load_listener, pool_of, store_keys, watch_hashes
from waiting import until

BLOCKS = 65
LONG, NEW = 500, 120


@pytest.fixture(scope="session")
def engine():
    started = Engine(
        "llama",
        {"pool": "embedded", "embedded_memory": "512MiB", "save_decode_cache": True},
        num_gpu_blocks_override=BLOCKS,
        max_model_len=2048,
        kv_events_config={"enable_kv_cache_events": True, "publisher": "null"},
    )
    watch_hashes(started)
    yield started
    started.close()


@pytest.fixture(scope="session")
def references(engine):
    """Each prompt alone, so that nothing is pushed out."""
    answers = []
    for index in range(6):
        answers.append(engine.ask(prompt(LONG, seed=index), new_tokens=NEW))
    return answers


def test_preempted_requests_have_the_same_tokens(engine, references):
    engine.forget_local()
    before = sum(value for (name, _), value in engine.metrics().items() if name == "vllm:num_preemptions")
    answers = engine.ask(*[prompt(LONG, seed=index) for index in range(6)], new_tokens=NEW)
    after = sum(value for (name, _), value in engine.metrics().items() if name == "vllm:num_preemptions")
    assert after > before, "nothing was preempted; the test shows nothing"
    for answer, reference in zip(answers, references):
        assert answer.tokens == reference.tokens


def test_preempted_requests_with_a_failing_load_have_the_same_tokens(engine, references):
    engine.forget_local()
    keys = []

    def evict():
        keys.append(pool_of(engine).remove(store_keys(engine)[3:4]))

    with load_listener(engine, evict):
        answers = engine.ask(*[prompt(LONG, seed=index) for index in range(6)], new_tokens=NEW)
    assert keys
    for answer, reference in zip(answers, references):
        assert answer.tokens == reference.tokens


def test_every_block_is_free_afterwards(engine, references):
    engine.settle()
    assert engine.free_blocks() == BLOCKS - 1  # The null block is never free.
    assert pool_of(engine).stats()["held_leased_objects"] == 0


def test_a_waiting_request_is_looked_up_once(engine, references):
    """vLLM asks on every step while a request waits for blocks; the store hears of it once."""
    engine.forget_local()
    asked = []
    connector = engine.connector
    ask = type(connector).get_num_new_matched_tokens

    def count(request, computed):
        asked.append(request.request_id)
        connector.last_hashes = list(request.block_hashes)
        return ask(connector, request, computed)

    connector.get_num_new_matched_tokens = count
    lookups = connector._scheduler._core.counters()["lookups_total"]
    try:
        engine.ask(*[prompt(LONG, seed=index) for index in range(6)], new_tokens=NEW)
    finally:
        watch_hashes(engine)
    lookups = connector._scheduler._core.counters()["lookups_total"] - lookups
    preemptions = 12  # A preempted request is a new question, with more tokens.
    assert len(asked) > lookups
    assert lookups <= 6 + preemptions


def test_an_aborted_request_leaves_nothing(engine):
    from vllm import SamplingParams

    core = engine.llm.llm_engine
    for index in range(3):
        core.add_request(f"aborted-{index}", {"prompt_token_ids": prompt(LONG, seed=index)}, SamplingParams(temperature=0, max_tokens=50))
    core.step()
    core.abort_request([f"aborted-{index}" for index in range(3)])
    while core.has_unfinished_requests():
        core.step()

    def nothing_is_held():
        """A load that was under way holds its blocks until it ends, and vLLM takes no steps without a request."""
        engine.ask(prompt(8, seed=99), new_tokens=1)
        engine.settle()
        return engine.free_blocks() == BLOCKS - 1

    until(nothing_is_held, "blocks of aborted requests are still held", 30)
    assert pool_of(engine).stats()["held_leased_objects"] == 0


def test_what_was_generated_is_found_again(engine):
    """With save_decode_cache, as the next turn of a conversation asks for it."""
    tokens = prompt(200, seed=50)
    answer = engine.ask(tokens, new_tokens=NEW)
    engine.forget_local()
    longer = engine.ask(tokens + answer.tokens + [5] * 8)
    assert longer.cached == (200 + NEW - 1) // 32 * 32
    reference = engine.ask(tokens + answer.tokens + [5] * 8)
    require_same(longer, reference)


def test_stored_blocks_are_told_as_events(engine):
    tokens = prompt(LONG, seed=40)
    with engine.heard_events() as events:
        engine.ask(tokens)
        engine.ask(prompt(40, seed=41))  # One more step, which brings the last reports.
    stored = [event for event in events if event.medium == "cpu"]
    told = [list(event.token_ids) for event in stored if event.token_ids]
    assert [tokens[at : at + 32] for at in range(0, LONG - LONG % 32, 32)] == told[: LONG // 32]
    assert stored[0].parent_block_hash is None
    assert [event.parent_block_hash for event in stored[1 : LONG // 32]] == [event.block_hashes[0] for event in stored[: LONG // 32 - 1]]
