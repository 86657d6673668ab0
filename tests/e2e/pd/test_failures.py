"""Engines that end, and engines that do not agree: nothing hangs, blocks come back, and the log says why."""

import pytest

from engine import prompt
from pair import Pair
from waiting import until

LEASE = 3.0


@pytest.fixture
def lasting():
    """Pairs of the test, ended after it."""
    pairs = []

    def make(*arguments, **options):
        pairs.append(Pair(*arguments, **options))
        return pairs[-1]

    yield make
    for pair in pairs:
        pair.stop()


def test_a_killed_d_costs_p_one_lease(lasting):
    pair = lasting("llama", {"kv_lease_duration": LEASE})
    to_prefill, to_decode = pair.params()
    tokens = prompt(300, seed=1)
    pair.prefill.ask(tokens, to_prefill, max_tokens=1)
    # A long request keeps D busy, and the other one queued: it is renewed.
    pair.decode.begin(tokens, to_decode)
    pair.decode.kill()
    pair.prefill.wait_idle(pair.blocks[0], seconds=LEASE + 20)
    assert pair.prefill.ask(prompt(100, seed=2))["finish_reason"] == "length"


def test_a_killed_p_is_computed_at_d(lasting):
    pair = lasting("llama", {"kv_lease_duration": LEASE, "request_timeout": 8})
    _, to_decode = pair.params()
    expected = pair.decode.ask(prompt(300, seed=1))["tokens"]
    assert pair.decode.forget()
    name = pair.decode.begin(prompt(300, seed=1), to_decode)  # P never gets it, so D waits.
    pair.prefill.kill()
    assert pair.decode.finish(name)["tokens"] == expected
    pair.decode.wait_idle(pair.blocks[1])


def test_engines_with_different_leases_refuse_one_another_with_both_values(lasting):
    pair = lasting(
        "gemma3", {}, prefill_options={"kv_lease_duration": 3}, decode_options={"kv_lease_duration": 4},
        decode={"transfer": {"kv_load_failure_policy": "fail"}},
    )
    _, answer = pair.ask(prompt(300, seed=1))
    assert answer["finish_reason"] == "error" and not answer["tokens"]
    until(lambda: any("kv_lease_duration" in line and "3" in line and "4" in line for line in pair.decode.lines), "D's log does not say why", 10)
    # Others are served on.
    assert pair.decode.ask(prompt(100, seed=2))["finish_reason"] == "length"
    pair.wait_idle()
