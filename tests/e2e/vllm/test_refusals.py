"""What real starts of vLLM say when the connector refuses: our one line."""

import json
import os
import subprocess
import sys

import pytest

from engine import MODELS, Engine

NO_DAEMON = "/nowhere/pool.sock"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in ("PYTHONHASHSEED", "MOONCAKE_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("options", "arguments", "words"),
    [
        ({"pool": "memcached"}, {}, ("pool is 'memcached'", '"unix:PATH" of a daemon', '"mooncake"')),
        ({"lookup_deadlin": 2}, {}, ("lookup_deadlin", "2", "did you mean lookup_deadline?")),
        ({"embedded_memory": "900TiB"}, {}, ("embedded_memory is '900TiB'", "give less")),
        ({"pool": f"unix:{NO_DAEMON}"}, {}, (f"pool unix:{NO_DAEMON}", "tenure serve")),
        ({"pool": "mooncake"}, {}, ("MOONCAKE_CONFIG_PATH",)),
        ({"pool": f"unix:{NO_DAEMON}"}, {"prefix_caching_hash_algo": "xxhash"}, ("xxhash", "PYTHONHASHSEED", "sha256_cbor")),
        ({"enable_lookup": False}, {"role": "kv_consumer"}, ("pool is 'embedded'", "only gives memory to a cluster", "enable_lookup true")),
    ],
)
def test_an_engine_that_is_refused_ends_with_our_line(options, arguments, words):
    with pytest.raises((ValueError, RuntimeError)) as refusal:
        Engine("llama", options, **arguments)
    text = str(refusal.value)
    assert "\n" not in text
    assert not [word for word in words if word not in text], text


def test_a_server_that_is_refused_prints_our_line_and_ends():
    """As an operator sees it: several processes, of which the engine's tells why."""
    transfer = {"kv_connector": "TenureStoreConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"load_threads": 0}}
    server = subprocess.run(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", os.path.join(MODELS, "llama"), "--enforce-eager",
         "--max-model-len", "1024", "--port", "0", "--kv-transfer-config", json.dumps(transfer)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400,
        env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    assert server.returncode != 0
    line = "ValueError: load_threads is 0; use a whole number from 1 to 64"
    assert any(written.endswith(line) for written in server.stdout.splitlines()), server.stdout[-4000:]
