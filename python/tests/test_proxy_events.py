"""Where events end, and what they say."""

import random

import pytest

from tenure.proxy import events
from tenure.proxy.events import EventSplitter


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_events_are_whole_however_the_stream_is_cut(end):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(300):
        parts = [b"data: " + bytes(draw.choices(b"abc{}", k=draw.randrange(30))) for _ in range(draw.randrange(6))]
        stream = b"".join(part + end for part in parts) + b"rest"
        splitter, sent, at = EventSplitter(), b"", 0
        while at < len(stream):
            size = draw.randrange(1, 12)
            whole = splitter.feed(stream[at : at + size])
            assert not whole or whole.endswith(end)
            sent += whole
            at += size
        assert sent + splitter.rest() == stream and splitter.rest() == b"rest"


def test_event_without_end_is_too_long_at_the_maximum(monkeypatch):
    monkeypatch.setattr(events, "EVENT_BYTES_MAX", 100)
    splitter = EventSplitter()
    assert splitter.feed(b"x" * 100) == b""
    with pytest.raises(events.EventTooLong):
        splitter.feed(b"x")


def test_values_leave_out_what_is_no_json():
    assert events.values(b': comment\n\nevent: x\ndata: {"a": 1}\n\ndata: [DONE]\n\ndata:2\n\n') == [{"a": 1}, 2]


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ({"choices": [{"text": "A"}]}, True),
        ({"choices": [{"text": "", "finish_reason": "stop"}]}, True),
        ({"choices": [{"text": "", "token_ids": [5]}]}, True),
        ({"choices": [{"delta": {"content": "A"}}]}, True),
        ({"choices": [{"delta": {"reasoning": "A"}}]}, True),
        ({"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}, True),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}, False),
        ({"choices": [{"text": ""}]}, False),
        ({"choices": []}, False),
        ({"choices": "A"}, False),
        ({"choices": [7]}, False),
        ({"usage": {"total_tokens": 1}}, False),
        ([1], False),
        (None, False),
    ],
)
def test_output_is_a_token_or_an_end(value, output):
    assert events.has_output(value) is output


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"error": {"message": "m", "code": 500}}, "m"),
        ({"error": "m"}, "m"),
        ({"error": {"code": 1}}, "{'code': 1}"),
        ({"error": None, "choices": []}, None),
        ({"choices": []}, None),
        ("error", None),
    ],
)
def test_error_event_has_a_message(value, message):
    assert events.error_of(value) == message
