"""Two engines with kv_role kv_both: each computes prompts for the other, at the same time and under the same transfer ids."""

import pytest

from engine import prompt
from pair import Pair


@pytest.fixture(scope="module")
def pair():
    pair = Pair("llama", {"kv_lease_duration": 3}, roles=("kv_both", "kv_both"))
    yield pair
    pair.stop()


def test_each_engine_computes_for_the_other(pair):
    for seed, direction in enumerate((pair, pair.turned())):
        tokens = prompt(300, seed=seed)
        expected = direction.prefill.ask(tokens)["tokens"]
        _, answer = direction.ask(tokens)
        assert answer["tokens"] == expected and answer["cached"] == 300
    pair.wait_idle()


def test_zeroed_kv_gives_other_tokens(pair):
    tokens = prompt(300, seed=5)
    assert pair.ask_for_zeroes(tokens) != pair.prefill.ask(tokens)["tokens"]


def test_one_transfer_id_both_ways_is_two_transfers(pair):
    directions = pair, pair.turned()
    prompts = [prompt(310, seed=10), prompt(320, seed=11)]
    params = [direction.params("xfer-same") for direction in directions]
    prefills = [way.prefill.begin(tokens, to_prefill, max_tokens=1) for way, tokens, (to_prefill, _) in zip(directions, prompts, params)]
    decodes = [way.decode.begin(tokens, to_decode) for way, tokens, (_, to_decode) in zip(directions, prompts, params)]
    for way, prefill, decode, tokens in zip(directions, prefills, decodes, prompts):
        way.prefill.finish(prefill)
        assert way.decode.finish(decode)["cached"] == len(tokens)
    pair.wait_idle()
