"""Measures Mooncake's client and master and Tenure's embedded pool in turns and prints the ratios. Glue for bench_peers.sh.

Mooncake: one client process that owns the segment (its fastest layout: puts and gets are copies within the process), the
master in its own process on loopback. Tenure: `store_bench`, the pool in the process. Both on host memory, one thread.
"""

import argparse
import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
import time

KIB = 1024
MIB = 1024 * KIB
ROUNDS = 3
LAST_ROUND_STARTS_S = 140  # On a busy machine fewer rounds are run and said so; the caller stops all at 300 s.
MASTER_KEYS = 100_000
MASTER_KEY_VALUE_BYTES = 4 * KIB
BATCHES = (1, 100, 10_000)
# Object sizes; each is put and read over the whole working set, which is far above the last-level cache.
OBJECT_BYTES = (4 * KIB, 256 * KIB, 4 * MIB)
WORKING_SET_BYTES = 1024 * MIB
OBJECT_BATCH_BYTES = 16 * MIB
SECONDS_A_FIGURE = 0.4


def key_name(index):
    """A key as long as those of vLLM's store connector for a model with a name of medium length: 121 characters."""
    prefix = "meta-llama/Llama-3.1-8B@tp_rank:0@pcp0@dcp0@pp_rank:0@"
    return f"{prefix}{index:0{121 - len(prefix)}x}"


class Mooncake:
    """One client with a segment of its own."""

    def __init__(self, master, segment_bytes):
        from mooncake.store import MooncakeDistributedStore

        self.store = MooncakeDistributedStore()
        code = self.store.setup("127.0.0.1", "P2PHANDSHAKE", segment_bytes, 64 * MIB, "tcp", "", master)
        if code != 0:
            raise RuntimeError(f"Mooncake's setup against {master} answered {code}")
        self.buffer = (ctypes.c_char * WORKING_SET_BYTES)()
        self.address = ctypes.addressof(self.buffer)
        ctypes.memset(self.address, 1, WORKING_SET_BYTES)
        if self.store.register_buffer(self.address, WORKING_SET_BYTES) != 0:
            raise RuntimeError("Mooncake refuses to register the client's buffer")

    def copy(self, call, keys, object_bytes):
        """Runs a batch call over all keys in batches of OBJECT_BATCH_BYTES; returns seconds an object."""
        batch = max(1, OBJECT_BATCH_BYTES // object_bytes)
        addresses = [self.address + i * object_bytes for i in range(len(keys))]
        sizes = [object_bytes] * batch
        start = time.perf_counter()
        for first in range(0, len(keys), batch):
            part = keys[first : first + batch]
            codes = call(part, addresses[first : first + batch], sizes[: len(part)])
            bad = [code for code in codes if code < 0]
            if bad:
                raise RuntimeError(f"Mooncake answered {bad[0]} for {len(bad)} of {len(part)} objects")
        return (time.perf_counter() - start) / len(keys)

    def fill(self):
        self.keys = [key_name(i) for i in range(MASTER_KEYS)]
        self.copy(self.store.batch_put_from, self.keys, MASTER_KEY_VALUE_BYTES)

    def ask(self, call, batch):
        """Random batches of present keys until the time for one figure is over; returns the median of seconds a key."""
        generator = random.Random(batch)
        samples = []
        end = time.perf_counter() + SECONDS_A_FIGURE
        while time.perf_counter() < end or len(samples) < 3:
            part = generator.sample(self.keys, batch)
            start = time.perf_counter()
            answers = call(part)
            samples.append((time.perf_counter() - start) / batch)
            if answers.count(1) != batch:
                raise RuntimeError(f"Mooncake misses {batch - answers.count(1)} of {batch} keys that were put")
        return statistics.median(samples)

    def round(self):
        figures = {}
        self.fill()
        for batch in BATCHES:
            figures["probe", batch] = self.ask(self.store.batch_probe_key, batch)
        for batch in BATCHES:  # Mooncake's exist call is its lease.
            figures["lease", batch] = self.ask(self.store.batch_is_exist, batch)
        self.clear(self.keys)
        for object_bytes in OBJECT_BYTES:
            keys = [key_name(i) for i in range(WORKING_SET_BYTES // object_bytes)]
            figures["put", object_bytes] = self.copy(self.store.batch_put_from, keys, object_bytes)
            figures["get", object_bytes] = self.copy(self.store.batch_get_into, keys, object_bytes)
            self.clear(keys)
        return figures

    def clear(self, keys):
        """Removes all; a put of a key that is still there would answer at once and be no put."""
        removed = self.store.remove_all(True)
        left = sum(code == 1 for code in self.store.batch_probe_key(keys))
        if left:
            raise RuntimeError(f"Mooncake removed {removed} objects and kept {left} of {len(keys)}")


def tenure_round(store_bench):
    """Runs the same operations of store_bench; returns seconds a key or an object, by operation and batch or size."""
    names = "BM_(Probe|Lease)/objects:1000000/|BM_(Put|Get)Bytes/set:1073741824/"
    command = [store_bench, "--benchmark_format=json", "--benchmark_min_time=0.2", f"--benchmark_filter=^({names})"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    figures = {}
    for result in json.loads(output)["benchmarks"]:
        if result.get("error_occurred"):
            raise RuntimeError(f"store_bench {result['name']}: {result['error_message']}")
        operation, *arguments = result["name"].split("/")
        size = next(int(a.split(":")[1]) for a in arguments if a.startswith(("batch:", "object:")))
        if operation in ("BM_Probe", "BM_Lease"):
            figures[operation[3:].lower(), size] = result["ns_per_key"] * 1e-9
        else:
            figures[operation[3:6].lower(), size] = size / (result["GB_per_s"] * 1e9)
    return figures


def print_table(mooncake, tenure, rounds, out):
    print(f"\nMedian of {rounds} rounds in turns. Random present keys: {MASTER_KEYS:,} in the master, 1,000,000 in Tenure.", file=out)
    print("Tenure's puts and gets compute and check a digest; Mooncake's do not.\n", file=out)
    print(f"{'operation':<32}{'Mooncake 0.3.14':>16}{'Tenure':>12}{'ratio':>10}", file=out)
    for name, size in mooncake:
        if name in ("probe", "lease"):
            label, unit, scale = f"{name}, {size:,} keys", "ns a key", 1e9
        else:
            label, unit, scale = f"{name}, {size // KIB:,} KiB", "us each", 1e6
        theirs = statistics.median(mooncake[name, size])
        ours = statistics.median(tenure[name, size])
        print(
            f"{label:<22}{unit:<10}{theirs * scale:>16,.1f}{ours * scale:>12,.1f}{theirs / ours:>9.1f}x",
            file=out,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--master", required=True, help="address of a running mooncake_master, host:port")
    parser.add_argument("--store-bench", required=True, help="path of Tenure's store_bench")
    parser.add_argument("--log", required=True, help="file for what Mooncake's client writes on standard error")
    arguments = parser.parse_args()

    # Mooncake's client logs to both standard streams; ours stay readable.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    log = os.open(arguments.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    errors = os.dup(2)
    os.dup2(log, 1)
    os.dup2(log, 2)

    mooncake, tenure = {}, {}
    try:
        peer = Mooncake(arguments.master, 3 * 1024 * MIB)
        start = time.monotonic()
        rounds = 0
        while rounds < ROUNDS and time.monotonic() - start < LAST_ROUND_STARTS_S:
            rounds += 1
            print(f"round {rounds} of {ROUNDS}", file=out)
            for key, value in peer.round().items():
                mooncake.setdefault(key, []).append(value)
            for key, value in tenure_round(arguments.store_bench).items():
                tenure.setdefault(key, []).append(value)
        peer.store.close()
    except (RuntimeError, subprocess.CalledProcessError) as error:
        os.write(errors, f"bench-peers: {error}; Mooncake's own log is {arguments.log}\n".encode())
        return 1
    print_table(mooncake, tenure, rounds, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
