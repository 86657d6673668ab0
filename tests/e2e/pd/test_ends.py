"""Engines that hang, stop, are killed and come back under their old name, on one pair with a bootstrap server of its own: nothing hangs
with them, blocks come back, answers are right. In this order: what a test has ended, it starts again."""

import signal
import time

import pytest

from conftest import LEASE, RENEW_WITHOUT_STEP
from engine import prompt
from waiting import until

SLACK = 40  # Seconds that a loaded machine may take for what needs none.


def computed_for_a_hung_d(pair, tokens):
    """P has computed a prompt that D wants, and D's main thread hangs before it pulls. D's request, and its tokens on one engine."""
    expected = pair.prefill.ask(tokens)["tokens"]
    to_prefill, to_decode = pair.params()
    pair.decode.hang()
    request = pair.decode.begin(tokens, to_decode)
    pair.prefill.ask(tokens, to_prefill, max_tokens=1)
    return request, expected


def stays_held(pair, seconds):
    """P holds KV all the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert pair.prefill.state()["free_blocks"] < pair.blocks[0], "P has freed what D renews"
        time.sleep(0.1)


def require_pulled(pair, seed):
    tokens = prompt(300, seed=seed)
    expected = pair.prefill.ask(tokens)["tokens"]
    _, answer = pair.ask(tokens)
    assert answer["tokens"] == expected and answer["cached"] == len(tokens)
    pair.wait_idle()


def test_kv_that_d_pulls_decides_its_tokens(pair):
    require_pulled(pair, seed=60)
    tokens = prompt(300, seed=61)
    assert pair.ask_for_zeroes(tokens) != pair.prefill.ask(tokens)["tokens"]


def test_a_hung_d_holds_p_for_a_bounded_time_and_says_so_once(pair):
    request, expected = computed_for_a_hung_d(pair, prompt(300, seed=62))
    stays_held(pair, 2 * LEASE)  # It is renewed although nothing steps.
    pair.prefill.wait_idle(pair.blocks[0], RENEW_WITHOUT_STEP + LEASE + SLACK)
    assert pair.decode.count_lines("has taken no step for") == 1
    pair.decode.hang(False)
    assert pair.decode.finish(request)["tokens"] == expected
    pair.wait_idle()


def test_a_stopped_d_costs_p_one_lease_and_goes_on_later(pair):
    request, expected = computed_for_a_hung_d(pair, prompt(300, seed=63))
    stays_held(pair, 1.5 * LEASE)
    pair.decode.process.send_signal(signal.SIGSTOP)
    try:
        pair.prefill.wait_idle(pair.blocks[0], LEASE + SLACK)
    finally:
        pair.decode.process.send_signal(signal.SIGCONT)
    pair.decode.hang(False)
    assert pair.decode.finish(request)["tokens"] == expected
    require_pulled(pair, seed=64)


def test_a_killed_d_costs_p_one_lease_and_another_one_is_served(pair):
    computed_for_a_hung_d(pair, prompt(300, seed=65))
    stays_held(pair, 1.5 * LEASE)
    pair.decode.kill()
    pair.prefill.wait_idle(pair.blocks[0], LEASE + SLACK)
    assert pair.prefill.ask(prompt(100, seed=66))["finish_reason"] == "length"
    pair.decode = pair.decode.started_again()
    require_pulled(pair, seed=67)


def test_a_killed_p_is_computed_at_d_and_found_again_under_its_old_name(pair):
    tokens = prompt(300, seed=68)
    expected = pair.decode.ask(tokens)["tokens"]
    assert pair.decode.forget()
    _, to_decode = pair.params()
    request = pair.decode.begin(tokens, to_decode)  # P never gets it, so D waits.
    until(lambda: pair.decode.state()["free_blocks"] < pair.blocks[1], "D does not pull", SLACK)
    pair.prefill.kill()
    pair.prefill = pair.prefill.started_again()
    others = prompt(300, seed=69)
    assert pair.ask(others)[1]["cached"] == len(others)
    # Its blocks are D's again when no write of the old P can land: a minute after its process has ended.
    assert pair.decode.finish(request)["tokens"] == expected and pair.decode.wrote("is lost")
    pair.wait_idle()


def test_without_the_bootstrap_server_known_engines_are_served_and_others_refused(pair, bootstrap):
    if bootstrap is None:
        pytest.skip("P's bootstrap server is in its own process")
    bootstrap.kill()
    require_pulled(pair, seed=70)
    tokens = prompt(300, seed=71)
    expected = pair.prefill.ask(tokens)["tokens"]
    _, to_decode = pair.params()
    answer = pair.decode.ask(tokens, {**to_decode, "remote_engine_id": "nobody"})
    assert answer["tokens"] == expected and pair.decode.wrote("nobody")
    pair.wait_idle()
