"""Two OpenAI servers behind tenure-proxy: answers are those of one engine, KV is pulled, and all blocks come back."""

import json
import os
import threading
import urllib.request

import pytest

from engine import prompt
from pair import free_port
from servers import engine_server, proxy_server
from waiting import until

MODEL, LEASE = "llama", 5.0


class Served:
    """P, D and the proxy."""

    def __init__(self):
        ports = [free_port() for _ in range(4)]
        cores = sorted(os.sched_getaffinity(0))
        # With /collective_rpc and /reset_prefix_cache, and a method to call.
        environment = {"VLLM_MOONCAKE_BOOTSTRAP_PORT": str(ports[3]), "VLLM_SERVER_DEV_MODE": "1"}
        zeroes = {"arguments": ("--worker-extension-cls", "overwrite.Overwriter")}
        options = {"kv_lease_duration": LEASE}
        engines = [
            engine_server(MODEL, "kv_producer", options, ports[0], cores[0], environment, **zeroes),
            engine_server(MODEL, "kv_consumer", options, ports[1], cores[-1], environment, **zeroes),
        ]
        self.prefill, self.decode = engines
        self.bootstrap = f"http://127.0.0.1:{ports[3]}"
        self.proxy = proxy_server(self.prefill.url, ports[3], self.decode.url, ports[2])
        try:
            for part in (*engines, self.proxy):
                part.wait_healthy()
        except BaseException:
            self.stop()
            raise

    def stop(self):
        for part in (self.proxy, self.decode, self.prefill):
            part.stop()


@pytest.fixture(scope="module")
def served():
    served = Served()
    yield served
    served.stop()


def body(tokens, **more):
    return {"model": MODEL, "prompt": tokens, "max_tokens": 6, "temperature": 0, "ignore_eos": True, **more}


def wait_free(server):
    until(lambda: server.metric("vllm:kv_cache_usage_perc") == 0, "KV is still held", 30)


def test_answers_are_those_of_one_engine(served):
    for seed, length in ((1, 300), (2, 33), (3, 1000)):
        tokens = prompt(length, seed=seed)
        status, expected = served.prefill.post("/v1/completions", body(tokens))
        assert status == 200
        status, answer = served.proxy.post("/v1/completions", body(tokens))
        assert status == 200
        assert answer["choices"][0]["text"] == expected["choices"][0]["text"]
    assert served.decode.metric("vllm:external_prefix_cache_hits_total") == 300 + 33 + 1000
    assert served.decode.metric("vllm:tenure_pd_events_total") > 0
    assert served.prefill.metric("vllm:tenure_pd_written_bytes_total") > 0


def test_a_stream_has_the_same_text(served):
    tokens = prompt(310, seed=4)
    _, expected = served.prefill.post("/v1/completions", body(tokens))
    events = served.proxy.stream("/v1/completions", body(tokens))
    assert len(events) >= 6
    assert "".join(event["choices"][0]["text"] for event in events if event["choices"]) == expected["choices"][0]["text"]


def test_zeroed_kv_gives_another_text(served):
    tokens = prompt(300, seed=8)
    _, expected = served.prefill.post("/v1/completions", body(tokens))
    served.prefill.zero()  # What its prefix cache still has of the prompt.
    status, answer = served.proxy.post("/v1/completions", body(tokens))
    assert status == 200 and answer["choices"][0]["text"] != expected["choices"][0]["text"]
    for server in (served.prefill, served.decode):
        server.forget()


def test_all_blocks_come_back(served):
    for server in (served.prefill, served.decode):
        wait_free(server)


def test_a_killed_proxy_ends_its_requests_and_another_one_serves(served):
    client = threading.Thread(target=served.proxy.try_post, args=("/v1/completions", body(prompt(300, seed=6), max_tokens=7000)), daemon=True)
    client.start()
    until(lambda: served.decode.metric("vllm:num_requests_running") == 1, "D does not decode", 60)
    served.proxy.stop(9)
    client.join()
    for server in (served.prefill, served.decode):
        wait_free(server)
    served.proxy = served.proxy.started_again()
    tokens = prompt(300, seed=7)
    _, expected = served.prefill.post("/v1/completions", body(tokens))
    status, answer = served.proxy.post("/v1/completions", body(tokens))
    assert status == 200 and answer["choices"][0]["text"] == expected["choices"][0]["text"]


def test_renewals_of_ds_scheduler_are_among_its_metrics(served):
    """Before the test that kills D, since D waits for this prefill, which never comes, until then."""
    with urllib.request.urlopen(f"{served.bootstrap}/query", timeout=10) as answer:
        (engine,) = json.load(answer).values()
    remote = {"remote_bootstrap_addr": served.bootstrap, "remote_engine_id": engine["engine_id"], "transfer_id": "xfer-never"}
    params = {"do_remote_prefill": True, "do_remote_decode": False, **remote}
    asked = body(prompt(300, seed=8), kv_transfer_params=params)
    threading.Thread(target=served.decode.try_post, args=("/v1/completions", asked), daemon=True).start()
    until(lambda: served.decode.metric("vllm:tenure_pd_events_total", 'event="sent_renewals"') > 0, "D's scheduler counts no renewal", 60)


def test_a_killed_decoder_is_said_and_costs_p_one_lease(served):
    wait_free(served.prefill)
    served.decode.stop(9)
    status, answer = served.proxy.post("/v1/completions", body(prompt(300, seed=5)))
    assert status in (502, 503) and answer["error"]["message"]
    until(lambda: served.prefill.metric("vllm:kv_cache_usage_perc") == 0, "P holds KV of a dead decoder beyond its lease", LEASE + 30)
