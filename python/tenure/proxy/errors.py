"""How a request fails: a status, an outcome for the metrics, and a body as OpenAI clients read it."""

from __future__ import annotations

import json
from typing import Any, Literal

# The closed set of what becomes of a request; the metrics have one counter each.
Outcome = Literal[
    "answered",
    "refused",
    "forbidden",
    "overloaded",
    "no_server",
    "refused_upstream",
    "prefill_failed",
    "decode_failed",
    "timed_out",
    "ending",
    "disconnected",
    "internal_error",
]

# The `type` of an error body.
_TYPES: dict[str, str] = {
    "refused": "invalid_request_error",
    "forbidden": "permission_error",
    "overloaded": "overloaded_error",
    "no_server": "unavailable_error",
    "refused_upstream": "invalid_request_error",
    "prefill_failed": "prefill_error",
    "decode_failed": "decode_error",
    "timed_out": "timeout_error",
    "ending": "unavailable_error",
    "internal_error": "internal_error",
}
_RETRY_AFTER_SECONDS = {"overloaded": 1, "no_server": 2, "ending": 2}


class ProxyError(Exception):
    """A request that is not answered. The message names what failed and, where there is one, the remedy.

    body: the JSON answer of the server that refused the request, when that is passed on as it is.
    """

    def __init__(self, status: int, outcome: Outcome, message: str, *, param: str | None = None, body: bytes | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.outcome: Outcome = outcome
        self.message = message
        self.param = param
        # Of the answer, besides its type.
        self.headers: dict[str, str] = {}
        if (seconds := _RETRY_AFTER_SECONDS.get(outcome)) is not None:
            self.headers["Retry-After"] = str(seconds)
        self._body = body

    def body(self) -> bytes:
        """The answer's JSON."""
        return self._body if self._body is not None else json.dumps({"error": self._fields()}).encode()

    def event(self) -> bytes:
        """The same inside a stream that has begun; then the stream's end, which some clients wait for."""
        return b"data: " + json.dumps({"error": self._fields()}).encode() + b"\n\ndata: [DONE]\n\n"

    def with_note(self, note: str) -> ProxyError:
        """The same error with more known of its reason."""
        return ProxyError(self.status, self.outcome, f"{self.message}; {note}", param=self.param)

    def after(self, earlier: ProxyError | None) -> ProxyError:
        """The same error with an earlier one of the same request, which was tried again. An engine's own body stays as it is."""
        return self if earlier is None or self._body is not None else self.with_note(f"before that, {earlier.message}")

    def _fields(self) -> dict[str, Any]:
        return {"message": self.message, "type": _TYPES[self.outcome], "param": self.param, "code": self.status}


def refused(message: str, param: str | None = None) -> ProxyError:
    """A request that is not as it should be."""
    return ProxyError(400, "refused", message, param=param)
