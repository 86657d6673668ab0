"""Measures the store connector in one run and prints ratios beside their limits. Glue of `./dev bench-lookup`.

Lookups: stock vLLM's on a Mooncake master, Tenure's at the call of vLLM's scheduler on the same master with the same keys, and
Mooncake's bare question for what a load reads; then Tenure's on a daemon and in process. Copies: saves and loads of KV against
memcpy. Steps: what the connector adds to a step of an engine. Bounded in time; everything that it starts ends with it.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import signal
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "e2e" / "vllm")]

LENGTHS = (8_192, 32_768, 100_000, 1_000_000)
OBJECT = bytes(64)
PUT_BATCH = 1000
CASE_SECONDS = 4.0
ROUNDS_MIN = 5
ROUNDS_MIN_LONG = 3  # For what takes seconds a round.
LAST_PART_STARTS_S = 300  # On a busy machine the rest is left out and said so.
POOL = "1536MiB"
SEGMENT_BYTES = 1 << 30
CLIENT_BUFFER_BYTES = 64 << 20
COPY_BYTES = 1 << 30
MOONCAKE_COPY_BYTES = 256 << 20
STEP_MEMORY_BYTES = 512 << 20
MASTER_LEASE_MS = 10_000
OWNER_TRIES = 5


class Stopped(Exception):
    """The caller asks for the end."""


def stop(*_):
    raise Stopped


class Report:
    """Figures beside their limits; written at once, so that what was measured is seen however the run ends."""

    def __init__(self, out):
        self.out = out
        self.missed = 0

    def title(self, text):
        print(f"\n{text}", file=self.out, flush=True)

    def row(self, label, value, unit, relation=None, limit=None):
        bound = ""
        if relation is not None:
            reached = {"<=": value <= limit, "<": value < limit, ">=": value >= limit}[relation]
            self.missed += not reached
            bound = f"{relation} {limit:<6g} {'reached' if reached else 'MISSED'}"
        print(f"  {label:<84}{value:>10,.2f} {unit:<16}{bound}", file=self.out, flush=True)


def in_turns(calls, seconds=CASE_SECONDS, least=ROUNDS_MIN):
    """Each of `calls`, which return seconds, once a round: {name: seconds of every round}, without the first round.

    The rounds go through all orders, so that each call comes after each other one as often: what went before leaves caches cold.
    """
    names = list(calls)
    orders = itertools.cycle(itertools.permutations(names))
    samples = {name: [] for name in names}
    end = None
    while end is None or len(samples[names[0]]) < least or time.perf_counter() < end:
        took = {name: calls[name]() for name in next(orders)}
        if end is None:
            end = time.perf_counter() + seconds
            continue
        for name, value in took.items():
            samples[name].append(value)
    return samples


def ratio(samples, over, under):
    """The median over the rounds of one's seconds through the other's: both of a round had the same load beside them."""
    return statistics.median(a / b for a, b in zip(samples[over], samples[under]))


def timed(call, check):
    start = time.perf_counter()
    answer = call()
    seconds = time.perf_counter() - start
    check(answer)
    return seconds


def expect(what, hit, expected):
    if hit != expected:
        raise RuntimeError(f"{what} hits {hit} of {expected} tokens")


# --- lookups on Mooncake ----------------------------------------------------------------------------------------------


def start_owner(master):
    """A segment's owner. Mooncake takes a port by chance and ends where another process has it, so it is tried again."""
    from mooncake_processes import Owner

    for _ in range(OWNER_TRIES - 1):
        with contextlib.suppress(AssertionError):
            return Owner(master, SEGMENT_BYTES)
    return Owner(master, SEGMENT_BYTES)


class MooncakeWorld:
    """A master, a segment in a process of its own, Mooncake's client, and stock's configuration file for Tenure's."""

    def __init__(self, work):
        from mooncake_processes import Master, raw_client

        with contextlib.ExitStack() as ends:
            self.master = Master(work, default_kv_lease_ttl=MASTER_LEASE_MS)
            ends.callback(self.master.stop)
            ends.callback(start_owner(self.master).stop)
            self.store = raw_client(self.master)
            ends.callback(self.store.close)
            self._ends = ends.pop_all()
        config = {
            "master_server_address": self.master.address, "metadata_server": "P2PHANDSHAKE", "protocol": "tcp",
            "local_hostname": "127.0.0.1",
            "mode": "standalone-store", "global_segment_size": 0, "local_buffer_size": CLIENT_BUFFER_BYTES,
        }  # fmt: skip
        path = work / "mooncake.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        os.environ["MOONCAKE_CONFIG_PATH"] = str(path)

    def close(self):
        self._ends.close()

    def put(self, keys):
        keys = list(keys)
        for first in range(0, len(keys), PUT_BATCH):
            part = keys[first : first + PUT_BATCH]
            if (code := self.store.put_batch(part, [OBJECT] * len(part))) != 0:
                raise RuntimeError(f"Mooncake's put_batch answered {code}")


def mooncake_case(report, world, model, sides, tokens, hashes, hit_blocks, limit):
    """One prompt's lookup by all three, which must agree."""
    from bench_lookup_sides import BLOCK

    stock, tenure = sides
    names = model.load_set(hashes[:hit_blocks])
    hit = hit_blocks * BLOCK
    what = f"{model.name}, {tokens:,} tokens" + ("" if hit_blocks == len(hashes) else ", first half there")

    def ask_tenure():
        seconds, found = tenure.lookup(hashes, what)
        expect(f"{what}: Tenure", found, hit)
        return seconds

    def check_bare(answers):
        expect(f"{what}: the bare question", answers.count(1), len(names))

    calls = {
        "bare": lambda: timed(lambda: world.store.batch_is_exist(names), check_bare),
        "stock": lambda: timed(
            lambda: stock.lookup(len(hashes) * BLOCK + 1, hashes), lambda answer: expect(f"{what}: stock", answer.hit_length, hit)
        ),
        "Tenure": ask_tenure,
    }
    samples = in_turns(calls, least=ROUNDS_MIN_LONG if tokens == LENGTHS[-1] else ROUNDS_MIN)
    medians = {name: statistics.median(values) * 1e3 for name, values in samples.items()}
    times = f"bare {medians['bare']:,.2f}, stock {medians['stock']:,.2f}, Tenure {medians['Tenure']:,.2f} ms; {len(samples['bare'])} rounds"
    report.title(f"{what}: {times}")
    report.row("Tenure, of the bare batch_is_exist of the load set", ratio(samples, "Tenure", "bare"), "x", "<=", limit)
    at_least = {"full attention": 2.5, "MLA + 3 state groups x 8 ranks": 15, "MLA + 3 state groups, TP 1": 8}[model.name]
    bounds = (">=", at_least) if hit_blocks == len(hashes) else ()
    report.row("stock, of Tenure", ratio(samples, "stock", "Tenure"), "x", *bounds)
    # What Tenure would reach with one call and nothing else; with fewer than 2,048 keys it makes one at a time.
    report.row("stock, of the bare batch_is_exist", ratio(samples, "stock", "bare"), "x")


def mooncake_lookups(report, world):
    from bench_lookup_sides import BLOCK, Model, TenureScheduler, hashes_of, stock_worker

    models = (
        Model("full attention"),
        Model("MLA + 3 state groups x 8 ranks", tp_size=8, hybrid=True),
        Model("MLA + 3 state groups, TP 1", hybrid=True),
    )
    chain = hashes_of("there", LENGTHS[-1] // BLOCK)
    absent = hashes_of("absent", LENGTHS[-1] // BLOCK // 2)
    world.put(dict.fromkeys(key for model in models for tokens in LENGTHS for key in model.load_set(chain[: tokens // BLOCK])))
    for model in models:
        with contextlib.ExitStack() as ends:
            tenure = TenureScheduler(model, {"pool": "mooncake"})
            ends.callback(tenure.close)
            sides = (stock_worker(model, world.store), tenure)
            for tokens in LENGTHS:
                hashes = chain[: tokens // BLOCK]
                mooncake_case(report, world, model, sides, tokens, hashes, len(hashes), 2.2 if tokens < 32_768 else 1.3)
                if model is models[0]:
                    half = len(hashes) // 2
                    hashes = hashes[:half] + absent[: len(hashes) - half]
                    mooncake_case(report, world, model, sides, tokens, hashes, half, 2.2 if tokens < 100_000 else 1.5)


# --- lookups in memory ------------------------------------------------------------------------------------------------


def fill(pool, name_space, hashes):
    from tenure import PutAnswer

    keys = [(name_space, one) for one in hashes]
    for first in range(0, len(keys), PUT_BATCH):
        part = keys[first : first + PUT_BATCH]
        parents = [keys[index - 1] if index else None for index in range(first, first + len(part))]
        if any(answer is not PutAnswer.STORED for answer in pool.put(part, [OBJECT] * len(part), parents=parents, kind="full")):
            raise RuntimeError(f"{pool.name}: a part of the prompt was not stored")


def memory_lookups(report, pool_name, options, limit_us):
    """Lookups on a pool that answers from memory. `options` name it."""
    from bench_lookup_sides import BLOCK, Model, TenureScheduler, hashes_of

    model = Model("full attention")
    tenure = TenureScheduler(model, options)
    try:
        pool = tenure.side._pool.pool
        chain = hashes_of("there", LENGTHS[-1] // BLOCK)
        fill(pool, pool.open_namespace(model.prefixes()[0][0]), chain)

        def ask(hashes):
            seconds, found = tenure.lookup(hashes)
            expect(pool_name, found, len(hashes) * BLOCK)
            return seconds

        prompts = {tokens: chain[: tokens // BLOCK] for tokens in LENGTHS}
        samples = in_turns({tokens: lambda hashes=hashes: ask(hashes) for tokens, hashes in prompts.items()}, seconds=2.0, least=50)
        for tokens in LENGTHS:
            bounds = ("<=", limit_us) if tokens == 100_000 else ()
            report.row(f"{pool_name}: lookup of {tokens:,} tokens", statistics.median(samples[tokens]) * 1e6, "us", *bounds)
        report.row(f"{pool_name}: 1,000,000 tokens, of 100,000", ratio(samples, 1_000_000, 100_000), "x", "<", 2)
        pool.clear()
    finally:
        tenure.close()


# --- the parts --------------------------------------------------------------------------------------------------------


def lookups_on_mooncake(report, work, daemon):
    report.title("Lookups on one Mooncake master, at the scheduler's call. Stock without its hop between two processes.")
    with contextlib.closing(MooncakeWorld(work)) as world:
        mooncake_lookups(report, world)


def lookups_in_memory(report, work, daemon):
    from bench_lookup_sides import Model
    from tenure.vllm import pools
    from tenure.vllm.options import StoreOptions

    report.title("Lookups in memory, at the scheduler's call")
    memory_lookups(report, "daemon", {"pool": f"unix:{daemon.socket}"}, 400)
    # Where scheduler and worker are one process, the worker makes the pool that the scheduler finds.
    options = {"pool": "embedded", "embedded_memory": POOL}
    complete = StoreOptions.from_mapping({"key_format": "vllm", "lookup_deadline": 60.0, "call_deadline": 60.0, **options})
    worker = pools.open_worker_pool(Model("full attention").vllm_config, complete)
    try:
        memory_lookups(report, "in process", options, 100)
    finally:
        worker.close()


def copies(report, work, daemon):
    from bench_kv_copy import copy_figures
    from tenure import DaemonPool, EmbeddedPool
    from tenure.mooncake import MooncakePool

    report.title(f"Saves and loads of {COPY_BYTES >> 20:,} MiB of KV ({MOONCAKE_COPY_BYTES >> 20} MiB on Mooncake over TCP)")
    figures = {}
    with DaemonPool(daemon.socket, call_deadline=60.0) as pool:
        figures["daemon"] = copy_figures(pool, COPY_BYTES, 4, pool.clear)
    with EmbeddedPool(POOL) as pool:
        figures["in process"] = copy_figures(pool, COPY_BYTES, 4, pool.clear)
    with contextlib.closing(MooncakeWorld(work)) as world, MooncakePool(call_timeout=60.0, transfer_timeout=60.0) as pool:
        figures["Mooncake"] = copy_figures(pool, MOONCAKE_COPY_BYTES, 2, lambda: world.store.remove_all(True))
    for name, one in figures.items():
        for operation in ("save", "load"):
            bounds = (">=", 60) if name == "daemon" else ()
            share = 100 * one[operation] / one["memcpy"]
            label = f"{name}: {operation}, {one[operation] / 1e9:.2f} GB/s beside memcpy's {one['memcpy'] / 1e9:.2f}"
            report.row(label, share, "% of memcpy", *bounds)
    for operation in ("save", "load"):
        report.row(f"daemon: {operation}, of Mooncake over TCP", figures["daemon"][operation] / figures["Mooncake"][operation], "x")


def steps(report, work, daemon):
    from bench_kv_copy import KvMemory, STEP_REQUESTS, step_figures

    report.title(f"What the connector adds to a step of an engine with {STEP_REQUESTS} requests that decode")
    memory = KvMemory(STEP_MEMORY_BYTES)
    with contextlib.closing(MooncakeWorld(work)) as world:
        worlds = (
            ("daemon", {"pool": f"unix:{daemon.socket}"}, daemon.process),
            ("Mooncake", {"pool": "mooncake"}, world.master.process),
        )
        for name, options, server in worlds:
            figures = step_figures(options, memory, server)
            report.row(f"{name}: both sides' calls of a step without work", figures["step"] * 1e6, "us")
            report.row(f"{name}: the scheduler's call about a request that waits for blocks", figures["waiting"] * 1e6, "us")
            label = f"{name}: a {figures['idle'] * 1e3:.1f} ms step beside a pool silent for 200 ms, of one without a lookup"
            report.row(label, figures["stalled"] / figures["idle"], "x", "<=", 1.05)


PARTS = (lookups_on_mooncake, lookups_in_memory, copies, steps)


def measure(report, work):
    """Every part that begins in time; returns the exit status."""
    from processes import Daemon

    start = time.monotonic()
    status = 0
    daemon = Daemon(work, POOL)
    try:
        for part in PARTS:
            if time.monotonic() - start > LAST_PART_STARTS_S:
                report.title(f"bench-lookup: {part.__name__} is left out, since {LAST_PART_STARTS_S} s are over")
                status = 1
                continue
            try:
                part(report, work, daemon)
            except (AssertionError, RuntimeError, ValueError) as error:
                report.title(f"bench-lookup: {part.__name__}: {type(error).__name__}: {error}")
                status = 1
    except Stopped:
        report.title("bench-lookup: stopped; what was measured until then is above")
        status = 143
    finally:
        daemon.stop()
    load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    report.title(f"{report.missed} limits missed; {load}; {time.monotonic() - start:.0f} s")
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", required=True, type=pathlib.Path, help="folder for logs and the socket")
    work = parser.parse_args().work
    signal.signal(signal.SIGTERM, stop)  # So that every process started here is ended.
    work.mkdir(parents=True, exist_ok=True)
    # Mooncake and vLLM write thousands of lines on both streams.
    report = Report(os.fdopen(os.dup(1), "w"))
    log = os.open(work / "bench-lookup.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    status = measure(report, work)
    report.out.flush()
    os._exit(status)  # Mooncake's client may wait for a master that has ended.


if __name__ == "__main__":
    main()
