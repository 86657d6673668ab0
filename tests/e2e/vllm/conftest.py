"""Options of the vLLM tests: which model, pool and way of loading one pytest process tries (an engine takes 20 s to start)."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--model", default="llama", help="a model of tiny_models.py")
    parser.addoption("--pool", default="embedded", choices=("embedded", "daemon"), help="where its store lies")
    parser.addoption("--load", default="async", choices=("async", "sync"), help="load_async of the connector")


@pytest.fixture(scope="session")
def model(request):
    return request.config.getoption("--model")


@pytest.fixture(scope="session")
def load(request):
    return request.config.getoption("--load")


@pytest.fixture(scope="session")
def pool_kind(request):
    return request.config.getoption("--pool")
