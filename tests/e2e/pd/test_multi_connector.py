"""Beside a store inside vLLM's MultiConnector: prompts are pulled, and what is in the store is loaded from it."""

import pytest

from engine import prompt
from pair import Pair
from waiting import until

STORE = {"kv_connector": "TenureStoreConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"pool": "embedded", "embedded_memory": "128MiB"}}
LEASE = {"kv_lease_duration": 3}


def children(role):
    first = {"kv_connector": "TenurePDConnector", "kv_role": role, "kv_connector_extra_config": LEASE}
    return {"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": [first, STORE]}}


@pytest.fixture(scope="module")
def pair():
    pair = Pair(
        "gemma3",
        {},
        prefill={"transfer": children("kv_producer")},
        decode={"transfer": children("kv_consumer")},
    )
    yield pair
    pair.stop()


def test_a_prompt_is_pulled_although_a_store_stands_beside(pair):
    for seed in (1, 2):
        tokens = prompt(300, seed=seed)
        expected = pair.prefill.ask(tokens)["tokens"]
        _, answer = pair.ask(tokens)
        assert answer["tokens"] == expected and answer["cached"] == 300


def test_zeroed_kv_gives_other_tokens(pair):
    tokens = prompt(300, seed=4)
    expected = pair.decode.ask(tokens)["tokens"]
    until(pair.decode.forget, "D's saves hold blocks", 60)
    _, answer = pair.ask(tokens, between=pair.prefill.zero)
    assert answer["tokens"] != expected and answer["cached"] == 300


def test_a_prompt_without_a_peer_comes_from_the_store(pair):
    tokens = prompt(300, seed=3)
    expected = pair.decode.ask(tokens)["tokens"]
    answer = None
    for _ in range(20):  # Its saves are done some time after the answer.
        if pair.decode.forget():
            answer = pair.decode.ask(tokens)
            assert answer["tokens"] == expected
            if answer["cached"] >= 256:
                break
    assert answer is not None and answer["cached"] >= 256
