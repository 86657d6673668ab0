"""Another client of an engine's store, which fills it while the engine's process is stopped, so that the store evicts keys of the engine.

    neighbour.py POOL PREFIX OBJECT_BYTES VICTIMS PROCESS HASH...

POOL: a daemon's socket, or "mooncake" for the cluster of MOONCAKE_CONFIG_PATH. Makes ready and writes "ready". Once PROCESS is stopped and
its leases have run out, puts objects until the store makes room, continues PROCESS, and writes how many of the keys are gone.
"""

import hashlib
import itertools
import os
import pathlib
import signal
import sys
import time

import tenure
from waiting import until

PUT_AT_ONCE = 512


class Neighbour:
    """Objects of this client's own in a pool."""

    def __init__(self, pool):
        self._pool = pool
        space = pool.open_namespace("neighbour@")
        self._keys = ((space, hashlib.sha256(str(index).encode()).digest()) for index in itertools.count())

    def absent(self, keys):
        return self._pool.probe(keys).count(tenure.KeyAnswer.ABSENT)

    def keys(self, prefix, hashes):
        space = self._pool.open_namespace(prefix)
        return [(space, bytes.fromhex(value)) for value in hashes]

    def put(self, count, size):
        while count > 0:
            batch = list(itertools.islice(self._keys, min(count, PUT_AT_ONCE)))
            assert set(self._pool.put(batch, [bytes(size)] * len(batch))) == {tenure.PutAnswer.STORED}
            count -= len(batch)


class OnDaemon(Neighbour):
    """A daemon evicts the coldest first: objects of ours that are older than the engine's lease, then so many of the engine's."""

    HIGH, LOW = 0.95, 0.855  # The daemon's watermarks: where it begins to evict, and where it ends.
    RANKS_APART = 0.2  # Of what is written within 64 ms the deepest goes first, which would be the engine's.

    def __init__(self, socket, size, victims):
        super().__init__(tenure.DaemonPool(socket))
        self._size = size
        capacity = self._pool.stats()["capacity_bytes"]
        self._first = int(capacity * self.HIGH) // size + 1  # With so many objects the daemon begins.
        self._evicted = self._first - int(capacity * self.LOW) // size
        self.put(self._evicted - victims, size)
        written = time.monotonic()
        until(lambda: time.monotonic() > written + self.RANKS_APART, "the clock stands still", 10)

    def push_out(self, _):
        stats = self._pool.stats
        until(lambda: not stats()["held_leased_objects"], "the engine's leases do not end", 60)
        before = stats()["evicted_total"]
        self.put(self._first - stats()["used_bytes"] // self._size, self._size)
        until(lambda: stats()["evicted_total"] >= before + self._evicted, lambda: f"only {stats()} evicted", 30)


class OnMooncake(Neighbour):
    """A master evicts a share of all objects whose leases are over, its `eviction_ratio`, whenever its high watermark is passed."""

    OBJECT_BYTES = 1 << 20
    LEASE_SECONDS = 2.5  # The master's default_kv_lease_ttl, and some more.
    PASS_SECONDS = 0.3  # A master looks every 10 ms.

    def __init__(self):
        super().__init__(tenure.MooncakePool())

    def push_out(self, keys):
        stopped = time.monotonic()
        until(lambda: time.monotonic() > stopped + self.LEASE_SECONDS, "the clock stands still", 10)
        until(lambda: self.put(1, self.OBJECT_BYTES) or self.absent(keys), "the master evicts nothing", 60)
        evicted = time.monotonic()
        until(lambda: time.monotonic() > evicted + self.PASS_SECONDS, "the clock stands still", 10)


def is_stopped(process):
    return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def main(pool, prefix, size, victims, process, *hashes):
    process = int(process)
    neighbour = OnMooncake() if pool == "mooncake" else OnDaemon(pool, int(size), int(victims))
    keys = neighbour.keys(prefix, hashes)
    print("ready", flush=True)
    until(lambda: is_stopped(process), "the engine does not stop", 120)
    try:
        neighbour.push_out(keys)
        print(f"gone {neighbour.absent(keys)}", flush=True)
    finally:
        os.kill(process, signal.SIGCONT)


if __name__ == "__main__":
    main(*sys.argv[1:])
