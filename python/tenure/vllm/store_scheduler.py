"""The scheduler's side: vLLM's requests and steps to the compiled StoreScheduler, and its plans and pins back.

Conversion only. One thread, the scheduler's. Block ids are those of the store groups (model.ModelStore).
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Collection, Iterable, Sequence

from tenure._native import Error, StoreScheduler
from tenure.vllm.events import EventQuorum
from tenure.vllm.messages import TenureMetadata, TenureWorkerMetadata
from tenure.vllm.model import ModelStore, Parallelism, transfer_config
from tenure.vllm.pools import open_scheduler_pool
from tenure.vllm.stats import TenureStats

if TYPE_CHECKING:
    from tenure.vllm.options import StoreOptions
    from vllm.config import VllmConfig
    from vllm.distributed.kv_events import KVCacheEvent
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

_logger = logging.getLogger("vllm.tenure")  # Under vLLM's logger, so that its handlers and levels apply.


class SchedulerSide:
    """What the connector does in the scheduler's process."""

    def __init__(self, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig, options: StoreOptions) -> None:
        self._options = options
        self._model = ModelStore(vllm_config, kv_cache_config, options, Parallelism.of_config(vllm_config))
        if self._model.load_async and not options.load_async:
            _logger.warning("load_async is false, but vLLM cannot recover synchronous loads of several KV cache groups; loading in the background")
        self._store_group = {group: index for index, group in enumerate(self._model.group_ids)}
        self._world_size = vllm_config.parallel_config.world_size
        self._events = EventQuorum(self._world_size, self._model.replicas)
        self._pool = open_scheduler_pool(vllm_config, options)
        prefixes = self._model.lookup_prefixes()
        _logger.info("TenureStoreConnector: pool %s, the first of its key prefixes is %s", options.pool, prefixes[0][0])
        self._namespaces = [[self._pool.pool.open_namespace(prefix) for prefix in group] for group in prefixes]
        self._core = StoreScheduler(
            self._model.config,
            self._pool.pool,
            self._namespaces,
            role=str(transfer_config(vllm_config).kv_role),
            world_size=self._world_size,
            search=options.search,
            lease=options.lease,
            lease_ttl=options.lease_ttl,
            lookup_deadline=options.lookup_deadline,
            inline_lookup=self._pool.pool.name == "embedded",
            enable_lookup=options.enable_lookup,
            save_decode_cache=options.save_decode_cache,
            events=self._model.events,
            sync_loads=not self._model.load_async,
        )
        self._blocks: BlockPool | None = None
        self._requests: dict[str, Request] = {}
        # Requests whose loads were ordered, and the blocks of each, to find whose load failed by block ids.
        self._loading: dict[str, frozenset[int]] = {}
        self._failing: set[str] = set()  # Those of them that some worker could not load, while others may still read.
        self._ended: Counter[str] = Counter()  # Workers whose synchronous load of a request is over.
        self._last_counters: dict[str, int] = {}
        self._pinned: set[int] = set()  # Save jobs that are not done.
        self._stale: set[int] = set()  # Those of them that began before a reset and may write after it.

    def bind_gpu_block_pool(self, pool: BlockPool) -> None:
        """The engine's blocks, which saves pin."""
        self._blocks = pool

    def num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Tokens beyond the computed ones that a load can bring; None while the lookup runs."""
        if self._stale:
            return 0, False  # What old saves still write is not of this engine any more.
        if request.skip_reading_prefix_cache:
            return 0, False  # vLLM would load nothing of it.
        if self._requests.get(request.request_id, request) is not request:
            # Of an earlier request of this name, whose end vLLM tells with the next step only.
            self._end([request.request_id], [])
        found = self._core.matched_tokens(request.request_id, request.block_hashes, request.num_tokens, num_computed_tokens)
        if found is None:
            return None, False
        if self._model.loads_whole_blocks and found % self._model.block_size:
            return 0, False  # vLLM would ask for a part of it, whose end has no key.
        return found, found > 0 and self._model.load_async

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        """Where the load goes; 0 tokens when nothing, or another connector, loads."""
        self._requests[request.request_id] = request
        tables: Sequence[list[int]] = blocks.get_block_ids(group_ids=self._model.group_ids) if num_external_tokens > 0 else ()
        try:
            self._core.allocated(request.request_id, [list(table) for table in tables], num_external_tokens)
        except ValueError as error:
            # An exception here would end the engine. It waits for the load now, so the plan has one that fails.
            _logger.error("a load is refused, and its tokens are computed: %s", error)
        if num_external_tokens > 0:
            self._loading[request.request_id] = frozenset(block for table in tables for block in table if block)

    def build_meta(self, output: SchedulerOutput) -> TenureMetadata:
        """The plan of this step for every worker; its saves are pinned here."""
        preempted = output.preempted_req_ids or set()
        living = {name for name in output.finished_req_ids if name in self._requests and not self._requests[name].is_finished()}
        self._end(output.finished_req_ids - living, preempted)
        for new in output.scheduled_new_reqs:
            self._schedule_new(new, output.num_scheduled_tokens[new.req_id])
        self._schedule_cached(output.scheduled_cached_reqs, output.num_scheduled_tokens)
        state = output.kv_connector_block_state
        if state is not None:
            for request, offloads in state.boundary_state_offloads.items():
                for group, block, tokens in offloads:
                    if (store_group := self._store_group.get(group)) is not None:
                        self._core.boundary_state(request, store_group, block, tokens)
            for request in self._core.save_requests():
                tables = state.get_block_ids(request)
                if tables is not None:
                    self._core.current_blocks(request, self._of_store(tables))
        plan, pins = self._core.finish_step()
        for job, blocks in pins:
            self._pin(job, blocks)
        return TenureMetadata(plan)

    def register_finished_partial_tail(
        self, request: Request, block_ids: tuple[list[int], ...], offloads: list[tuple[int, int, int]]
    ) -> bool:
        """Saves the tail that a request leaves when it ends. Never delays the freeing of its blocks: the save has pins."""
        if not any(block_ids):
            return False
        entries = []
        for group, block, boundary in offloads:
            if (store_group := self._store_group.get(group)) is None:
                return False
            entries.append((store_group, block, boundary))
        if len({boundary for _, _, boundary in entries}) > 1:
            raise ValueError(f"partial tails of request {request.request_id} have several boundaries: {sorted({b for _, _, b in entries})}; give one")
        job = self._core.finished_partial_tail(
            request.request_id, request.block_hashes, request.num_prompt_tokens, request.num_computed_tokens, self._of_store(block_ids), entries
        )
        if job is not None:
            self._pin(*job)
        return False

    def update_output(self, output: KVConnectorOutput) -> None:
        """What the workers report: saves done, loads done or failed, events."""
        finished = output.finished_recving or set()
        self._failing.update(output.failed_recving or ())
        if output.invalid_block_ids:
            self._failing.update(request for request, blocks in self._loading.items() if blocks & output.invalid_block_ids)
        report = output.kv_connector_worker_meta
        if isinstance(report, TenureWorkerMetadata):
            self._ended.update(report.ended)
            finished = finished | {request for request in report.ended if self._ended[request] >= self._world_size}
        # Only when all workers are done: until then the others read what the lease protects.
        for request in sorted(finished):
            if request in self._failing:
                self._core.load_failed(request)
            else:
                self._core.load_done(request)
            self._forget_load(request)
        if not isinstance(report, TenureWorkerMetadata):
            return
        for job, workers in report.saved.items():
            if (blocks := self._core.completed(job, workers)) is not None:
                self._unpin(job, blocks)
        self._events.add(report.events)

    def _end(self, finished: Collection[str], preempted: Collection[str]) -> None:
        self._core.begin_step(sorted(finished), sorted(preempted))
        for request in finished:
            self._requests.pop(request, None)
        for request in (*finished, *preempted):
            self._forget_load(request)

    def _forget_load(self, request: str) -> None:
        self._loading.pop(request, None)
        self._failing.discard(request)
        self._ended.pop(request, None)

    def take_events(self) -> Iterable[KVCacheEvent]:
        """Events that every holder has confirmed."""
        return self._events.take()

    def pending_jobs(self) -> bool:
        """Whether saves still pin blocks; the engine must keep stepping to hear of their end."""
        return self._core.pending_jobs()

    def stats(self) -> TenureStats | None:
        """Lookups and counters since the last call."""
        counters = self._core.counters()
        counters[f"external_tokens_{self._options.kind}_total"] = counters["external_tokens_total"]
        return TenureStats.since(self._last_counters, self._core.operations(), counters)

    def reset(self) -> bool:
        """Drops every answer, and every object of this model in the pool; False, with a log line, when the pool does not answer.

        Saves that are under way may write what the reset is there to forget: until they are done nothing is looked up, and then
        the pool is cleared once more.
        """
        self._core.reset()
        self._events.clear()
        self._stale = set(self._pinned)
        return self._clear()

    def _clear(self) -> bool:
        try:
            for group in self._namespaces:
                for namespace in group:
                    self._pool.pool.clear(namespace)
        except (Error, ValueError) as error:
            _logger.error("reset of the store failed: %s", error)
            return False
        return True

    def close(self) -> None:
        """Ends lookups and leases, then the pool."""
        self._core.close()
        self._pool.close()

    def _of_store(self, tables: Sequence[Sequence[int]]) -> list[list[int]]:
        return [list(tables[group]) for group in self._model.group_ids]

    def _pin(self, job: int, blocks: Sequence[int]) -> None:
        if self._blocks is None:
            raise RuntimeError("a save was planned before bind_gpu_block_pool; this is a defect of the engine's setup")
        self._blocks.touch([self._blocks.blocks[block] for block in blocks])
        self._pinned.add(job)

    def _unpin(self, job: int, blocks: Sequence[int]) -> None:
        if self._blocks is not None:
            # The tail first, so that the shared beginning is reused last.
            self._blocks.free_blocks(self._blocks.blocks[block] for block in reversed(blocks))
        self._pinned.discard(job)
        if job in self._stale:
            self._stale.discard(job)
            if not self._stale:
                self._clear()

    def _schedule_new(self, new: NewRequestData, scheduled: int) -> None:
        request = self._requests.get(new.req_id)
        if request is None:
            return
        # Under the v2 runner a resumed request comes as a new one with all its tokens to compute again.
        prefill = new.prefill_token_ids if new.prefill_token_ids is not None else new.prompt_token_ids
        prefill_end = len(prefill) if prefill is not None else request.num_prompt_tokens
        self._core.scheduled_new(
            new.req_id,
            request.block_hashes,
            request.num_prompt_tokens,
            prefill_end,
            new.num_computed_tokens,
            scheduled,
            list(prefill) if self._model.events and prefill is not None else None,
        )

    def _schedule_cached(self, cached: CachedRequestData, scheduled: dict[str, int]) -> None:
        for position, request_id in enumerate(cached.req_ids):
            request = self._requests.get(request_id)
            if request is None:
                continue
            resumed = request_id in cached.resumed_req_ids
            self._core.scheduled_cached(
                request_id,
                resumed,
                request.block_hashes,
                request.num_tokens,
                cached.num_computed_tokens[position],
                scheduled[request_id],
                list(request.all_token_ids) if self._model.events else None,
            )
