"""A worker's side of a P/D pair: vLLM's KV tensors and steps to the compiled endpoints, and their reports back.

Conversion only. Called from the worker's main thread; messages and writes run on the endpoints' own threads.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Mapping

from tenure._native import BootstrapServer, DecodeWorker, MismatchBoard, PrefillWorker
from tenure.vllm.model import transfer_config
from tenure.vllm.pd_memory import PDMemory, pd_memory, physical_blocks_per_block
from tenure.vllm.pd_model import PDPlace, kv_groups
from tenure.vllm.pd_stats import TenurePDStats
from tenure.vllm.pd_transports import open_transport

if TYPE_CHECKING:
    import torch

    from tenure.vllm.pd_options import CurveKeys, PDOptions
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

_logger = logging.getLogger("vllm.tenure")  # Under vLLM's logger, so that its handlers and levels apply.


class PDWorkerSide:
    """What the connector does in a worker's process."""

    def __init__(self, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig, options: PDOptions, keys: CurveKeys) -> None:
        transfer = transfer_config(vllm_config)
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config
        self._options = options
        self._keys = keys
        self._role = transfer.kv_role
        self._engine_id = str(transfer.engine_id)
        self._several_groups = len(kv_cache_config.kv_cache_groups) > 1
        self._place = PDPlace.of_worker(vllm_config)
        self._board = MismatchBoard()
        self._transport = open_transport(options, self._place.host)
        self._bootstrap: BootstrapServer | None = None
        if self._role != "kv_consumer" and self._place.runs_bootstrap and not options.bootstrap_server_address:
            self._bootstrap = BootstrapServer(
                options.bootstrap_listen_host or self._place.host, options.bootstrap_port, token=options.bootstrap_token, board=self._board
            )
        self._prefill: PrefillWorker | None = None
        self._decode: DecodeWorker | None = None
        self.memory: PDMemory | None = None  # Known from register_kv_caches on.
        self._failed_blocks: set[int] = set()

    def register_kv_caches(self, kv_caches: Mapping[str, torch.Tensor]) -> None:
        """The engine's KV tensors: P tells the bootstrap server that it listens, D can pull. Waits for the server."""
        physical = physical_blocks_per_block(self._vllm_config, self._kv_cache_config)
        self.memory = memory = pd_memory(kv_caches, self._kv_cache_config, physical)
        self._transport.register(memory.storages)
        model = self._vllm_config.model_config
        common: dict[str, Any] = {
            "rank": self._place.rank,
            "total_kv_heads": model.get_total_num_kv_heads(),
            "is_mla": model.use_mla,
            "groups": kv_groups(self._kv_cache_config, physical),
            "host": self._place.host,
            "board": self._board,
            "lease": self._options.kv_lease_duration,
            "connector_timeout": self._options.connector_timeout,
        }
        if self._role != "kv_producer":
            self._decode = DecodeWorker(memory.regions, self._transport, curve_server_key=self._keys.public, **common)
        if self._role != "kv_consumer":
            self._prefill = PrefillWorker(
                memory.regions,
                self._transport,
                engine_id=self._engine_id,
                dp_rank=self._place.dp_rank,
                bootstrap_url=self._place.bootstrap_url(self._options),
                bootstrap_token=self._options.bootstrap_token,
                incarnation=self._place.agree(time.time_ns()),
                hold_timeout=self._options.abort_timeout,
                curve_secret_key=self._keys.secret,
                **common,
            )
            # A worker that alone cannot register would leave the others waiting in the collective calls of a step.
            self._prefill.register()

    def start_step(self, prefill_orders: bytes, decode_orders: bytes) -> None:
        """What the scheduler's side orders in a step."""
        if self._prefill is not None and prefill_orders:
            self._prefill.record_step(prefill_orders)
        if self._decode is not None and decode_orders:
            self._decode.start_pulls(decode_orders)

    def transfer_results(self) -> tuple[set[str], set[str], set[str]]:
        """Requests whose blocks P needs no more, those whose pulls have ended at D, and of these the failed ones (several groups only),
        since the last call."""
        sent = set() if self._prefill is None else set(self._prefill.take_finished())
        received: set[str] = set()
        failed: set[str] = set()
        if self._decode is not None:
            done, broken, breaking = self._decode.take_outcomes()
            received.update(done)
            for request, error in breaking:
                _logger.warning("request %s: its KV will not come: %s; it ends when no late write can reach its blocks", request, error)
            for request, error, blocks in broken:
                _logger.warning("request %s: its KV was not received: %s", request, error)
                received.add(request)
                if self._several_groups:
                    failed.add(request)
                else:
                    self._failed_blocks.update(block for group in blocks for block in group)
        return sent, received, failed

    def failed_blocks(self) -> set[int]:
        """Blocks without their KV, of the requests that the last transfer_results gave as received (one group only)."""
        blocks, self._failed_blocks = self._failed_blocks, set()
        return blocks

    def stats(self) -> TenurePDStats | None:
        """Writes and failures since the last call."""
        writes: list[tuple[float, int, int]] = []
        counters: dict[str, int] = {}
        for half in (self._prefill, self._decode):
            if half is not None:
                more, counts = half.take_stats()
                writes.extend(more)
                for name, count in counts.items():
                    counters[name] = counters.get(name, 0) + count
        return TenurePDStats.of(writes, counters)

    def close(self) -> None:
        """Ends the endpoints, the transport and the bootstrap server. Idempotent."""
        for half in (self._prefill, self._decode, self._transport, self._bootstrap):
            if half is not None:
                half.close()
        self._prefill = self._decode = self._bootstrap = None
