"""Every public name is documented and typed, and the stub says what the compiled module does."""

import ast
import inspect
import pathlib
import re
import subprocess
import sys

import pytest

import tenure
from tenure import _native
from tenure.compat import mooncake_store

PACKAGE = pathlib.Path(tenure.__file__).parent
# For the package's own modules, the glue to vLLM among them.
INTERNAL = {"DaemonHost", "MooncakeStorePool", "StoreScheduler", "StoreWorker", "parse_size"} | {
    "BootstrapServer", "DecodeScheduler", "DecodeWorker", "KvRegion", "MismatchBoard", "PrefillScheduler", "PrefillWorker", "RenewalSender", "Transport"
}
STUB = ast.parse((PACKAGE / "_native.pyi").read_text())


def definitions(body):
    return {node.name: node for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}


def is_ours(name):
    return not name.startswith("_") or name in ("__init__", "__len__", "__bool__", "__enter__", "__exit__")


def parameters_of(function):
    """Names of a compiled function's parameters, from its signature."""
    (signature, *_rest), *others = function.__nb_signature__
    assert not others, "overloads are not for users"
    arguments = ast.parse(re.sub(r"\\\d+", "None", signature) + ": ...").body[0].args
    return [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]


def parameters_in_stub(node):
    return [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]


@pytest.mark.parametrize("name", sorted(tenure.__all__))
def test_public_name_is_documented(name):
    value = getattr(tenure, name)
    assert inspect.getdoc(value) and (inspect.isclass(value) or callable(value))


def test_all_is_complete_and_sorted():
    assert tenure.__all__ == sorted(tenure.__all__)
    public = {name for name in vars(_native) if not name.startswith("_")} - INTERNAL
    # The pd_ functions are tenure.pd's.
    assert {name for name in public if not name.startswith("pd_")} <= set(tenure.__all__)


def test_stub_has_what_the_module_has():
    stubbed = definitions(STUB.body)
    assert set(stubbed) == {name for name in vars(_native) if not name.startswith("_")}
    for name, node in stubbed.items():
        value = getattr(_native, name)
        if not inspect.isclass(value):
            assert parameters_of(value) == parameters_in_stub(node), name
            continue
        members = {member for member in vars(value) if is_ours(member) and member not in ("name", "value")}
        if issubclass(value, tenure.Error):
            continue
        typed = definitions(node.body)
        typed.update({target.id: item for item in node.body if isinstance(item, ast.Assign) for target in item.targets})
        # A class that Python cannot construct has an __init__ that says so.
        assert {member for member in typed if is_ours(member)} - {"name"} | {"__init__"} == members | {"__init__"}, name
        for member in members:
            function = getattr(value, member)
            if hasattr(function, "__nb_signature__") and member not in ("__init__", "__exit__"):
                assert parameters_of(function) == parameters_in_stub(typed[member]), f"{name}.{member}"


def test_methods_of_pools_and_lookups_are_documented():
    for owner in (_native.Pool, _native.Lookup, _native.CacheConfig, mooncake_store.MooncakeDistributedStore):
        for name in vars(owner):
            if not name.startswith("_") and callable(getattr(owner, name)):
                assert inspect.getdoc(getattr(owner, name)), f"{owner.__name__}.{name}"


def test_types_check(tmp_path):
    """The package and a user of it, strictly; a wrong use is found."""
    program = "import tenure\npool: tenure.Pool = tenure.EmbeddedPool('1GiB')\nanswers: list[tenure.KeyAnswer] = pool.probe([])\n"

    configuration = str(pathlib.Path(__file__).parents[1] / "pyproject.toml")

    def check(*what):
        command = [sys.executable, "-m", "mypy", "--config-file", configuration, *what]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    for what in (("-p", "tenure"), ("-c", program)):
        checked = check(*what)
        assert checked.returncode == 0, checked.stdout
    assert "[arg-type]" in check("-c", program + "pool.lease([], 'long')").stdout
