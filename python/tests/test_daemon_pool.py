"""The daemon's pool through Python, and the compatibility API over it. TENURE_PROGRAM names the program."""

import os
import select
import time

import pytest
from conftest import make_hash, make_hashes
from daemon_process import Daemon

import tenure
from tenure import KeyAnswer, PutAnswer
from tenure.compat.mooncake_store import MooncakeDistributedStore

DEADLINE = 1.0


@pytest.fixture
def daemon(tmp_path):
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.kill()


def test_two_clients_share_objects_and_lookups(daemon):
    rules = tenure.CacheConfig([tenure.GroupSpec("full", 16)], hash_block_size=16, scheduler_block_size=16)
    with tenure.DaemonPool(daemon.socket) as writer, tenure.DaemonPool(daemon.socket) as reader:
        hashes = make_hashes(20)
        keys = [(writer.open_namespace("m@"), value) for value in hashes]
        parents = [None, *keys[:-1]]
        assert writer.put(keys, hashes, parents=parents, kind="full") == [PutAnswer.STORED] * 20
        mine = reader.open_namespace("m@")
        buffer = bytearray(32)
        assert reader.get([(mine, hashes[7])], [buffer]) == [KeyAnswer.PRESENT] and buffer == hashes[7]
        found = tenure.Lookup(rules, reader, [[mine]]).find(hashes, 321)
        assert found.length == 320 and reader.stats()["held_leased_objects"] == len(found.lease) > 0
        found.lease.release()


def test_compat_runs_over_the_daemon(daemon, monkeypatch):
    monkeypatch.setenv("TENURE_SOCKET", daemon.socket)
    by_address, by_variable = MooncakeDistributedStore(), MooncakeDistributedStore()
    assert by_address.setup("h", "", 0, 0, "tcp", "", f"unix:{daemon.socket}") == 0
    assert by_variable.setup("h", "", 0, 0, "tcp", "", "10.0.0.1:50051") == 0
    assert by_address.put("k", b"value") == 0 and by_variable.get("k") == b"value"
    assert by_variable.batch_is_exist(["k", "l"]) == [1, 0] and by_variable.health_check() == 0
    daemon.kill()
    start = time.monotonic()
    assert by_address.get("k") == b"" and by_address.batch_is_exist(["k"])[0] < 0 and by_address.put("k", b"v") < 0
    assert by_address.health_check() == 2 and time.monotonic() - start < 20
    assert by_address.close() == 0 == by_variable.close()


def test_killed_daemon_is_misses_in_time_and_a_new_one_a_cold_pool(daemon):
    with tenure.DaemonPool(daemon.socket, call_deadline=DEADLINE) as pool:
        keys = [(pool.open_namespace("m@"), make_hash(1))]
        assert pool.put(keys, [b"a"]) == [PutAnswer.STORED] and pool.connected
        daemon.kill()
        for call in (lambda: pool.probe(keys), lambda: pool.get(keys, [bytearray(1)]), lambda: pool.put(keys, [b"a"])):
            start = time.monotonic()
            try:
                assert call()[0] in (KeyAnswer.UNAVAILABLE, KeyAnswer.ABSENT, PutAnswer.NOT_STORED)
            except tenure.PoolUnavailable:
                pass
            assert time.monotonic() - start < 2 * DEADLINE + 3
        daemon.start()
        deadline = time.monotonic() + 30
        while not pool.connected:
            assert time.monotonic() < deadline
            select.select([], [], [], 0.05)
        assert pool.probe(keys) == [KeyAnswer.ABSENT] and pool.put(keys, [b"a"]) == [PutAnswer.STORED]


def test_socket_that_nobody_serves_is_named(tmp_path):
    with pytest.raises((tenure.PoolUnavailable, ValueError), match="none.sock"):
        tenure.DaemonPool(str(tmp_path / "none.sock"))
    with pytest.raises(ValueError, match="call_deadline is 0"):
        tenure.DaemonPool(str(tmp_path / "none.sock"), call_deadline=0)
