"""Another client of the daemon, which fills the pool while an engine's process is stopped, so that the daemon evicts keys of the engine.

    neighbour.py SOCKET PREFIX OBJECT_BYTES VICTIMS PROCESS HASH...

Puts objects that are older than the engine's lease and writes "ready". Once PROCESS is stopped and its leases have run out, puts more
until the daemon makes room, which takes the older ones and about VICTIMS of the engine's, continues PROCESS, and writes how many are gone.
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

HIGH, LOW = 0.95, 0.855  # The daemon's watermarks: where it begins to evict, and where it ends.
PUT_AT_ONCE = 512
RANKS_APART = 0.2  # Of what is written within 64 ms the deepest goes first, which would be the engine's.


def fillers(pool):
    """Keys of this client's own objects, without end."""
    space = pool.open_namespace("neighbour@")
    return ((space, hashlib.sha256(str(index).encode()).digest()) for index in itertools.count())


def put(pool, keys, count, size):
    while count > 0:
        batch = list(itertools.islice(keys, min(count, PUT_AT_ONCE)))
        assert set(pool.put(batch, [bytes(size)] * len(batch))) == {tenure.PutAnswer.STORED}
        count -= len(batch)


def is_stopped(process):
    return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def main(socket, prefix, size, victims, process, *hashes):
    size, victims, process = int(size), int(victims), int(process)
    pool = tenure.DaemonPool(socket)
    space = pool.open_namespace(prefix)
    keys = [(space, bytes.fromhex(value)) for value in hashes]
    mine = fillers(pool)
    first = int(pool.stats()["capacity_bytes"] * HIGH) // size + 1  # With so many objects the daemon begins.
    evicted = first - int(pool.stats()["capacity_bytes"] * LOW) // size
    put(pool, mine, evicted - victims, size)
    written = time.monotonic()
    until(lambda: time.monotonic() > written + RANKS_APART, "the clock stands still", 10)
    print("ready", flush=True)
    until(lambda: is_stopped(process), "the engine does not stop", 120)
    try:
        until(lambda: not pool.stats()["held_leased_objects"], "the engine's leases do not end", 60)
        before = pool.stats()["evicted_total"]
        put(pool, mine, first - pool.stats()["used_bytes"] // size, size)
        until(lambda: pool.stats()["evicted_total"] >= before + evicted, lambda: f"only {pool.stats()} evicted", 30)
        print(pool.probe(keys).count(tenure.KeyAnswer.ABSENT), flush=True)
    finally:
        os.kill(process, signal.SIGCONT)


if __name__ == "__main__":
    main(*sys.argv[1:])
