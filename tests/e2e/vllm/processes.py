"""Processes that the vLLM tests start: daemons of the pool, and engines (ask.py). Each is ended by its id."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

from waiting import until

HERE = pathlib.Path(__file__).parent
PROGRAM = os.environ.get("TENURE_PROGRAM", "tenure")


def end(process, number=signal.SIGTERM):
    """Ends one process, stopped or not, and what it started in its group."""
    if process.poll() is None:
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
    try:
        os.killpg(process.pid, signal.SIGKILL)  # Its own group: an engine's workers outlive a killed engine.
    except ProcessLookupError:
        pass
    process.wait(20)


class Daemon:
    """`tenure serve` on a socket in `folder`."""

    def __init__(self, folder, memory="512MiB"):
        self.socket = str(folder / "pool.sock")
        self._memory = memory
        self.start()

    def start(self):
        """Starts it, also again after its end. Returns when it listens."""
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--socket", self.socket, "--memory", self._memory],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0,
        )
        until(self._listens, "tenure serve does not listen", 30)

    def _listens(self):
        assert self.process.poll() is None, "tenure serve ended at once"
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(self.socket) == 0

    def flip_bytes(self):
        """Flips the first byte of every 4 KiB of the pool's memory, behind everybody's back."""
        folder = pathlib.Path(f"/proc/{self.process.pid}/fd")
        (memory,) = [entry for entry in folder.iterdir() if "memfd:" in os.readlink(entry)]
        with open(memory, "r+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            for at in range(0, size, 4096):
                byte = os.pread(file.fileno(), 1, at)
                os.pwrite(file.fileno(), bytes([byte[0] ^ 0x40]), at)

    def stop(self, number=signal.SIGTERM):
        end(self.process, number)


class EngineProcess:
    """An engine in a process of its own."""

    def __init__(self, model, options, *, connector="TenureStoreConnector", environment=None, **arguments):
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "ask.py"), model, connector, json.dumps(options), json.dumps(arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0,
            env={**os.environ, **(environment or {})}, cwd=HERE,
        )
        self.lines = []  # All that it wrote.
        self._until("ready")

    def _until(self, word):
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith(word):
                return line
        raise AssertionError("the engine ended: " + "".join(self.lines[-30:]))

    def ask(self, *prompts, forget=False):
        """[tokens, first logprob, cached] of each prompt."""
        print(json.dumps({"prompts": prompts, "forget": forget}), file=self.process.stdin, flush=True)
        answers = json.loads(self._until("answer ")[len("answer ") :])
        return answers if len(answers) > 1 else answers[0]

    def stop(self):
        """Lets it end by itself, then makes sure of it."""
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            pass
        end(self.process)
