"""Runs the vLLM tests: one pytest process for each engine, two at a time, and one line with the sum at the end.

    run.py LOG_FOLDER [NAME ...]        NAME: only the sessions whose name contains one of them

An engine takes 20 s to start and keeps its process to itself, so a session is one file with one model and one way of loading.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).parent
LANES = 2
SESSION_SECONDS = 540

# Longest first.
SESSIONS = {
    "daemon": ["test_daemon.py"],
    "mooncake": ["test_mooncake.py"],
    "sharded": ["test_sharded.py"],
    "tokens-qwen3next": ["test_tokens.py", "--model", "qwen3next"],
    "partial-tails": ["test_partial_tails.py"],
    "tokens-gemma3": ["test_tokens.py", "--model", "gemma3", "--pool", "daemon"],
    "tokens-llama": ["test_tokens.py", "--model", "llama"],
    "tokens-llama-sync": ["test_tokens.py", "--model", "llama", "--load", "sync"],
    "multi-connector": ["test_multi_connector.py"],
    "requests": ["test_requests.py"],
    "processes": ["test_processes.py"],
    "refusals": ["test_refusals.py", "test_types.py"],
    "without-engine": ["test_glue.py", "test_layouts.py", "test_sharing.py"],
}


class Sum:
    """What is left to run, what runs, and the results; from any thread."""

    def __init__(self, sessions):
        self.lock = threading.Lock()
        self._todo = list(sessions)
        self._running = {}
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}

    def next(self):
        """(name, arguments) of the next session, or None."""
        with self.lock:
            return self._todo.pop(0) if self._todo else None

    def start(self, name, command, **options):
        """The process of a session."""
        with self.lock:
            self._running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
            return self._running[name]

    def interrupt(self):
        """No session more, and those that run end what they started."""
        with self.lock:
            self._todo.clear()
            for process in self._running.values():
                process.send_signal(signal.SIGINT)

    def add(self, name, output, returncode, seconds):
        # The last line that pytest wrote; Mooncake's clients may write after it.
        closing = [line for line in output.splitlines() if re.search(r"\d+ (passed|failed|error|skipped).* in [\d.]+s", line)]
        found = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", closing[-1] if closing else "")}
        failed = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
        if not failed and (returncode != 0 or not found):
            failed = 1  # It ended without a result.
        with self.lock:
            del self._running[name]
            self.counts["passed"] += found.get("passed", 0)
            self.counts["failed"] += failed
            self.counts["skipped"] += found.get("skipped", 0)
            print(f"{name}: {found.get('passed', 0)} passed, {failed} failed in {seconds:.0f} s", flush=True)
            if failed:
                print("\n".join(output.splitlines()[-120:]), flush=True)


def end(process):
    """What a session wrote until its end, which is now: it ends its engines when it is interrupted, and is killed when it does not."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=90)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def run_session(here, name, arguments, core, logs, results, seconds):
    environment = dict(os.environ, VLLM_CPU_OMP_THREADS_BIND=str(core), PYTHONDONTWRITEBYTECODE="1")
    began = time.monotonic()
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--rootdir", str(here), *arguments]
    # Its own group, so that only main() interrupts it; not its own session, which Linux would schedule apart.
    process = results.start(name, command, cwd=here, env=environment, process_group=0)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        output = end(process)
        output += f"\n{name} was not done after {seconds} s and was ended"
    (logs / f"{name}.log").write_text(output)
    results.add(name, output.rstrip(), process.returncode, time.monotonic() - began)


def main(here=HERE, sessions=SESSIONS, lanes=LANES, seconds=SESSION_SECONDS):
    """The sessions of a folder, so many at a time, each for so long at most; its exit status. Ends with its sessions when interrupted."""
    # SIGINT as well: a shell's job in the background ignores it, and so would the sessions.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    logs = pathlib.Path(sys.argv[1])
    logs.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    results = Sum((name, arguments) for name, arguments in sessions.items() if not sys.argv[2:] or any(part in name for part in sys.argv[2:]))

    def lane(index):
        while session := results.next():
            run_session(here, *session, cores[index % len(cores)], logs, results, seconds)

    threads = [threading.Thread(target=lane, args=(index,)) for index in range(lanes)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        print("interrupted: waiting for what runs to end what it started", flush=True)
        results.interrupt()
        for thread in threads:
            thread.join()
        return 130
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**results.counts))
    return 1 if results.counts["failed"] or not results.counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
