"""The pair of engines of a session, and its options: which model one pytest process tries (a pair takes a minute to start)."""

import os
import pathlib
import sys

import pytest

# This folder, and the engine, processes and waiting of the other one; for this process and those that it starts.
FOLDERS = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "vllm")]
sys.path[:0] = FOLDERS
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*FOLDERS, os.environ.get("PYTHONPATH")]))

LEASE = 3.0
RENEW_WITHOUT_STEP = 9.0


def pytest_addoption(parser):
    parser.addoption("--model", default="llama", help="a model of tests/e2e/vllm/tiny_models.py")
    parser.addoption("--tp", default="1:1", help="tensor parallel sizes of P and D")
    parser.addoption("--pp", default="1:1", help="pipeline parallel sizes of P and D")
    parser.addoption("--transport", default="auto", help="transport of the connector")
    parser.addoption("--blocks", type=int, default=0, help="blocks of each engine; 0: what its memory holds")
    parser.addoption("--bootstrap", default="own", choices=("own", "external"), help="whether P runs its bootstrap server itself")
    parser.addoption("--keys", action="store_true", help="CURVE keys on both sides")


@pytest.fixture(scope="session")
def model(request):
    return request.config.getoption("--model")


@pytest.fixture(scope="session")
def bootstrap(request):
    """A bootstrap server in a process of its own, or None."""
    if request.config.getoption("--bootstrap") == "own":
        yield None
        return
    from bootstrap import BootstrapProcess

    process = BootstrapProcess()
    yield process
    process.kill()


@pytest.fixture(scope="session")
def pair(request, model, bootstrap, tmp_path_factory):
    from pair import Pair

    arguments = []
    for tensor, pipeline in zip(*(request.config.getoption(name).split(":") for name in ("--tp", "--pp"))):
        more = {"tensor_parallel_size": int(tensor), "pipeline_parallel_size": int(pipeline)}
        if tensor + pipeline != "11":
            more["distributed_executor_backend"] = "mp"
        if blocks := request.config.getoption("--blocks"):
            more.update(num_gpu_blocks_override=blocks, max_model_len=2048)  # What a request may take fits into them.
        arguments.append(more)
    options = {
        "transport": request.config.getoption("--transport"),
        "kv_lease_duration": LEASE,
        "renew_without_step": RENEW_WITHOUT_STEP,
    }
    external = {} if bootstrap is None else {"bootstrap_server_address": bootstrap.address}
    sides = [external, {}]
    if request.config.getoption("--keys"):
        from tenure.pd.keys import write_pair

        name = str(tmp_path_factory.mktemp("keys") / "pd")
        write_pair(name)
        sides = [{**external, "curve_secret_key_file": f"{name}.secret"}, {"curve_public_key_file": f"{name}.public"}]
    pair = Pair(model, options, prefill_options=sides[0], decode_options=sides[1], prefill=arguments[0], decode=arguments[1])
    if bootstrap is not None:
        pair.prefill.bootstrap = bootstrap.url
    yield pair
    pair.stop()
