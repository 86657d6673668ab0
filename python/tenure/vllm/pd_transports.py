"""The transport that carries KV from a prefill worker into a decode worker's memory.

"local" reaches processes of this host, "tcp" other hosts, "ucx" whatever network and memory UCX knows, "auto" is the best of them;
"mooncake" reaches stock peers (MooncakeConnector) and its own kind, through Mooncake's TransferEngine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Callable

from tenure._native import Transport

if TYPE_CHECKING:
    from tenure.vllm.pd_options import PDOptions


def open_transport(options: PDOptions, host: str) -> Transport:
    """The transport that the options name. tenure.Error or RuntimeError names what is missing."""
    return _open_mooncake(options, host) if options.transport == "mooncake" else Transport(options.transport, host=host)


def _open_mooncake(options: PDOptions, host: str) -> Transport:
    try:
        module = importlib.import_module("mooncake.engine")
    except ImportError as error:
        raise RuntimeError(
            f"transport is 'mooncake', but Mooncake cannot be imported ({error}); install mooncake-transfer-engine, or use transport auto"
        ) from None
    engine: Any = module.TransferEngine()
    if (code := engine.initialize(host, "P2PHANDSHAKE", options.mooncake_protocol, options.device_name)) != 0:
        raise RuntimeError(
            f"Mooncake's engine does not start: it returned {code} for host {host!r}, mooncake_protocol {options.mooncake_protocol!r} and "
            f"device_name {options.device_name!r}; use mooncake_protocol tcp where there is no RDMA device"
        )
    return Transport.mooncake(engine, host, engine.get_rpc_port(), threads=options.num_workers, on_thread_start=_device_setter())


def _device_setter() -> Callable[[], None] | None:
    """Sets this process's current GPU in another thread, where each begins with the first one; None without GPUs."""
    import torch

    if not torch.cuda.is_available():
        return None
    device = torch.cuda.current_device()
    return lambda: torch.cuda.set_device(device)
