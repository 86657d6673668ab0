"""A prompt that P computes and D goes on with gives the tokens of one engine; with other KV it would not."""

import pytest

from conftest import LEASE
from engine import prompt

# Longer than a block of any model; qwen3next has blocks of 1,152 tokens.
LENGTHS = {"llama": (300, 33, 1000), "gemma3": (300, 33, 1000), "qwen3next": (2305, 1153, 600)}
# Recurrent states in bfloat16: P computes all tokens but the last, and D that one with another kernel, which rounds otherwise. A top token
# that is so far ahead (logprobs come in steps of 0.125) does not change with it. The others run in float32.
MARGINS = {"qwen3next": 0.5}


def loaded(model, tokens):
    """Tokens of a prompt that D does not compute."""
    return len(tokens) - 1 if model == "qwen3next" else len(tokens)


def prompts(model, pair, seed):
    """(prompt, its tokens on one engine) for each length, where the choice of tokens is clear."""
    chosen = []
    for length in LENGTHS[model]:
        for attempt in range(seed, seed + 240, 20):
            tokens = prompt(length, seed=attempt)
            answer = pair.prefill.ask(tokens)
            if answer["margin"] >= MARGINS.get(model, 0):
                chosen.append((tokens, answer["tokens"]))
                break
    assert chosen, f"no prompt of {model} has a clear choice of tokens"
    return chosen


def test_d_goes_on_with_what_p_computed(model, pair):
    for tokens, expected in prompts(model, pair, seed=1):
        _, answer = pair.ask(tokens)
        assert answer["tokens"] == expected, len(tokens)
        assert answer["cached"] == loaded(model, tokens)
    pair.wait_idle()


def test_a_part_of_the_prompt_that_d_has_is_not_pulled(model, pair):
    (tokens, expected), *_ = prompts(model, pair, seed=2)
    assert pair.ask(tokens)[1]["tokens"] == expected
    again = pair.ask(tokens)[1]
    assert again["tokens"] == expected
    longer = tokens + prompt(40, seed=9)
    reference = pair.prefill.ask(longer)
    grown = pair.ask(longer)[1]
    if reference["margin"] >= MARGINS.get(model, 0):
        assert grown["tokens"] == reference["tokens"]
    pair.wait_idle()


def test_other_kv_gives_other_tokens(model, pair):
    (tokens, expected), *_ = prompts(model, pair, seed=3)
    assert pair.ask_for_zeroes(tokens) != expected


def test_many_requests_at_once(model, pair):
    wanted = [prompt(200 + 10 * index, seed=100 + index) for index in range(6)]
    params = [pair.params() for _ in wanted]
    prefills = [pair.prefill.begin(tokens, to_prefill, max_tokens=1) for tokens, (to_prefill, _) in zip(wanted, params)]
    decodes = [pair.decode.begin(tokens, to_decode) for tokens, (_, to_decode) in zip(wanted, params)]
    for name in prefills:
        pair.prefill.finish(name)
    answers = [pair.decode.finish(name) for name in decodes]
    assert [answer["cached"] for answer in answers] == [loaded(model, tokens) for tokens in wanted]
    pair.wait_idle()


def test_a_transfer_that_nobody_asks_for_is_freed_by_its_lease(model, pair):
    to_prefill, to_decode = pair.params()
    (tokens, expected), *_ = prompts(model, pair, seed=5)
    pair.prefill.ask(tokens, to_prefill, max_tokens=1)
    assert pair.prefill.state()["free_blocks"] < pair.blocks[0]
    pair.prefill.wait_idle(pair.blocks[0], seconds=LEASE + 20)
    # And is refused at once when somebody does after all.
    late = pair.decode.ask(tokens, to_decode)
    assert late["tokens"] == expected and late["seconds"] < 15
    assert pair.decode.wrote(to_decode["transfer_id"])
    pair.wait_idle()


def test_an_abort_at_p_is_computed_at_d(model, pair):
    to_prefill, to_decode = pair.params()
    tokens = prompt(350, seed=6)
    decode = pair.decode.begin(tokens, to_decode)
    prefill = pair.prefill.begin(tokens, to_prefill, max_tokens=1)
    pair.prefill.abort(prefill)
    answer = pair.decode.finish(decode)
    assert answer["finish_reason"] == "length" and answer["seconds"] < 15
    pair.wait_idle()


def test_a_first_token_that_stops_is_handed_over(model, pair):
    (tokens, expected), *_ = prompts(model, pair, seed=7)
    to_prefill, to_decode = pair.params()
    first = pair.prefill.ask(tokens, to_prefill, max_tokens=1, stop_token_ids=list(range(512)))
    assert first["finish_reason"] == "stop"
    answer = pair.decode.ask(tokens, to_decode)
    assert answer["tokens"] == expected and answer["cached"] == loaded(model, tokens)
    pair.wait_idle()


@pytest.mark.parametrize("field", ["transfer_id", "remote_engine_id", "remote_bootstrap_addr"])
def test_a_request_without_all_fields_is_computed_at_d(pair, field):
    _, to_decode = pair.params()
    del to_decode[field]
    answer = pair.decode.ask(prompt(100, seed=8), to_decode)
    assert answer["finish_reason"] == "length"
    assert pair.decode.wrote(f"has no {field}")
