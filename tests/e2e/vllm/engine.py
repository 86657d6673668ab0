"""A vLLM engine with the store connector, in this process or in processes of its own, as the tests drive it."""

import contextlib
import os

import pytest

from waiting import until

os.environ.update(
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_HOST_IP="127.0.0.1",
    VLLM_LOGGING_LEVEL=os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
)

MODELS = os.environ["TENURE_TEST_MODELS"]
NEW_TOKENS = 4


def prompt(length, seed=0):
    """A prompt of token ids that no other seed shares a block with."""
    return [(index * 7 + 3 + seed * (13 + index % 5)) % 500 for index in range(length)]


class Answer:
    """What one request gave: tokens, logprob of each, cached prompt tokens."""

    def __init__(self, output):
        completion = output.outputs[0]
        self.tokens = list(completion.token_ids)
        self.logprobs = [step[token].logprob for step, token in zip(completion.logprobs or [], self.tokens)]
        self.cached = output.num_cached_tokens
        self.finish_reason = completion.finish_reason

    def same_as(self, other, tolerance=1e-3):
        """Equal tokens, and a first logprob that is the same up to rounding."""
        return self.tokens == other.tokens and abs(self.logprobs[0] - other.logprobs[0]) <= tolerance

    def __repr__(self):
        return f"Answer(tokens={self.tokens}, first logprob={self.logprobs[:1]}, cached={self.cached})"


class Engine:
    """vllm.LLM over a tiny model. `options` None: without a connector. `module`: where to find it, for one without an entry point."""

    def __init__(self, model, options=None, *, policy="recompute", role="kv_both", connector="TenureStoreConnector", module=None, in_process=True, **arguments):
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0" if in_process else "1"
        import torch
        from vllm import LLM

        settings = dict(
            load_format="auto",
            enforce_eager=True,
            dtype="bfloat16" if model == "qwen3next" else "float32",
            max_model_len=8192,
            max_num_seqs=8,
            seed=0,
            enable_prefix_caching=True,
            disable_log_stats=False,
        )
        if model != "qwen3next":
            settings["block_size"] = 32
        if torch.cuda.is_available():  # tools/gpu_check.sh; two engines share a device.
            settings.update(kv_cache_memory_bytes=1 << 30, gpu_memory_utilization=0.2)
        if in_process:
            settings["distributed_executor_backend"] = "uni"
        if options is not None:
            settings["kv_transfer_config"] = dict(
                kv_connector=connector, kv_connector_module_path=module, kv_role=role, kv_load_failure_policy=policy,
                kv_connector_extra_config=options,
            )
        settings.update(arguments)
        self.llm = LLM(os.path.join(MODELS, model), **settings)
        self._in_process = in_process

    def ask(self, *prompts, new_tokens=NEW_TOKENS, **sampling):
        """Greedy answers to prompts of token ids, all in one batch."""
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        parameters = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True, logprobs=1, **sampling)
        outputs = self.llm.generate([TokensPrompt(prompt_token_ids=one) for one in prompts], parameters, use_tqdm=False)
        answers = [Answer(output) for output in outputs]
        self.settle()
        return answers if len(answers) > 1 else answers[0]

    def forget_local(self):
        """Drops the engine's own prefix cache, and leaves the store alone."""
        self.settle()
        # Refused while saves pin blocks, which only the engine's own processes know of.
        until(self.llm.reset_prefix_cache, "the engine's blocks are still held", 60)

    @property
    def scheduler(self):
        return self.llm.llm_engine.engine_core.engine_core.scheduler

    @property
    def connector(self):
        """The scheduler's side of the connector; in process only."""
        return self.scheduler.connector

    @property
    def worker(self):
        """The worker's side; in process only."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        return get_kv_transfer_group()

    def settle(self, seconds=30):
        """Steps the engine until its saves are done and no block is pinned. One in its own processes steps by itself."""
        if not self._in_process or self.connector is None:
            return

        def step():
            if self.connector.has_pending_push_work():
                self.llm.llm_engine.step()
            return not self.connector.has_pending_push_work()

        until(step, "saves are still pending", seconds)

    def settle_leases(self, seconds=20):
        """Waits until the store leases nothing for this engine; leases end in the background. In process only."""
        until(lambda: not self.connector._scheduler._pool.pool.stats()["held_leased_objects"], "leases are still held", seconds)

    @contextlib.contextmanager
    def heard_events(self):
        """A list to which the connector's KV events are added until the end of the block. In process only."""
        connector, heard = self.connector, []

        def take():
            taken = list(type(connector).take_events(connector))
            heard.extend(taken)
            return taken

        connector.take_events = take
        try:
            yield heard
        finally:
            del connector.take_events

    def metrics(self):
        """Every metric's value by (name, labels) as text."""
        return {(metric.name, str(sorted(metric.labels.items()))): getattr(metric, "value", None) for metric in self.llm.get_metrics()}

    def counter(self, event):
        """One of Tenure's counters as vLLM's metrics show it."""
        return sum(
            value for (name, labels), value in self.metrics().items() if name == "vllm:tenure_store_events" and f"'{event}'" in labels
        )

    def free_blocks(self):
        """Blocks of the engine that nobody holds; in process only."""
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    def close(self):
        """Ends the engine and its processes."""
        with contextlib.suppress(Exception):
            self.llm.llm_engine.engine_core.shutdown()
        del self.llm


def require_same(answer, reference):
    if not answer.same_as(reference):
        pytest.fail(f"{answer} differs from {reference}")
