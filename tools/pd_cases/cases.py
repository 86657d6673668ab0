"""What the two cases are.

Times are a tenth of the published ones, and so are the lengths of prompts and answers. 128 requests need 2.4 times the decoder's KV, as
published. A tiny model is done with that within the timeout, so the decoder runs a few at a time only; the prefiller's KV is less than what
the decoder leaves there, so that it fills and requests queue behind it.
"""

import dataclasses
import math

REQUESTS = 128
PROMPT_TOKENS = 300
OUTPUT_TOKENS = 100
PROBE_TOKENS = 51
PROBE_SECONDS = 1.0
BLOCK_TOKENS = 32
DECODE_BLOCKS = math.ceil(REQUESTS * (PROMPT_TOKENS + OUTPUT_TOKENS) / 2.4 / BLOCK_TOKENS)
DECODES_MAX = 6  # At one time. All 128 take 20 s and more so, and what P holds waits for some 6 s: three times B's timeout.
PREFILL_BLOCKS = 400
PREFILLS_MAX = 8  # At one time.
FULL = 0.95
EMPTY = 0.05
KILL_AFTER_S = 2.3


@dataclasses.dataclass(frozen=True)
class Run:
    """One load on a pair of its own. Seconds; `lease` None: P holds a prefill for `timeout`."""

    case: str
    timeout: float
    lease: float | None
    kills: bool
    end_s: float  # After so long it is over, whatever the state.

    @property
    def name(self):
        return f"{self.case}-{self.hold}"

    @property
    def hold(self):
        return "timeout" if self.lease is None else "lease"


# The published observation of A ended at 660 s.
RUNS = (
    Run("a", timeout=48.0, lease=None, kills=True, end_s=66.0),
    Run("a", timeout=48.0, lease=3.0, kills=True, end_s=66.0),
    Run("b", timeout=2.0, lease=None, kills=False, end_s=120.0),
    Run("b", timeout=48.0, lease=2.0, kills=False, end_s=120.0),
)
