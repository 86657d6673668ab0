"""A pair of vLLM servers for one run, the run itself, and what it leaves behind: a record of plain values that JSON can hold."""

import asyncio
import json
import os
import signal
import threading
import time
import urllib.request

import aiohttp

import cases
from load import PREEMPTIONS, Load, event, metric

from engine import prompt
from pair import free_port
from processes import end
from servers import engine_server

MODEL = "llama"
SETTLED_SECONDS = 2.0
FILL_SECONDS = 60.0
POLL_SECONDS = 0.05
PREFILL_COUNTERS = ("kv_expired_reqs", "late_pulls", "timed_out_pulls", "renewals", "failed_transfers")
DECODE_COUNTERS = ("received", "failed_recvs", "sent_pulls")
WARM_UP_SEEDS = range(400, 408)
PROBE_SEED = 200


class CaseError(RuntimeError):
    """A run that cannot show what it is for; one line."""


class Engines:
    """P and D as servers, each on a core of its own, with the KV caches of the cases."""

    def __init__(self, run):
        prefill_port, decode_port, bootstrap_port = free_port(), free_port(), free_port()
        self.bootstrap = f"http://127.0.0.1:{bootstrap_port}"
        options = {} if run.lease is None else {"kv_lease_duration": run.lease}
        environment = {"VLLM_MOONCAKE_BOOTSTRAP_PORT": str(bootstrap_port), "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": f"{run.timeout:g}"}
        cores = sorted(os.sched_getaffinity(0))
        self._servers = []

        def server(role, port, core, blocks, sequences):
            # "fail": a failed pull fails the request, as in the published runs.
            sizes = _sizes(blocks, sequences)
            self._servers.append(engine_server(MODEL, role, options, port, core, environment, policy="fail", arguments=sizes))

        try:
            server("kv_producer", prefill_port, cores[0], cases.PREFILL_BLOCKS, cases.PREFILLS_MAX)
            server("kv_consumer", decode_port, cores[-1], cases.DECODE_BLOCKS, cases.DECODES_MAX)
        except BaseException:
            self.stop()
            raise
        self.prefill, self.decode = self._servers

    def wait(self):
        """Returns when both take requests."""
        for server in self._servers:
            server.wait_healthy()
        with urllib.request.urlopen(f"{self.bootstrap}/query", timeout=10) as answer:
            self.engine_id = json.load(answer)["0"]["engine_id"]

    def kill_decode(self):
        """All processes of D at once."""
        os.killpg(self.decode.process.pid, signal.SIGKILL)

    def stop(self):
        """Ends both, by their ids."""
        threads = [threading.Thread(target=end, args=(server.process, signal.SIGKILL)) for server in self._servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _sizes(blocks, sequences):
    return (
        "--num-gpu-blocks-override", str(blocks), "--max-num-seqs", str(sequences), "--max-model-len", "1024",
        "--stream-interval", "1000", "--disable-uvicorn-access-log",
    )


def measure(run):
    """The record of one run on a pair of its own, which ends with it."""
    began = time.monotonic()
    engines = Engines(run)
    try:
        engines.wait()
        conditions = {"start_s": time.monotonic() - began, "load_average": os.getloadavg()[0], "cores": len(os.sched_getaffinity(0))}
        return {"case": run.case, "hold": run.hold, "timeout": run.timeout, "lease": run.lease, **conditions, **asyncio.run(_load(run, engines))}
    except aiohttp.ClientError as error:
        raise CaseError(f"an engine cannot be asked any more: {error}\n" + "".join(engines.prefill.lines[-20:])) from None
    finally:
        engines.stop()


async def _load(run, engines):
    load = Load(MODEL, engines.prefill.url, engines.decode.url, engines.bootstrap, engines.engine_id, cases.OUTPUT_TOKENS)
    async with load:
        await _warm_up(load)
        load.begin()
        sampler = load.start(load.sample())
        for seed in range(cases.REQUESTS):
            load.request(prompt(cases.PROMPT_TOKENS, seed=seed))
        prober = load.start(_probe(load))
        killed = await _kill(load, sampler, engines) if run.kills else None
        await _until_settled(run, load, (sampler, prober))
        return {
            "killed": killed,
            "ended": load.now(),
            "requests": load.requests,
            "probes": load.probes,
            "samples": load.samples,
            "prefill": _counters(await load.page(engines.prefill.url), PREFILL_COUNTERS),
            "decode": {} if run.kills else _counters(await load.page(engines.decode.url), DECODE_COUNTERS),
        }


async def _warm_up(load):
    """The first requests of an engine are slow, and do not count."""
    for seed in WARM_UP_SEEDS:
        load.request(prompt(cases.PROMPT_TOKENS, seed=seed))
    await load.finished()
    failed = [entry for entry in load.requests if entry["outcome"] != "succeeded"]
    if failed:
        raise CaseError(f"{len(failed)} of {len(load.requests)} requests fail without any load")
    load.requests.clear()


async def _probe(load):
    for number in range(int(3600 / cases.PROBE_SECONDS)):
        await asyncio.sleep(cases.PROBE_SECONDS)
        load.start(load.probe(prompt(cases.PROBE_TOKENS, seed=PROBE_SEED + number % 100)))


async def _kill(load, sampler, engines):
    """Kills D once P's KV is full and D has answered somebody. When that was."""
    while True:
        await asyncio.sleep(POLL_SECONDS)
        _still_going(sampler)
        full = load.samples and load.samples[-1]["usage"] >= cases.FULL
        if load.now() >= cases.KILL_AFTER_S and full and any(entry["first_token"] for entry in load.requests):
            engines.kill_decode()
            return load.now()
        if load.now() > FILL_SECONDS or all(entry["ended"] for entry in load.requests):
            raise CaseError(f"the prefiller's KV did not fill before D was done or {FILL_SECONDS:g} s passed, so there is nothing to hold")


async def _until_settled(run, load, tasks):
    """Until every request has its end and P's KV has stayed free for a while, or the run's time is over."""
    free_since = None
    while load.now() < run.end_s:
        await asyncio.sleep(POLL_SECONDS)
        for task in tasks:
            _still_going(task)
        open_requests = any(entry["ended"] is None or (entry["prefilled"] is None and run.kills) for entry in load.requests)
        if open_requests or not load.samples or load.samples[-1]["usage"] >= cases.EMPTY:
            free_since = None
        elif free_since is None:
            free_since = load.now()
        elif load.now() > free_since + SETTLED_SECONDS:
            return


def _still_going(task):
    if task.done():
        raise CaseError(f"the prefiller cannot be asked any more: {task.exception()}")


def _counters(page, names):
    return {**{name: event(page, name) for name in names}, "preemptions": metric(page, PREEMPTIONS)}
