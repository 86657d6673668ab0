"""What the samples of a run show, and whether the lease kept its promises. Records are those of pairs.measure; nothing else is read.

Published for case A: all KV is free within one lease of the last renewal, and one scan; a prompt computed after it is held for one lease from
there.
"""

import math

import cases

# P scans every sixth of a lease, at most a second apart (src/tenure/pd/producer.h).
SCAN_SECONDS_MAX = 1.0
# The gauge is as old as P's last step, and its page has to be fetched. Two busy cores stop an engine for most of this.
STEP_TOLERANCE_S = 1.0


def scan_seconds(lease):
    """Between two scans of P."""
    return min(lease / 6, SCAN_SECONDS_MAX)


def blocks_of(tokens):
    """KV blocks of a prompt."""
    return math.ceil(tokens / cases.BLOCK_TOKENS)


def below_at(samples, limit):
    """When the usage fell below `limit` for good; None if it is not below at the end."""
    since = None
    for sample in samples:
        if sample["usage"] >= limit:
            since = None
        elif since is None:
            since = sample["t"]
    return since


def last_full(record):
    """The last time at which P's KV was full; None if it never was."""
    return max((sample["t"] for sample in record["samples"] if sample["usage"] >= cases.FULL), default=None)


def last_renewal(record):
    """When P had got its last renewal, to a sample; None without any."""
    last = record["samples"][-1]["renewals"]
    return next((sample["t"] for sample in record["samples"] if sample["renewals"] == last), None) if last else None


def last_prefill(record):
    """When P answered its last prompt; 0 if it answered none."""
    return max((request["prefilled"] for request in record["requests"] if request["prefilled"] is not None), default=0.0)


def probe_wait(record):
    """(Seconds, whether it was answered) of the probe that waited longest."""
    waits = [((probe["answered"] or record["ended"]) - probe["sent"], probe["answered"] is not None) for probe in record["probes"]]
    return max(waits, default=(0.0, True))


def count(record, outcome):
    """Requests with an outcome."""
    return sum(request["outcome"] == outcome for request in record["requests"])


def token_wait(record):
    """The longest wait of a request for its first token."""
    return max((request["first_token"] - request["sent"] for request in record["requests"] if request["first_token"]), default=0.0)


def allowed_blocks(record, t):
    """The most blocks that P may hold at `t`, after the kill: prompts whose lease has not ended, and what is being computed.

    Each prompt may be held for a lease, a scan and the tolerance after its computation, or after the last renewal if that is later.
    """
    grace = record["lease"] + scan_seconds(record["lease"]) + STEP_TOLERANCE_S
    renewed = min(last_renewal(record) or 0.0, record["killed"])  # Who is dead has sent none; the counter may show it later.
    ended = [request["prefilled"] for request in record["requests"]]
    held = sum(end is not None and end <= t <= max(end, renewed) + grace for end in ended)
    under_way = min(cases.PREFILLS_MAX, sum(end is None or end > t for end in ended))
    probes = sum(probe["sent"] <= t and (probe["answered"] is None or probe["answered"] + STEP_TOLERANCE_S >= t) for probe in record["probes"])
    return (held + under_way) * blocks_of(cases.PROMPT_TOKENS) + probes * blocks_of(cases.PROBE_TOKENS)


def held_too_long(record):
    """The first sample after the kill that shows more KV than leases explain, as a line; None if there is none."""
    for sample in record["samples"]:
        if sample["t"] <= record["killed"]:
            continue
        held, allowed = round(sample["usage"] * (cases.PREFILL_BLOCKS - 1)), allowed_blocks(record, sample["t"])
        if held > allowed:
            return (
                f"{held} blocks are held at {sample['t']:.2f} s, but leases of {record['lease']:g} s explain {allowed}: the last renewal came at "
                f"{last_renewal(record) or 0:.2f} s, scans are {scan_seconds(record['lease']):g} s apart, the tolerance is {STEP_TOLERANCE_S:g} s"
            )
    return None


def faults(record):
    """Why a run is not what it should be, a line each; none if it is.

    A lease must do what it promises; a fixed timeout must show what it is blamed for, or the load was too small to show anything.
    """
    return list(_CHECKS[record["case"], record["hold"]](record))


def _lease_frees_after_a_kill(record):
    if line := held_too_long(record):
        yield line
    if below_at(record["samples"], cases.EMPTY) is None:
        yield f"{record['samples'][-1]['usage']:.0%} of the prefiller's KV is still held after {record['ended']:.0f} s"


def _timeout_holds_after_a_kill(record):
    until = last_full(record) or 0.0
    if until < record["killed"] + record["timeout"] / 2:
        yield f"with the fixed timeout the prefiller's KV was full only until {until:.1f} s, so the run shows nothing; was the timeout used?"


def _lease_loses_nothing(record):
    if record["prefill"]["kv_expired_reqs"]:
        yield f"{record['prefill']['kv_expired_reqs']:.0f} leases expired under a live decoder"
    if (succeeded := count(record, "succeeded")) != cases.REQUESTS:
        yield f"{cases.REQUESTS - succeeded} of {cases.REQUESTS} requests did not succeed with the lease"


def _timeout_loses_some(record):
    if not count(record, "failed"):
        yield (
            f"no request failed with the fixed timeout, so the run shows nothing: the longest wait was {token_wait(record):.1f} s, "
            f"the timeout is {record['timeout']:g} s; this machine is too fast for the load"
        )


_CHECKS = {
    ("a", "lease"): _lease_frees_after_a_kill,
    ("a", "timeout"): _timeout_holds_after_a_kill,
    ("b", "lease"): _lease_loses_nothing,
    ("b", "timeout"): _timeout_loses_some,
}
