"""The part of Mooncake's `mooncake.store` that stock vLLM connectors and SGLang use, over a Tenure pool of this machine.

Same signatures, same integer codes (0 or a count of bytes, else negative: mooncake_store spec, section 3). No master is needed. The
address of the master says which pool is used:

    unix:/run/tenure.sock   the daemon that serves this socket (`tenure serve --socket /run/tenure.sock`)
    embedded:8GiB           a pool in this process, one for each such text
    anything else           the daemon of the socket that TENURE_SOCKET names

String keys are hashed (SHA-256) into one namespace a tenant. Where the answers differ from Mooncake's, they are more exact: a put that
met an object of another size is -705, and one that met a writer of the same key -703, where Mooncake says 0 and stores nothing.
Copies are verified. Not kept: replicas, pins, groups and segments of ReplicateConfig (one warning); `remove` also removes what is
leased; the size of an object is known to `get` and `get_size` if it was put as bytes by anyone, or by this process.
Thread-safe. No method raises for what a pool answers; ValueError is for a policy that does not exist.
"""

from __future__ import annotations

import collections
import hashlib
import logging
import os
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tenure._native import DaemonPool, EmbeddedPool, Error, KeyAnswer, Namespace, Pool, PoolUnavailable, PutAnswer, parse_size

__all__ = ["MooncakeDistributedStore", "ReplicateConfig"]

_logger = logging.getLogger("tenure.compat.mooncake_store")

_INTERNAL = -1
_NOT_REGISTERED = -12
_NO_SPACE = -200
_BAD_PARAMETERS = -600
_NOT_READY = -703
_NOT_FOUND = -704
_EXISTS = -705
_RPC_FAILED = -900

# As long as a Mooncake master's default_kv_lease_ttl.
_LEASE_SECONDS = 10.0
# Sizes of objects that this process put and may want back as bytes; the oldest are forgotten first.
_SIZES_MAX = 1 << 20
_SIZE = struct.Struct("<q")

_PUT_CODES = {
    PutAnswer.STORED: 0,
    PutAnswer.EXISTS: 0,
    PutAnswer.SIZE_DIFFERS: _EXISTS,
    PutAnswer.BUSY: _NOT_READY,
    PutAnswer.WAITING: _NOT_READY,
    PutAnswer.REFUSED_FULL: _NO_SPACE,
    PutAnswer.REFUSED_INDEX: _NO_SPACE,
    PutAnswer.REFUSED_WAITING: _NO_SPACE,
    PutAnswer.REFUSED_SIZE: _NO_SPACE,
    PutAnswer.NOT_STORED: _RPC_FAILED,
}
_GET_CODES = {
    KeyAnswer.ABSENT: _NOT_FOUND,
    KeyAnswer.SIZE_DIFFERS: _BAD_PARAMETERS,
    KeyAnswer.UNAVAILABLE: _RPC_FAILED,
}
_EXIST_CODES = {KeyAnswer.PRESENT: 1, KeyAnswer.ABSENT: 0, KeyAnswer.UNAVAILABLE: _RPC_FAILED}
_REMOVE_CODES = {KeyAnswer.PRESENT: 0, KeyAnswer.ABSENT: _NOT_FOUND, KeyAnswer.UNAVAILABLE: _RPC_FAILED}

Key = str | bytes
Bytes = bytes | bytearray | memoryview


class ReplicateConfig:
    """Mooncake's options of a put, with its defaults. Accepted so that callers need no change; a pool of one machine has no
    replicas, segments or groups, so what asks for them is warned about once and ignored."""

    def __init__(self) -> None:
        self.replica_num = 1
        self.nof_replica_num = 0
        self.dfs_replica_num = 0
        self.with_soft_pin = False
        self.soft_pin_action: Any = None
        self.soft_pin_ttl_ms = 0
        self.with_hard_pin = False
        self.preferred_segment = ""
        self.preferred_segments: list[str] = []
        self.prefer_alloc_in_same_node = False
        self.group_ids: list[str] = []
        self.data_type: Any = None
        self.session_ids: list[str] = []
        self.residency_affinity_ids: list[str] = []
        self.preferred_hca_names: list[str] = []


class MooncakeDistributedStore:
    """A client of a Tenure pool with the calls of Mooncake's client. `setup` first; after `close` every call answers -1."""

    def __init__(self) -> None:
        self._pool: Pool | None = None
        self._keys: Namespace | None = None
        self._size_keys: Namespace | None = None
        self._sizes: collections.OrderedDict[bytes, int] = collections.OrderedDict()
        self._sizes_lock = threading.Lock()
        self._hostname = ""
        self._closed = False

    # --- life ---------------------------------------------------------------------------------------------------------------

    def setup(
        self,
        local_hostname: str | Mapping[str, Any],
        metadata_server: str = "",
        global_segment_size: int = 0,
        local_buffer_size: int = 0,
        protocol: str = "tcp",
        rdma_devices: str = "",
        master_server_addr: str = "",
        engine: object = None,
        enable_ssd_offload: bool = False,
        ssd_offload_path: str = "",
        tenant_id: str = "default",
        **_options: object,
    ) -> int:
        """Connects to the pool that master_server_addr names (see the module). 0, or -600 when there is none or it is set up
        already, -900 when it does not answer; the log says why. Takes all arguments as one mapping too."""
        if isinstance(local_hostname, Mapping):
            return self.setup(**{"local_hostname": "", **local_hostname})
        if self._pool is not None or self._closed:
            _logger.error("setup was called before on this store; make a new MooncakeDistributedStore")
            return _BAD_PARAMETERS
        try:
            pool = _open_pool(master_server_addr)
            self._keys = pool.open_namespace(f"mooncake-compat@{tenant_id}")
            self._size_keys = pool.open_namespace(f"mooncake-compat-sizes@{tenant_id}")
        except PoolUnavailable as error:
            _logger.error("setup failed: %s", error)
            return _RPC_FAILED
        except (Error, ValueError) as error:
            _logger.error("setup failed: %s", error)
            return _BAD_PARAMETERS
        self._hostname = local_hostname
        self._pool = pool
        return 0

    def close(self) -> int:
        """Ends the connection for good. 0; idempotent."""
        pool, self._pool, self._closed = self._pool, None, True
        if pool is not None:
            pool.close()
        return 0

    def health_check(self) -> int:
        """0 when the pool answers, 1 when the store is closed or not set up, 2 when the pool does not answer."""
        if self._pool is None:
            return 1
        return 0 if self.batch_probe_key(["health check"])[0] >= 0 else 2

    def get_hostname(self) -> str:
        """The local_hostname of setup."""
        return self._hostname

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Lets calls use host memory [buffer_ptr, buffer_ptr + size). 0, or -600 for a bad or overlapping range."""
        return self._memory_call(lambda pool: pool.register_buffer(buffer_ptr, size), _BAD_PARAMETERS)

    def unregister_buffer(self, buffer_ptr: int) -> int:
        """Ends register_buffer. 0, or -12 when nothing is registered there."""
        return self._memory_call(lambda pool: pool.unregister_buffer(buffer_ptr), _NOT_REGISTERED)

    # --- questions ----------------------------------------------------------------------------------------------------------

    def is_exist(self, key: Key) -> int:
        """batch_is_exist for one key."""
        return self.batch_is_exist([key])[0]

    def batch_is_exist(self, keys: Sequence[Key]) -> list[int]:
        """1, 0 or a negative code a key. Leases what it finds for 10 s, as Mooncake's does."""

        def lease(pool: Pool, batch: list[tuple[Namespace, bytes]]) -> list[int]:
            held, answers = pool.lease(batch, _LEASE_SECONDS)
            held.forget()
            return [_EXIST_CODES[answer] for answer in answers]

        return self._batch(keys, lease)

    def probe_key(self, key: Key) -> int:
        """batch_probe_key for one key."""
        return self.batch_probe_key([key])[0]

    def batch_probe_key(self, keys: Sequence[Key], policy: str = "none", candidate_size: int = 1) -> list[int]:
        """1, 0 or a negative code a key; leases nothing. ValueError for a policy other than "none"."""
        if policy != "none":
            raise ValueError(f'policy is {policy!r}; this store has "none" only')
        return self._batch(keys, lambda pool, batch: [_EXIST_CODES[answer] for answer in pool.probe(batch)])

    def get_size(self, key: Key) -> int:
        """Bytes of the object; -704 when it is absent or its size is not known (see the module)."""
        size = self._size_of(_digest(key))
        if size is None:
            return _NOT_FOUND if self._pool is not None else _INTERNAL
        found = self.batch_probe_key([key])[0]
        return size if found == 1 else (_NOT_FOUND if found == 0 else found)

    # --- bytes ----------------------------------------------------------------------------------------------------------------

    def put(self, key: Key, value: Bytes, config: ReplicateConfig | None = None) -> int:
        """Stores bytes under a key. 0 when they are there or an object of their size was, else a negative code."""
        return self.put_batch([key], [value], config)

    def put_parts(self, key: Key, *parts: Bytes, config: ReplicateConfig | None = None) -> int:
        """put() of the concatenation of the parts."""
        return self.put(key, b"".join(parts), config)

    def put_batch(self, keys: Sequence[Key], values: Sequence[Bytes], config: ReplicateConfig | None = None) -> int:
        """put() of several; 0, or the first code that is negative."""
        _check_config(config)
        views = [memoryview(value).cast("B") for value in values]
        if len(keys) != len(views) or not all(view.nbytes for view in views):
            return _BAD_PARAMETERS

        def put(pool: Pool, batch: list[tuple[Namespace, bytes]]) -> list[int]:
            assert self._size_keys is not None
            size_keys = [(self._size_keys, digest) for _name_space, digest in batch]
            # Sizes first: in a full pool the value may take the room of its size, and not the other way round.
            size_answers = pool.put(size_keys, [_SIZE.pack(view.nbytes) for view in views])
            answers = pool.put(batch, views)
            kept = [index for index, answer in enumerate(answers) if answer in (PutAnswer.STORED, PutAnswer.EXISTS)]
            lost = set(range(len(batch))).difference(kept)
            pool.remove([size_keys[index] for index in sorted(lost) if size_answers[index] == PutAnswer.STORED])
            self._remember((batch[i][1] for i in kept), (views[i].nbytes for i in kept))
            return [_PUT_CODES[answer] for answer in answers]

        return min(self._batch(keys, put), default=0)

    def get(self, key: Key) -> bytes:
        """The object's bytes; b"" when it is absent, its size is not known, or the pool does not answer."""
        size = self._size_of(_digest(key))
        if size is None or self._pool is None or self._keys is None:
            return b""
        buffer = bytearray(size)
        pool, name_space = self._pool, self._keys
        codes = self._batch([key], lambda _pool, batch: _get_codes(pool.get(batch, [buffer]), [size]))
        return bytes(buffer) if codes == [size] and name_space is self._keys else b""

    def get_batch(self, keys: Sequence[Key]) -> list[bytes]:
        """get() of several."""
        return [self.get(key) for key in keys]

    # --- memory by address ------------------------------------------------------------------------------------------------

    def put_from(self, key: Key, buffer_ptr: int, size: int, config: ReplicateConfig | None = None) -> int:
        """batch_put_from for one key."""
        return self.batch_put_from([key], [buffer_ptr], [size], config)[0]

    def batch_put_from(
        self, keys: Sequence[Key], buffer_ptrs: Sequence[int], sizes: Sequence[int], config: ReplicateConfig | None = None
    ) -> list[int]:
        """Stores [buffer_ptr, buffer_ptr + size) under each key. 0 or a negative code a key; -600 unless it is registered."""
        return self.batch_put_from_multi_buffers(keys, [[ptr] for ptr in buffer_ptrs], [[size] for size in sizes], config)

    def batch_put_from_multi_buffers(
        self,
        keys: Sequence[Key],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        config: ReplicateConfig | None = None,
    ) -> list[int]:
        """batch_put_from of objects that are the concatenation of several pieces."""
        _check_config(config)

        def put(pool: Pool, batch: list[tuple[Namespace, bytes]]) -> list[int]:
            answers = pool.put_from(batch, all_buffer_ptrs, all_sizes)
            kept = [index for index, answer in enumerate(answers) if answer in (PutAnswer.STORED, PutAnswer.EXISTS)]
            self._remember((batch[i][1] for i in kept), (sum(all_sizes[i]) for i in kept))
            return [_PUT_CODES[answer] for answer in answers]

        return self._batch(keys, put)

    def get_into(self, key: Key, buffer_ptr: int, size: int) -> int:
        """batch_get_into for one key."""
        return self.batch_get_into([key], [buffer_ptr], [size])[0]

    def batch_get_into(self, keys: Sequence[Key], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Copies each object to [buffer_ptr, buffer_ptr + size). Bytes read or a negative code a key."""
        return self.batch_get_into_multi_buffers(keys, [[ptr] for ptr in buffer_ptrs], [[size] for size in sizes])

    def batch_get_into_multi_buffers(
        self,
        keys: Sequence[Key],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        prefer_alloc_in_same_node: bool = False,
    ) -> list[int]:
        """batch_get_into of objects that are cut into several pieces. Pieces that add up to another size than the object's
        are -600 with nothing copied, but a buffer that is longer than an object of known size is filled from its start."""

        def get(pool: Pool, batch: list[tuple[Namespace, bytes]]) -> list[int]:
            codes = _get_codes(pool.get_into(batch, all_buffer_ptrs, all_sizes), [sum(sizes) for sizes in all_sizes])
            for index, code in enumerate(codes):
                if code == _BAD_PARAMETERS:
                    codes[index] = self._get_shorter(pool, batch[index], all_buffer_ptrs[index], all_sizes[index])
            return codes

        return self._batch(keys, get)

    # --- removal ----------------------------------------------------------------------------------------------------------------

    def remove(self, key: Key, force: bool = False) -> int:
        """batch_remove for one key."""
        return self.batch_remove([key], force)[0]

    def batch_remove(self, keys: Sequence[Key], force: bool = False) -> list[int]:
        """0 or -704 a key. Removes what is leased too, forced or not."""
        return self._batch(keys, lambda pool, batch: [_REMOVE_CODES[answer] for answer in pool.remove(batch)])

    def remove_all(self, force: bool = False) -> int:
        """How many objects of this tenant were removed, leased ones too; negative when the pool does not answer."""
        pool, keys, sizes = self._pool, self._keys, self._size_keys
        if pool is None or keys is None:
            return _INTERNAL
        try:
            pool.clear(sizes)
            return pool.clear(keys)
        except Error as error:
            _logger.warning("remove_all failed: %s", error)
            return _RPC_FAILED

    # --- inside -----------------------------------------------------------------------------------------------------------------

    def _batch(self, keys: Sequence[Key], call: Callable[[Pool, list[tuple[Namespace, bytes]]], list[int]]) -> list[int]:
        pool, name_space = self._pool, self._keys
        if pool is None or name_space is None:
            return [_INTERNAL] * len(keys)
        if not all(keys):
            return [_BAD_PARAMETERS] * len(keys)
        try:
            return call(pool, [(name_space, _digest(key)) for key in keys])
        except ValueError as error:
            _logger.warning("%d keys refused: %s", len(keys), error)
            return [_BAD_PARAMETERS] * len(keys)
        except PoolUnavailable as error:
            _logger.warning("%d keys without an answer: %s", len(keys), error)
            return [_RPC_FAILED] * len(keys)
        except Error as error:
            _logger.warning("%d keys failed: %s", len(keys), error)
            return [_INTERNAL] * len(keys)

    def _memory_call(self, call: Callable[[Pool], None], refused: int) -> int:
        if self._pool is None:
            return _INTERNAL
        try:
            call(self._pool)
        except (ValueError, TypeError, Error) as error:
            _logger.warning("%s", error)
            return refused
        return 0

    def _get_shorter(
        self, pool: Pool, key: tuple[Namespace, bytes], buffer_ptrs: Sequence[int], sizes: Sequence[int]
    ) -> int:
        size = self._size_of(key[1])
        if size is None or size > sum(sizes):
            return _BAD_PARAMETERS
        ptrs, cut, left = [], [], size
        for ptr, piece in zip(buffer_ptrs, sizes):
            if left > 0:
                ptrs.append(ptr)
                cut.append(min(piece, left))
                left -= cut[-1]
        return _get_codes(pool.get_into([key], [ptrs], [cut]), [size])[0]

    def _remember(self, digests: Iterable[bytes], sizes: Iterable[int]) -> None:
        with self._sizes_lock:
            self._sizes.update(zip(digests, sizes))
            while len(self._sizes) > _SIZES_MAX:
                self._sizes.popitem(last=False)

    def _size_of(self, digest: bytes) -> int | None:
        with self._sizes_lock:
            size = self._sizes.get(digest)
        pool, size_keys = self._pool, self._size_keys
        if size is not None or pool is None or size_keys is None:
            return size
        packed = bytearray(_SIZE.size)
        try:
            if pool.get([(size_keys, digest)], [packed]) != [KeyAnswer.PRESENT]:
                return None
        except Error:
            return None
        return int(_SIZE.unpack(packed)[0])


def _digest(key: Key) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape") if isinstance(key, str) else key).digest()


def _get_codes(answers: list[KeyAnswer], sizes: list[int]) -> list[int]:
    return [size if answer == KeyAnswer.PRESENT else _GET_CODES[answer] for answer, size in zip(answers, sizes)]


# The embedded pool's default, and so its largest object.
_SLAB_BYTES_MAX = 64 << 20
_embedded_pools: dict[str, EmbeddedPool] = {}
_embedded_lock = threading.Lock()


def _open_pool(address: str) -> Pool:
    """The pool of an address; its user closes it."""
    if address.startswith("embedded:"):
        with _embedded_lock:
            if address not in _embedded_pools:
                capacity = parse_size("master_server_addr", address.removeprefix("embedded:"))
                # A pool of 64 slabs or more, so that a few sizes of objects find room side by side.
                slab_bytes = max(1, min(_SLAB_BYTES_MAX, capacity // 64))
                _embedded_pools[address] = EmbeddedPool(capacity, mode="independent", slab_bytes=slab_bytes)
            return _embedded_pools[address].share()
    path = address.removeprefix("unix:") if address.startswith("unix:") else os.environ.get("TENURE_SOCKET", "")
    if not path:
        raise ValueError(
            f"master_server_addr is {address!r} and TENURE_SOCKET is not set; use unix:PATH of a daemon's socket, or set TENURE_SOCKET"
        )
    return DaemonPool(path)


_warned = False


def _check_config(config: ReplicateConfig | None) -> None:
    global _warned
    if config is None or _warned:
        return
    defaults = vars(ReplicateConfig())
    asked = sorted(name for name, value in vars(config).items() if name in defaults and value and value != defaults[name])
    if asked:
        _warned = True
        _logger.warning("ReplicateConfig: %s ignored; a Tenure pool has one copy of each object and no pins", ", ".join(asked))
