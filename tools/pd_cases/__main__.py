"""The two published cases of handoff leases on real vLLM engines, and whether the leases keep their promises. Part of `./dev pd-cases`.

    pd_cases [CASE] --work FOLDER [--plot-python PYTHON]        CASE: a, b, or one run of them, as a-lease

Writes samples.json, table.md and, with an interpreter that has matplotlib, usage.svg into FOLDER; with CASE, beside what earlier calls
measured of the other runs. A pair of engines a run; each is ended by its id, also on Ctrl-C. Exit status: 0, 1 when a run of this call is not
what it should be, 2 for a wrong command line, 130 and 143 for signals.
"""

import argparse
import json
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
E2E = HERE.parents[1] / "tests" / "e2e"
sys.path[:0] = [str(HERE), str(E2E / "pd"), str(E2E / "vllm")]

import analysis  # noqa: E402
import cases  # noqa: E402
from table import table  # noqa: E402

# Of all runs together; idle cores need about five minutes.
SECONDS_MAX = 900


class Stopped(KeyboardInterrupt):
    """Somebody asks for the end, with the exit status that goes with it. Of this kind since asyncio lets no other one out of a task."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


def stop_on_signals():
    """Signals and the time limit become exceptions, so that what was started is ended."""

    def stop(number, _):
        for other in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(1, f"not done after {SECONDS_MAX} s") if number == signal.SIGALRM else Stopped(128 + number, signal.Signals(number).name)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, stop)
    signal.alarm(SECONDS_MAX)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message):
        self.exit(2, f"pd-cases: {message}; usage: ./dev pd-cases [CASE]\n")


def arguments_of(words):
    parser = Parser(prog="pd-cases", add_help=False, allow_abbrev=False)
    parser.add_argument("case", nargs="?", choices=sorted({name for run in cases.RUNS for name in (run.case, run.name)}))
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--plot-python")
    return parser.parse_args(words)


def name_of(record):
    return f"{record['case']}-{record['hold']}"


def measure_all(runs, samples):
    """Measures the runs; {name: record} of them and of what `samples` has of others. Each is on disk once it is over."""
    from pairs import measure

    done = {run.name for run in cases.RUNS} - {run.name for run in runs}
    records = {name_of(record): record for record in (json.loads(samples.read_text()) if samples.exists() else []) if name_of(record) in done}
    for run in runs:
        print(f"pd-cases: {run.name}: starting a pair of engines", flush=True)
        record = records[run.name] = measure(run)
        samples.write_text(json.dumps([records[other.name] for other in cases.RUNS if other.name in records]))
        conditions = f"{record['cores']} cores, load average {record['load_average']:.0f}"
        print(f"pd-cases: {run.name}: engines started in {record['start_s']:.0f} s, measured for {record['ended']:.0f} s; {conditions}", flush=True)
    return records


def report(records, work, plot_python):
    """Prints and writes what was measured."""
    text = table(records.values())
    (work / "table.md").write_text(text + "\n")
    print(f"\n{text}\n")
    if plot_python:
        subprocess.run([plot_python, str(HERE / "plot.py"), str(work / "samples.json"), str(work / "usage.svg")], check=True)
        print(f"pd-cases: samples.json, table.md and usage.svg are in {work}")


def wrong_runs(runs, records):
    """How many of the runs are not what they should be; says what is wrong with each."""
    wrong = 0
    for run in runs:
        lines = analysis.faults(records[run.name])
        wrong += bool(lines)
        for line in lines or ["as it should be"]:
            print(f"pd-cases: {run.name}: {line}")
    return wrong


def main():
    arguments = arguments_of(sys.argv[1:])
    arguments.work.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    stop_on_signals()
    try:
        runs = [run for run in cases.RUNS if arguments.case in (None, run.case, run.name)]
        records = measure_all(runs, arguments.work / "samples.json")
        report(records, arguments.work, arguments.plot_python)
        wrong = wrong_runs(runs, records)
    except Stopped as stopped:
        print(f"pd-cases: stopped: {stopped}", file=sys.stderr)
        return stopped.status
    except (AssertionError, OSError, subprocess.SubprocessError, RuntimeError) as error:
        print(f"pd-cases: {error}", file=sys.stderr)
        return 1
    print(f"pd-cases: {len(runs) - wrong} of {len(runs)} runs as they should be, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
