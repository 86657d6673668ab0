"""The connector's modules against the types of the vLLM that is installed here; without vLLM they are checked against Any."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

CONFIGURATION = pathlib.Path(__file__).parents[3] / "python" / "pyproject.toml"


def mypy():
    """The command of a mypy, of this environment or another."""
    if program := os.environ.get("TENURE_MYPY"):
        return [program]
    if importlib.util.find_spec("mypy"):
        return [sys.executable, "-m", "mypy"]
    pytest.skip("mypy is not installed here; TENURE_MYPY names one")


def test_the_connector_uses_vllm_as_it_is_typed(tmp_path):
    # vLLM's own modules take a minute to read the first time.
    cache = pathlib.Path(os.environ["TENURE_TEST_MODELS"]).parent / "vllm-mypy"
    command = [
        *mypy(), "--config-file", str(CONFIGURATION), "--python-executable", sys.executable, "--cache-dir", str(cache),
        "--follow-imports", "silent", "-p", "tenure.vllm",
    ]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
