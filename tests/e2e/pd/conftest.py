"""The pair of engines of a session, and its options: which model one pytest process tries (a pair takes a minute to start)."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "vllm"))  # Its engine, processes and waiting.

LEASE = 3.0


def pytest_addoption(parser):
    parser.addoption("--model", default="llama", help="a model of tests/e2e/vllm/tiny_models.py")
    parser.addoption("--tp", default="1:1", help="tensor parallel sizes of P and D")
    parser.addoption("--transport", default="auto", help="transport of the connector")


@pytest.fixture(scope="session")
def model(request):
    return request.config.getoption("--model")


@pytest.fixture(scope="session")
def pair(request, model):
    from pair import Pair

    sizes = [int(size) for size in request.config.getoption("--tp").split(":")]
    arguments = [{} if size == 1 else {"tensor_parallel_size": size, "distributed_executor_backend": "mp"} for size in sizes]
    options = {"transport": request.config.getoption("--transport"), "kv_lease_duration": LEASE}
    pair = Pair(model, options, prefill=arguments[0], decode=arguments[1])
    yield pair
    pair.stop()
