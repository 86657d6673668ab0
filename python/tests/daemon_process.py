"""A daemon of its own for a test, ended by its id. TENURE_PROGRAM names the program."""

import os
import select
import signal
import subprocess
import time

import tenure


class Daemon:
    def __init__(self, folder, memory="128MiB", mode="closed"):
        self.socket = str(folder / "t.sock")
        self.options = ["--memory", memory, "--mode", mode]
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [os.environ["TENURE_PROGRAM"], "serve", "--socket", self.socket, *self.options], stdin=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 30
        while True:
            try:
                tenure.DaemonPool(self.socket).close()
                return
            except (tenure.Error, ValueError):
                assert self.process.poll() is None and time.monotonic() < deadline
                select.select([], [], [], 0.05)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
