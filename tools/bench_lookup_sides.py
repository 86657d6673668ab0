"""The two sides that bench_lookup.py compares, built for one model each: vLLM's stock store worker, and Tenure's scheduler side.

No engine and no process groups: vLLM's configuration is a stand-in that answers what both sides read of it, and the groups'
sizes are set by hand. Both are vLLM 0.32.0's and Tenure's own classes otherwise, over a real pool.
"""

import contextlib
import hashlib
import itertools
import sys
import time
import types
from unittest import mock

import torch

from tenure.vllm.model import ModelStore, Parallelism
from tenure.vllm.options import StoreOptions
from tenure.vllm.store_scheduler import SchedulerSide
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store import worker as stock
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, MambaSpec, MLAAttentionSpec

MIB = 1 << 20
BLOCK = 16
STATE_GROUPS = 3
# Between two questions about a request whose answer is due. vLLM's engine sleeps 1 ms after a step in which no model ran.
ASK_AGAIN_SECONDS = 50e-6
GRACE_SECONDS = 0.001  # The first question may itself wait this long.
DEADLINE_SECONDS = 60.0  # The figure of a slow lookup is its time, not a miss.


def hashes_of(name, count):
    """Block hashes that no other name has, as vLLM keeps a request's: a list of bytes."""
    return [hashlib.sha256(f"{name}/{index}".encode()).digest() for index in range(count)]


class Model:
    """A model's KV cache as vLLM describes it: full attention, or latent attention with groups of recurrent states."""

    def __init__(self, name, tp_size=1, hybrid=False):
        self.name = name
        self.tp_size = tp_size
        dtype = torch.bfloat16
        if hybrid:
            state = MambaSpec(block_size=BLOCK, shapes=((1, 1),), dtypes=(torch.float32,), mamba_cache_mode="align")
            specs = [MLAAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=576, dtype=dtype), *[state] * STATE_GROUPS]
        else:
            specs = [FullAttentionSpec(block_size=BLOCK, num_kv_heads=8, head_size=64, dtype=dtype)]
        groups = [KVCacheGroupSpec([f"layer{index}"], spec) for index, spec in enumerate(specs)]
        self.kv_cache_config = KVCacheConfig(num_blocks=4, kv_cache_tensors=[], kv_cache_groups=groups)

    @property
    def vllm_config(self):
        """What both sides read of an engine's configuration."""
        config = mock.MagicMock()
        cache, parallel, model, transfer = config.cache_config, config.parallel_config, config.model_config, config.kv_transfer_config
        cache.block_size, cache.prefix_match_unit, cache.enable_prefix_caching = BLOCK, None, True
        parallel.tensor_parallel_size = parallel.world_size = self.tp_size
        parallel.prefill_context_parallel_size = parallel.decode_context_parallel_size = parallel.pipeline_parallel_size = 1
        parallel.rank = parallel.data_parallel_index = 0
        parallel.nnodes, parallel.distributed_executor_backend = 1, "uni"
        model.model, model.use_mla = "bench/model", len(self.kv_cache_config.kv_cache_groups) > 1
        model.get_num_layers.return_value, model.get_total_num_kv_heads.return_value = 2, 8
        transfer.kv_role, transfer.kv_connector_extra_config, transfer.engine_id = "kv_both", {}, f"bench-{self.name}"
        config.kv_events_config = config.speculative_config = None
        return config

    def prefixes(self):
        """Per store group the key prefix of every rank whose object a hit needs."""
        config = self.vllm_config
        options = StoreOptions.from_mapping({"pool": "mooncake"})
        return ModelStore(config, self.kv_cache_config, options, Parallelism.of_config(config)).lookup_prefixes()

    def load_set(self, hashes):
        """The keys that loading a prompt with these block hashes reads, as stock writes them: the whole chain, and the last states."""
        chain, *states = self.prefixes()
        keys = [prefix + one.hex() for one in hashes for prefix in chain]
        return keys + [prefix + hashes[-1].hex() for group in states for prefix in group]


def stock_worker(model, store):
    """vLLM's MooncakeStoreWorker over `store`, which is set up already; only its lookup is used."""
    module = types.ModuleType("mooncake.store")
    module.MooncakeDistributedStore = lambda: store
    module.ReplicateConfig = mock.MagicMock
    one = types.SimpleNamespace(world_size=1, rank_in_group=0)
    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.dict(sys.modules, {"mooncake.store": module}))
        for name, value in {
            "MooncakeStoreConfig": mock.MagicMock(),
            "LookupKeyServer": mock.MagicMock(),
            "setup_mooncake_store": lambda *_: None,
            "get_tensor_model_parallel_rank": lambda: 0,
            "get_tensor_model_parallel_world_size": lambda: model.tp_size,
            "get_pcp_group": lambda: one,
            "get_dcp_group": lambda: one,
            "get_ip": lambda: "127.0.0.1",
        }.items():
            patches.enter_context(mock.patch.object(stock, name, value))
        worker = stock.MooncakeStoreWorker(model.vllm_config, kv_cache_config=model.kv_cache_config)
    if [[f"{prefix}@" for prefix in prefixes] for prefixes in worker._lookup_key_prefixes] != model.prefixes():
        raise RuntimeError(f"{model.name}: stock's lookup asks for other keys than {model.prefixes()}")
    return worker


def empty_step(finished=()):
    """A scheduler's step with nothing in it but requests that ended."""
    return types.SimpleNamespace(
        finished_req_ids=set(finished),
        preempted_req_ids=set(),
        scheduled_new_reqs=[],
        scheduled_cached_reqs=types.SimpleNamespace(req_ids=[], resumed_req_ids=set(), num_computed_tokens=[]),
        num_scheduled_tokens={},
        kv_connector_block_state=None,
    )


class TenureScheduler:
    """Tenure's scheduler side of one engine over a pool, asked as an engine asks it. `options` are the connector's."""

    _ids = itertools.count()

    def __init__(self, model, options):
        options = {"key_format": "vllm", "lookup_deadline": DEADLINE_SECONDS, "call_deadline": DEADLINE_SECONDS, **options}
        self.side = SchedulerSide(model.vllm_config, model.kv_cache_config, StoreOptions.from_mapping(options))
        self._due = {}  # By prompt length: the time after which an answer was seen last.

    def request(self, hashes):
        """A new request with one token more than its hashes cover, as far as the connector reads it."""
        num_tokens = len(hashes) * BLOCK + 1
        return types.SimpleNamespace(
            request_id=f"request-{next(self._ids)}",
            block_hashes=hashes,
            num_tokens=num_tokens,
            num_prompt_tokens=num_tokens,
            skip_reading_prefix_cache=False,
        )

    def wait(self, request, until_due=0.0):
        """Asks, again after `until_due` seconds and then often, until there is an answer; returns it."""
        pause = until_due
        while (found := self.side.num_new_matched_tokens(request, 0)[0]) is None:
            time.sleep(max(pause, ASK_AGAIN_SECONDS))
            pause = 0
        return found

    def lookup(self, hashes, name=""):
        """(seconds from a new request's first question to its answer, the answer in tokens).

        Asking all the time would take a core from the lookup, and rarely, as an engine does, would add the pauses to the figure. So it is
        asked again when three quarters of the last time of a prompt with this name and length are over.
        """
        request = self.request(hashes)
        due = self._due.get((name, len(hashes)), 0.0)
        start = time.perf_counter()
        found = self.wait(request, 0.75 * due - GRACE_SECONDS)
        seconds = time.perf_counter() - start
        self._due[name, len(hashes)] = min(seconds, 2 * due or seconds)
        self.forget(request)
        return seconds, found

    def forget(self, request):
        """The request ended."""
        self.side.build_meta(empty_step([request.request_id]))

    def close(self):
        """Ends its threads and its pool."""
        self.side.close()
