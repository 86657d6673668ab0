"""Engines that do not agree: nothing hangs, blocks come back, and the log says why."""

import json
import urllib.request

import pytest

from engine import prompt
from pair import Pair
from waiting import until


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


def test_engines_with_different_leases_refuse_one_another_with_both_values(lasting):
    pair = lasting(
        "gemma3", {}, prefill_options={"kv_lease_duration": 3}, decode_options={"kv_lease_duration": 4},
        decode={"transfer": {"kv_load_failure_policy": "fail"}},
    )
    _, answer = pair.ask(prompt(300, seed=1))
    assert answer["finish_reason"] == "error" and not answer["tokens"]
    until(lambda: any("kv_lease_duration" in line and "3" in line and "4" in line for line in pair.decode.lines), "D's log does not say why", 10)
    # P has heard of it, tells it to proxies, and holds nothing for D.
    with urllib.request.urlopen(f"{pair.prefill.bootstrap}/status", timeout=10) as page:
        mismatches = json.load(page)["mismatches"]
    assert any("3 s on the prefill engine" in told["text"] and "4 s on the decode engine" in told["text"] for told in mismatches), mismatches
    until(lambda: pair.prefill.wrote("4 s on the decode engine"), "P's log does not say why", 10)
    # Others are served on.
    assert pair.decode.ask(prompt(100, seed=2))["finish_reason"] == "length"
    pair.wait_idle()
