"""The Mooncake store as a pool: stock configuration, and the checks that come before any memory is taken.

Configuration is that of stock vLLM connectors: the JSON file that MOONCAKE_CONFIG_PATH names, with the same option names and the
same sizes (store_connector spec, section 11), so that Tenure and stock connectors share one store.
"""

from __future__ import annotations

import atexit
import dataclasses
import difflib
import importlib
import json
import logging
import math
import os
import re
import socket
import time
import weakref
from typing import Any, Mapping

from tenure._native import Error, MooncakeStorePool, PoolUnavailable

_logger = logging.getLogger("tenure.mooncake")

MOONCAKE_VERSION_NEEDED = "0.3.14"
_GIB = 1 << 30
_MASTER_PAUSE_SECONDS = 0.1
_MODES = ("embedded", "standalone-store")
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(gb|mb|kb|b)?\s*", re.IGNORECASE)
_SIZE_UNITS = {"gb": 1 << 30, "mb": 1 << 20, "kb": 1 << 10, "b": 1}


def parse_size(option: str, value: object) -> int:
    """Bytes of a size as stock connectors read it: a number, or text such as "2GB" with powers of 1024; fractions are cut.

    ValueError names the option, the value and what is accepted.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if math.isfinite(value):
            return int(value)
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)) is not None:
        return int(float(match[1]) * _SIZE_UNITS[(match[2] or "b").lower()])
    raise ValueError(f'{option} is {value!r}; use bytes, or text such as "4GB", "512mb", "64 kb" (powers of 1024)')


@dataclasses.dataclass(frozen=True)
class MooncakeConfig:
    """How to reach a Mooncake store; the options of stock connectors under their stock names.

    Sizes are bytes. ValueError and TypeError name the option, its value and the remedy.

    master_server_address: HOST:PORT of the master. metadata_server: a URL, or "P2PHANDSHAKE". protocol: "tcp" or "rdma";
    device_name: the RDMA devices. mode: "embedded" (this process gives global_segment_size to the store) or
    "standalone-store" (it gives nothing; global_segment_size must be 0). local_buffer_size: of Mooncake's client.
    enable_offload: the store spills to disk. tenant_id: blank is "default". local_hostname: this host as the store names it;
    default MOONCAKE_REQUESTER_LOCAL_HOSTNAME, else this host's address. preferred_segment: where puts go first, default
    MOONCAKE_PREFERRED_SEGMENT. enable_group_semantics: refused, since a lease on one key would then lease its whole group.
    """

    master_server_address: str
    metadata_server: str = ""
    protocol: str = "rdma"
    device_name: str = ""
    mode: str = "embedded"
    global_segment_size: int = 4 * _GIB
    local_buffer_size: int = 4 * _GIB
    enable_offload: bool = False
    tenant_id: str = "default"
    local_hostname: str = ""
    preferred_segment: str = ""
    enable_group_semantics: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            self._check_type(field.name)
        if not self.master_server_address:
            raise ValueError('master_server_address is ""; use HOST:PORT of the Mooncake master')
        if self.mode not in _MODES:
            raise ValueError(f'mode is {self.mode!r}; use "embedded" or "standalone-store"')
        if self.local_buffer_size <= 0:
            raise ValueError(f"local_buffer_size is {self.local_buffer_size}; use more than 0 bytes")
        if self.mode == "embedded" and self.global_segment_size <= 0:
            raise ValueError(
                f'global_segment_size is {self.global_segment_size}; mode "embedded" gives memory to the store: use more than 0, '
                'or mode "standalone-store"'
            )
        if self.mode == "standalone-store" and self.global_segment_size != 0:
            raise ValueError(
                f'global_segment_size is {self.global_segment_size}; mode "standalone-store" gives no memory: set it to 0'
            )
        if self.enable_group_semantics:
            raise ValueError(
                "enable_group_semantics is true; a lease on one key of a Mooncake group is a lease on all of it, for every rank and "
                "cache group, which cancels selective leases: set it to false"
            )

    def _check_type(self, name: str) -> None:
        value = getattr(self, name)
        kind = {"global_segment_size": int, "local_buffer_size": int, "enable_offload": bool, "enable_group_semantics": bool}
        expected = kind.get(name, str)
        if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
            raise TypeError(f"{name} is {value!r}; use a value of type {expected.__name__}")

    @staticmethod
    def from_mapping(options: Mapping[str, Any], source: str = "options") -> MooncakeConfig:
        """A config from stock options; `source` begins the messages. Sizes may be text. Unknown names are warned about, and
        refused when they look like a known one misspelt."""
        known = {field.name for field in dataclasses.fields(MooncakeConfig)}
        values: dict[str, Any] = {}
        for name, value in options.items():
            if name not in known:
                _check_unknown(source, name, value, known)
            elif name in ("global_segment_size", "local_buffer_size"):
                values[name] = parse_size(f"{source}: {name}", value)
            elif name == "tenant_id":
                if value is not None and not isinstance(value, str):
                    raise TypeError(f"{source}: tenant_id is {value!r}; use text")
                values[name] = (value or "").strip() or "default"
            elif name == "enable_group_semantics":
                values[name] = str(value).lower() == "true"  # As stock compares it.
            else:
                values[name] = value
        if "master_server_address" not in values:
            raise ValueError(f"{source}: master_server_address is missing; give HOST:PORT of the Mooncake master")
        values.setdefault("local_hostname", os.environ.get("MOONCAKE_REQUESTER_LOCAL_HOSTNAME", ""))
        values.setdefault("preferred_segment", os.environ.get("MOONCAKE_PREFERRED_SEGMENT", ""))
        try:
            return MooncakeConfig(**values)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{source}: {error}") from None

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> MooncakeConfig:
        """A config from a stock JSON file. ValueError names the file and what is wrong with it."""
        try:
            with open(path, encoding="utf-8") as file:
                options = json.load(file)
        except OSError as error:
            raise ValueError(f"Mooncake config {os.fspath(path)} cannot be read: {error.strerror}; give a readable file") from None
        except ValueError as error:
            raise ValueError(f"Mooncake config {os.fspath(path)} is not JSON: {error}; correct the file") from None
        if not isinstance(options, dict):
            raise ValueError(f"Mooncake config {os.fspath(path)} is a JSON {type(options).__name__}; use an object of options")
        return MooncakeConfig.from_mapping(options, f"Mooncake config {os.fspath(path)}")

    @staticmethod
    def from_environment() -> MooncakeConfig:
        """The config of the file that MOONCAKE_CONFIG_PATH names, as stock connectors find it."""
        path = os.environ.get("MOONCAKE_CONFIG_PATH")
        if not path:
            raise ValueError("MOONCAKE_CONFIG_PATH is not set; set it to the path of a JSON file, or give a config")
        return MooncakeConfig.from_file(path)


def _check_unknown(source: str, name: str, value: object, known: set[str]) -> None:
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    if close:
        raise ValueError(f"{source}: unknown option {name} with the value {value!r}; did you mean {close[0]}?")
    _logger.warning("%s: option %s with the value %r is not one of Tenure's and is ignored", source, name, value)


def _import_store() -> Any:
    """Mooncake's module `mooncake.store`; tenure.Error says what to install."""
    try:
        module = importlib.import_module("mooncake.store")
    except ImportError as error:
        raise Error(
            f"Mooncake's Python package cannot be imported ({error}); install mooncake-transfer-engine-cuda13 "
            f"{MOONCAKE_VERSION_NEEDED} or newer, with the libraries it links"
        ) from error
    if not hasattr(module.MooncakeDistributedStore, "batch_probe_key"):
        raise Error(
            "this Mooncake has no batch_probe_key, so every question would be a lease; install "
            f"mooncake-transfer-engine-cuda13 {MOONCAKE_VERSION_NEEDED} or newer"
        )
    return module


def _local_hostname(config: MooncakeConfig) -> str:
    if config.local_hostname:
        return config.local_hostname
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def _setup_arguments(config: MooncakeConfig) -> tuple[object, ...]:
    arguments: tuple[object, ...] = (
        _local_hostname(config),
        config.metadata_server or "P2PHANDSHAKE",
        config.global_segment_size,
        config.local_buffer_size,
        config.protocol,
        config.device_name,
        config.master_server_address,
    )
    if config.tenant_id == "default":
        return arguments
    # engine, enable_ssd_offload and ssd_offload_path stand between, at their defaults.
    return (*arguments, None, False, "", config.tenant_id)


def _await_master(address: str, timeout: float) -> None:
    """Waits until something listens at `address`. PoolUnavailable when nothing does within `timeout` seconds.

    Mooncake's own setup tries for 94 s and cannot be stopped; a process that ends meanwhile ends with a fault.
    """
    host, _, port = address.rpartition(":")
    if "://" in address or not port.isdigit():  # Of a cluster of masters: only Mooncake can resolve it.
        return
    end = time.monotonic() + timeout
    while True:
        left = end - time.monotonic()
        try:
            socket.create_connection((host.strip("[]"), int(port)), max(left, 0.001)).close()
            return
        except (OSError, OverflowError) as error:
            if left <= _MASTER_PAUSE_SECONDS:
                raise PoolUnavailable(
                    f"master_server_address is {address!r}, where nothing answered within {timeout:g} s ({error}); "
                    "start a Mooncake master there, or correct the address"
                ) from None
        time.sleep(_MASTER_PAUSE_SECONDS)


class MooncakePool(MooncakeStorePool):
    """A Mooncake store (0.3.14 or newer) as a pool; keys are stock connectors', byte for byte.

    config: None reads the file of MOONCAKE_CONFIG_PATH. setup_timeout: seconds that a start waits for a master that listens, and then
    for Mooncake's setup. call_timeout (probe, lease, remove) and transfer_timeout (put, get; for each part of staging_bytes):
    seconds after which a call is a miss, whatever Mooncake does. lease_ttl: seconds, the master's default_kv_lease_ttl, which no
    client can ask for; the one TTL of every lease here. staging_bytes: the largest object in host memory; two buffers of it are
    taken, through which all its bytes go, so that a late call never touches a caller's memory.

    Declares the differences one_lease_ttl, no_pin, not_stored_answer, no_checksum and own_watermark (docs/reference/mooncake.md).
    Error when Mooncake is missing or too old, PoolUnavailable when its setup fails or does not answer. Memory is the
    host's; a vLLM connector's KV may also be a device's (docs/reference/mooncake.md).
    """

    def __init__(
        self,
        config: MooncakeConfig | None = None,
        *,
        setup_timeout: float = 30.0,
        call_timeout: float = 2.0,
        transfer_timeout: float = 10.0,
        lease_ttl: float = 10.0,
        staging_bytes: int = 64 << 20,
    ) -> None:
        config = MooncakeConfig.from_environment() if config is None else config
        module = _import_store()
        _await_master(config.master_server_address, setup_timeout)
        replicate = module.ReplicateConfig()
        if config.preferred_segment:
            replicate.preferred_segment = config.preferred_segment
        super().__init__(
            module.MooncakeDistributedStore(),
            replicate,
            _setup_arguments(config),
            setup_timeout=setup_timeout,
            call_timeout=call_timeout,
            transfer_timeout=transfer_timeout,
            lease_ttl=lease_ttl,
            staging_bytes=staging_bytes,
        )
        _open_pools.add(self)


_open_pools: weakref.WeakSet[MooncakePool] = weakref.WeakSet()


@atexit.register
def _close_pools() -> None:
    # Mooncake's threads must not need the interpreter once it is going away.
    for pool in list(_open_pools):
        pool.close()
