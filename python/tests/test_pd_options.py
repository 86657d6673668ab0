"""The options of TenurePDConnector: stock's names and defaults, and one line for each wrong value."""

import ctypes
import dataclasses
import os
import re

import pytest

from test_docs import section
from tenure._native import DecodeWorker, KvRegion, MismatchBoard, PrefillWorker, RenewalSender, Transport
from tenure.pd.keys import main as make_keys
from tenure.vllm.pd_options import _ENVIRONMENT, ROLES, PDOptions, check_host, check_role, split_host_port


def options(environment=None, **values):
    return PDOptions.from_mapping(values, environment or {})


def test_stock_names_have_stock_defaults():
    checked = options()
    assert (checked.num_workers, checked.mooncake_protocol, checked.device_name) == (10, "rdma", "")
    assert (checked.bootstrap_port, checked.abort_timeout, checked.connector_timeout) == (8998, 480.0, 30.0)
    assert checked.kv_lease_duration is None and checked.bootstrap_host_and_port is None
    assert checked.request_timeout == 540.0


def test_the_environment_is_read_as_stock_reads_it():
    checked = options(
        {
            "VLLM_MOONCAKE_BOOTSTRAP_PORT": "9001",
            "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": "20",
            "VLLM_MOONCAKE_CONNECTOR_TIMEOUT": "1.5",
            "TENURE_PD_BOOTSTRAP_TOKEN": "secret",
        }
    )
    assert (checked.bootstrap_port, checked.abort_timeout, checked.connector_timeout) == (9001, 20.0, 1.5)
    assert checked.request_timeout == 80.0
    assert checked.bootstrap_token == "secret"
    assert options({"VLLM_MOONCAKE_BOOTSTRAP_PORT": " "}).bootstrap_port == 8998


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_no_listener_takes_every_address_of_the_machine(host):
    # What vLLM says when it cannot find the machine's address, and no peer could reach.
    with pytest.raises(ValueError, match="set VLLM_HOST_IP"):
        check_host(host)
    assert check_host("10.0.0.1") == "10.0.0.1"


def test_a_null_option_is_unset():
    assert options(kv_lease_duration=None, renew_without_step=None).kv_lease_duration is None


@pytest.mark.parametrize(
    "text, host, port", [("10.0.0.1:8998", "10.0.0.1", 8998), ("[fd00::1]:1", "fd00::1", 1), ("prefill:65535", "prefill", 65535)]
)
def test_host_and_port_are_taken_apart(text, host, port):
    assert split_host_port("it", text) == (host, port)


@pytest.mark.parametrize(
    "name, value",
    [
        ("bootstrap_server_address", "host"),
        ("bootstrap_server_address", ":8998"),
        ("bootstrap_server_address", "host:0"),
        ("bootstrap_server_address", "host:65536"),
        ("bootstrap_server_address", "fd00::1:80"),
        ("bootstrap_server_address", "host:1.5"),
        ("bootstrap_server_address", 8998),
        ("bootstrap_listen_host", ""),
        ("bootstrap_listen_host", "http://host"),
        ("curve_secret_key_file", ""),
        ("curve_public_key_file", 1),
        ("allow_peer", "10.0.0.1:8998"),
        ("allow_peer", [8998]),
        ("kv_lease_duration", 0),
        ("kv_lease_duration", 0.099),
        ("renew_without_step", 0.001),
        ("kv_lease_duration", -1.0),
        ("kv_lease_duration", float("nan")),
        ("kv_lease_duration", float("inf")),
        ("kv_lease_duration", True),
        ("kv_lease_duration", "30"),
        ("renew_without_step", 0),
        ("request_timeout", 0),
        ("request_timeout", None),
        ("num_workers", 0),
        ("num_workers", 2.0),
        ("transport", "rdma"),
        ("mooncake_protocol", 1),
        ("device_name", None),
    ],
)
def test_a_wrong_value_is_one_line_with_name_and_value(name, value):
    with pytest.raises((ValueError, TypeError)) as caught:
        options(**{name: value})
    text = str(caught.value)
    assert text.startswith(name) and repr(value) in text and "use " in text and "\n" not in text


@pytest.mark.parametrize(
    "name, text",
    [
        ("VLLM_MOONCAKE_BOOTSTRAP_PORT", "0"),
        ("VLLM_MOONCAKE_BOOTSTRAP_PORT", "65536"),
        ("VLLM_MOONCAKE_BOOTSTRAP_PORT", "8998a"),
        ("VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT", "-1"),
        ("VLLM_MOONCAKE_CONNECTOR_TIMEOUT", "inf"),
        ("VLLM_MOONCAKE_CONNECTOR_TIMEOUT", "soon"),
    ],
)
def test_a_wrong_variable_is_one_line_with_name_and_value(name, text):
    with pytest.raises(ValueError, match=re.escape(f"{name} is {text!r}; use ")):
        options({name: text})


@pytest.fixture
def keys(tmp_path):
    """Paths of a new pair's secret and public key."""
    assert make_keys([str(tmp_path / "p")]) == 0
    return str(tmp_path / "p.secret"), str(tmp_path / "p.public")


def test_keys_are_read_from_files_by_the_role_that_needs_them(keys):
    secret, public = keys
    texts = [open(path).read().strip() for path in keys]
    found = options(curve_secret_key_file=secret).curve_keys("kv_producer")
    assert (found.secret, found.public) == (texts[0], None) and texts[0] not in repr(found)
    found = options(curve_public_key_file=public).curve_keys("kv_consumer")
    assert (found.secret, found.public) == (None, texts[1])
    found = options(curve_secret_key_file=secret, curve_public_key_file=public).curve_keys("kv_both")
    assert [found.secret, found.public] == texts and len(set(texts)) == 2
    found = options(curve_secret_key_file=None).curve_keys("kv_both")
    assert (found.secret, found.public) == (None, None)


@pytest.mark.parametrize(
    "role, sides, named",
    [
        ("kv_producer", "public", "curve_public_key_file is {public!r}, which kv_producer does not use; remove it, and set curve_secret_key_file"),
        ("kv_producer", "both", "curve_public_key_file is {public!r}, which kv_producer does not use; remove it"),
        ("kv_consumer", "secret", "curve_secret_key_file is {secret!r}, which kv_consumer does not use; remove it, and set curve_public_key_file"),
        ("kv_both", "secret", "curve_public_key_file is unset, but kv_both with CURVE keys needs it; set it to the path of a key file"),
        ("kv_both", "public", "curve_secret_key_file is unset, but kv_both with CURVE keys needs it; set it to the path of a key file"),
    ],
)
def test_half_a_pair_of_keys_is_refused(keys, role, sides, named):
    given = {"curve_secret_key_file": keys[0], "curve_public_key_file": keys[1]}
    given = {name: path for name, path in given.items() if sides in ("both", name.split("_")[1])}
    with pytest.raises(ValueError, match=re.escape(named.format(secret=keys[0], public=keys[1]))):
        options(**given).curve_keys(role)


@pytest.mark.parametrize("content", ["", "secret", "x" * 39, "x" * 41, "x" * 39 + "\u00e4", "\0" * 40, "x" * 20 + "\n" + "x" * 20, "x" * 10_000])
def test_a_file_without_a_key_is_named_and_not_shown(tmp_path, content):
    path = tmp_path / "p.secret"
    path.write_text(content)
    with pytest.raises(ValueError) as refused:
        options(curve_secret_key_file=str(path)).curve_keys("kv_producer")
    assert str(refused.value) == f"curve_secret_key_file is {str(path)!r}, whose content is no CURVE key; give 40 characters of Z85"


@pytest.mark.parametrize("name", ["missing", "", "a\0b"])
def test_a_key_file_that_cannot_be_read_is_named_with_the_reason(tmp_path, name):
    path = f"{tmp_path}/{name}"
    with pytest.raises(ValueError, match=re.escape(f"curve_public_key_file is {path!r}, which cannot be read (")):
        options(curve_public_key_file=path).curve_keys("kv_consumer")


def test_a_new_pair_never_replaces_one_and_its_secret_is_the_owners(keys, capsys):
    before = [open(path).read() for path in keys]
    assert os.stat(keys[0]).st_mode & 0o077 == 0
    assert make_keys([keys[0].removesuffix(".secret")]) == 1
    assert keys[0] in capsys.readouterr().err and [open(path).read() for path in keys] == before
    assert make_keys([]) == make_keys(["--help"]) == 2


@pytest.mark.parametrize("peer", ["host", "host:0", "host:65536", "ftp://host:1", "http://host:1/path", "0.0.0.0:1"])
def test_a_peer_that_is_none_is_named(peer):
    with pytest.raises(ValueError, match=re.escape(f"allow_peer is {peer!r}")):
        options(allow_peer=["10.0.0.1:8998", peer])


def test_peers_are_kept_as_the_proxy_keeps_them():
    assert options(allow_peer=["10.0.0.1:8998", "http://P:1/", "[fd00::1]:2"]).allow_peer == ("http://10.0.0.1:8998", "http://p:1", "http://[fd00::1]:2")
    assert options(allow_peer=[]).allow_peer == () and options().allow_peer is None


@pytest.mark.parametrize("token", ["", " ", "two words", "a\nb", "\u00e4"])
def test_a_token_that_is_set_wrongly_never_means_none_and_is_not_shown(token):
    with pytest.raises(ValueError) as refused:
        options({"TENURE_PD_BOOTSTRAP_TOKEN": token})
    text = str(refused.value)
    assert text.startswith("TENURE_PD_BOOTSTRAP_TOKEN is set, but") and (not token.strip() or token not in text)


def test_an_unknown_option_suggests_the_nearest():
    with pytest.raises(ValueError, match="kv_lease_seconds with the value 30; did you mean kv_lease_duration"):
        options(kv_lease_seconds=30)


def test_a_bound_for_renewals_needs_a_lease():
    with pytest.raises(ValueError, match="renew_without_step is 5.0, but kv_lease_duration is unset"):
        options(renew_without_step=5)
    assert options(renew_without_step=5, kv_lease_duration=30).renew_without_step == 5.0


def test_an_unknown_role_is_refused_with_the_known_ones():
    assert [check_role(role) for role in ROLES] == list(ROLES)
    for role in ("prefill", "", None):
        with pytest.raises(ValueError, match=re.escape(f"kv_role is {role!r}; use kv_producer or kv_consumer or kv_both")):
            check_role(role)


def test_reference_page_has_every_option_with_its_default():
    page = {name: default.strip("` ") for name, default in section("vllm-pd.md", "## Options (`kv_connector_extra_config`)").items()}
    variables = {name: default.strip("` ") for name, default in section("vllm-pd.md", "## Environment").items()}
    fields = {field.name: '""' if field.default == "" else str(field.default) for field in dataclasses.fields(PDOptions)}
    from_environment = {name: fields.pop(field) for name, (field, _) in _ENVIRONMENT.items()}
    assert page.pop("request_timeout") == "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT` + 60"
    del fields["request_timeout"]
    assert page == fields
    assert variables == from_environment


def test_reference_page_has_every_counter():
    memory = bytearray(4096)
    buffer = (ctypes.c_char * 4096).from_buffer(memory)
    region = KvRegion(
        "layers.0", layer_index=0, group_index=0, shared_group_ids=[0], base_addr=ctypes.addressof(buffer), block_bytes=1024,
        kv_bytes=1024, row_offset=-1, num_blocks=4, head_split="allowed", hides_layers=False,
    )
    transport, board = Transport("local"), MismatchBoard()
    transport.register([(ctypes.addressof(buffer), 4096)])
    common = dict(
        rank=(1, 0, 1, 0), total_kv_heads=1, is_mla=False, groups=[(False, 1)], host="127.0.0.1", lease=None, connector_timeout=1.0, board=board
    )
    prefill = PrefillWorker(
        [region], transport, engine_id="p", dp_rank=0, incarnation=1, bootstrap_url="http://127.0.0.1:1", bootstrap_token="", hold_timeout=1.0,
        curve_secret_key=None, **common,
    )
    decode = DecodeWorker([region], transport, curve_server_key=None, **common)
    sender = RenewalSender(1.0, renew_without_step=None, connector_timeout=1.0, curve_server_key=None)
    names = [name for worker in (prefill, decode) for name in worker.take_stats()[1]] + list(sender.take_stats())
    assert len(names) == len(set(names))
    for part in (prefill, decode, sender, transport):
        part.close()
    page = section("vllm-pd.md", "`vllm:tenure_pd_events_total` by `event`")
    assert sorted(page) == sorted(name.removeprefix("num_") for name in names)
