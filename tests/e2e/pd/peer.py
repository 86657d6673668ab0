"""A vLLM engine with TenurePDConnector as a process of its own, driven line by line over its standard input and output.

    peer.py MODEL ROLE OPTIONS ARGUMENTS        (JSON: connector options; keyword arguments of Engine, and more of
                                                kv_transfer_config under "transfer")

It steps all the time, as a server does, so orders of several requests overlap. A line in is one JSON object: {"ask": NAME, "prompt":
[token, ...], "params": kv_transfer_params or null, "sampling": {...}}, {"abort": NAME}, {"zero": true} (overwrites the KV of the
engine's workers), {"forget": true} (drops the prefix cache), {"state": true}, {"hang": true or false} (whether its main thread only
takes orders and steps no more). Lines out: "ready", "answer JSON", "done". Ends with its input. TENURE_PEER_PACE: seconds between two
steps while requests are under way, for one who measures.
"""

import json
import os
import queue
import sys
import threading
import time

from engine import Engine
from overwrite import overwrite_kv
from pipeline import allocate_stage_input

IDLE_PACE = 0.005
PACE = float(os.environ.get("TENURE_PEER_PACE", IDLE_PACE))


def sampling_of(order):
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    parameters = {"temperature": 0, "max_tokens": 4, "ignore_eos": True, "logprobs": 2, **order.get("sampling", {})}
    if order.get("params"):
        parameters["extra_args"] = {"kv_transfer_params": order["params"]}
    return SamplingParams(output_kind=RequestOutputKind.FINAL_ONLY, **parameters)


class Peer:
    """The engine and its requests."""

    def __init__(self, engine):
        self.engine = engine
        self.llm = engine.llm.llm_engine
        self.began = {}
        self.hangs = False

    def carry_out(self, order):
        if "ask" in order:
            self.began[order["ask"]] = time.monotonic()
            self.llm.add_request(order["ask"], {"prompt_token_ids": order["prompt"]}, sampling_of(order))
        elif "abort" in order:
            self.llm.abort_request([order["abort"]])
            self.began.pop(order["abort"], None)
            say("done")
        elif "hang" in order:
            self.hangs = order["hang"]
            say("done")
        elif "zero" in order:
            self.engine.llm.collective_rpc(overwrite_kv)
            say("done")
        elif "forget" in order:
            # Refused while blocks are held.
            say("answer " + json.dumps({"forgotten": bool(self.engine.llm.reset_prefix_cache())}))
        else:
            preemptions = sum(value for (name, _), value in self.engine.metrics().items() if name == "vllm:num_preemptions")
            requests = len(self.engine.scheduler.requests)
            say("answer " + json.dumps({"free_blocks": self.engine.free_blocks(), "requests": requests, "preemptions": preemptions}))

    def step(self):
        if self.hangs:
            return
        for output in self.llm.step():
            if not output.finished:
                continue
            completion = output.outputs[0]
            steps = [sorted((value.logprob for value in step.values()), reverse=True) for step in completion.logprobs or []]
            answer = {
                "name": output.request_id,
                "tokens": list(completion.token_ids),
                "outputs": len(output.outputs),
                "margin": min((step[0] - step[1] for step in steps if len(step) > 1), default=0.0),
                "cached": output.num_cached_tokens,
                "finish_reason": completion.finish_reason,
                "ended": time.monotonic(),  # The same clock in every process of a host.
            }
            answer["seconds"] = answer["ended"] - self.began.pop(output.request_id, 0.0)
            say("answer " + json.dumps(answer))


def say(line):
    """In one write: whoever reads has the engine's log on the same pipe, and must find whole lines."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def main():
    model, role, options, arguments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
    transfer = {
        "kv_connector": "TenurePDConnector",
        "kv_role": role,
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": options,
        **arguments.pop("transfer"),
    }
    engine = Engine(model, kv_transfer_config=transfer, **arguments)
    if arguments.get("pipeline_parallel_size", 1) > 1:
        engine.llm.collective_rpc(allocate_stage_input)
    peer, orders = Peer(engine), queue.Queue()

    def read():
        for line in sys.stdin:
            orders.put(json.loads(line))
        orders.put(None)

    threading.Thread(target=read, daemon=True).start()
    say("ready")
    while True:
        try:
            order = orders.get(timeout=PACE if peer.began else IDLE_PACE)
        except queue.Empty:
            peer.step()
            continue
        if order is None:
            break
        peer.carry_out(order)
        peer.step()
    engine.close()


if __name__ == "__main__":
    main()
