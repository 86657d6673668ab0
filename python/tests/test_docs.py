"""The reference pages of the repository against the code."""

import ast
import dataclasses
import inspect
import pathlib
import re

import pytest

import tenure

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "reference"
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \|", re.MULTILINE)


def section(page, heading):
    """The rows of the first table after a heading: name to second column."""
    text = (DOCS / page).read_text()
    after = text[text.index(heading) + len(heading) :]
    return dict(ROW.findall(re.split(r"\n(?=## |`)", after)[0]))


def default_text(value):
    return {True: "true", False: "false", "": '""'}.get(value, str(value)) if value is not dataclasses.MISSING else "needed"


def signature(cls):
    """Options of a constructor with their defaults as the page writes them."""
    if cls is tenure.MooncakePool:
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return {p.name: "needed" if p.default is p.empty else str(p.default) for p in parameters}
    (text, _doc, *defaults), *_others = cls.__init__.__nb_signature__
    values = defaults[0] if defaults and isinstance(defaults[0], tuple) else tuple(defaults)
    text = re.sub(r"= ?\\(\d+)", lambda match: f"= {values[int(match[1])]!r}", text)
    arguments = ast.parse(text + ": ...").body[0].args
    names = [*arguments.args, *arguments.kwonlyargs]
    defaults = [*([None] * (len(arguments.args) - len(arguments.defaults))), *arguments.defaults, *arguments.kw_defaults]
    return {
        name.arg: "needed" if default is None else str(ast.literal_eval(default))
        for name, default in zip(names, defaults)
        if name.arg != "self"
    }


@pytest.mark.parametrize("cls", [tenure.EmbeddedPool, tenure.DaemonPool, tenure.MooncakePool, tenure.Lookup])
def test_options_page_has_every_option_with_its_default(cls):
    page = {name: default.strip("` ") for name, default in section("options.md", f"## `tenure.{cls.__name__}`").items()}
    assert page == signature(cls)


def test_mooncake_page_has_every_option_with_its_default():
    page = {name: default.strip("` ") for name, default in section("mooncake.md", "## Configuration").items()}
    assert page == {field.name: default_text(field.default) for field in dataclasses.fields(tenure.MooncakeConfig)}


def test_python_page_has_every_figure(closed_pool):
    assert list(section("python.md", "`Pool.stats()`")) == list(closed_pool.stats())
    config = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
    lookup = tenure.Lookup(config, closed_pool, [[closed_pool.open_namespace("m@")]])
    assert list(section("python.md", "`Lookup.counters()`")) == list(lookup.counters())


def test_python_page_names_every_public_name():
    text = (DOCS / "python.md").read_text()
    assert not [name for name in tenure.__all__ if f"`{name}`" not in text and f"`tenure.{name}`" not in text]
