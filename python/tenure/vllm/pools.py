"""Opening the pool that the option `pool` names, for the scheduler's and the workers' processes of one engine.

embedded: this engine's own memory. Where scheduler and worker are one process the pool is an object that both hold; otherwise
the worker of rank 0 hosts the daemon's core on a socket in a folder of mode 0700, named by the engine's instance and removed
with it (or, when it was killed, by the next one), and the other processes connect, for up to pool_wait; after that all is a miss to them.
unix:PATH: this machine's daemon. mooncake: a cluster (MOONCAKE_CONFIG_PATH).
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import glob
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import threading
import time
from typing import TYPE_CHECKING

from tenure._native import DaemonHost, DaemonPool, EmbeddedPool, Error, Pool
from tenure.mooncake import MooncakeConfig, MooncakePool
from tenure.vllm.model import transfer_config

if TYPE_CHECKING:
    from tenure.vllm.options import StoreOptions
    from vllm.config import VllmConfig

_logger = logging.getLogger("vllm.tenure")  # Under vLLM's logger, so that its handlers and levels apply.
_RETRY_SECONDS = 0.05
_NOBODYS_POOL = "64MiB"  # The smallest; holds what a process saves that found nobody to share with.
_STALE_SECONDS = 60.0  # A folder made or taken over since may be one whose engine is starting.

_lock = threading.Lock()
_in_process: dict[str, EmbeddedPool] = {}  # By engine instance.


def check_pool(vllm_config: VllmConfig, options: StoreOptions) -> None:
    """Refuses a pool that cannot serve this engine. ValueError names the option and the remedy. Takes nothing."""
    algorithm = vllm_config.cache_config.prefix_caching_hash_algo
    if options.kind != "embedded" and algorithm.startswith("xxhash") and "PYTHONHASHSEED" not in os.environ:
        raise ValueError(
            f"prefix_caching_hash_algo is {algorithm}, whose hashes differ in every process, but pool {options.pool} is shared: what is saved "
            "would never be found again; set PYTHONHASHSEED to one value on all engines, or use --prefix-caching-hash-algo sha256_cbor"
        )
    parallel = vllm_config.parallel_config
    if options.kind == "mooncake":
        MooncakeConfig.from_environment()
        return
    hosts = getattr(parallel, "nnodes", 1)
    if options.kind == "embedded" and (hosts > 1 or parallel.distributed_executor_backend == "ray"):
        raise ValueError('pool is "embedded", which is the memory of one host, but this engine may span several; use pool "mooncake"')


class EnginePool:
    """The pool of one process of an engine. `close` ends what this process started; idempotent."""

    def __init__(self, pool: Pool, host: DaemonHost | None = None, folder: str = "", instance: str = "", shared: Pool | None = None) -> None:
        self.pool = pool
        self._host = host
        self._folder = folder
        self._instance = instance
        self._shared = shared

    def close(self) -> None:
        """Closes the pool, then the daemon's core and its folder where this process hosts it."""
        self.pool.close()
        if self._instance:
            with _lock:
                if _in_process.get(self._instance) is self._shared:
                    del _in_process[self._instance]
        if self._host is not None:
            self._host.close()
            self._host = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def open_worker_pool(vllm_config: VllmConfig, options: StoreOptions) -> EnginePool:
    """The pool of a worker; on rank 0 of an engine with an embedded pool this is where its memory is taken."""
    if options.kind != "embedded":
        return _open_shared(options)
    instance = _instance(vllm_config, options)
    if vllm_config.parallel_config.rank != 0:
        return EnginePool(_await_host(_socket(_folder(instance)), options))
    if _one_process(vllm_config):
        pool = EmbeddedPool(options.embedded_bytes, mode=options.pool_mode)
        with _lock:
            _in_process[instance] = pool
        return EnginePool(pool.share(), instance=instance, shared=pool)
    folder = _folder(instance)
    _remove_stale_folders()
    _make_private(folder)
    path = _socket(folder)
    host = DaemonHost(path, options.embedded_bytes, mode=options.pool_mode)
    try:
        return EnginePool(_connect(path, options), host, folder)
    except Error:
        host.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise


def open_scheduler_pool(vllm_config: VllmConfig, options: StoreOptions) -> EnginePool:
    """The pool of an engine's scheduler, which starts after its workers."""
    if options.kind != "embedded":
        return _open_shared(options)
    instance = _instance(vllm_config, options)
    if _one_process(vllm_config):
        with _lock:
            pool = _in_process.get(instance)
        if pool is None:
            raise Error("no worker of this engine made the embedded pool in this process; use pool unix:PATH with this executor")
        return EnginePool(pool.share())
    return EnginePool(_await_host(_socket(_folder(instance)), options))


def _open_shared(options: StoreOptions) -> EnginePool:
    if options.kind == "mooncake":
        return EnginePool(open_mooncake(options))
    return EnginePool(_connect(options.socket_path, options))


def open_mooncake(options: StoreOptions) -> MooncakePool:
    """The cluster that MOONCAKE_CONFIG_PATH names, with the connector's own options over it."""
    config = MooncakeConfig.from_environment()
    if options.preferred_segment:
        config = dataclasses.replace(config, preferred_segment=options.preferred_segment)
    return MooncakePool(config, call_timeout=options.call_deadline, transfer_timeout=options.load_deadline, lease_ttl=options.lease_ttl)


def _one_process(vllm_config: VllmConfig) -> bool:
    return bool(vllm_config.parallel_config.distributed_executor_backend == "uni")


def _instance(vllm_config: VllmConfig, options: StoreOptions) -> str:
    """The same text in every process of an engine; another one for another child of a MultiConnector."""
    return f"{transfer_config(vllm_config).engine_id}-dp{vllm_config.parallel_config.data_parallel_index}-{options!r}"


def _folder(instance: str) -> str:
    # A socket's path has at most 107 bytes, and an engine id is the user's.
    return _folder_prefix() + hashlib.sha256(instance.encode()).hexdigest()[:16]


def _folder_prefix() -> str:
    return os.path.join(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), f"tenure-engine-{os.getuid()}-")


def _remove_stale_folders() -> None:
    """Removes what killed engines of this user left: vLLM's server kills its workers when it is asked to end, so they cannot do it."""
    for folder in glob.glob(glob.escape(_folder_prefix()) + "*"):
        with contextlib.suppress(OSError):  # Another user's, or an engine's that ends right now.
            state = os.lstat(folder)
            if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or time.time() - state.st_mtime < _STALE_SECONDS:
                continue
            with open(_socket(folder) + ".lock", "rb") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError when a living engine holds it.
                shutil.rmtree(folder, ignore_errors=True)


def _socket(folder: str) -> str:
    return os.path.join(folder, "pool.sock")


def _make_private(folder: str) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:  # Of an engine with this id that was killed; a living one holds the socket's lock and is refused by it.
        state = os.lstat(folder)
        if not os.path.isdir(folder) or os.path.islink(folder) or state.st_uid != os.getuid():
            raise Error(f"{folder} is not a folder of this user; remove it, or set XDG_RUNTIME_DIR") from None
        os.chmod(folder, 0o700)
        os.utime(folder)


def _connect(path: str, options: StoreOptions) -> Pool:
    """Error when nobody serves the socket. Later losses are misses, and the client reconnects by itself."""
    try:
        return DaemonPool(path, call_deadline=options.call_deadline)
    except (Error, ValueError) as error:  # A socket that is not there is either.
        raise Error(f"pool {options.pool}: {error}") from error


def _await_host(path: str, options: StoreOptions) -> Pool:
    """The pool that this engine's worker of rank 0 hosts, once it has taken its memory."""
    end = time.monotonic() + options.pool_wait
    while True:
        try:
            return _connect(path, options)
        except Error as error:
            if time.monotonic() >= end:
                _logger.error(
                    "the engine's embedded pool was not there within pool_wait (%s s), so this process finds nothing in it; start the engine again "
                    "with a longer pool_wait or less embedded_memory (%s): %s", options.pool_wait, options.embedded_memory, error,
                )
                return EmbeddedPool(_NOBODYS_POOL, mode=options.pool_mode)
        time.sleep(_RETRY_SECONDS)
