"""vLLM's OpenAI server and tenure-proxy as processes. Each is ended by its id."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request

from engine import MODELS
from processes import end
from waiting import until

START_SECONDS = 400


class Server:
    """A process that serves HTTP at `url`."""

    def __init__(self, command, url, environment=None):
        self._made_of = (command, url, environment)
        self.url = url
        self.lines = []  # All that it wrote.
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0,
            env={**os.environ, **(environment or {})},
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def wait_healthy(self):
        """Returns when /health says 200."""
        until(self._is_healthy, lambda: f"{self.url} is not healthy: " + "".join(self.lines[-30:]), START_SECONDS)
        return self

    def _is_healthy(self):
        assert self.process.poll() is None, "the server ended: " + "".join(self.lines[-40:])
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def post(self, path, body, timeout=120, headers=None):
        """(status, JSON) of a request."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def try_post(self, path, body, **arguments):
        """A request whose answer does not matter, nor whether there is one."""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            self.post(path, body, **arguments)

    def started_again(self):
        """Another one of the same command, healthy, after this one has ended."""
        return Server(*self._made_of).wait_healthy()

    def stream(self, path, body, timeout=120):
        """The events of a streamed request, parsed."""
        request = urllib.request.Request(self.url + path, json.dumps({**body, "stream": True}).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            events = [line.removeprefix(b"data: ") for line in answer.read().splitlines() if line.startswith(b"data: ")]
        assert events[-1] == b"[DONE]"
        return [json.loads(event) for event in events[:-1]]

    def zero(self):
        """Overwrites all KV of an engine without requests under way, and leaves its prefix cache as it is."""
        status, answer = self.post("/collective_rpc", {"method": "overwrite_kv"})
        assert status == 200, answer

    def forget(self):
        """Drops the prefix cache of an engine."""
        assert self.post("/reset_prefix_cache", {})[0] == 200

    def metric(self, name, label=""):
        """The sum of a metric over its labels, of those series with `label`, as event="x"."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + "{", name + " ")) and label in line)

    def stop(self, number=15):
        end(self.process, number)


def engine_server(model, role, options, port, core, environment, *, policy="recompute", store=None, arguments=()):
    """vLLM's server over a tiny model, listening on loopback. `store`: options of a store connector beside. `arguments`: more of its command
    line, where the last of two counts."""
    transfer = {"kv_connector": "TenurePDConnector", "kv_role": role, "kv_load_failure_policy": policy, "kv_connector_extra_config": options}
    if store is not None:
        beside = {"kv_connector": "TenureStoreConnector", "kv_role": "kv_both", "kv_connector_extra_config": store}
        both = {"connectors": [{name: value for name, value in transfer.items() if name != "kv_load_failure_policy"}, beside]}
        transfer = {**transfer, "kv_connector": "MultiConnector", "kv_connector_extra_config": both}
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", os.path.join(MODELS, model), "--served-model-name", model,
        "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager", "--block-size", "32", "--max-model-len", "8192",
        "--max-num-seqs", "8", "--kv-transfer-config", json.dumps(transfer), *arguments,
    ]
    return Server(command, f"http://127.0.0.1:{port}", {**environment, "VLLM_CPU_OMP_THREADS_BIND": str(core)})


def proxy_server(prefill, bootstrap_port, decode, port):
    """tenure-proxy in front of one pair."""
    command = [
        sys.executable, "-m", "tenure.proxy", "--prefill", prefill, str(bootstrap_port), "--decode", decode, "--port", str(port),
        "--health-interval", "0.5",
    ]
    return Server(command, f"http://127.0.0.1:{port}")
