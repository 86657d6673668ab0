"""Writes the golden bytes of the P/D messages with msgspec, the encoder of stock peers.

    python tests/golden/make_pd_wire.py src/tenure/pd/golden_wire.inc           # writes it
    python tests/golden/make_pd_wire.py --check src/tenure/pd/golden_wire.inc   # exit 1 when it differs

Needs msgspec. Both also decode every message back with msgspec, as itself and as stock 0.32.0 would. The C++ and the Python test read the file and hold our encoder
and decoder against it, so that equal bytes prove both directions.
"""

import enum
import pathlib
import sys

import msgspec


# The fields of stock 0.32.0. msgspec chooses the form of a map's head by the fields that a type has and not by those that are
# sent; with the additions below it would be the longer form in every pull.
class StockPull(msgspec.Struct, omit_defaults=True):
    remote_hostname: str
    remote_port: int
    remote_tp_size: int
    remote_tp_rank: int
    req_blocks: dict[str, tuple[str, list[list[int]]]]
    kv_caches_base_addr: list[int]
    block_lens: list[int]
    kv_block_lens: list[int]
    registered_layer_names: list[str] = msgspec.field(default_factory=list)
    registered_layer_indices: list[int] = msgspec.field(default_factory=list)
    registered_group_indices: list[int] = msgspec.field(default_factory=list)
    registered_shared_group_ids: list[list[int]] = msgspec.field(default_factory=list)
    registered_row_offsets: list[int] = msgspec.field(default_factory=list)
    remote_pp_size: int = 1


class Pull(StockPull, omit_defaults=True):
    kv_lease_duration: float | None = None
    remote_pp_rank: int | None = None
    remote_transport: str = ""
    remote_transport_address: bytes = b""
    remote_memory_bases: list[int] = msgspec.field(default_factory=list)
    remote_memory_sizes: list[int] = msgspec.field(default_factory=list)
    remote_memory_keys: list[bytes] = msgspec.field(default_factory=list)
    answer_within: float | None = None


class Status(enum.IntEnum):
    FINISH = 0
    CONTINUE = 1
    ERROR = 2


class Reply(msgspec.Struct, omit_defaults=True):
    status: Status
    ok_reqs: list[str] | None = None
    err_reqs: list[str] | None = None
    err_msg: str | None = None
    unknown_transfer_ids: list[str] = msgspec.field(default_factory=list)


class StockReply(msgspec.Struct, omit_defaults=True):
    status: Status
    ok_reqs: list[str] | None = None
    err_reqs: list[str] | None = None
    err_msg: str | None = None


class Renewal(msgspec.Struct, omit_defaults=True):
    renew_transfer_ids: list[str] = msgspec.field(default_factory=list)
    kv_lease_duration: float | None = None


CASES = {
    "pull_smallest": StockPull("", 0, 0, 0, {}, [], [], []),
    "pull_steady": StockPull(
        "10.0.0.2", 15432, 2, 1, {"req-1": ("xfer-a", [[1, 2, 300], [70000]])}, [140000000000000, 2**63 + 5], [65536, 128], [65536, 100]
    ),
    "pull_release_only": StockPull("d", 1, 1, 0, {"r": ("x", [])}, [0], [1], [1]),
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
    "pull_of_one_host": Pull(
        "d", 1, 2, 0, {}, [4096], [1], [1], ["n"], [0], [0], [[0]], [-1], 2, 30.0, 1, "local", b"\x01", [4096], [1], [b""]
    ),
    "pull_long_lists": StockPull(
        "h" * 40, 1, 1, 0, {f"req-{i:03}": (f"xfer-{i:03}", [list(range(i, i + 20))]) for i in range(20)}, [7] * 16, [8] * 16, [8] * 16, ["n" * 300]
    ),
    "reply_smallest": Reply(Status.FINISH),
    "reply_continue": Reply(Status.CONTINUE, ["req-1", "req-2"]),
    "reply_failed_requests": Reply(Status.FINISH, ["req-1"], ["req-2"], "Timeout waiting for P side ready."),
    "reply_error": Reply(Status.ERROR, err_msg="kv_lease_duration differs"),
    "reply_unknown_transfers": Reply(Status.FINISH, unknown_transfer_ids=["xfer-a"]),
    "renewal_empty": Renewal(),
    "renewal_of_two": Renewal(["xfer-a", "xfer-b"], 30.0),
    "renewal_of_128": Renewal([f"xfer-{i:036}" for i in range(128)], 0.5),
}


def read_as_stock(name: str, message: Pull | Reply | Renewal, data: bytes) -> None:
    """Stock skips the additions of pulls and replies, and refuses a renewal. Exits when it does not."""
    stock = StockReply if isinstance(message, Reply) else StockPull
    try:
        decoded = msgspec.msgpack.decode(data, type=stock)
    except msgspec.ValidationError as error:
        if isinstance(message, Renewal) and "missing required field `remote_hostname`" in str(error):
            return
        sys.exit(f"stock does not read {name}: {error}")
    if isinstance(message, Renewal) or any(getattr(decoded, field) != getattr(message, field) for field in stock.__struct_fields__):
        sys.exit(f"stock reads {name} as something else")


def golden_text() -> str:
    lines = ["// Written by tests/golden/make_pd_wire.py with msgspec; do not edit. A name and the message's bytes.\n"]
    for name, message in CASES.items():
        data = msgspec.msgpack.encode(message)
        if msgspec.msgpack.decode(data, type=type(message)) != message:
            sys.exit(f"msgspec does not read {name} back")
        read_as_stock(name, message, data)
        lines.append(f'{{"{name}", "{data.hex()}"}},\n')
    return "".join(lines)


def main() -> None:
    *options, target = sys.argv[1:]
    if options == ["--check"]:
        if pathlib.Path(target).read_text() != golden_text():
            sys.exit(f"{target} is not what msgspec writes; write it anew and look at the difference")
    else:
        pathlib.Path(target).write_text(golden_text())


if __name__ == "__main__":
    main()
