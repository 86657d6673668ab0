"""One client of a store, timed: questions, leases, puts and gets. Shared by bench_peers.py and bench_pools.py.

A subclass names the calls of its store; everything that is measured and how is here, so that all stores do the same work.
"""

import ctypes
import json
import random
import statistics
import subprocess
import time

KIB = 1024
MIB = 1024 * KIB
KEYS = 100_000
KEY_VALUE_BYTES = 4 * KIB
BATCHES = (1, 100, 10_000)
# Object sizes; each is put and read over the whole working set.
OBJECT_BYTES = (4 * KIB, 256 * KIB, 4 * MIB)
OBJECT_BATCH_BYTES = 16 * MIB
SECONDS_A_FIGURE = 0.4


def key_name(index):
    """A key as long as those of vLLM's store connector for a model with a name of medium length: 121 characters."""
    prefix = "meta-llama/Llama-3.1-8B@tp_rank:0@pcp0@dcp0@pp_rank:0@"
    return f"{prefix}{index:0{121 - len(prefix)}x}"


class StoreClient:
    """A client with a buffer of its share of the working set.

    A subclass has key(index), probe(keys), lease(keys), put(keys, addresses, sizes) and get(keys, addresses, sizes) with one
    address and one size a key, clear(keys), which removes all, and good(operation, answer), which judges one of a call's answers.

    keys: how many the questions choose from. Client `index` of `clients`, all of them in one round at one time; `meet` returns
    when all have called it.
    """

    def __init__(self, working_set_bytes, keys=KEYS, index=0, clients=1, meet=lambda: None):
        self.share_bytes = working_set_bytes // clients
        self.index = index
        self.meet = meet
        self.buffer = (ctypes.c_char * self.share_bytes)()
        self.address = ctypes.addressof(self.buffer)
        ctypes.memset(self.address, 1, self.share_bytes)
        self.keys = [self.key(i) for i in range(keys)]

    def copy(self, operation, keys, object_bytes):
        """Puts or gets all keys in batches of OBJECT_BATCH_BYTES; returns seconds an object."""
        call = getattr(self, operation)
        batch = max(1, OBJECT_BATCH_BYTES // object_bytes)
        places = self.share_bytes // object_bytes
        addresses = [self.address + i % places * object_bytes for i in range(len(keys))]
        sizes = [object_bytes] * batch
        answers = []
        start = time.perf_counter()
        for first in range(0, len(keys), batch):
            part = keys[first : first + batch]
            answers += call(part, addresses[first : first + batch], sizes[: len(part)])
        seconds = (time.perf_counter() - start) / len(keys)
        self._check(operation, answers)
        return seconds

    def ask(self, operation, batch):
        """Random batches of present keys until the time for one figure is over; returns the median of seconds a key."""
        call = getattr(self, operation)
        generator = random.Random(batch + self.index)
        samples = []
        end = time.perf_counter() + SECONDS_A_FIGURE
        while time.perf_counter() < end or len(samples) < 3:
            part = generator.sample(self.keys, batch)
            start = time.perf_counter()
            answers = call(part)
            samples.append((time.perf_counter() - start) / batch)
            self._check(operation, answers)
        return statistics.median(samples)

    def _check(self, operation, answers):
        bad = [answer for answer in answers if not self.good(operation, answer)]
        if bad:
            raise RuntimeError(f"{type(self).__name__}: {operation} answered {bad[0]} for {len(bad)} of {len(answers)} keys")

    def _first_alone(self, work):
        if self.index == 0:
            work()
        self.meet()

    def round(self):
        """Every figure once: seconds a key or an object, by operation and batch or size."""
        figures = {}
        self._first_alone(lambda: self.copy("put", self.keys, KEY_VALUE_BYTES))
        for operation in ("probe", "lease"):
            for batch in BATCHES:
                self.meet()
                figures[operation, batch] = self.ask(operation, batch)
        self.meet()
        self._first_alone(lambda: self.clear(self.keys))
        for object_bytes in OBJECT_BYTES:
            count = self.share_bytes // object_bytes
            keys = [self.key(self.index * count + i) for i in range(count)]
            for operation in ("put", "get"):
                self.meet()
                figures[operation, object_bytes] = self.copy(operation, keys, object_bytes)
            self.meet()
            self._first_alone(lambda: self.clear(keys))
        return figures


class Mooncake(StoreClient):
    """Mooncake's own client. With a segment, puts and gets are copies within the process; with none, they go to another's."""

    def __init__(self, master, segment_bytes, working_set_bytes, keys=KEYS):
        from mooncake.store import MooncakeDistributedStore

        self.store = MooncakeDistributedStore()
        code = self.store.setup("127.0.0.1", "P2PHANDSHAKE", segment_bytes, 64 * MIB, "tcp", "", master)
        if code != 0:
            raise RuntimeError(f"Mooncake's setup against {master} answered {code}")
        super().__init__(working_set_bytes, keys)
        if self.store.register_buffer(self.address, self.share_bytes) != 0:
            raise RuntimeError("Mooncake refuses to register the client's buffer")
        self.probe = self.store.batch_probe_key
        self.lease = self.store.batch_is_exist  # Mooncake's exist call is its lease.
        self.put = self.store.batch_put_from
        self.get = self.store.batch_get_into

    def key(self, index):
        return key_name(index)

    def good(self, operation, answer):
        return answer == 1 if operation in ("probe", "lease") else answer >= 0

    def clear(self, keys):
        """Removes all; a put of a key that is still there would answer at once and be no put."""
        removed = self.store.remove_all(True)
        left = sum(code == 1 for code in self.store.batch_probe_key(keys))
        if left:
            raise RuntimeError(f"Mooncake removed {removed} objects and kept {left} of {len(keys)}")


def run_benchmarks(program, names):
    """The results of a Google Benchmark program whose names match, as dicts; an error in one of them is an error."""
    command = [program, "--benchmark_format=json", "--benchmark_min_time=0.2", f"--benchmark_filter=^({names})"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    results = json.loads(output)["benchmarks"]
    for result in results:
        if result.get("error_occurred"):
            raise RuntimeError(f"{program} {result['name']}: {result['error_message']}")
    return results


def embedded_pool_figures(store_bench):
    """The operations of a round on the embedded pool, from store_bench: seconds a key or an object."""
    figures = {}
    for result in run_benchmarks(store_bench, "BM_(Probe|Lease)/objects:1000000/|BM_(Put|Get)Bytes/set:1073741824/"):
        operation, *arguments = result["name"].split("/")
        size = next(int(a.split(":")[1]) for a in arguments if a.startswith(("batch:", "object:")))
        if operation in ("BM_Probe", "BM_Lease"):
            figures[operation[3:].lower(), size] = 1 / result["items_per_second"]
        else:
            figures[operation[3:6].lower(), size] = size / (result["GB_per_s"] * 1e9)
    return figures


def row_label(operation, size):
    """The row's name, its unit, and the factor from seconds."""
    if operation in ("probe", "lease"):
        return f"{operation}, {size:,} keys", "ns a key", 1e9
    if operation == "lookup":
        return f"lookup, {size:,} tokens", "us", 1e6
    return f"{operation}, {size // KIB:,} KiB", "us each", 1e6
