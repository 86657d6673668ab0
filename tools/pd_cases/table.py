"""The figures of the runs beside the published ones, as a Markdown table."""

import analysis
import cases

# (case, row): what was published for the fixed timeout and for the lease, in seconds divided by ten where it is a time.
PUBLISHED = {
    "hold": {"a": ("48 s", "3 s"), "b": ("2 s", "2 s")},
    "killed": ("about 2.3 s", "about 2.3 s"),
    "full": ("48.4 s", "-"),
    "empty": ("not at 66 s (37 %)", "10.3 s"),
    "probe": {"a": ("47.6 s", "6.1 s"), "b": ("1.7 s", "3.5 s")},
    "wait": ("-", "about 8 s"),
    "failed": ("79", "0"),
    "succeeded": ("49", "128"),
    "expired": ("-", "0"),
}
MISSING = "not run"


def _seconds(value):
    return "-" if value is None else f"{value:.1f} s"


def _hold(record):
    return _seconds(record["timeout"] if record["lease"] is None else record["lease"])


def _empty(record):
    at = analysis.below_at(record["samples"], cases.EMPTY)
    return _seconds(at) if at is not None else f"not at {record['ended']:.0f} s ({record['samples'][-1]['usage'] * 100:.0f} %)"


def _probe(record):
    seconds, answered = analysis.probe_wait(record)
    return _seconds(seconds) if answered else f"over {seconds:.1f} s"


ROWS = {
    "a": (
        ("P holds an unclaimed prompt for", PUBLISHED["hold"]["a"], _hold),
        ("D is killed at", PUBLISHED["killed"], lambda record: _seconds(record["killed"])),
        ("P has its last renewal at", ("-", "-"), lambda record: _seconds(analysis.last_renewal(record))),
        ("P computes its last prompt at", ("-", "-"), lambda record: _seconds(analysis.last_prefill(record))),
        ("P's KV is full until", PUBLISHED["full"], lambda record: _seconds(analysis.last_full(record))),
        ("P's KV is below 5 % at", PUBLISHED["empty"], _empty),
        ("longest wait of a probe to P", PUBLISHED["probe"]["a"], _probe),
    ),
    "b": (
        ("P holds an unclaimed prompt for", PUBLISHED["hold"]["b"], _hold),
        ("requests that fail", PUBLISHED["failed"], lambda record: str(analysis.count(record, "failed"))),
        ("requests that succeed", PUBLISHED["succeeded"], lambda record: str(analysis.count(record, "succeeded"))),
        ("holds that end at P before D has the KV", PUBLISHED["expired"], lambda record: f"{record['prefill']['kv_expired_reqs']:.0f}"),
        ("longest wait for a first token", PUBLISHED["wait"], lambda record: _seconds(analysis.token_wait(record))),
        ("longest wait of a probe to P", PUBLISHED["probe"]["b"], _probe),
    ),
}


def table(records):
    """The rows of each case of which a run is among `records`; published times are divided by ten."""
    lines = ["| case | | timeout: published / 10 | timeout: here | lease: published / 10 | lease: here |", "|---|---|---|---|---|---|"]
    by_run = {(record["case"], record["hold"]): record for record in records}
    for case, rows in ROWS.items():
        if not any(run[0] == case for run in by_run):
            continue
        for label, (timeout, lease), measure in rows:
            here = [measure(by_run[case, hold]) if (case, hold) in by_run else MISSING for hold in ("timeout", "lease")]
            lines.append(f"| {case.upper()} | {label} | {timeout} | {here[0]} | {lease} | {here[1]} |")
    return "\n".join(lines)
