"""Engines of two data parallel ranks each: every rank of P hands over to every rank of D, and the proxy asks them in turn."""

import json
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine import prompt
from processes import Daemon
from served import COMPLETIONS, Served, body, text_of, wait_free
from tenure import DaemonPool
from waiting import until

LEASE = 5.0
RANKS = (0, 1)
BLOCK = 32


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    started = Daemon(tmp_path_factory.mktemp("daemon"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def served(daemon):
    served = Served({"kv_lease_duration": LEASE}, ranks=len(RANKS), store={"pool": f"unix:{daemon.socket}"})
    yield served
    served.stop()


@pytest.fixture(scope="module")
def engines(served):
    """P's engine ids by rank."""
    with urllib.request.urlopen(f"{served.bootstrap}/query", timeout=10) as answer:
        return {int(rank): engine["engine_id"] for rank, engine in json.load(answer).items()}


def ask(server, rank, tokens, **more):
    """The text that one rank of an engine gives."""
    status, answer = server.post(COMPLETIONS, body(tokens, **more), headers={"X-data-parallel-rank": str(rank)})
    assert status == 200, answer
    return text_of(answer)


def hits(server, rank):
    """Tokens that a rank's connectors have brought: D's pulls, what P finds in the store."""
    return server.metric("vllm:external_prefix_cache_hits_total", f'engine="{rank}"')


def written(served, rank):
    """Bytes that a rank of P has written."""
    return served.prefill.metric("vllm:tenure_pd_written_bytes_total", f'engine="{rank}"')


def events_of(server):
    """The connector's counters as lines."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as answer:
        return [line for line in answer.read().decode().splitlines() if line.startswith("vllm:tenure_pd_events_total")]


def test_each_rank_of_p_is_known_by_an_id_of_its_own(served, engines):
    assert sorted(engines) == list(RANKS)
    assert all(name.endswith(f"_dp{rank}") for rank, name in engines.items())
    with urllib.request.urlopen(f"{served.proxy.url}/status", timeout=10) as answer:
        (prefiller,) = json.load(answer)["prefillers"]
    assert prefiller["engines"] == {str(rank): name for rank, name in engines.items()}


def test_every_rank_of_p_hands_over_to_every_rank_of_d(served, engines):
    for seed, (source, target) in enumerate((source, target) for source in RANKS for target in RANKS):
        tokens, transfer_id = prompt(300 + seed, seed=seed), f"xfer-{source}-{target}"
        expected = ask(served.prefill, 1 - source, tokens)
        before = [hits(served.decode, rank) for rank in RANKS]
        ask(served.prefill, source, tokens, max_tokens=1, kv_transfer_params={"do_remote_decode": True, "transfer_id": transfer_id})
        remote = {"remote_bootstrap_addr": served.bootstrap, "remote_engine_id": engines[source], "transfer_id": transfer_id}
        assert ask(served.decode, target, tokens, kv_transfer_params={"do_remote_prefill": True, **remote}) == expected
        more = [hits(served.decode, rank) - count for rank, count in zip(RANKS, before)]
        assert more == [len(tokens) if rank == target else 0 for rank in RANKS]
    for server in (served.prefill, served.decode):
        wait_free(server)


def test_requests_through_the_proxy_go_to_all_ranks(served):
    prompts = [prompt(300 + index, seed=20 + index) for index in range(6)]
    expected = [ask(served.prefill, index % len(RANKS), tokens) for index, tokens in enumerate(prompts)]
    before = [(hits(served.decode, rank), written(served, rank)) for rank in RANKS]
    with ThreadPoolExecutor(len(prompts)) as clients:
        answers = list(clients.map(lambda tokens: served.proxy.post(COMPLETIONS, body(tokens)), prompts))
    assert [(status, text_of(answer)) for status, answer in answers] == [(200, text) for text in expected]
    for rank, (tokens, size) in zip(RANKS, before):
        assert hits(served.decode, rank) > tokens and written(served, rank) > size
    assert sum(hits(served.decode, rank) - tokens for rank, (tokens, _) in zip(RANKS, before)) == sum(len(tokens) for tokens in prompts)


def test_ranks_share_a_store(served, daemon):
    tokens = prompt(300, seed=60)
    with DaemonPool(daemon.socket) as pool:
        before = pool.stats()["objects"]
        expected = ask(served.prefill, 0, tokens)
        until(lambda: pool.stats()["objects"] - before >= len(tokens) // BLOCK, "rank 0 saves nothing", 60)
    found = hits(served.prefill, 1)
    assert ask(served.prefill, 1, tokens) == expected
    assert hits(served.prefill, 1) - found == len(tokens) // BLOCK * BLOCK


def test_zeroed_kv_gives_another_text(served):
    tokens = prompt(300, seed=30)
    (expected,) = {ask(served.prefill, rank, tokens) for rank in RANKS}
    served.prefill.zero()  # What each rank's prefix cache still has of the prompt.
    status, answer = served.proxy.post(COMPLETIONS, body(tokens))
    assert status == 200 and text_of(answer) != expected
    for server in (served.prefill, served.decode):
        server.forget()


def test_each_rank_of_d_renews_and_each_rank_of_p_frees_what_nobody_renews(served, engines):
    """The last one: D waits for prefills that never come."""
    for rank in RANKS:
        unpulled = {"do_remote_decode": True, "transfer_id": f"xfer-nobody-{rank}"}
        ask(served.prefill, rank, prompt(300, seed=40 + rank), max_tokens=1, kv_transfer_params=unpulled)
        remote = {"remote_bootstrap_addr": served.bootstrap, "remote_engine_id": engines[rank], "transfer_id": f"xfer-never-{rank}"}
        waits = body(prompt(300, seed=50 + rank), kv_transfer_params={"do_remote_prefill": True, **remote})
        headers = {"X-data-parallel-rank": str(rank)}
        threading.Thread(target=served.decode.try_post, args=(COMPLETIONS, waits), kwargs={"headers": headers}, daemon=True).start()
    for rank in RANKS:
        for server, event in ((served.decode, "sent_renewals"), (served.prefill, "kv_expired_reqs")):
            label = f'engine="{rank}",event="{event}"'
            until(lambda: server.metric("vllm:tenure_pd_events_total", label) > 0, lambda: f"no {label}: {events_of(server)}", LEASE + 30)
    wait_free(served.prefill)
