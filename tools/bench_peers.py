"""Measures Mooncake's client and master and Tenure's embedded pool in turns and prints the ratios. Glue for bench_peers.sh.

Mooncake: one client process that owns the segment (its fastest layout: puts and gets are copies within the process), the
master in its own process on loopback. Tenure: `store_bench`, the pool in the process. Both on host memory, one thread.
"""

import argparse
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

from bench_store import KEYS, MIB, Mooncake, embedded_pool_figures, row_label

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "e2e"))

ROUNDS = 3
LAST_ROUND_STARTS_S = 140  # On a busy machine fewer rounds are run and said so; the caller stops all at 300 s.
WORKING_SET_BYTES = 1024 * MIB  # Far above the last-level cache.


def print_table(mooncake, tenure, rounds, out):
    print(f"\nMedian of {rounds} rounds in turns. Random present keys: {KEYS:,} in the master, 1,000,000 in Tenure.", file=out)
    print("Tenure's puts and gets compute and check a digest; Mooncake's do not.\n", file=out)
    print(f"{'operation':<32}{'Mooncake 0.3.14':>16}{'Tenure':>12}{'ratio':>10}", file=out)
    for name, size in mooncake:
        label, unit, scale = row_label(name, size)
        theirs = statistics.median(mooncake[name, size])
        ours = statistics.median(tenure[name, size])
        print(
            f"{label:<22}{unit:<10}{theirs * scale:>16,.1f}{ours * scale:>12,.1f}{theirs / ours:>9.1f}x",
            file=out,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store-bench", required=True, help="path of Tenure's store_bench")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="folder for the logs of Mooncake's master and client")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that the master is ended.
    client_log = arguments.work / "client.log"

    # Mooncake's client logs to both standard streams; ours stay readable.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    log = os.open(client_log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    errors = os.dup(2)
    os.dup2(log, 1)
    os.dup2(log, 2)

    from mooncake_processes import Master

    mooncake, tenure = {}, {}
    master = Master(arguments.work)
    try:
        peer = Mooncake(master.address, 3 * 1024 * MIB, WORKING_SET_BYTES)
        start = time.monotonic()
        rounds = 0
        while rounds < ROUNDS and time.monotonic() - start < LAST_ROUND_STARTS_S:
            rounds += 1
            print(f"round {rounds} of {ROUNDS}", file=out)
            for key, value in peer.round().items():
                mooncake.setdefault(key, []).append(value)
            for key, value in embedded_pool_figures(arguments.store_bench).items():
                tenure.setdefault(key, []).append(value)
        peer.store.close()
    except (RuntimeError, subprocess.CalledProcessError) as error:
        os.write(errors, f"bench-peers: {error}; Mooncake's own log is {client_log}\n".encode())
        return 1
    finally:
        master.stop()
    print_table(mooncake, tenure, rounds, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
