"""Both workers of a P/D pair in this process, over real sockets: bootstrap, pulls, writes, leases, and Mooncake's engine as a transport."""

import ctypes
import json
import socket
import time
import urllib.error
import urllib.request

import pytest

import tenure
from tenure._native import (
    BootstrapServer,
    DecodeScheduler,
    DecodeWorker,
    KvRegion,
    MismatchBoard,
    PrefillScheduler,
    PrefillWorker,
    RenewalSender,
    Transport,
    pd_make_curve_keys,
)

BLOCKS, BLOCK_BYTES = 16, 256
GROUPS = [(0, 32)]


def until(done, seconds=20):
    end = time.monotonic() + seconds
    while not (result := done()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.005)
    return result


class Memory:
    """A KV cache of one layer."""

    def __init__(self, fill):
        self.buffer = (ctypes.c_ubyte * (BLOCKS * BLOCK_BYTES))(*[fill] * (BLOCKS * BLOCK_BYTES))
        self.address = ctypes.addressof(self.buffer)
        self.region = KvRegion(
            "model.layers.0", layer_index=0, group_index=0, shared_group_ids=[0], base_addr=self.address, block_bytes=BLOCK_BYTES,
            kv_bytes=BLOCK_BYTES, row_offset=-1, num_blocks=BLOCKS, head_split="allowed", hides_layers=False,
        )

    def put(self, block, value):
        ctypes.memset(self.address + block * BLOCK_BYTES, value, BLOCK_BYTES)

    def get(self, block):
        return set(self.buffer[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES])


class FakeMooncake:
    """TransferEngine's calls between two parts of this process. It fails when told to."""

    def __init__(self):
        self.registered, self.sessions, self.code = [], [], 0

    def batch_register_memory(self, addresses, lengths):
        self.registered += list(zip(addresses, lengths))
        return 0

    def batch_transfer_sync_write(self, session, sources, targets, lengths):
        self.sessions.append(session)
        if self.code:
            return self.code
        for source, target, length in zip(sources, targets, lengths):
            ctypes.memmove(target, source, length)
        return 0


class Pair:
    def __init__(self, transports, *, prefill_lease=None, decode_lease=None, token="", register=True, secret_key=None, public_key=None, **options):
        self.board = MismatchBoard()
        self.source, self.target = Memory(0), Memory(255)
        self.transports = transports
        for transport, memory in zip(transports, (self.source, self.target)):
            transport.register([(memory.address, BLOCKS * BLOCK_BYTES)])
        self.bootstrap = BootstrapServer("127.0.0.1", 0, token=token, board=self.board)
        self.url = f"http://127.0.0.1:{self.bootstrap.port}"
        common = dict(rank=(1, 0, 1, 0), total_kv_heads=1, is_mla=False, groups=[(False, 1)], host="127.0.0.1", connector_timeout=2.0, board=self.board)
        self.prefill = PrefillWorker(
            [self.source.region], transports[0], engine_id="p", dp_rank=0, incarnation=1, bootstrap_url=self.url, bootstrap_token=token,
            lease=prefill_lease, hold_timeout=60.0, curve_secret_key=secret_key, **common, **options,
        )
        self.decode = DecodeWorker([self.target.region], transports[1], lease=decode_lease, curve_server_key=public_key, **common)
        self.prefills = PrefillScheduler(GROUPS)
        self.decodes = DecodeScheduler(GROUPS, keeps_last_token=False, request_timeout=30.0)
        if register:
            self.prefill.register()

    def compute(self, transfer_id, blocks):
        """P's part: the prefill runs, and ends with `blocks`."""
        self.prefills.scheduled("p-" + transfer_id, transfer_id)
        assert self.prefills.finished("p-" + transfer_id, transfer_id, True, [blocks])
        self.prefill.record_step(self.prefills.take_orders())

    def pull(self, transfer_id, blocks):
        """D's part: the request arrives and gets `blocks`."""
        self.decodes.arrived("d-" + transfer_id, transfer_id, "p", self.url)
        self.decodes.allocated("d-" + transfer_id, [blocks], 32 * len(blocks))
        self.decode.start_pulls(self.decodes.take_orders())

    def outcome(self):
        """What has come and what has failed, once there is one."""
        return until(lambda: outcome if any(outcome := self.decode.take_outcomes()[:2]) else None)

    def sent(self):
        return until(self.prefill.take_finished)

    def close(self):
        for part in (self.prefill, self.decode, *self.transports, self.bootstrap):
            part.close()


@pytest.fixture
def make():
    pairs = []

    def build(transports=None, **options):
        pairs.append(Pair(transports or (Transport("local"), Transport("local")), **options))
        return pairs[-1]

    yield build
    for pair in pairs:
        pair.close()
        pair.close()  # Idempotent.


def test_blocks_go_over_and_are_free_then(make):
    pair = make()
    for block, value in ((3, 30), (5, 50)):
        pair.source.put(block, value)
    pair.pull("xfer-1", [7, 2])
    pair.compute("xfer-1", [3, 5])
    assert pair.outcome() == (["d-xfer-1"], [])
    assert (pair.target.get(7), pair.target.get(2), pair.target.get(3)) == ({30}, {50}, {255})
    assert pair.sent() == ["p-xfer-1"]
    assert pair.prefills.sent("p-xfer-1") and pair.decodes.settled("d-xfer-1")
    writes, counts = pair.prefill.take_stats()
    assert [(size, pieces) for _, size, pieces in writes] == [(2 * BLOCK_BYTES, 2)]
    assert counts["pulls"] == 1 and counts["num_failed_transfers"] == 0
    assert pair.decode.take_stats()[1]["received"] == 1


def test_a_pull_whose_p_has_gone_is_told_long_before_it_ends(make):
    pair = make()
    pair.prefills.scheduled("p-gone", "gone")
    pair.prefill.record_step(pair.prefills.take_orders())
    pair.pull("gone", [1])
    until(lambda: pair.prefill.take_stats()[1].get("pulls"))
    pair.prefill.close()
    ((request, error),) = until(lambda: pair.decode.take_outcomes()[2])
    assert request == "d-gone" and "closed" in error


def test_a_release_frees_blocks_and_has_no_outcome(make):
    pair = make()
    pair.compute("xfer-1", [3])
    pair.decodes.arrived("d", "xfer-1", "p", pair.url)
    pair.decodes.finished("d")
    pair.decode.start_pulls(pair.decodes.take_orders())
    assert pair.sent() == ["p-xfer-1"]
    assert pair.decode.take_outcomes() == ([], [], [])


def test_a_failed_prefill_is_told_with_its_blocks(make):
    pair = make()
    pair.pull("xfer-1", [7])
    assert not pair.prefills.finished("p", "xfer-1", False, [])
    pair.prefill.record_step(pair.prefills.take_orders())
    received, ((request, error, blocks),) = pair.outcome()
    assert (received, request, blocks) == ([], "d-xfer-1", [[7]])
    assert "xfer-1" in error


def test_different_leases_are_refused_with_both_values_and_shown(make):
    pair = make(prefill_lease=3.0, decode_lease=4.0)
    pair.compute("xfer-1", [3])
    pair.pull("xfer-1", [7])
    _, ((_, error, _),) = pair.outcome()
    assert "3" in error and "4" in error and "kv_lease_duration" in error
    with urllib.request.urlopen(pair.url + "/status", timeout=5) as answer:
        shown = json.load(answer)
    assert shown["total"] >= 1 and shown == json.loads(pair.board.to_json())


def test_a_lease_that_is_renewed_outlives_itself_and_one_that_is_not_ends(make):
    pair = make(prefill_lease=0.5, decode_lease=0.5)
    sender = RenewalSender(0.5, renew_without_step=60.0, connector_timeout=2.0, curve_server_key=None)
    sender.track("d", "xfer-kept", "p", pair.url, 60.0)
    pair.compute("xfer-kept", [3])
    pair.compute("xfer-lost", [4])
    assert pair.sent() == ["p-xfer-lost"]
    until(lambda: pair.prefill.take_stats()[1]["renewals"] >= 1)
    assert pair.prefill.take_finished() == []
    sender.stop("d")
    assert pair.sent() == ["p-xfer-kept"]
    counts = sender.take_stats()
    assert counts.pop("sent_renewals") >= 1 and not any(counts.values())
    sender.close()


def test_mooncake_carries_kv_to_host_and_port(make):
    engines = FakeMooncake(), FakeMooncake()
    started = []
    transports = (
        Transport.mooncake(engines[0], "127.0.0.1", 1111, threads=2, on_thread_start=lambda: started.append(1)),
        Transport.mooncake(engines[1], "::1", 2222, threads=1),
    )
    pair = make(transports)
    pair.source.put(3, 30)
    pair.compute("xfer-1", [3])
    pair.pull("xfer-1", [7])
    assert pair.outcome() == (["d-xfer-1"], [])
    assert pair.target.get(7) == {30} and started
    assert engines[0].sessions == ["[::1]:2222"] and engines[1].sessions == []
    assert engines[1].registered == [(pair.target.address, BLOCKS * BLOCK_BYTES)]


def test_transports_of_two_kinds_say_so(make):
    pair = make((Transport("local"), Transport.mooncake(FakeMooncake(), "127.0.0.1", 2222, threads=1)))
    pair.compute("xfer-1", [3])
    pair.pull("xfer-1", [7])
    _, ((_, error, _),) = pair.outcome()
    assert "mooncake" in error and "local" in error


def test_only_who_says_the_token_registers(make):
    pair = make(token="secret")
    body = json.dumps({"engine_id": "x", "dp_rank": 9, "tp_rank": 0, "pp_rank": 0, "addr": "tcp://127.0.0.1:1"}).encode()
    request = urllib.request.Request(pair.url + "/register", body, {"Content-Type": "application/json"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=5)
    assert refused.value.code == 401
    refused.value.close()


def test_curve_keys_of_one_pair_talk_and_renew(make):
    public, secret = pd_make_curve_keys()
    pair = make(secret_key=secret, public_key=public, prefill_lease=0.5, decode_lease=0.5)
    pair.source.put(3, 30)
    sender = RenewalSender(0.5, renew_without_step=60.0, connector_timeout=2.0, curve_server_key=public)
    sender.track("d-xfer-1", "xfer-1", "p", pair.url, 60.0)
    pair.compute("xfer-1", [3])
    until(lambda: pair.prefill.take_stats()[1]["renewals"])
    pair.pull("xfer-1", [7])
    assert pair.outcome() == (["d-xfer-1"], [])
    assert pair.target.get(7) == {30}
    sender.close()


@pytest.mark.parametrize("wrong", ["other key", "only P", "only D"])
def test_other_curve_keys_carry_nothing_and_the_reason_names_them(make, wrong):
    public, secret = pd_make_curve_keys()
    keys = {
        "other key": {"secret_key": secret, "public_key": pd_make_curve_keys()[0]},
        "only P": {"secret_key": secret},
        "only D": {"public_key": public},
    }[wrong]
    pair = make(**keys)
    pair.source.put(3, 30)
    pair.compute("xfer-1", [3])
    pair.pull("xfer-1", [7])
    received, ((request, error, blocks),) = pair.outcome()
    assert (received, request, blocks) == ([], "d-xfer-1", [[7]])
    assert pair.prefill.address in error and "CURVE keys of one pair or neither" in error
    assert pair.target.get(7) == {255}
    assert pair.prefill.take_stats()[1]["pulls"] == 0 and pair.prefill.take_finished() == []


def test_a_bootstrap_server_that_is_not_there_is_named(make):
    pair = make(register=False, register_attempts=1)
    pair.bootstrap.close()
    with pytest.raises(tenure.PoolUnavailable, match=pair.url):
        pair.prefill.register()
    with pytest.raises(ValueError, match="register_attempts is 0"):
        make(register_attempts=0)


def test_listeners_take_the_named_address_alone(make):
    pair = make()
    for port in (pair.bootstrap.port, int(pair.prefill.address.rsplit(":", 1)[1])):
        socket.create_connection(("127.0.0.1", port), 5).close()
        with pytest.raises(ConnectionRefusedError):  # All of 127.0.0.0/8 is this machine's.
            socket.create_connection(("127.0.0.2", port), 5)


def test_an_address_of_any_text_is_an_error_of_one_line(make):
    pair = make()
    for request, address in (("a", "http://" + "\u00e4" * 300), ("b", "http://a\nb"), ("c", "http://\u20ac:1"), ("d", "http://127.0.0.1:65536"), ("e", "http://127.0.0.1:0")):
        pair.decodes.arrived(request, "xfer-" + request, "p", address)
        pair.decodes.allocated(request, [[7]], 32)
        pair.decode.start_pulls(pair.decodes.take_orders())
        received, ((failed, error, _),) = pair.outcome()
        assert (received, failed) == ([], request)
        assert "\n" not in error and len(error) < 1000


def test_what_cannot_be_is_refused():
    board = MismatchBoard()
    with pytest.raises(ValueError, match="kind|transport"):
        Transport("carrier pigeon")
    with pytest.raises(ValueError, match="kv_lease_duration"):
        RenewalSender(0.0, renew_without_step=None, connector_timeout=1.0, curve_server_key=None)
    with pytest.raises(ValueError, match="CURVE key; give 40 characters") as refused:
        RenewalSender(1.0, renew_without_step=None, connector_timeout=1.0, curve_server_key="")
    assert "public" in str(refused.value)
    for port in (-1, 65536):
        with pytest.raises(ValueError, match=f"port is {port}"):
            BootstrapServer("127.0.0.1", port, token="", board=board)
    server = BootstrapServer("127.0.0.1", 0, token="", board=board)
    with pytest.raises(ValueError, match=str(server.port)):
        BootstrapServer("127.0.0.1", server.port, token="", board=board)
    server.close()
    transport = Transport("local")
    transport.close()
    with pytest.raises(tenure.Error, match="closed"):
        transport.register([(1, 1)])
