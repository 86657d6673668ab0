"""Requests that end early, come twice or belong together: every block comes back without the help of a lease, and each answer is right."""

import pytest

from conftest import LEASE
from engine import prompt
from test_ends import stays_held
from waiting import until

EXPIRED = "no decoder took its KV in time"


@pytest.fixture(autouse=True)
def nothing_expires(pair):
    """P's blocks come back because D says so, not because a lease ends."""
    before = pair.prefill.count_lines(EXPIRED)
    yield
    pair.wait_idle()
    assert pair.prefill.count_lines(EXPIRED) == before


def test_an_abort_before_d_has_scheduled_releases_p(pair):
    tokens = prompt(300, seed=40)
    to_prefill, to_decode = pair.params()
    pair.decode.hang()
    request = pair.decode.begin(tokens, to_decode)
    pair.prefill.ask(tokens, to_prefill, max_tokens=1)
    assert pair.prefill.state()["free_blocks"] < pair.blocks[0]
    pair.decode.abort(request)
    pair.decode.hang(False)


def test_an_abort_while_d_waits_for_the_prefill_releases_p(pair):
    tokens = prompt(300, seed=41)
    to_prefill, to_decode = pair.params()
    request = pair.decode.begin(tokens, to_decode)
    until(lambda: pair.decode.state()["free_blocks"] < pair.blocks[1], "D does not pull", 40)
    pair.decode.abort(request)
    pair.prefill.ask(tokens, to_prefill, max_tokens=1)


def test_an_abort_while_d_decodes_frees_d(pair):
    tokens = prompt(300, seed=42)
    to_prefill, to_decode = pair.params()
    request = pair.decode.begin(tokens, to_decode, max_tokens=4000)
    pair.prefill.ask(tokens, to_prefill, max_tokens=1)
    pair.prefill.wait_idle(pair.blocks[0])  # So D has its KV.
    pair.decode.abort(request)


def test_an_abort_at_p_after_its_prefill_changes_nothing(pair):
    tokens = prompt(300, seed=43)
    expected = pair.decode.ask(tokens)["tokens"]
    assert pair.decode.forget()
    to_prefill, to_decode = pair.params()
    request = pair.prefill.begin(tokens, to_prefill, max_tokens=1)
    pair.prefill.finish(request)
    pair.prefill.abort(request)
    answer = pair.decode.ask(tokens, to_decode)
    assert answer["tokens"] == expected and answer["cached"] == len(tokens)


def test_of_several_completions_of_one_prompt_one_is_pulled_and_the_other_computed(pair):
    tokens = prompt(300, seed=44)
    to_prefill, to_decode = pair.params()
    request = pair.decode.begin(tokens, to_decode, n=2, temperature=1.0)
    pair.prefill.ask(tokens, to_prefill, n=2, temperature=1.0, max_tokens=1)
    answer = pair.decode.finish(request)
    assert answer["outputs"] == 2 and answer["finish_reason"] == "length"
    assert pair.prefill.wrote(to_prefill["transfer_id"]) and pair.decode.wrote(to_decode["transfer_id"])


def test_of_a_list_of_prompts_one_is_pulled_and_the_other_computed(pair):
    prompts = [prompt(300, seed=45), prompt(333, seed=46)]
    expected = [pair.prefill.ask(tokens)["tokens"] for tokens in prompts]
    to_prefill, to_decode = pair.params()
    requests = [pair.decode.begin(tokens, to_decode) for tokens in prompts]
    for request in [pair.prefill.begin(tokens, to_prefill, max_tokens=1) for tokens in prompts]:
        pair.prefill.finish(request)
    assert [pair.decode.finish(request)["tokens"] for request in requests] == expected
    assert pair.prefill.wrote(to_prefill["transfer_id"]) and pair.decode.wrote(to_decode["transfer_id"])


def test_a_request_queued_for_longer_than_a_lease_is_still_pulled(pair):
    """Published case B: D is so busy that a request waits longer than P would hold its KV without renewals."""
    tokens = prompt(300, seed=47)
    expected = pair.prefill.ask(tokens)["tokens"]
    busy = [pair.decode.begin(prompt(40, seed=80 + index), max_tokens=4000) for index in range(8)]
    until(lambda: pair.decode.state()["requests"] == len(busy), "D does not begin", 40)
    to_prefill, to_decode = pair.params()
    request = pair.decode.begin(tokens, to_decode)
    pair.prefill.ask(tokens, to_prefill, max_tokens=1)
    stays_held(pair, 2 * LEASE)
    for name in busy:
        pair.decode.abort(name)
    answer = pair.decode.finish(request)
    assert answer["tokens"] == expected and answer["cached"] == len(tokens)
