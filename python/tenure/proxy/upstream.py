"""What one call to an engine may bring: bounded bodies, and failures as texts."""

from __future__ import annotations

import asyncio
import json
import os

import aiohttp

from tenure.proxy.errors import Outcome, ProxyError
from tenure.proxy.servers import Server

ERROR_BYTES_MAX = 64 << 10
ANSWER_BYTES_MAX = 256 << 20


class AnswerTooLong(Exception):
    """More bytes than the caller takes."""


async def read_bounded(content: aiohttp.StreamReader, most: int) -> bytes:
    """All of a body. AnswerTooLong when it is above `most` bytes."""
    parts = bytearray()
    async for chunk in content.iter_any():
        parts += chunk
        if len(parts) > most:
            raise AnswerTooLong(f"its answer is above {most} bytes")
    return bytes(parts)


def describe(error: BaseException) -> str:
    """Why a call failed, in a line."""
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"cannot connect: {os.strerror(number) if number and number > 0 else error.os_error}"
    if isinstance(error, (asyncio.TimeoutError, aiohttp.ServerTimeoutError)):
        return "cannot connect in time" if isinstance(error, aiohttp.ConnectionTimeoutError) else "no answer in time"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "connection closed without an answer"
    if isinstance(error, (aiohttp.ClientPayloadError, ConnectionResetError)):
        return "connection closed in the middle of the answer"
    if isinstance(error, aiohttp.ClientOSError):
        return "connection broken"
    return str(error) or type(error).__name__


# What a call may raise when its engine, or the way to it, fails.
FAILURES = (aiohttp.ClientError, OSError, asyncio.TimeoutError, AnswerTooLong)


def never_reached(error: BaseException) -> bool:
    """Whether a call that ended with one of FAILURES had no connection, so that the engine has seen nothing of it."""
    return isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))


def failed_call(error: BaseException, role: str, server: Server) -> ProxyError:
    """The error for a call that ended with one of FAILURES. A server with no process behind it is out of service at once."""
    reason = describe(error)
    if isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError)):
        server.set_health(False, reason)
    return failure(role, server.url, reason)


async def failed_answer(answer: aiohttp.ClientResponse, role: str, url: str) -> ProxyError:
    """The error for an answer of status 300 or above. What the engine says against the request itself goes to the client as it is."""
    try:
        raw = await read_bounded(answer.content, ERROR_BYTES_MAX)
    except FAILURES as error:
        raw = describe(error).encode()
    text = message_of(raw)
    if 400 <= answer.status < 500:
        message = f"{role} at {url} refused the request with status {answer.status}: {text}"
        return ProxyError(answer.status, "refused_upstream", message, body=raw if _is_error_body(raw) else None)
    return failure(role, url, f"status {answer.status}: {text}")


def failure(role: str, url: str, reason: str) -> ProxyError:
    """The error for a call that failed for a reason of its engine or the way to it. role: "prefill" or "decode"."""
    outcome: Outcome = "prefill_failed" if role == "prefill" else "decode_failed"
    return ProxyError(502, outcome, f"{role} at {url} failed: {reason}")


def message_of(raw: bytes) -> str:
    """The reason in an error body: OpenAI's, FastAPI's, or the text itself."""
    text = raw.decode("utf-8", "replace").strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text[:1000] or "no reason given"
    if isinstance(value, dict):
        found = value.get("error", value.get("detail", value.get("message")))
        found = found.get("message") if isinstance(found, dict) else found
        if isinstance(found, str):
            return found[:1000]
    return text[:1000]


def _is_error_body(raw: bytes) -> bool:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "error" in value
