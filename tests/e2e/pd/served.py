"""P and D as OpenAI servers behind tenure-proxy, and what a client sends there."""

import os

from pair import free_port
from servers import engine_server, proxy_server
from waiting import until

MODEL = "llama"
COMPLETIONS = "/v1/completions"


class Served:
    """P, D and the proxy, healthy. `ranks`: data parallel ranks of each engine, on as many cores of their own as there are. `store`: options
    of a store connector beside P's."""

    def __init__(self, options, *, ranks=1, store=None):
        ports = [free_port() for _ in range(4)]
        cores = sorted(os.sched_getaffinity(0))
        # With /collective_rpc and /reset_prefix_cache, and a method to call.
        environment = {"VLLM_MOONCAKE_BOOTSTRAP_PORT": str(ports[3]), "VLLM_SERVER_DEV_MODE": "1"}
        arguments = ("--worker-extension-cls", "overwrite.Overwriter")
        bound = [str(cores[0]), str(cores[-1])]
        if ranks > 1:
            arguments += ("--data-parallel-size", str(ranks))
            bound = ["|".join(str(cores[rank % len(cores)]) for rank in range(ranks))] * 2
        self.prefill = engine_server(MODEL, "kv_producer", options, ports[0], bound[0], environment, store=store, arguments=arguments)
        self.decode = engine_server(MODEL, "kv_consumer", options, ports[1], bound[1], environment, arguments=arguments)
        self.bootstrap = f"http://127.0.0.1:{ports[3]}"
        self.proxy = proxy_server(self.prefill.url, ports[3], self.decode.url, ports[2])
        try:
            for part in (self.prefill, self.decode, self.proxy):
                part.wait_healthy()
        except BaseException:
            self.stop()
            raise

    def stop(self):
        for part in (self.proxy, self.decode, self.prefill):
            part.stop()


def body(tokens, **more):
    """A completion of six tokens."""
    return {"model": MODEL, "prompt": tokens, "max_tokens": 6, "temperature": 0, "ignore_eos": True, **more}


def text_of(answer):
    """The text of a whole answer."""
    return answer["choices"][0]["text"]


def wait_free(server, seconds=30):
    """Waits until an engine holds no KV but what its prefix cache may lose at any time."""
    until(lambda: server.metric("vllm:kv_cache_usage_perc") == 0, lambda: f"{server.url} still holds KV: " + "".join(server.lines[-20:]), seconds)
