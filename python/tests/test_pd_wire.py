"""The P/D messages against the bytes that msgspec wrote (tests/golden/make_pd_wire.py), and malformed ones."""

import dataclasses
import inspect
import pathlib
import random
import re

import pytest

from tenure.pd import wire
from tenure.pd.wire import Pull, Renewal, Reply, Status

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = {
    name: bytes.fromhex(data) for name, data in re.findall(r'\{"(\w+)", "([0-9a-f]*)"\}', (ROOT / "src/tenure/pd/golden_wire.inc").read_text())
}
SHORT = {
    "pull_smallest": Pull("", 0, 0, 0, {}, [], [], []),
    "pull_steady": Pull(
        "10.0.0.2", 15432, 2, 1, {"req-1": ("xfer-a", [[1, 2, 300], [70000]])}, [140000000000000, 2**63 + 5], [65536, 128], [65536, 100]
    ),
    "pull_release_only": Pull("d", 1, 1, 0, {"r": ("x", [])}, [0], [1], [1]),
    "pull_every_field": Pull(
        "fd00::2",
        65535,
        4,
        3,
        {"req-2": ("xfer-b", [[], [5]]), "req-1": ("xfer-\u00e4\u20ac\U0001f600", [[0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32]])},
        [1, 2],
        [4096, 8192],
        [4096, 8000],
        ["model.layers.0", "model.layers.1"],
        [0, 1],
        [-1, 1],
        [[0, 1], []],
        [-1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63)],
        2,
        30.0,
        1,
        "ucx",
        bytes(range(256)),
        [4096, 2**63 + 4096],
        [65536, 2**32],
        [b"", b"\x00\xff" * 5],
        540.5,
    ),
    "reply_smallest": Reply(Status.FINISH),
    "reply_continue": Reply(Status.CONTINUE, ["req-1", "req-2"]),
    "reply_failed_requests": Reply(Status.FINISH, ["req-1"], ["req-2"], "Timeout waiting for P side ready."),
    "reply_error": Reply(Status.ERROR, err_msg="kv_lease_duration differs"),
    "reply_unknown_transfers": Reply(Status.FINISH, unknown_transfer_ids=["xfer-a"]),
    "renewal_empty": Renewal(),
    "renewal_of_two": Renewal(["xfer-a", "xfer-b"], 30.0),
}
KINDS = ("pull", "reply", "renewal")


def coder(direction, name):
    return getattr(wire, f"{direction}_{name.split('_')[0]}")


@pytest.mark.parametrize("name", SHORT)
def test_encodes_and_decodes_what_msgspec_does(name):
    assert coder("encode", name)(SHORT[name]) == GOLDEN[name]
    decoded = coder("decode", name)(GOLDEN[name])
    assert decoded == SHORT[name]
    for field in dataclasses.fields(decoded):
        assert type(getattr(decoded, field.name)) is type(getattr(SHORT[name], field.name)), field.name


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_every_golden_message_is_written_as_it_was_read(name):
    assert coder("encode", name)(coder("decode", name)(GOLDEN[name])) == GOLDEN[name]


def test_first_key_decides_what_is_a_renewal():
    assert {name for name in GOLDEN if wire.is_renewal(GOLDEN[name])} == {"renewal_of_two", "renewal_of_128"}
    assert wire.decode_renewal(GOLDEN["pull_steady"]) == Renewal()
    with pytest.raises(ValueError, match="pull: remote_hostname is missing"):
        wire.decode_pull(GOLDEN["renewal_of_two"])


def test_order_of_requests_survives():
    pull = Pull("h", 1, 1, 0, {name: ("x" + name, [[1]]) for name in "zab"}, [], [], [])
    assert list(wire.decode_pull(wire.encode_pull(pull)).req_blocks) == ["z", "a", "b"]


@pytest.mark.parametrize("kind", KINDS)
def test_malformed_bytes_are_value_errors(kind):
    decode, seed = coder("decode", kind), 20261129
    generator = random.Random(seed)
    for malformed in (b"", b"\x00", b"\xc1", b"\x91\x80", b"\xdf\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n"):
        with pytest.raises(ValueError, match=f"^{kind}: .* send what docs/reference/pd-wire.md describes$"):
            decode(malformed)
    for message in GOLDEN.values():
        for _ in range(200):
            changed = bytearray(message)
            changed[generator.randrange(len(changed))] = generator.randrange(256)
            try:
                decode(bytes(changed))
            except ValueError as error:
                assert str(error).startswith(f"{kind}: "), seed


def test_values_that_do_not_fit_are_refused():
    pull = SHORT["pull_steady"]
    with pytest.raises(ValueError, match="kv_lease_duration is 0; use seconds above 0"):
        wire.encode_pull(dataclasses.replace(pull, kv_lease_duration=0.0))
    with pytest.raises(ValueError, match="status is 3"):
        wire.encode_reply(Reply(3))
    with pytest.raises(ValueError, match="4097 transfer ids; put at most 4096"):
        wire.encode_renewal(Renewal(["x"] * 4097))
    for wrong in ({"remote_port": "1"}, {"remote_port": 2**63}, {"kv_caches_base_addr": [-1]}, {"req_blocks": {"r": "x"}}):
        with pytest.raises(TypeError):
            wire.encode_pull(dataclasses.replace(pull, **wrong))
    with pytest.raises(TypeError):
        wire.decode_pull("text")


def test_page_names_every_field_in_order():
    page = (ROOT / "docs/reference/pd-wire.md").read_text()
    for cls in (Pull, Reply, Renewal):
        rows = re.findall(r"^\| `(\w+)` \|", page[page.index(f"## {cls.__name__}\n") :].split("\n## ")[0], re.MULTILINE)
        assert rows == [field.name for field in dataclasses.fields(cls)]


@pytest.mark.parametrize("name", wire.__all__)
def test_public_name_is_documented(name):
    assert inspect.getdoc(getattr(wire, name))
