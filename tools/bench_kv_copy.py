"""Saves and loads of KV through the package's StoreWorker on host memory, and the time that an engine's step takes longer for them.

The KV is an allocation a layer, as an engine has it; a block is a piece in each, an object all the pieces of a block. Part of
bench_lookup.py.
"""

import ctypes
import signal
import statistics
import time
import types

import numpy

from bench_lookup_sides import BLOCK, MIB, Model, TenureScheduler, empty_step, hashes_of
from tenure import CacheConfig, GroupSpec
from tenure._native import StoreScheduler, StoreWorker

LAYERS = 32
PIECE_BYTES = MIB // 8
DRAIN_SECONDS = 120.0
STEP_REQUESTS = 8
STEP_PROMPT_BLOCKS = 100
STEP_WORK = 100_000  # Turns of a loop that stands for what else the engine's process does in a step: a millisecond or two.
STALL_SECONDS = 0.2


class KvMemory:
    """An engine's KV cache of `num_bytes` on the host and, for memcpy, as much again."""

    def __init__(self, num_bytes):
        self.blocks = num_bytes // (LAYERS * PIECE_BYTES)
        size = (self.blocks + 1) * PIECE_BYTES  # Block 0 is the engine's null block.
        self._layers = [numpy.full(size, 1, numpy.int8) for _ in range(LAYERS)]
        self._copies = [numpy.full(size, 2, numpy.int8) for _ in range(LAYERS)]
        self.num_bytes = self.blocks * LAYERS * PIECE_BYTES
        self.pieces = [[[(layer.ctypes.data, PIECE_BYTES, PIECE_BYTES) for layer in self._layers]]]
        self.regions = [(layer.ctypes.data, size) for layer in self._layers]

    def memcpy(self):
        """Copies every piece, in the order in which objects are copied; returns seconds."""
        pairs = [(copy.ctypes.data, layer.ctypes.data) for copy, layer in zip(self._copies, self._layers)]
        start = time.perf_counter()
        for block in range(1, self.blocks + 1):
            at = block * PIECE_BYTES
            for into, source in pairs:
                ctypes.memmove(into + at, source + at, PIECE_BYTES)
        return time.perf_counter() - start


class Engine:
    """Both sides of the connector's core over one pool: full attention, one worker."""

    def __init__(self, pool, memory):
        rules = CacheConfig([GroupSpec("full", BLOCK)], hash_block_size=BLOCK, scheduler_block_size=BLOCK)
        namespaces = [[pool.open_namespace("bench-kv@")]]
        self.memory = memory
        self.scheduler = StoreScheduler(rules, pool, namespaces, role="kv_both", world_size=1, lookup_deadline=60.0)
        self.worker = StoreWorker(
            rules, pool, namespaces, memory.pieces, memory.regions, memory.blocks + 1,
            tp_rank=0, stripes=[1], load_deadline=DRAIN_SECONDS,
        )  # fmt: skip

    def close(self):
        """Ends its threads."""
        self.worker.close()
        self.scheduler.close()

    def save(self, name, hashes):
        """Saves the whole memory as one request's prompt; returns seconds."""
        tokens, scheduler = len(hashes) * BLOCK, self.scheduler
        scheduler.begin_step([], [])
        scheduler.scheduled_new(name, hashes, tokens + 1, tokens + 1, 0, tokens)
        scheduler.current_blocks(name, [list(range(1, len(hashes) + 1))])
        plan, pins = scheduler.finish_step()
        start = time.perf_counter()
        self.worker.start_saves(plan)
        drained = self.worker.drain(DRAIN_SECONDS)
        seconds = time.perf_counter() - start
        report = self.worker.take_reports()
        if not drained or len(report["saved"]) != len(pins) or any(failed for *_, failed, _ in report["operations"]):
            raise RuntimeError(f"a save of {len(hashes)} blocks did not end well: {report['operations']}")
        for job, _ in pins:
            scheduler.completed(job, 1)
        scheduler.begin_step([name], [])
        scheduler.finish_step()
        return seconds

    def load(self, name, hashes):
        """Loads the same into the memory; returns seconds, without those of the lookup."""
        tokens, scheduler = len(hashes) * BLOCK, self.scheduler
        while (found := scheduler.matched_tokens(name, hashes, tokens + 1, 0)) is None:
            time.sleep(0.001)
        if found != tokens:
            raise RuntimeError(f"{found} of {tokens} saved tokens are found")
        scheduler.allocated(name, [list(range(1, len(hashes) + 1))], found)
        scheduler.begin_step([], [])
        plan, _ = scheduler.finish_step()
        start = time.perf_counter()
        self.worker.load_now(plan)
        seconds = time.perf_counter() - start
        report = self.worker.take_reports()
        if report["loaded"] != [name]:
            raise RuntimeError(f"a load of {len(hashes)} blocks failed: {report['operations']}")
        scheduler.load_done(name)
        scheduler.begin_step([name], [])
        scheduler.finish_step()
        return seconds


def copy_figures(pool, num_bytes, rounds, clear):
    """Bytes a second of "save", "load" and "memcpy" of the same pieces, in turns; the first round, which takes pages, is dropped."""
    memory = KvMemory(num_bytes)
    engine = Engine(pool, memory)
    samples = {"save": [], "load": [], "memcpy": []}
    try:
        for turn in range(rounds + 1):
            clear()
            hashes = hashes_of(f"prompt{turn}", memory.blocks)
            took = {
                "save": engine.save(f"save{turn}", hashes),
                "memcpy": memory.memcpy(),
                "load": engine.load(f"load{turn}", hashes),
            }
            for name, seconds in took.items() if turn else ():
                samples[name].append(memory.num_bytes / seconds)
    finally:
        engine.close()
    return {name: statistics.median(values) for name, values in samples.items()}


class Blocks:
    """The engine's pool of blocks, as far as a save pins some."""

    blocks = range(1 << 20)

    def touch(self, blocks):
        """Pins."""

    def free_blocks(self, blocks):
        """Unpins."""


class SteppingEngine:
    """The connector in an engine that decodes STEP_REQUESTS requests, over one pool: one call a step of each that vLLM makes."""

    def __init__(self, options, memory):
        self.tenure = TenureScheduler(Model("steps"), options)
        side, pool = self.tenure.side, self.tenure.side._pool.pool
        side.bind_gpu_block_pool(Blocks())
        rules = CacheConfig([GroupSpec("full", BLOCK)], hash_block_size=BLOCK, scheduler_block_size=BLOCK)
        namespaces = [[pool.open_namespace(prefix) for prefix in group] for group in Model("steps").prefixes()]
        self.worker = StoreWorker(
            rules, pool, namespaces, memory.pieces, memory.regions, memory.blocks + 1, tp_rank=0, stripes=[1]
        )
        self.length = STEP_PROMPT_BLOCKS * BLOCK
        self.running = [self.tenure.request(hashes_of(f"running{index}", STEP_PROMPT_BLOCKS)) for index in range(STEP_REQUESTS)]
        self.decoded = 0
        self._prefill()

    def _prefill(self):
        tables = [list(range(1, STEP_PROMPT_BLOCKS + 1))]
        step = empty_step()
        step.kv_connector_block_state = types.SimpleNamespace(boundary_state_offloads={}, get_block_ids=lambda request: tables)
        for request in self.running:
            self.tenure.wait(request)
            self.tenure.side.update_state_after_alloc(request, None, 0)
            tokens = range(self.length + 1)
            step.scheduled_new_reqs.append(
                types.SimpleNamespace(req_id=request.request_id, prefill_token_ids=tokens, prompt_token_ids=tokens, num_computed_tokens=0)
            )
            step.num_scheduled_tokens[request.request_id] = self.length
        plan = self.tenure.side.build_meta(step).plan
        self.worker.start_saves(plan)
        if not self.worker.drain(DRAIN_SECONDS):
            raise RuntimeError("the saves of the prefill do not end")
        self.worker.take_reports()

    def step(self, waiting=None):
        """One step in which every request decodes a token, and `waiting` is asked about; seconds of the connector's calls."""
        self.decoded += 1
        ids = [request.request_id for request in self.running]
        step = empty_step()
        step.scheduled_cached_reqs = types.SimpleNamespace(
            req_ids=ids, resumed_req_ids=set(), num_computed_tokens=[self.length + self.decoded] * len(ids)
        )
        step.num_scheduled_tokens = dict.fromkeys(ids, 1)
        output = types.SimpleNamespace(finished_recving=None, failed_recving=None, invalid_block_ids=None, kv_connector_worker_meta=None)
        start = time.perf_counter()
        if waiting is not None:
            self.tenure.side.num_new_matched_tokens(waiting, 0)
        plan = self.tenure.side.build_meta(step).plan
        self.worker.start_loads(plan)
        self.worker.start_saves(plan)
        self.worker.take_reports()
        self.tenure.side.update_output(output)
        return time.perf_counter() - start

    def close(self):
        """Ends its threads and its pool."""
        self.worker.close()
        self.tenure.close()


def _whole_step(engine, waiting):
    """Seconds of a step with the engine's own work in it."""
    start = time.perf_counter()
    for _ in range(STEP_WORK):
        pass
    engine.step(waiting)
    return time.perf_counter() - start


def step_figures(options, memory, server, rounds=5):
    """Seconds, medians: "step", what the connector adds to a step; "waiting", one call about a request that has its answer; "idle" and
    "stalled", a whole step beside nothing, and beside a lookup that `server` does not answer for STALL_SECONDS."""
    engine = SteppingEngine(options, memory)
    samples = {"step": [], "waiting": [], "idle": [], "stalled": []}
    try:
        for turn in range(rounds):
            samples["step"] += [engine.step() for _ in range(200)]
            answered = engine.tenure.request(engine.running[0].block_hashes)
            engine.tenure.wait(answered)
            for _ in range(200):
                start = time.perf_counter()
                engine.tenure.side.num_new_matched_tokens(answered, 0)
                samples["waiting"].append(time.perf_counter() - start)
            engine.tenure.forget(answered)
            samples["idle"] += _steps_for(engine, None)
            stalled = engine.tenure.request(hashes_of(f"stalled{turn}", 2048))
            server.send_signal(signal.SIGSTOP)
            try:
                samples["stalled"] += _steps_for(engine, stalled)
            finally:
                server.send_signal(signal.SIGCONT)
            engine.tenure.wait(stalled)
            engine.tenure.forget(stalled)
    finally:
        engine.close()
    return {name: statistics.median(values) for name, values in samples.items()}


def _steps_for(engine, waiting):
    """Whole steps, one after the other, for STALL_SECONDS. The first, in which a short wait for the answer is allowed, is one of them."""
    end = time.perf_counter() + STALL_SECONDS
    steps = []
    while time.perf_counter() < end:
        steps.append(_whole_step(engine, waiting))
    return steps
