"""The messages between a prefill engine (P) and a decode engine (D): bytes to plain objects and back.

The format is that of vLLM's MooncakeConnector, plus fields that stock peers skip; docs/reference/pd-wire.md describes it. A decoder
takes bytes from anywhere: what is malformed is a ValueError that names the field and the place. An encoder raises ValueError for
what a decoder would refuse and TypeError for values of the wrong type. All functions may be called from any thread.
"""

from __future__ import annotations

import dataclasses
import enum

from tenure import _native

__all__ = [
    "Pull",
    "Renewal",
    "Reply",
    "Status",
    "decode_pull",
    "decode_renewal",
    "decode_reply",
    "encode_pull",
    "encode_renewal",
    "encode_reply",
    "is_renewal",
]


class Status(enum.IntEnum):
    """What a reply says: the last one to a message, one of several, or that the whole message failed."""

    FINISH = 0
    CONTINUE = 1
    ERROR = 2


@dataclasses.dataclass
class Pull:
    """D asks P to write finished KV into D's blocks; "remote" is D.

    req_blocks: D's request id to (transfer id, block ids of each transfer group); no group at all only releases P's blocks. The lists
    kv_caches_base_addr, block_lens and kv_block_lens have one item a memory region: address, bytes from block to block, bytes of KV
    in a block. kv_lease_duration (seconds, D's own; None: off) and all after it are additions that stock peers skip. remote_transport ("" for a D with the Mooncake
    engine, "local", "tcp", "ucx", "auto") names how D's memory is reached, and the lists remote_memory_* have one item a registered range.
    answer_within: how many seconds D waits for answers; P starts no write later.
    """

    remote_hostname: str
    remote_port: int
    remote_tp_size: int
    remote_tp_rank: int
    req_blocks: dict[str, tuple[str, list[list[int]]]]
    kv_caches_base_addr: list[int]
    block_lens: list[int]
    kv_block_lens: list[int]
    registered_layer_names: list[str] = dataclasses.field(default_factory=list)
    registered_layer_indices: list[int] = dataclasses.field(default_factory=list)
    registered_group_indices: list[int] = dataclasses.field(default_factory=list)
    registered_shared_group_ids: list[list[int]] = dataclasses.field(default_factory=list)
    registered_row_offsets: list[int] = dataclasses.field(default_factory=list)
    remote_pp_size: int = 1
    kv_lease_duration: float | None = None
    remote_pp_rank: int | None = None
    remote_transport: str = ""
    remote_transport_address: bytes = b""
    remote_memory_bases: list[int] = dataclasses.field(default_factory=list)
    remote_memory_sizes: list[int] = dataclasses.field(default_factory=list)
    remote_memory_keys: list[bytes] = dataclasses.field(default_factory=list)
    answer_within: float | None = None


@dataclasses.dataclass
class Reply:
    """P's answer to a pull or a renewal; ok_reqs and err_reqs are D's request ids.

    unknown_transfer_ids: to a renewal only, an addition that stock peers skip: transfers that P does not hold.
    """

    status: Status
    ok_reqs: list[str] = dataclasses.field(default_factory=list)
    err_reqs: list[str] = dataclasses.field(default_factory=list)
    err_msg: str | None = None
    unknown_transfer_ids: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Renewal:
    """D still wants these transfers. kv_lease_duration: D's own setting in seconds."""

    renew_transfer_ids: list[str] = dataclasses.field(default_factory=list)
    kv_lease_duration: float | None = None


def is_renewal(message: bytes) -> bool:
    """Whether a message to P is a renewal, by its first key alone; everything else is a pull."""
    return _native.pd_is_renewal(message)


def decode_pull(message: bytes) -> Pull:
    """A pull from its bytes. ValueError for anything else, a renewal too."""
    return Pull(*_native.pd_decode_pull(message))


def encode_pull(pull: Pull) -> bytes:
    """The bytes of a pull, as msgspec writes them for stock peers."""
    return _native.pd_encode_pull(
        pull.remote_hostname,
        pull.remote_port,
        pull.remote_tp_size,
        pull.remote_tp_rank,
        list(pull.req_blocks.items()),
        pull.kv_caches_base_addr,
        pull.block_lens,
        pull.kv_block_lens,
        pull.registered_layer_names,
        pull.registered_layer_indices,
        pull.registered_group_indices,
        pull.registered_shared_group_ids,
        pull.registered_row_offsets,
        pull.remote_pp_size,
        pull.kv_lease_duration,
        pull.remote_pp_rank,
        pull.remote_transport,
        pull.remote_transport_address,
        pull.remote_memory_bases,
        pull.remote_memory_sizes,
        pull.remote_memory_keys,
        pull.answer_within,
    )


def decode_reply(message: bytes) -> Reply:
    """A reply from its bytes. ValueError for anything else."""
    status, ok_reqs, err_reqs, err_msg, unknown = _native.pd_decode_reply(message)
    return Reply(Status(status), ok_reqs, err_reqs, err_msg, unknown)


def encode_reply(reply: Reply) -> bytes:
    """The bytes of a reply; empty lists are left out."""
    return _native.pd_encode_reply(int(reply.status), reply.ok_reqs, reply.err_reqs, reply.err_msg, reply.unknown_transfer_ids)


def decode_renewal(message: bytes) -> Renewal:
    """A renewal from its bytes; a pull decodes as one without ids. ValueError for what is malformed."""
    return Renewal(*_native.pd_decode_renewal(message))


def encode_renewal(renewal: Renewal) -> bytes:
    """The bytes of a renewal; at most 4,096 ids, of which senders put 128 into a message."""
    return _native.pd_encode_renewal(renewal.renew_transfer_ids, renewal.kv_lease_duration)
