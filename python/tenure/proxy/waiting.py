"""Waiting with a bound."""

from __future__ import annotations

import asyncio
from typing import Coroutine, TypeVar

_Result = TypeVar("_Result")


async def within(seconds: float, what: Coroutine[object, object, _Result]) -> _Result:
    """The result of `what`, or TimeoutError. Unlike asyncio.wait_for before Python 3.12, it never swallows a cancellation that comes at
    the same moment as the result: a health check would then run on for ever, and a request without its client."""
    task = asyncio.ensure_future(what)
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.cancel()
