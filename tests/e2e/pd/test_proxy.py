"""Two OpenAI servers behind tenure-proxy: answers are those of one engine, KV is pulled, and all blocks come back; also when P, D or
the proxy is killed under requests and started again. In this order: what a test has ended, it starts again."""

import json
import os
import signal
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine import prompt
from served import COMPLETIONS, Served, body, text_of, wait_free
from waiting import until

LEASE = 5.0
# For a loaded machine, beyond what a lease takes.
SLACK = 30
CLIENTS = 16  # At one time.
# The consumer's late_write_max: how long D keeps what a P that has ended might still write into.
LATE_WRITE = 60


def health_of(server):
    """The status of /health; None when nobody listens."""
    try:
        with urllib.request.urlopen(f"{server.url}/health", timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return None


@pytest.fixture(scope="module")
def served():
    served = Served({"kv_lease_duration": LEASE})
    yield served
    served.stop()


def test_answers_are_those_of_one_engine(served):
    for seed, length in ((1, 300), (2, 33), (3, 1000)):
        tokens = prompt(length, seed=seed)
        status, expected = served.prefill.post(COMPLETIONS, body(tokens))
        assert status == 200
        status, answer = served.proxy.post(COMPLETIONS, body(tokens))
        assert status == 200
        assert text_of(answer) == text_of(expected)
    assert served.decode.metric("vllm:external_prefix_cache_hits_total") == 300 + 33 + 1000
    assert served.decode.metric("vllm:tenure_pd_events_total") > 0
    assert served.prefill.metric("vllm:tenure_pd_written_bytes_total") > 0


def test_a_stream_has_the_same_text(served):
    tokens = prompt(310, seed=4)
    _, expected = served.prefill.post(COMPLETIONS, body(tokens))
    events = served.proxy.stream(COMPLETIONS, body(tokens))
    assert len(events) >= 6
    assert "".join(event["choices"][0]["text"] for event in events if event["choices"]) == text_of(expected)


def test_zeroed_kv_gives_another_text(served):
    tokens = prompt(300, seed=8)
    _, expected = served.prefill.post(COMPLETIONS, body(tokens))
    served.prefill.zero()  # What its prefix cache still has of the prompt.
    status, answer = served.proxy.post(COMPLETIONS, body(tokens))
    assert status == 200 and text_of(answer) != text_of(expected)
    for server in (served.prefill, served.decode):
        server.forget()


def test_all_blocks_come_back(served):
    for server in (served.prefill, served.decode):
        wait_free(server)


def test_a_killed_proxy_ends_its_requests_and_another_one_serves(served):
    client = threading.Thread(target=served.proxy.try_post, args=(COMPLETIONS, body(prompt(300, seed=6), max_tokens=7000)), daemon=True)
    client.start()
    until(lambda: served.decode.metric("vllm:num_requests_running") == 1, "D does not decode", 60)
    served.proxy.stop(9)
    client.join()
    for server in (served.prefill, served.decode):
        wait_free(server)
    served.proxy = served.proxy.started_again()
    tokens = prompt(300, seed=7)
    _, expected = served.prefill.post(COMPLETIONS, body(tokens))
    status, answer = served.proxy.post(COMPLETIONS, body(tokens))
    assert status == 200 and text_of(answer) == text_of(expected)


def test_renewals_of_ds_scheduler_are_among_its_metrics(served):
    """Before the test that kills D, since D waits for this prefill, which never comes, until then."""
    with urllib.request.urlopen(f"{served.bootstrap}/query", timeout=10) as answer:
        (engine,) = json.load(answer).values()
    remote = {"remote_bootstrap_addr": served.bootstrap, "remote_engine_id": engine["engine_id"], "transfer_id": "xfer-never"}
    params = {"do_remote_prefill": True, "do_remote_decode": False, **remote}
    asked = body(prompt(300, seed=8), kv_transfer_params=params)
    threading.Thread(target=served.decode.try_post, args=(COMPLETIONS, asked), daemon=True).start()
    until(lambda: served.decode.metric("vllm:tenure_pd_events_total", 'event="sent_renewals"') > 0, "D's scheduler counts no renewal", 60)


def require_pulled(served, seed):
    """The proxy, as it has been running, gives a new prompt's tokens, and D did not compute the prompt."""
    until(lambda: health_of(served.proxy) == 200, "the proxy finds no engine", SLACK)
    tokens = prompt(300, seed=seed)
    _, expected = served.prefill.post(COMPLETIONS, body(tokens))
    pulled = served.decode.metric("vllm:external_prefix_cache_hits_total")
    status, answer = served.proxy.post(COMPLETIONS, body(tokens))
    assert status == 200 and text_of(answer) == text_of(expected)
    assert served.decode.metric("vllm:external_prefix_cache_hits_total") - pulled == len(tokens)
    for server in (served.prefill, served.decode):
        wait_free(server)


def test_requests_of_a_killed_decoder_end_with_the_reason_and_cost_p_one_lease(served):
    wait_free(served.prefill)
    with ThreadPoolExecutor(CLIENTS) as clients:
        decoded = clients.submit(served.proxy.post, COMPLETIONS, body(prompt(300, seed=20), max_tokens=7000))
        streamed = clients.submit(served.proxy.stream, COMPLETIONS, body(prompt(310, seed=21), max_tokens=7000))
        until(lambda: served.decode.metric("vllm:num_requests_running") == 2, "D does not decode", 60)
        wait_free(served.prefill)
        os.killpg(served.decode.process.pid, signal.SIGSTOP)
        computed = clients.submit(served.proxy.post, COMPLETIONS, body(prompt(320, seed=22)))
        until(lambda: served.prefill.metric("vllm:kv_cache_usage_perc") > 0, "P holds nothing for a D that stands still", SLACK)
        served.decode.stop(9)
        for status, answer in (decoded.result(), computed.result()):
            assert status == 502 and f"decode at {served.decode.url} failed" in answer["error"]["message"]
        assert len(streamed.result()) > 1 and streamed.result()[-1]["error"]["type"] == "decode_error"
    status, answer = served.proxy.post(COMPLETIONS, body(prompt(300, seed=23)))
    assert status == 503 and f"no decoder is healthy ({served.decode.url}: " in answer["error"]["message"]
    wait_free(served.prefill, LEASE + SLACK)


def test_a_decoder_that_is_started_again_is_served_by_the_same_proxy(served):
    served.decode = served.decode.started_again()
    require_pulled(served, seed=24)


def test_requests_of_a_killed_prefiller_end_with_the_reason(served):
    """Their pulls have come to P, whose places are all taken, so that it has not begun with them."""
    with ThreadPoolExecutor(CLIENTS) as clients:
        for index in range(8):
            clients.submit(served.prefill.try_post, COMPLETIONS, body(prompt(100, seed=30 + index), max_tokens=7000))
        until(lambda: served.prefill.metric("vllm:num_requests_running") == 8, "P does not begin", 60)
        pulls = served.prefill.metric("vllm:tenure_pd_events_total", 'event="pulls"')
        waiting = [clients.submit(served.proxy.post, COMPLETIONS, body(prompt(300, seed=40 + index))) for index in range(2)]
        until(lambda: served.prefill.metric("vllm:num_requests_waiting") == len(waiting), "P takes all requests at one time", 60)
        until(lambda: served.prefill.metric("vllm:tenure_pd_events_total", 'event="pulls"') > pulls, "D does not pull", 60)
        served.prefill.stop(9)
        for client in waiting:
            status, answer = client.result()
            assert status == 502 and f"prefill at {served.prefill.url} failed" in answer["error"]["message"]
    status, answer = served.proxy.post(COMPLETIONS, body(prompt(300, seed=42)))
    assert status == 503 and f"no prefiller is healthy ({served.prefill.url}: " in answer["error"]["message"]


def test_a_prefiller_that_is_started_again_is_served_by_the_same_proxy(served):
    assert served.decode.metric("vllm:kv_cache_usage_perc") > 0  # A write of the old P may still land there.
    served.prefill = served.prefill.started_again()
    wait_free(served.decode, LATE_WRITE + SLACK)
    require_pulled(served, seed=43)
