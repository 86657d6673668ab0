"""Server-sent events of D's stream: where one ends, and what the first ones say."""

from __future__ import annotations

import json
from typing import Any

EVENT_BYTES_MAX = 16 << 20
_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class EventTooLong(Exception):
    """An event above EVENT_BYTES_MAX."""


class EventSplitter:
    """Chunks in, whole events out: an error event can then follow at any time, since no half of an event was sent on."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """All events that are complete now; what is left waits for its end. EventTooLong when that is too much."""
        # An end may lie across two chunks; what was held before has none.
        searched = max(0, len(self._held) - 3)
        self._held += chunk
        end = max((at + len(mark) for mark in _ENDS if (at := self._held.rfind(mark, searched)) >= 0), default=0)
        events = bytes(self._held[:end])
        del self._held[:end]
        if len(self._held) > EVENT_BYTES_MAX:
            raise EventTooLong
        return events

    def rest(self) -> bytes:
        """What came after the last event."""
        return bytes(self._held)


def values(events: bytes) -> list[Any]:
    """The JSON values of whole events; what is no JSON ("[DONE]", comments) is left out."""
    found = []
    for line in events.splitlines():
        if line.startswith(b"data:"):
            try:
                found.append(json.loads(line[5:]))
            except ValueError:
                continue
    return found


def error_of(value: Any) -> str | None:
    """The message of an engine's error event; None when it is another event."""
    error = value.get("error") if isinstance(value, dict) else None
    if not error:
        return None
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)


def has_output(value: Any) -> bool:
    """Whether an event shows that D computes: a token, or the end of a choice. The first chunk of a chat only names a role."""
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(choices, list):
        return False
    return any(_carries(choice) for choice in choices if isinstance(choice, dict))


def _carries(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    if choice.get("text") or choice.get("token_ids") or choice.get("finish_reason"):
        return True
    return isinstance(delta, dict) and any(item for name, item in delta.items() if name != "role")
