"""Tenure's connectors for vLLM 0.32: KV cache in pools outside the engine. See docs/reference/vllm.md.

Names are imported when first used, so that vLLM can load the plugin (tenure.vllm.plugin) early; using one needs vLLM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenure.vllm.pd_connector import TenurePDConnector
    from tenure.vllm.store_connector import TenureStoreConnector

__all__ = ["TenurePDConnector", "TenureStoreConnector"]


def __getattr__(name: str) -> Any:
    if name == "TenureStoreConnector":
        from tenure.vllm.store_connector import TenureStoreConnector

        return TenureStoreConnector
    if name == "TenurePDConnector":
        from tenure.vllm.pd_connector import TenurePDConnector

        return TenurePDConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
