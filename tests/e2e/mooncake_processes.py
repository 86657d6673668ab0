"""Processes for the tests over a real Mooncake: a master and owners of segments, on loopback, each ended by its id."""

import contextlib
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time

import mooncake
import mooncake.store

LEASE_SECONDS = 2.0
PACKAGE = pathlib.Path(next(iter(mooncake.__path__)))
MIB = 1 << 20

OWNER = """
import sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
code = store.setup("127.0.0.1", "P2PHANDSHAKE", int(sys.argv[2]), 1 << 24, "tcp", "", sys.argv[1])
print("ready" if code == 0 else code, flush=True)
sys.stdin.read()
"""


def free_ports(count):
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [held_socket.getsockname()[1] for held_socket in sockets]


def end(process, number=signal.SIGKILL):
    """Ends the one process, stopped or not, and waits for it."""
    if process.poll() is None:
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
    process.wait(30)


class Master:
    """A mooncake_master with a lease of LEASE_SECONDS, from construction to stop(). `rpc_port` 0: a free one. `flags`: more of its own."""

    def __init__(self, folder, *, rpc_port=0, **flags):
        free_port, metrics_port = free_ports(2)
        rpc_port = rpc_port or free_port
        self.address = f"127.0.0.1:{rpc_port}"
        self.log = open(folder / f"master-{rpc_port}.log", "wb")
        arguments = {
            "rpc_address": "127.0.0.1",
            "rpc_port": rpc_port,
            "rpc_thread_num": 2,
            "metrics_host": "127.0.0.1",
            "metrics_port": metrics_port,
            "default_kv_lease_ttl": int(LEASE_SECONDS * 1000),
            "logtostderr": "true",
            **flags,
        }
        self.process = subprocess.Popen(
            [PACKAGE / "mooncake_master", *(f"-{name}={value}" for name, value in arguments.items())],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )
        deadline = time.monotonic() + 30
        while not (self._answers(rpc_port) and self._answers(metrics_port)):
            assert self.process.poll() is None, f"the master ended at once; see {self.log.name}"
            assert time.monotonic() < deadline, f"the master does not listen; see {self.log.name}"
            select.select([], [], [], 0.05)

    @staticmethod
    def _answers(port):
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    def stop(self):
        end(self.process)
        self.log.close()


class Owner:
    """Another process that gives a segment to the store."""

    def __init__(self, master, segment_bytes):
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, master.address, str(segment_bytes)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ,
        )
        # Mooncake writes lines of its own to standard output.
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if line.strip() == "ready":
                return
        raise AssertionError(f"the segment's owner did not start: {lines[-5:]}")

    def stop(self):
        end(self.process)
        self.process.stdin.close()
        self.process.stdout.close()


def raw_client(master, segment_bytes=0):
    """Mooncake's own client, to look at the store past Tenure."""
    store = mooncake.store.MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", segment_bytes, 16 * MIB, "tcp", "", master.address)
    assert code == 0, code
    return store
