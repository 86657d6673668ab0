"""A prefill engine (P) and a decode engine (D), each a process of its own, and the part of a proxy between them."""

import itertools
import json
import os
import pathlib
import queue
import socket
import subprocess
import sys
import threading
import uuid

from processes import end
from waiting import until

HERE = pathlib.Path(__file__).parent
ANSWER_SECONDS = 120
START_SECONDS = 400
_names = itertools.count()


def free_port():
    """A port of this host that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Peer:
    """One engine (peer.py). `options`: kv_connector_extra_config; `environment`: added variables; `transfer`: more of kv_transfer_config;
    the rest goes to vllm.LLM."""

    def __init__(self, model, role, options, environment=None, transfer=None, **arguments):
        self._made_of = dict(model=model, role=role, options=options, environment=environment, transfer=transfer, **arguments)
        self.engine_id = (transfer or {}).get("engine_id") or f"{role}-{uuid.uuid4().hex[:8]}"
        self.lines = []  # All that it wrote.
        self._answers = queue.Queue()
        self._waiting = {}
        arguments["transfer"] = {"engine_id": self.engine_id, **(transfer or {})}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "peer.py"), model, role, json.dumps(options), json.dumps(arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0,
            env={**os.environ, **(environment or {})}, cwd=HERE,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith(("ready", "done", "answer ")):
                self._answers.put(line)
        self._answers.put(None)

    def _next(self, seconds=ANSWER_SECONDS):
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError("the engine says nothing: " + "".join(self.lines[-40:])) from None
        if line is None:
            raise AssertionError("the engine ended: " + "".join(self.lines[-40:]))
        return line

    def wait_ready(self):
        """Returns when it takes requests."""
        assert self._next(START_SECONDS).startswith("ready")
        return self

    def order(self, **order):
        """Sends a line; see peer.py."""
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def begin(self, prompt, params=None, **sampling):
        """Starts a request and returns its name."""
        name = f"r{next(_names)}"
        self.order(ask=name, prompt=prompt, params=params, sampling=sampling)
        return name

    def finish(self, name):
        """The answer of a request that was begun."""
        while name not in self._waiting:
            self._keep(self._next())
        return self._waiting.pop(name)

    def _keep(self, line):
        if line.startswith("answer "):
            answer = json.loads(line[len("answer ") :])
            self._waiting[answer.get("name")] = answer

    def _wait_done(self):
        while not (line := self._next()).startswith("done"):
            self._keep(line)

    def ask(self, prompt, params=None, **sampling):
        """The answer of one request."""
        return self.finish(self.begin(prompt, params, **sampling))

    def state(self):
        """Free blocks and requests of the scheduler."""
        self.order(state=True)
        return self.finish(None)

    def forget(self):
        """Drops the prefix cache. False while blocks are held."""
        self.order(forget=True)
        return self.finish(None)["forgotten"]

    def zero(self):
        """Overwrites all KV of the engine; for an engine without requests under way."""
        self.order(zero=True)
        self._wait_done()

    def abort(self, name):
        """Ends a request without an answer."""
        self.order(abort=name)
        self._wait_done()

    def hang(self, whether=True):
        """Its main thread steps no more, or again. It still takes requests."""
        self.order(hang=whether)
        self._wait_done()

    def count_lines(self, text):
        """How many lines with `text` it has written."""
        return sum(text in line for line in self.lines)

    def wrote(self, text):
        """Whether it has written a line with `text`."""
        return self.count_lines(text) > 0

    def wait_idle(self, free_blocks, seconds=30):
        """Waits until it holds no request and all of its blocks are free."""

        def idle():
            state = self.state()
            return state["free_blocks"] == free_blocks and state["requests"] == 0

        until(idle, lambda: f"{self.state()}, {free_blocks} free expected", seconds)

    def kill(self):
        """Ends it as a power failure would."""
        end(self.process, 9)

    def started_again(self):
        """Another one of the same settings and the same engine id, ready, after this one has ended."""
        again = Peer(**{**self._made_of, "transfer": {**(self._made_of["transfer"] or {}), "engine_id": self.engine_id}})
        again.bootstrap = self.bootstrap
        return again.wait_ready()

    def stop(self):
        """Lets it end by itself, then makes sure of it."""
        try:
            self.process.stdin.close()
            self.process.wait(30)
        except (subprocess.TimeoutExpired, OSError):
            pass
        end(self.process)


class Pair:
    """P and D of one model. `options` go to both."""

    def __init__(
        self, model, options, *, prefill_options=None, decode_options=None, prefill=None, decode=None, environment=None,
        roles=("kv_producer", "kv_consumer"),
    ):
        ports = free_port(), free_port()  # Two of kv_both have a bootstrap server each.
        environments = [{"VLLM_MOONCAKE_BOOTSTRAP_PORT": str(port), **(environment or {})} for port in ports]
        self._cores = sorted(os.sched_getaffinity(0))
        self.prefill = Peer(model, roles[0], {**options, **(prefill_options or {})}, self._bound(environments[0], 0, prefill), **(prefill or {}))
        self.decode = Peer(model, roles[1], {**options, **(decode_options or {})}, self._bound(environments[1], 1, decode), **(decode or {}))
        for peer, port in zip((self.prefill, self.decode), ports):
            peer.bootstrap = f"http://127.0.0.1:{port}"
        try:
            self.prefill.wait_ready()
            self.decode.wait_ready()
        except BaseException:
            self.stop()
            raise
        self.blocks = [peer.state()["free_blocks"] for peer in (self.prefill, self.decode)]

    def _bound(self, environment, index, arguments):
        """Each engine on a core of its own; ranks share both."""
        ranks = [(arguments or {}).get(f"{kind}_parallel_size", 1) for kind in ("tensor", "pipeline")]
        if ranks != [1, 1]:
            return {**environment, "VLLM_CPU_OMP_THREADS_BIND": "|".join(str(core) for core in self._cores[:2])}
        return {**environment, "VLLM_CPU_OMP_THREADS_BIND": str(self._cores[index % len(self._cores)])}

    def params(self, transfer_id=None):
        """kv_transfer_params of P's and of D's request, as a proxy sets them."""
        transfer_id = transfer_id or f"xfer-{uuid.uuid4()}"
        to_prefill = {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer_id}
        to_decode = {
            "do_remote_decode": False,
            "do_remote_prefill": True,
            "remote_bootstrap_addr": self.prefill.bootstrap,
            "remote_engine_id": self.prefill.engine_id,
            "transfer_id": transfer_id,
        }
        return to_prefill, to_decode

    def ask(self, prompt, *, between=None, **sampling):
        """P's and D's answers to one prompt; `between` is called when P has finished, and D renews but does not step yet."""
        to_prefill, to_decode = self.params()
        if between is not None:
            self.decode.hang()
            request = self.decode.begin(prompt, to_decode, **sampling)
            first = self.prefill.ask(prompt, to_prefill, max_tokens=1)
            between()
            self.decode.hang(False)
            return first, self.decode.finish(request)
        prefill, decode = self.prefill.begin(prompt, to_prefill, max_tokens=1), self.decode.begin(prompt, to_decode, **sampling)
        return self.prefill.finish(prefill), self.decode.finish(decode)

    def ask_for_zeroes(self, tokens):
        """D's tokens when all KV that it gets of P is zero. No engine remembers the prompt afterwards."""
        _, answer = self.ask(tokens, between=self.prefill.zero)
        self.wait_idle()
        assert self.prefill.forget() and self.decode.forget()
        return answer["tokens"]

    def turned(self):
        """The same engines with their parts exchanged."""
        other = object.__new__(Pair)
        other.prefill, other.decode, other.blocks = self.decode, self.prefill, self.blocks[::-1]
        return other

    def wait_idle(self, seconds=30):
        """Waits until no block of either engine is held."""
        for peer, blocks in zip((self.prefill, self.decode), self.blocks):
            peer.wait_idle(blocks, seconds)

    def stop(self):
        for peer in (self.prefill, self.decode):
            peer.stop()
