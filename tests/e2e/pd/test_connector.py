"""What the connector asks of vLLM's own classes, without an engine: requests, options at the start, registration, statistics."""

import pathlib
import pickle
import subprocess
import sys
import types

import pytest

from tenure.vllm import pd_connector
from tenure.vllm.pd_model import PDPlace, check_supported
from tenure.vllm.pd_options import PDOptions
from tenure.vllm.pd_scheduler import check_cut, cut_last_token
from tenure.vllm.pd_stats import TenurePDStats
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory


def vllm_config(role="kv_producer", *, mla=False, **options):
    transfer = types.SimpleNamespace(kv_role=role, kv_connector_extra_config=options)
    return types.SimpleNamespace(kv_transfer_config=transfer, model_config=types.SimpleNamespace(use_mla=mla))


def test_requests_of_this_vllm_can_be_cut():
    check_cut(pd_connector._probe_request())
    request = pd_connector._probe_request()
    cut_last_token(request)
    assert list(request.all_token_ids) == request.prompt_token_ids == [1, 2]
    request.append_output_token_ids(7)
    assert (request.num_tokens, request.num_prompt_tokens, request.num_output_tokens) == (3, 2, 1)


def test_the_layout_has_heads_outside_of_tokens_unless_all_ranks_have_all_of_it():
    connector = pd_connector.TenurePDConnector
    assert connector.get_required_kvcache_layout(vllm_config()) == "LBHNC"
    assert connector.get_required_kvcache_layout(vllm_config(mla=True)) is None


@pytest.mark.parametrize(
    "role, options, line",
    [
        ("prefill", {}, "kv_role is 'prefill'; use kv_producer or kv_consumer or kv_both"),
        ("kv_producer", {"kv_lease_duration": -1}, "kv_lease_duration is -1; use seconds above 0"),
        ("kv_consumer", {"bootstrap_server_address": "host"}, "bootstrap_server_address is 'host'; use"),
        ("kv_consumer", {"curve_secret_key_file": "/key"}, "curve_secret_key_file is '/key', which kv_consumer does not use; remove it"),
        ("kv_producer", {"curve_secret_key_file": "/no/key"}, "curve_secret_key_file is '/no/key', which cannot be read (No such file"),
    ],
)
def test_a_wrong_option_ends_the_start_before_memory_is_measured(role, options, line):
    with pytest.raises(ValueError) as refused:
        pd_connector.TenurePDConnector.get_required_kvcache_layout(vllm_config(role, **options))
    assert str(refused.value).startswith(line)


def test_what_cannot_be_handed_over_is_refused_with_every_reason():
    config = types.SimpleNamespace(
        parallel_config=types.SimpleNamespace(prefill_context_parallel_size=2, decode_context_parallel_size=4),
        model_config=types.SimpleNamespace(enable_return_routed_experts=True),
    )
    with pytest.raises(ValueError, match="prefill context parallel size 2.*decode context parallel size 4.*routed-experts"):
        check_supported(config, types.SimpleNamespace(transfer_group_ids=(0,)))


def test_the_connector_is_known_by_its_name():
    assert KVConnectorFactory._registry["TenurePDConnector"]() is pd_connector.TenurePDConnector
    import tenure.vllm

    assert tenure.vllm.TenurePDConnector is pd_connector.TenurePDConnector


@pytest.mark.parametrize(
    "options, url",
    [
        ({}, "http://10.0.0.1:8998"),
        ({"bootstrap_listen_host": "10.0.0.9"}, "http://10.0.0.9:8998"),
        ({"bootstrap_listen_host": "0.0.0.0"}, "http://10.0.0.1:8998"),
        ({"bootstrap_server_address": "[fd00::1]:81"}, "http://[fd00::1]:81"),
    ],
)
def test_workers_register_where_the_server_listens(options, url):
    place = PDPlace(rank=(1, 0, 1, 0), dp_rank=0, host="10.0.0.1", runs_bootstrap=True, bootstrap_host="10.0.0.1")
    assert place.bootstrap_url(PDOptions.from_mapping(options, {})) == url


def test_the_golden_messages_are_those_that_msgspec_writes():
    root = pathlib.Path(__file__).parents[3]
    script, golden = root / "tests/golden/make_pd_wire.py", root / "src/tenure/pd/golden_wire.inc"
    subprocess.run([sys.executable, script, "--check", golden], check=True, timeout=60)


def test_the_schedulers_counters_are_statistics_too():
    connector = object.__new__(pd_connector.TenurePDConnector)
    connector._worker, connector._scheduler = None, types.SimpleNamespace(counters=lambda: {"sent_renewals": 3, "lost_renewals": 0})
    stats = connector.get_kv_connector_stats()
    assert isinstance(stats, TenurePDStats) and stats.data["tenure_counters"] == [{"sent_renewals": 3}]
    connector._scheduler = types.SimpleNamespace(counters=lambda: {})
    assert connector.get_kv_connector_stats() is None
    connector._scheduler = None
    assert connector.get_kv_connector_stats() is None


def test_statistics_add_up_and_travel():
    first = TenurePDStats.of([(0.1, 2**20, 4), (0.3, 3 * 2**20, 8)], {"num_failed_transfers": 1, "pulls": 2, "renewals": 0})
    second = TenurePDStats.of([], {"num_failed_recvs": 2})
    assert first is not None and second is not None and TenurePDStats.of([], {"pulls": 0}) is None
    total = pickle.loads(pickle.dumps(first)).aggregate(second).reduce()
    assert total == {
        "Num successful transfers": 2,
        "Avg xfer time (ms)": 200.0,
        "P90 xfer time (ms)": 280.0,
        "Avg MB per transfer": 2.0,
        "Throughput (MB/s)": 10.0,
        "Avg number of descriptors": 6.0,
        "Num failed transfers": 1,
        "Num failed recvs": 2,
        "Num KV expired reqs": 0,
    }
    built = pd_connector.TenurePDConnector.build_kv_connector_stats(first.data)
    assert isinstance(built, TenurePDStats) and built.data == first.data
