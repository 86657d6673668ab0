"""Runs the vLLM tests: one pytest process for each engine, two at a time, and one line with the sum at the end.

    run.py LOG_FOLDER [NAME ...]        NAME: only the sessions whose name contains one of them

An engine takes 20 s to start and keeps its process to itself, so a session is one file with one model and one way of loading.
"""

import os
import pathlib
import re
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
    """Results of all sessions; from any thread."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}

    def add(self, name, output, returncode, seconds):
        # The last line that pytest wrote; Mooncake's clients may write after it.
        closing = [line for line in output.splitlines() if re.search(r"\d+ (passed|failed|error|skipped).* in [\d.]+s", line)]
        found = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", closing[-1] if closing else "")}
        failed = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
        if not failed and (returncode != 0 or not found):
            failed = 1  # It ended without a result.
        with self.lock:
            self.counts["passed"] += found.get("passed", 0)
            self.counts["failed"] += failed
            self.counts["skipped"] += found.get("skipped", 0)
            print(f"{name}: {found.get('passed', 0)} passed, {failed} failed in {seconds:.0f} s", flush=True)
            if failed:
                print("\n".join(output.splitlines()[-120:]), flush=True)


def run_session(here, name, arguments, core, logs, results):
    environment = dict(os.environ, VLLM_CPU_OMP_THREADS_BIND=str(core), PYTHONDONTWRITEBYTECODE="1")
    began = time.monotonic()
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--rootdir", str(here), *arguments]
    # Its own group, so that a time-out ends the engines it started too; not its own session, which Linux would schedule apart.
    process = subprocess.Popen(command, cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0)
    try:
        output, _ = process.communicate(timeout=SESSION_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, _ = process.communicate()
        output += f"\n{name} was not done after {SESSION_SECONDS} s and was ended"
    (logs / f"{name}.log").write_text(output)
    results.add(name, output.rstrip(), process.returncode, time.monotonic() - began)


def main(here=HERE, sessions=SESSIONS, lanes=LANES):
    """The sessions of a folder, so many at a time; its exit status."""
    logs = pathlib.Path(sys.argv[1])
    logs.mkdir(parents=True, exist_ok=True)
    wanted = [(name, arguments) for name, arguments in sessions.items() if not sys.argv[2:] or any(part in name for part in sys.argv[2:])]
    cores = sorted(os.sched_getaffinity(0))
    results, todo, lock = Sum(), list(wanted), threading.Lock()

    def lane(index):
        while True:
            with lock:
                if not todo:
                    return
                name, arguments = todo.pop(0)
            run_session(here, name, arguments, cores[index % len(cores)], logs, results)

    threads = [threading.Thread(target=lane, args=(index,)) for index in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**results.counts))
    return 1 if results.counts["failed"] or not results.counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
