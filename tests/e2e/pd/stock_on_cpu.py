"""vLLM's own MooncakeConnector on a machine without GPUs: kv_connector MooncakeConnector, kv_connector_module_path stock_on_cpu."""

import torch

torch.accelerator.current_device_index = lambda: 0  # It asks before it starts Mooncake, and there is no driver to answer.

from vllm.distributed.kv_transfer.kv_connector.v1.mooncake import mooncake_connector  # noqa: E402


class LoopbackBootstrapServer(mooncake_connector.MooncakeBootstrapServer):
    """On this machine only; the stock connector listens everywhere."""

    def __init__(self, host, port):
        super().__init__("127.0.0.1", port)


mooncake_connector.MooncakeBootstrapServer = LoopbackBootstrapServer
MooncakeConnector = mooncake_connector.MooncakeConnector
