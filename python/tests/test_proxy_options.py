"""The command line of tenure-proxy, and its page."""

import re

import pytest
from test_docs import DOCS, section

from tenure.proxy import errors, metrics, options
from tenure.proxy.servers import Fleet

NEEDED = ["--prefill", "http://p:1", "--decode", "http://d:2"]


def parse(*arguments, needed=NEEDED):
    return options.parse([*needed, *arguments])


@pytest.mark.parametrize(
    ("words", "url", "bootstrap"),
    [
        (["http://p:8010"], "http://p:8010", "http://p:8998"),
        (["http://p:8010", "none"], "http://p:8010", "http://p:8998"),
        (["http://p:8010/", "9001"], "http://p:8010", "http://p:9001"),
        (["https://p"], "https://p", "http://p:8998"),
        (["http://p/engine/1/", "9001"], "http://p/engine/1", "http://p:9001"),
        (["http://p:8010", "boot:9001"], "http://p:8010", "http://boot:9001"),
        (["http://p:8010", "http://boot:9001"], "http://p:8010", "http://boot:9001"),
        (["http://[fe80::1]:8010", "9001"], "http://[fe80::1]:8010", "http://[fe80::1]:9001"),
    ],
)
def test_prefill_names_engine_and_bootstrap_server(words, url, bootstrap):
    parsed = options.parse(["--prefill", *words, "--decode", "http://d:2"])
    assert parsed.prefill == (options.PrefillAddress(url, bootstrap),)


def test_stocks_command_line_is_understood():
    prefills = "--prefill http://10.0.0.1:8010 8998 --prefill http://10.0.0.2:8010 none"
    decodes = "--decode http://10.0.0.3:8020 --decode http://10.0.0.4:8020"
    parsed = options.parse(f"{prefills} {decodes} --host 0.0.0.0 --port 9000".split())
    assert [prefill.bootstrap for prefill in parsed.prefill] == ["http://10.0.0.1:8998", "http://10.0.0.2:8998"]
    assert parsed.decode == ("http://10.0.0.3:8020", "http://10.0.0.4:8020")
    assert (parsed.host, parsed.port) == ("0.0.0.0", 9000)


def test_address_to_listen_on_becomes_one_to_reach_when_all_is_on_one_host():
    parsed = options.parse(["--prefill", "http://0.0.0.0:1", "9001", "--decode", "http://localhost:2", "--decode", "http://[::]:3"])
    assert parsed.prefill == (options.PrefillAddress("http://127.0.0.1:1", "http://127.0.0.1:9001"),)
    assert parsed.decode == ("http://localhost:2", "http://[::1]:3")


def test_loopback_prefill_for_decoders_elsewhere_is_warned_about(caplog):
    options.parse(["--prefill", "http://127.0.0.1:1", "--decode", "http://d:2"])
    assert "decode engines elsewhere are told 127.0.0.1:8998" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--prefill is missing"),
        (["--prefill", "http://p:1"], "--decode is missing"),
        (["--prefill", "p:1", "--decode", "http://d:2"], "--prefill is 'p:1'; give http://HOST:PORT"),
        (["--prefill", "ftp://p:1", "--decode", "http://d:2"], "--prefill is 'ftp://p:1'"),
        (["--prefill", "http://p:99999", "--decode", "http://d:2"], "--prefill is 'http://p:99999'"),
        (["--prefill", "http://p:1/v1", "--decode", "http://d:2"], "without /v1"),
        (["--prefill", "http://u:x@p:1", "--decode", "http://d:2"], "without /v1, user"),
        (["--prefill", "http://[p", "--decode", "http://d:2"], "--prefill is 'http://[p'"),
        (["--prefill", "http://p:1", "0", "--decode", "http://d:2"], "BOOTSTRAP of --prefill is '0'; use a whole number from 1 to 65535"),
        (["--prefill", "http://p:1", "boot", "--decode", "http://d:2"], "BOOTSTRAP of --prefill is 'boot'; give HOST:PORT"),
        (["--prefill", "http://p:1", "0.0.0.0:9001", "--decode", "http://d:2"], "BOOTSTRAP of --prefill is '0.0.0.0:9001', an address to listen on"),
        (["--prefill", "http://p:1", "1", "2", "--decode", "http://d:2"], "--prefill is 'http://p:1 1 2'"),
        (["--prefill", "http://0.0.0.0:1", "--decode", "http://d:2"], "--prefill is 'http://0.0.0.0:1', and not all engines are on this host"),
        ([*NEEDED, "--decode", "http://d:2/"], "--decode is 'http://d:2' twice"),
        ([*NEEDED, "--prefill", "http://p:1", "5"], "--prefill is 'http://p:1' twice"),
        ([*NEEDED, "--port", "65536"], "--port is '65536'; use a whole number from 0 to 65535"),
        ([*NEEDED, "--port", "-1"], "--port"),
        ([*NEEDED, "--request-timeout", "0"], "--request-timeout is '0'; use seconds above 0, at most 86400"),
        ([*NEEDED, "--connect-timeout", "inf"], "--connect-timeout is 'inf'"),
        ([*NEEDED, "--health-interval", "nan"], "--health-interval is 'nan'"),
        ([*NEEDED, "--health-timeout", "2s"], "--health-timeout is '2s'"),
        ([*NEEDED, "--requests-max", "0"], "--requests-max is '0'"),
        ([*NEEDED, "--requests-max", "\u0663"], "--requests-max is"),
        ([*NEEDED, "--body-bytes-max", "1"], "--body-bytes-max is '1'; use a size from 1024 to"),
        ([*NEEDED, "--body-bytes-max", "much"], "--body-bytes-max"),
        ([*NEEDED, "--header-bytes-max", "2MiB"], "--header-bytes-max is '2MiB'"),
        ([*NEEDED, "--allow-peer", "10.0.0.1"], "--allow-peer is '10.0.0.1'; give HOST:PORT"),
        ([*NEEDED, "--request-time", "5"], "unrecognized arguments: --request-time 5"),
        ([*NEEDED, "--port"], "--port"),
    ],
)
def test_wrong_option_is_one_line_and_status_2(arguments, named, capsys):
    with pytest.raises(SystemExit) as left:
        options.parse(arguments)
    text = capsys.readouterr().err
    assert left.value.code == 2
    assert text.startswith("tenure-proxy: ") and text.count("\n") == 1 and named in text


def test_texts_become_seconds_bytes_and_addresses():
    limits = ["--request-timeout", "1.5", "--body-bytes-max", "1MiB", "--header-bytes-max", "8192"]
    parsed = parse(*limits, "--allow-peer", "http://10.0.0.1:1/", "--allow-peer", "B:2")
    assert (parsed.request_timeout, parsed.body_bytes_max, parsed.header_bytes_max) == (1.5, 1 << 20, 8192)
    assert parsed.allow_peer == {"http://10.0.0.1:1", "http://b:2"}


def test_page_has_every_option_with_its_default():
    shown = {
        action.option_strings[0]: {"--prefill": "needed", "--decode": "needed", "--allow-peer": "none"}.get(action.option_strings[0], action.default)
        for action in options.parser()._actions
        if action.dest != "help"
    }
    page = {name.split(" ")[0]: default.strip("` ") for name, default in section("proxy.md", "## Options").items()}
    assert page == shown


def test_page_has_every_metric_and_outcome():
    text = metrics.Metrics(Fleet(parse()), ["/v1/completions"]).text()
    page = section("proxy.md", "## Metrics")
    assert list(page) == re.findall(r"# TYPE (\S+)", text)
    assert list(section("proxy.md", "## Errors")) == [name for name in errors._TYPES]
    assert set(re.findall(r'outcome="(\w+)"', text)) == {*errors._TYPES, "answered", "disconnected"}
    assert (DOCS / "proxy.md").exists()
