"""An embedded pool of an engine with several processes: hosted by one worker, shared by the others, gone with the engine."""

import glob
import os
import stat

import pytest

from engine import prompt
from processes import EngineProcess, end

LENGTH, HIT = 300, 288
OPTIONS = {"pool": "embedded", "embedded_memory": "128MiB"}


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def folders(runtime):
    return glob.glob(str(runtime / "tenure-engine-*"))


def test_two_ranks_share_the_pool_of_rank_zero(runtime):
    engine = EngineProcess(
        "llama", OPTIONS, in_process=False, tensor_parallel_size=2, environment={"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    )
    try:
        (folder,) = folders(runtime)
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        tokens = prompt(LENGTH, seed=1)
        cold, _, cached = engine.ask(tokens)
        assert cached == 0
        for _ in range(20):  # Its saves are done at some time after the answer.
            answer, _, cached = engine.ask(tokens, forget=True)
            assert answer == cold
            if cached == HIT:
                break
        assert cached == HIT
    finally:
        engine.stop()
    assert not folders(runtime)


def test_a_killed_engine_leaves_nothing_that_hinders_the_next(runtime):
    killed = EngineProcess("llama", OPTIONS, in_process=False)
    assert folders(runtime)
    end(killed.process, 9)
    engine = EngineProcess("llama", OPTIONS, in_process=False)
    try:
        assert engine.ask(prompt(LENGTH, seed=2))[2] == 0
    finally:
        engine.stop()
