"""Stock engines on either side: vLLM's MooncakeConnector as P of our D, and as D of our P, over Mooncake's engine."""

import pytest

from engine import prompt
from pair import Pair

OURS = {"transport": "mooncake", "mooncake_protocol": "tcp", "num_workers": 2}
STOCK = {
    "kv_connector": "MooncakeConnector",
    "kv_connector_module_path": "stock_on_cpu",
    "kv_connector_extra_config": {"mooncake_protocol": "tcp"},
}


@pytest.fixture(scope="module", params=["prefill", "decode"])
def pair(request):
    pair = Pair("llama", OURS, environment={"VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": "60"}, **{request.param: {"transfer": STOCK}})
    yield pair
    pair.stop()


def test_a_stock_peer_is_understood(pair):
    for seed, length in ((1, 300), (2, 33), (3, 1000)):
        tokens = prompt(length, seed=seed)
        expected = pair.prefill.ask(tokens)["tokens"]
        _, answer = pair.ask(tokens)
        assert answer["tokens"] == expected and answer["cached"] == length
    pair.wait_idle()


def test_zeroed_kv_gives_other_tokens(pair):
    tokens = prompt(300, seed=5)
    assert pair.ask_for_zeroes(tokens) != pair.prefill.ask(tokens)["tokens"]


def test_a_local_hit_at_d_releases_a_stock_peer(pair):
    tokens = prompt(320, seed=4)
    expected = pair.ask(tokens)[1]["tokens"]
    assert pair.ask(tokens)[1]["tokens"] == expected
    pair.wait_idle()
