"""Zeroed KV, the control of every run: an engine's workers overwrite all that they hold, whatever their connector."""


def overwrite_kv(worker):
    """Zeroes all KV of a worker of vLLM; runs in its process."""
    for layer in worker.model_runner.kv_caches:
        for tensor in layer if isinstance(layer, (list, tuple)) else [layer]:
            tensor.zero_()


class Overwriter:
    """The same as a method of a server's workers: --worker-extension-cls overwrite.Overwriter."""

    def overwrite_kv(self):
        overwrite_kv(self)
