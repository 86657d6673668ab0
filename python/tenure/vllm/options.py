"""The options of kv_connector_extra_config: names, defaults, and what is refused.

Stock names keep stock's meaning and default. Each wrong option is one line that names it, its value and the remedy, before
any memory is taken. docs/reference/vllm.md lists them; a test compares the two.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Literal, Mapping

from tenure._native import parse_size
from tenure.vllm import checks

PoolKind = Literal["embedded", "unix", "mooncake"]
PoolMode = Literal["closed", "independent"]
KeyFormat = Literal["tenure", "vllm"]

# Options of the stock connector that mean nothing here, with what to do instead.
_NOT_OURS = {
    "custom_mem_pool": "remove it; Tenure copies through memory of its own",
    "lookup_rpc_port": "remove it; the scheduler asks the pool itself, without a port",
    "lookup_async": "remove it; lookups always run in the background",
}
_NAMED_SEPARATELY = {"enable_group_semantics"}


@dataclasses.dataclass(frozen=True)
class StoreOptions:
    """The checked options. Seconds and bytes where not said otherwise."""

    pool: str = "embedded"
    embedded_memory: str | int = "4GiB"
    pool_mode: PoolMode = "closed"
    pool_wait: float = 60.0
    key_format: str = ""
    cache_prefix: str = ""
    enable_lookup: bool = True
    save_decode_cache: bool = False
    load_async: bool = True
    search: str = "tail_first"
    lease: str = "selective"
    lease_ttl: float = 10.0
    lookup_deadline: float = 1.0
    load_deadline: float = 30.0
    load_threads: int = 1
    call_deadline: float = 2.0
    store_tp_size: int | None = None
    enable_store_tp_lcm: bool = False
    prefill_tp_sizes: tuple[int, ...] = ()
    enable_cross_layers_blocks: bool = False
    preferred_segment: str = ""

    @property
    def kind(self) -> PoolKind:
        """Which pool `pool` names."""
        return "unix" if self.pool.startswith("unix:") else self.pool  # type: ignore[return-value]

    @property
    def socket_path(self) -> str:
        """The daemon's socket; empty unless the pool is one."""
        return self.pool.removeprefix("unix:") if self.kind == "unix" else ""

    @property
    def embedded_bytes(self) -> int:
        """embedded_memory in bytes."""
        size = self.embedded_memory
        return size if isinstance(size, int) else parse_size("embedded_memory", size)

    @property
    def keys(self) -> KeyFormat:
        """The key format, with its default filled in: stock's on Mooncake, which is shared with stock engines."""
        return (self.key_format or ("vllm" if self.kind == "mooncake" else "tenure"))  # type: ignore[return-value]

    @staticmethod
    def from_mapping(options: Mapping[str, Any]) -> StoreOptions:
        """The options of one connector. ValueError or TypeError names the option, its value and the remedy."""
        fields = {field.name: field for field in dataclasses.fields(StoreOptions)}
        values: dict[str, Any] = {}
        for name, value in options.items():
            if name in _NOT_OURS:
                raise ValueError(f"{name} is {value!r}; {_NOT_OURS[name]}")
            if name in _NAMED_SEPARATELY:
                _refuse_group_semantics(value)
                continue
            if name not in fields:
                checks.refuse_unknown(name, value, fields, "vllm.md")
            values[name] = _CHECKS[name](name, value)
        checked = StoreOptions(**values)
        checked._check_pool()
        return checked

    def _check_pool(self) -> None:
        if self.kind == "unix" and not self.socket_path.startswith("/"):
            raise ValueError(f'pool is {self.pool!r}; give the absolute path of the daemon\'s socket, as "unix:/run/tenure/pool.sock"')
        if self.kind == "embedded":
            memory = self.embedded_bytes
            machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            if memory > machine:
                raise ValueError(f"embedded_memory is {self.embedded_memory!r}; this machine has {machine} bytes: give less")


def _refuse_group_semantics(value: Any) -> None:
    if str(value).strip().lower() == "true":
        raise ValueError(
            f"enable_group_semantics is {value!r}; a lease on one key of a Mooncake group leases all of it, which cancels selective "
            'leases: set it to "False" or remove it'
        )


def _segment(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r}; use the name of a Mooncake segment, or remove it")
    return value


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):  # As stock reads enable_cross_layers_blocks.
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; use true or false")
    return value


def _pool(name: str, value: Any) -> str:
    if not isinstance(value, str) or not (value in ("embedded", "mooncake") or value.startswith("unix:")):
        raise ValueError(f'{name} is {value!r}; use "embedded", "unix:PATH" of a daemon (tenure serve --socket PATH), or "mooncake"')
    return value


def _size(name: str, value: Any) -> str | int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(f'{name} is {value!r}; use bytes, or text such as "8GiB"')
    if isinstance(value, str):
        parse_size(name, value)
    elif value <= 0:
        raise ValueError(f"{name} is {value!r}; use more than 0 bytes")
    return value


def _store_tp_size(name: str, value: Any) -> int | None:
    # Stock ignores what is no positive whole number; resolve_store_layout then warns.
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _tp_sizes(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or any(isinstance(v, bool) or not isinstance(v, int) or v < 1 for v in value):
        raise ValueError(f"{name} is {value!r}; use a list of whole numbers above 0")
    return tuple(value)


_seconds = checks.seconds(3600)
_CHECKS: dict[str, Any] = {
    "pool": _pool,
    "embedded_memory": _size,
    "pool_mode": checks.one_of("closed", "independent"),
    "pool_wait": _seconds,
    "key_format": checks.one_of("tenure", "vllm"),
    "cache_prefix": checks.text,
    "enable_lookup": _flag,
    "save_decode_cache": _flag,
    "load_async": _flag,
    "search": checks.one_of("tail_first", "exhaustive"),
    "lease": checks.one_of("selective", "all"),
    "lease_ttl": _seconds,
    "lookup_deadline": _seconds,
    "load_deadline": _seconds,
    "load_threads": checks.threads,
    "call_deadline": _seconds,
    "store_tp_size": _store_tp_size,
    "enable_store_tp_lcm": _flag,
    "prefill_tp_sizes": _tp_sizes,
    "enable_cross_layers_blocks": _flag,
    "preferred_segment": _segment,
}
