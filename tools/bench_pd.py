"""Measures the time from the end of a prefill to the first token of D on real engines. Glue of `./dev bench-pd`.

Two pairs of engines of one model take turns, prompt by prompt: ours, and vLLM's own MooncakeConnector on both sides over TCP. A stock
pair is the floor of the stock formats: one pull with the whole layout, one reply, and nothing of a lease. Beside them, what D takes when
it has the KV already, which no transfer can beat. Bounded in time; everything that it starts ends with it.
"""

import argparse
import contextlib
import itertools
import os
import pathlib
import signal
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = [str(ROOT / "tests" / "e2e" / part) for part in ("", "vllm", "pd")]
sys.path[:0] = FOLDERS
os.environ["PYTHONPATH"] = os.pathsep.join([*FOLDERS, os.environ.get("PYTHONPATH", "")])  # For the engines' processes.

from bench_lookup import Report, Stopped, in_turns, ratio, stop  # noqa: E402

MODEL = "llama"
LENGTHS = (500, 4000)
ROUNDS = 21
STEP_PACE = "0.001"  # Seconds between two steps of an engine that only waits, as vLLM's own loop does it.
STOCK = {
    "kv_connector": "MooncakeConnector",
    "kv_connector_module_path": "stock_on_cpu",
    "kv_connector_extra_config": {"mooncake_protocol": "tcp"},
}


class Subject:
    """A pair, and its next prompts, which neither engine has seen."""

    def __init__(self, **arguments):
        from pair import Pair

        self.pair = Pair(MODEL, arguments.pop("options", {}), environment={"TENURE_PEER_PACE": STEP_PACE}, **arguments)
        self._seeds = itertools.count(1)

    def first_token(self, length):
        """Seconds from the end of the prefill at P to D's first token; both are asked at once, as a proxy does."""
        from engine import prompt

        self.tokens = prompt(length, seed=next(self._seeds))
        prefill, decode = self.pair.ask(self.tokens, max_tokens=1)
        if decode["cached"] != length:
            raise RuntimeError(f"D has {decode['cached']} of {length} tokens from P")
        return decode["ended"] - prefill["ended"]

    def token_at_hand(self):
        """The same of D alone, for the prompt that it had last."""
        return self.pair.decode.ask(self.tokens, max_tokens=1)["seconds"]


def measure(report):
    with contextlib.ExitStack() as ends:
        ours = Subject(options={"kv_lease_duration": 30.0})
        ends.callback(ours.pair.stop)
        stock = Subject(prefill={"transfer": STOCK}, decode={"transfer": STOCK})
        ends.callback(stock.pair.stop)
        for length in LENGTHS:
            calls = {
                "ours": lambda: ours.first_token(length),  # noqa: B023
                "stock": lambda: stock.first_token(length),  # noqa: B023
            }
            samples = in_turns(calls, seconds=0, least=ROUNDS)
            at_hand = statistics.median(ours.token_at_hand() for _ in range(ROUNDS))
            report.title(f"End of the prefill to the first token at D, prompts of {length:,} tokens, {ROUNDS} rounds")
            report.row("ours", statistics.median(samples["ours"]) * 1e3, "ms")
            report.row("stock on both sides: the floor of the stock formats", statistics.median(samples["stock"]) * 1e3, "ms")
            report.row("D alone, with its KV at hand", at_hand * 1e3, "ms")
            report.row("ours, of stock", ratio(samples, "ours", "stock"), "x")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", required=True, type=pathlib.Path, help="folder for logs")
    work = parser.parse_args().work
    signal.signal(signal.SIGTERM, stop)  # So that every process started here is ended.
    work.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    report, status = Report(sys.stdout), 0
    try:
        measure(report)
    except Stopped:
        report.title("bench-pd: stopped; what was measured until then is above")
        status = 143
    except (AssertionError, RuntimeError) as error:
        (work / "error.txt").write_text(str(error), encoding="utf-8")
        report.title(f"bench-pd: {type(error).__name__}: {str(error)[:300]}; all of it is in {work / 'error.txt'}")
        status = 1
    report.title(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {time.monotonic() - start:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
