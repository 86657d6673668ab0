"""Bounded waits."""

import asyncio

import pytest

from tenure.proxy.waiting import within


def test_result_or_failure_in_time_is_given():
    async def fails():
        raise KeyError("k")

    async def test():
        assert await within(60, asyncio.sleep(0, "r")) == "r"
        with pytest.raises(KeyError):
            await within(60, fails())

    asyncio.run(test())


def test_late_result_is_a_timeout_and_ends_what_was_waited_for():
    async def test():
        ended = asyncio.Event()

        async def slow():
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        with pytest.raises(asyncio.TimeoutError):
            await within(0.01, slow())
        await ended.wait()

    asyncio.run(test())


def test_cancellation_at_the_moment_of_the_result_is_not_lost():
    async def test():
        ready = asyncio.Event()
        waiting = asyncio.create_task(within(60, ready.wait()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ready.set()
        await asyncio.sleep(0)  # The inner task has its result now; the outer one does not run before the next round.
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(test())
