"""The pure parts of `./dev pd-cases`: what samples show, when a run is not what it should be, the table, the curves of the plot."""

import copy
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools" / "pd_cases"))

import analysis  # noqa: E402
import cases  # noqa: E402
import plot  # noqa: E402
import table  # noqa: E402

LEASE, KILLED, STEP = 3.0, 2.5, 0.1
BLOCKS = cases.PREFILL_BLOCKS - 1
FIRST, QUEUED = 40, 20  # Prompts that P holds at the kill, and those behind them.


def samples(usage, end_s):
    """Ten samples a second of a usage in blocks."""
    times = [round(STEP * number, 1) for number in range(int(end_s / STEP) + 1)]
    return [{"t": t, "usage": min(1.0, usage(t) / BLOCKS), "renewals": min(5, int(2 * t)), "kv_expired_reqs": 0.0} for t in times]


def request(prefilled, outcome="cut off"):
    return {"sent": 0.0, "prefilled": prefilled, "first_token": 1.5, "ended": 2.5, "outcome": outcome}


def killed_run(late=0.0, hold="lease", end_s=20.0):
    """Case A as a lease makes it: what is held at the kill is free a lease later, the queued rest, computed then, another lease later.

    `late`: so much longer is the last of it held.
    """
    first_free, second_free = KILLED + LEASE, KILLED + 2 * LEASE + 0.5

    def usage(t):
        if t < first_free:
            return 0.98 * BLOCKS
        queued = QUEUED if first_free + 0.5 <= t < second_free else 0
        stragglers = 12 if second_free <= t < second_free + late else 0
        return 10 * (queued + stragglers)

    requests = [request(2.0) for _ in range(FIRST)] + [request(first_free + 0.5) for _ in range(QUEUED)]
    return {
        "case": "a", "hold": hold, "timeout": 48.0, "lease": LEASE if hold == "lease" else None, "killed": KILLED, "ended": end_s, "requests": requests,
        "probes": [{"sent": 1.0, "answered": 6.0}, {"sent": 2.0, "answered": 6.2}], "samples": samples(usage, end_s),
        "prefill": {"kv_expired_reqs": 60.0}, "decode": {},
    }


def calm_run(hold, failed=0, expired=0.0):
    """Case B with so many failed requests."""
    requests = [request(1.0, "failed" if number < failed else "succeeded") for number in range(cases.REQUESTS)]
    return {
        "case": "b", "hold": hold, "timeout": 2.0, "lease": None if hold == "timeout" else 2.0, "killed": None, "ended": 9.0, "requests": requests,
        "probes": [{"sent": 1.0, "answered": 4.5}, {"sent": 8.5, "answered": None}], "samples": samples(lambda t: BLOCKS if t < 5 else 0, 9.0),
        "prefill": {"kv_expired_reqs": expired}, "decode": {},
    }


def test_a_lease_that_frees_in_time_has_no_fault():
    assert analysis.faults(killed_run()) == []


def test_kv_held_beyond_lease_and_scan_is_a_fault_that_names_both():
    (line,) = analysis.faults(killed_run(late=3.0))
    assert "120 blocks" in line and "leases of 3 s explain 0" in line and "scans are 0.5 s apart" in line


def test_kv_held_within_the_tolerance_is_none():
    assert analysis.faults(killed_run(late=analysis.STEP_TOLERANCE_S)) == []


def test_kv_of_the_crash_that_stays_while_the_queue_is_served_is_a_fault():
    record = killed_run()
    for sample in record["samples"]:
        if KILLED + LEASE <= sample["t"] < KILLED + LEASE + 2:
            sample["usage"] = 1.0  # Nothing of the first prompts has gone, so the queue cannot have been computed.
    assert any("blocks are held at" in line for line in analysis.faults(record))


def test_kv_that_is_never_free_is_a_fault_even_while_prompts_wait():
    record = killed_run()
    record["requests"] += [request(None) for _ in range(cases.PREFILLS_MAX)]
    for sample in record["samples"]:
        sample["usage"] = max(sample["usage"], 80 / BLOCKS)
    assert analysis.faults(record) == [f"{80 / BLOCKS:.0%} of the prefiller's KV is still held after 20 s"]


def test_a_fixed_timeout_that_holds_nothing_shows_nothing():
    (line,) = analysis.faults(killed_run(hold="timeout"))
    assert "shows nothing" in line
    record = killed_run(hold="timeout", end_s=66.0)
    for sample in record["samples"]:
        sample["usage"] = 1.0 if sample["t"] < 50 else 0.0
    assert analysis.faults(record) == []
    assert analysis.last_full(record) == pytest.approx(49.9)


def test_a_failed_request_or_an_expired_hold_breaks_the_promise_of_b():
    assert analysis.faults(calm_run("lease")) == []
    assert analysis.faults(calm_run("lease", failed=1)) == ["1 of 128 requests did not succeed with the lease"]
    assert analysis.faults(calm_run("lease", expired=2.0)) == ["2 leases expired under a live decoder"]


def test_no_failure_with_the_timeout_shows_nothing():
    assert analysis.faults(calm_run("timeout", failed=79)) == []
    (line,) = analysis.faults(calm_run("timeout"))
    assert "shows nothing" in line and "the timeout is 2 s" in line


def test_times_are_read_off_the_samples():
    record = killed_run()
    assert analysis.below_at(record["samples"], cases.EMPTY) == pytest.approx(9.0)
    assert analysis.last_renewal(record) == pytest.approx(2.5)
    assert analysis.last_prefill(record) == 6.0
    assert analysis.probe_wait(record) == (5.0, True)
    assert analysis.token_wait(record) == 1.5
    still_full = [{"t": 1.0, "usage": 0.5, "renewals": 0}]
    assert analysis.below_at(still_full, cases.EMPTY) is None
    assert analysis.last_renewal({"samples": still_full}) is None


def test_a_probe_without_answer_counts_until_the_end():
    record = calm_run("lease")
    record["probes"] = [{"sent": 1.0, "answered": None}]
    assert analysis.probe_wait(record) == (8.0, False)


def test_the_scan_is_a_sixth_of_the_lease_and_a_second_at_most():
    assert analysis.scan_seconds(3.0) == 0.5
    assert analysis.scan_seconds(30.0) == 1.0


def test_the_table_has_every_case_beside_the_published_figures():
    text = table.table([killed_run(hold="timeout"), killed_run(), calm_run("timeout", failed=77), calm_run("lease")])
    assert "| B | requests that fail | 79 | 77 | 0 | 0 |" in text
    assert "| A | P's KV is below 5 % at | not at 66 s (37 %) | 9.0 s | 10.3 s | 9.0 s |" in text
    assert "| A | longest wait of a probe to P | 47.6 s | 5.0 s | 6.1 s | 5.0 s |" in text
    assert len({line.count("|") for line in text.splitlines()}) == 1


def test_the_table_says_what_was_not_run_and_what_did_not_end():
    record = copy.deepcopy(killed_run())
    record["samples"] = record["samples"][:30]
    record["probes"][0]["answered"] = None
    record["ended"] = 3.0
    text = table.table([record])
    assert "| not run | 10.3 s | not at 3 s (98 %) |" in text
    assert "| 47.6 s | not run | 6.1 s | 4.2 s |" in text
    assert "| B |" not in text


def test_the_plot_has_a_curve_for_each_run_of_a_case():
    drawn = plot.panels([killed_run(hold="timeout"), killed_run(), calm_run("lease")])
    assert [(title[0], len(records)) for title, records in drawn] == [("A", 2), ("B", 1)]
    label, times, usage = plot.curve(drawn[0][1][0])
    assert label == "fixed timeout, 48 s" and plot.curve(drawn[1][1][0])[0] == "lease, 2 s"
    assert len(times) == len(usage) == 201 and max(usage) == pytest.approx(98.0)
