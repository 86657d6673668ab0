"""The connector's Python side without an engine: what it makes of vLLM's calls and of the workers' reports."""

import logging
import os
import pathlib
import re
import types

import pytest
from prometheus_client import Counter, Gauge, Histogram

import configurations
from tenure import Error, KeyAnswer
from tenure.vllm import pools, store_connector, store_scheduler, store_worker
from tenure.vllm.events import PENDING_MAX, EventQuorum
from tenure.vllm.messages import TenureWorkerMetadata
from tenure.vllm.options import StoreOptions
from tenure.vllm.pools import open_scheduler_pool, open_worker_pool
from tenure.vllm.stats import TenurePromMetrics
from tenure.vllm.store_connector import TenureStoreConnector, _warn
from tenure.vllm.store_scheduler import SchedulerSide
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1.outputs import KVConnectorOutput


class Core:
    """Remembers the calls of the compiled scheduler."""

    def __init__(self, offer=0, refusal=""):
        self.calls = []
        self.options = {}
        self._offer = offer
        self._refusal = refusal

    def matched_tokens(self, *arguments):
        return self._offer

    def allocated(self, request, tables, tokens):
        self.calls.append(("allocated", request, tokens))
        if self._refusal:
            raise ValueError(self._refusal)

    def begin_step(self, finished, preempted):
        self.calls.append(("begin_step", tuple(finished), tuple(preempted)))

    def finish_step(self):
        return b"", []

    def load_done(self, request):
        self.calls.append(("load_done", request))

    def load_failed(self, request):
        self.calls.append(("load_failed", request))


@pytest.fixture
def make_side(monkeypatch):
    """A SchedulerSide over a Core, with two workers and blocks of 16 tokens. The core's arguments by name are its `options`."""

    def make(core, *, load_async=True, loads_whole_blocks=False, options=StoreOptions()):
        model = types.SimpleNamespace(
            config=None, group_ids=(0,), replicas=[1], block_size=16, load_async=load_async, loads_whole_blocks=loads_whole_blocks,
            events=False,
            lookup_prefixes=lambda: [["m@"]],
        )
        pool = types.SimpleNamespace(pool=types.SimpleNamespace(name="embedded", open_namespace=lambda prefix: prefix), close=lambda: None)
        monkeypatch.setattr(store_scheduler, "ModelStore", lambda *arguments: model)
        monkeypatch.setattr(store_scheduler, "open_scheduler_pool", lambda *arguments: pool)
        monkeypatch.setattr(store_scheduler, "StoreScheduler", lambda *arguments, **given: vars(core).update(options=given) or core)
        parallel = types.SimpleNamespace(
            world_size=2, tensor_parallel_size=2, pipeline_parallel_size=1, prefill_context_parallel_size=1, decode_context_parallel_size=1
        )
        config = types.SimpleNamespace(kv_transfer_config=types.SimpleNamespace(kv_role="kv_both"), kv_events_config=None, parallel_config=parallel)
        return SchedulerSide(config, None, options)

    return make


def request(name="a", **fields):
    return types.SimpleNamespace(**{"request_id": name, "block_hashes": [], "num_tokens": 100, "skip_reading_prefix_cache": False, "is_finished": lambda: False} | fields)


def step(finished=(), preempted=()):
    return types.SimpleNamespace(
        finished_req_ids=set(finished), preempted_req_ids=set(preempted), scheduled_new_reqs=[], num_scheduled_tokens={},
        scheduled_cached_reqs=types.SimpleNamespace(req_ids=[]), kv_connector_block_state=None,
    )


def blocks(*ids):
    return types.SimpleNamespace(get_block_ids=lambda group_ids: ([*ids],))


def test_a_refused_load_is_no_exception_and_ends_as_failed(make_side):
    core = Core(refusal="num_external is 16 for request a, which was offered 32")
    side = make_side(core)
    side.update_state_after_alloc(request(), blocks(1, 2), 16)
    side.update_output(KVConnectorOutput(finished_recving={"a"}, invalid_block_ids={2}))
    assert core.calls[1:] == [("load_failed", "a")]


def test_a_failed_load_keeps_its_lease_until_every_worker_is_done(make_side):
    core = Core()
    side = make_side(core)
    side.update_state_after_alloc(request(), blocks(1, 2), 32)
    side.update_state_after_alloc(request("b"), blocks(3), 16)
    side.update_output(KVConnectorOutput(invalid_block_ids={2}))
    assert [call for call in core.calls if call[0] != "allocated"] == []
    side.update_output(KVConnectorOutput(finished_recving={"a", "b"}))
    assert core.calls[2:] == [("load_failed", "a"), ("load_done", "b")]


def test_a_synchronous_load_ends_when_all_workers_report_it(make_side):
    core = Core()
    side = make_side(core, load_async=False)
    for name, block in (("a", 1), ("b", 2)):
        side.update_state_after_alloc(request(name), blocks(block), 16)
    one = TenureWorkerMetadata(ended={"a": 1})
    side.update_output(KVConnectorOutput(kv_connector_worker_meta=one))
    assert len(core.calls) == 2
    rest = one.aggregate(TenureWorkerMetadata(ended={"b": 2}))
    side.update_output(KVConnectorOutput(kv_connector_worker_meta=rest, invalid_block_ids={2}))
    assert core.calls[2:] == [("load_done", "a"), ("load_failed", "b")]


def test_reports_of_requests_that_are_gone_do_nothing(make_side):
    core = Core()
    side = make_side(core)
    side.update_state_after_alloc(request(), blocks(1), 16)
    side._forget_load("a")
    side.update_output(KVConnectorOutput(invalid_block_ids={1}))
    assert side._failing == set() and len(core.calls) == 1


def test_a_request_that_reads_no_cache_is_not_looked_up(make_side):
    assert make_side(Core(offer=48)).num_new_matched_tokens(request(skip_reading_prefix_cache=True), 0) == (0, False)


def test_models_that_replay_the_end_of_a_hit_are_offered_whole_blocks_only(make_side):
    assert make_side(Core(offer=40), loads_whole_blocks=True).num_new_matched_tokens(request(), 0) == (0, False)
    assert make_side(Core(offer=48), loads_whole_blocks=True).num_new_matched_tokens(request(), 0) == (48, True)
    assert make_side(Core(offer=40)).num_new_matched_tokens(request(), 0) == (40, True)


def test_a_request_may_take_the_name_of_one_that_ended_in_the_same_step(make_side):
    core = Core(offer=16)
    side = make_side(core)
    old, new = request(is_finished=lambda: True), request()
    side.num_new_matched_tokens(old, 0)
    side.update_state_after_alloc(old, blocks(1), 16)
    side.num_new_matched_tokens(new, 0)
    assert core.calls[-1] == ("begin_step", ("a",), ())  # Before the new one is looked up under the name.
    side.update_state_after_alloc(new, blocks(2), 16)
    side.build_meta(step(finished={"a"}))
    assert core.calls[-1] == ("begin_step", (), ())  # Its load is not forgotten, or vLLM would wait for it for ever.
    side.build_meta(step(finished={"a", "never seen"}, preempted={"b"}))
    assert core.calls[-1] == ("begin_step", ("never seen",), ("b",))
    new.is_finished = lambda: True
    side.build_meta(step(finished={"a"}))
    assert core.calls[-1] == ("begin_step", ("a",), ()) and not side._requests and not side._loading


def chunk(group, number, tokens=()):
    return group, number.to_bytes(32, "big"), None, 16, tokens


def test_an_event_needs_every_worker_that_holds_other_bytes():
    """store_connector spec, section 14.10: 4 workers, replication (1, 4)."""
    quorum = EventQuorum(4, (1, 4))
    for _ in range(3):
        quorum.add([chunk(0, 1)])
        assert quorum.take() == []
    quorum.add([chunk(1, 2)])
    assert [event.group_idx for event in quorum.take()] == [1]
    quorum.add([chunk(0, 1)])
    assert [event.group_idx for event in quorum.take()] == [0]
    assert quorum.take() == []


def test_reports_of_one_chunk_count_together_whatever_else_they_say():
    quorum = EventQuorum(2, (1,))
    quorum.add([chunk(0, 1, (1, 2, 3))])
    quorum.add([chunk(0, 1)])
    assert [event.token_ids for event in quorum.take()] == [[1, 2, 3]]


def test_chunks_that_never_complete_do_not_pile_up():
    quorum = EventQuorum(2, (1,))
    quorum.add(chunk(0, number) for number in range(PENDING_MAX + 5))
    quorum.add([chunk(0, 0)])  # Forgotten, so this is its first report again.
    assert quorum.take() == []
    quorum.add([chunk(0, PENDING_MAX)])
    assert len(quorum.take()) == 1
    assert len(quorum._pending) == PENDING_MAX - 1


def test_quorum_arguments_are_checked():
    for workers, replicas in ((0, (1,)), (2, (0,))):
        with pytest.raises(ValueError, match="above 0"):
            EventQuorum(workers, replicas)


def test_a_forked_child_ends_nothing_of_its_parent():
    closed = []
    connector = TenureStoreConnector.__new__(TenureStoreConnector)
    connector._process = os.getpid() + 1
    connector._worker = connector._scheduler = types.SimpleNamespace(close=lambda: closed.append(1))
    connector.shutdown()
    assert closed == []
    connector._process = os.getpid()
    connector.shutdown()
    connector.shutdown()
    assert closed == [1, 1]


def engine_config(backend, name="same"):
    parallel = types.SimpleNamespace(distributed_executor_backend=backend, rank=0, data_parallel_index=0)
    return types.SimpleNamespace(kv_transfer_config=types.SimpleNamespace(engine_id=name), parallel_config=parallel)


def test_a_second_engine_of_the_same_id_is_refused_and_the_first_goes_on(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    options = StoreOptions(embedded_memory="128MiB")
    first = open_worker_pool(engine_config("mp"), options)
    try:
        with pytest.raises(Error):
            open_worker_pool(engine_config("mp"), options)
        other = open_scheduler_pool(engine_config("mp"), options)
        space = other.pool.open_namespace("m@")
        other.pool.put([(space, b"h" * 32)], [b"x"])
        assert first.pool.stats()["objects"] == 1
        other.close()
    finally:
        first.close()
    assert list(tmp_path.iterdir()) == []
    open_worker_pool(engine_config("mp"), options).close()  # And the id is free again.


def test_folders_of_killed_engines_go_with_the_next_start(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    options = StoreOptions(embedded_memory="128MiB")
    living = open_worker_pool(engine_config("mp", "living"), options)
    (of_living,) = tmp_path.iterdir()
    killed, starting = (tmp_path / of_living.name.replace(of_living.name[-4:], end) for end in ("dead", "born"))
    for folder in (killed, starting):
        folder.mkdir()
        (folder / "pool.sock.lock").touch()
    for folder in (killed, of_living):
        os.utime(folder, (0, 0))
    open_worker_pool(engine_config("mp", "next"), options).close()
    assert sorted(tmp_path.iterdir()) == sorted([of_living, starting])
    living.close()


def test_a_process_that_finds_no_host_in_time_misses(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    alone = open_scheduler_pool(engine_config("mp"), StoreOptions(pool_wait=0.1))
    space = alone.pool.open_namespace("m@")
    assert alone.pool.probe([(space, b"h" * 32)]) == [KeyAnswer.ABSENT]
    alone.close()
    (record,) = caplog.records
    assert "pool_wait (0.1 s)" in record.getMessage() and "longer pool_wait" in record.getMessage()


def test_a_policy_that_fails_requests_is_warned_of_by_name(monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    for policy, warnings in (("recompute", 0), ("fail", 1)):
        caplog.clear()
        _warn(types.SimpleNamespace(kv_transfer_config=types.SimpleNamespace(kv_load_failure_policy=policy)))
        assert len(caplog.records) == warnings
    assert 'kv_load_failure_policy is "fail"' in caplog.text and '"recompute"' in caplog.text


def test_an_engine_that_only_gives_memory_mounts_its_segment_and_transfers_nothing(monkeypatch):
    """Whatever the model looks like: it stores nothing of it."""
    ended = []
    monkeypatch.setattr(store_connector, "open_mooncake", lambda options: types.SimpleNamespace(close=lambda: ended.append(options.pool)))
    monkeypatch.setattr(store_connector, "check_pool", lambda config, options: None)
    config, kv = configurations.engine(), configurations.groups()  # No group that could be cached.
    config.kv_transfer_config.kv_role = "kv_consumer"
    config.kv_transfer_config.kv_connector_extra_config = {"pool": "mooncake", "enable_lookup": False}
    worker = TenureStoreConnector(config, KVConnectorRole.WORKER, kv)
    scheduler = TenureStoreConnector(config, KVConnectorRole.SCHEDULER, kv)
    worker.register_kv_caches({})
    assert scheduler.get_num_new_matched_tokens(request(), 0) == (0, False)
    assert not scheduler.has_pending_push_work() and worker.build_connector_worker_meta() is None
    for connector in (scheduler, worker, worker):
        connector.shutdown()
    assert ended == ["mooncake"]


def test_reference_page_has_every_metric_of_stock():
    """docs/reference/vllm.md, the table of store operations."""
    names = []
    metric = lambda *, name, **_: names.append(name)
    config = types.SimpleNamespace(kv_transfer_config=None)
    TenurePromMetrics(config, {Gauge: metric, Counter: metric, Histogram: metric}, [], {})
    page = (pathlib.Path(__file__).parents[3] / "docs" / "reference" / "vllm.md").read_text()
    assert re.findall(r"^\| `(vllm:[a-z_]+)`", page, re.MULTILINE) == names


def test_engines_in_one_process_end_each_their_own_pool():
    options = StoreOptions(embedded_memory="128MiB")
    first = open_worker_pool(engine_config("uni"), options)
    second = open_worker_pool(engine_config("uni"), options)
    first.close()
    scheduler = open_scheduler_pool(engine_config("uni"), options)
    space = scheduler.pool.open_namespace("m@")
    scheduler.pool.put([(space, b"h" * 32)], [b"x"])
    assert second.pool.stats()["objects"] == 1
    scheduler.close()
    second.close()
    with pytest.raises(Error, match="no worker of this engine"):
        open_scheduler_pool(engine_config("uni"), options)


@pytest.mark.parametrize(
    ("option", "value"),
    [("search", "exhaustive"), ("lease", "all"), ("lease_ttl", 3.5), ("lookup_deadline", 0.25), ("enable_lookup", False), ("save_decode_cache", True)],
)
def test_options_of_lookups_and_saves_reach_the_scheduler(make_side, option, value):
    usual, changed = Core(), Core()
    make_side(usual)
    make_side(changed, options=StoreOptions.from_mapping({option: value}))
    assert {name: given for name, given in changed.options.items() if usual.options[name] != given} == {option: value}


def test_options_of_loads_reach_the_worker(monkeypatch):
    made = []
    model = types.SimpleNamespace(
        layout=types.SimpleNamespace(kind="plain"), config=None, group_ids=(0,), replicas=[1], ranks=types.SimpleNamespace(tp_rank=0), retention=0,
        events=False, worker_prefixes=lambda: [["m@"]],
    )
    pool = types.SimpleNamespace(pool=types.SimpleNamespace(open_namespace=lambda prefix: prefix))
    monkeypatch.setattr(store_worker, "ModelStore", lambda *arguments: model)
    monkeypatch.setattr(store_worker, "Parallelism", types.SimpleNamespace(of_worker=lambda config: None))
    monkeypatch.setattr(store_worker, "open_worker_pool", lambda *arguments: pool)
    monkeypatch.setattr(store_worker, "kv_memory", lambda *arguments: types.SimpleNamespace(pieces=[], regions=[], device=("cpu", 0)))
    monkeypatch.setattr(store_worker, "StoreWorker", lambda *arguments, **given: made.append(given))
    for options in ({}, {"load_deadline": 7.5, "load_threads": 3}):
        worker = store_worker.WorkerSide(configurations.engine(), configurations.groups(configurations.full()), StoreOptions.from_mapping(options))
        worker.register_kv_caches({"layer.0": None})
    assert {name: given for name, given in made[1].items() if made[0][name] != given} == {"load_deadline": 7.5, "load_threads": 3}


def test_options_of_pools_reach_them(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(pools, "EmbeddedPool", lambda *given, **named: asked.append((given, named)) or types.SimpleNamespace(share=lambda: None))
    monkeypatch.setattr(pools, "DaemonPool", lambda *given, **named: asked.append((given, named)))
    monkeypatch.setattr(pools, "MooncakePool", lambda config, **named: asked.append(((), named)))
    config = tmp_path / "mooncake.json"
    config.write_text('{"master_server_address": "127.0.0.1:1"}')
    monkeypatch.setenv("MOONCAKE_CONFIG_PATH", str(config))
    for options in (
        {"embedded_memory": "128MiB", "pool_mode": "independent"},
        {"pool": "unix:/run/pool.sock", "call_deadline": 3.5},
        {"pool": "mooncake", "call_deadline": 3.5, "load_deadline": 7.5, "lease_ttl": 1.5},
    ):
        open_worker_pool(engine_config("uni"), StoreOptions.from_mapping(options))
    assert asked == [
        ((128 << 20,), {"mode": "independent"}),
        (("/run/pool.sock",), {"call_deadline": 3.5}),
        ((), {"call_timeout": 3.5, "transfer_timeout": 7.5, "lease_ttl": 1.5}),
    ]


def test_a_preferred_segment_reaches_mooncake(monkeypatch, tmp_path):
    """The connector's option goes over that of the file; without it the file's stays."""
    config = tmp_path / "mooncake.json"
    config.write_text('{"master_server_address": "127.0.0.1:1", "preferred_segment": "of the file"}')
    monkeypatch.setenv("MOONCAKE_CONFIG_PATH", str(config))
    asked = []
    monkeypatch.setattr(pools, "MooncakePool", lambda config, **options: asked.append(config.preferred_segment))
    pools.open_mooncake(StoreOptions.from_mapping({"pool": "mooncake", "preferred_segment": "of the connector"}))
    pools.open_mooncake(StoreOptions.from_mapping({"pool": "mooncake"}))
    assert asked == ["of the connector", "of the file"]
