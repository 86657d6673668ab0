"""A store whose process stands still for a minute while an engine in this process goes on: what both pools that are shared must survive."""

import signal
import time

from engine import prompt, require_same
from faults import load_listener
from waiting import until

ASKED_AFTER = (15, 30, 45, 60)  # Seconds from the stop on.


def outlast_a_slow_get(engine, process, prompts, cold):
    """Loads of `prompts` begin and `process` stops: they are given up after load_deadline, and later requests find nothing.

    All answers must equal `cold`. When this returns the process goes on, and with it what calls of the minute are still under way.
    """
    engine.forget_local()
    before = engine.counter("load_orders_failed")
    stopped = []

    def stop():
        if not stopped:
            stopped.append(time.monotonic())
            process.send_signal(signal.SIGSTOP)

    try:
        with load_listener(engine, stop):
            for answer, reference in zip(engine.ask(*prompts), cold):
                require_same(answer, reference)
        assert stopped and engine.counter("load_orders_failed") > before
        for index, seconds in enumerate(ASKED_AFTER):
            until(lambda end=stopped[0] + seconds: time.monotonic() >= end, "the clock stands still", 120)
            engine.ask(prompt(len(prompts[0]), seed=90 + index))
            engine.forget_local()
            require_same(engine.ask(prompts[0]), cold[0])
    finally:
        process.send_signal(signal.SIGCONT)
