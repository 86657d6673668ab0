"""vLLM's entry point (group vllm.general_plugins): makes the connector's name known in every process of an engine."""

from __future__ import annotations

CONNECTORS = {
    "TenureStoreConnector": "tenure.vllm.store_connector",
    "TenurePDConnector": "tenure.vllm.pd_connector",
}


def register() -> None:
    """Registers the connectors' names with vLLM's factory. Idempotent, and the connectors are imported only when used."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    for name, module in CONNECTORS.items():
        if name not in KVConnectorFactory._registry:
            KVConnectorFactory.register_connector(name, module, name)
