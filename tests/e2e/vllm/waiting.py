"""Waiting for what other processes and threads do, which nothing here is told of: asked for again until a time limit."""

import time


def until(done, otherwise, seconds):
    """Returns once `done()` is true. AssertionError with `otherwise()`, or with it if it is text, after `seconds`."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, otherwise if isinstance(otherwise, str) else otherwise()
        time.sleep(0.02)
