"""The scheduler's side of TenurePDConnector over vLLM-like requests: what is announced, offered, pulled, released and renewed."""

import enum
import logging
import types

import pytest

from tenure.vllm.pd_scheduler import PDSchedulerSide, check_cut, cut_last_token

REMOTE = {"transfer_id": "xfer-1", "remote_engine_id": "p", "remote_bootstrap_addr": "http://127.0.0.1:8998"}


class Status(enum.Enum):
    FINISHED_STOPPED = 1
    FINISHED_LENGTH_CAPPED = 2
    FINISHED_ABORTED = 3


class Request:
    """The fields of vLLM's Request that the connector reads."""

    def __init__(self, request_id="r", length=100, *, decode=False, **params):
        self.request_id = request_id
        self.prompt_token_ids = list(range(length))
        self.prompt_embeds = None
        self.prompt_is_token_ids = None
        self._all_token_ids = list(self.prompt_token_ids)
        self.all_token_ids = self._all_token_ids
        self.num_prompt_tokens = length
        self.max_tokens = 16
        self.skip_reading_prefix_cache = False
        self.num_output_tokens = 1
        self.status = Status.FINISHED_LENGTH_CAPPED
        self.kv_transfer_params = {("do_remote_prefill" if decode else "do_remote_decode"): True, **params}

    @property
    def num_tokens(self):
        return len(self._all_token_ids)


class Blocks:
    def __init__(self, *groups):
        self.groups = groups

    def get_unhashed_block_ids_all_groups(self):
        return [list(group) for group in self.groups]


class Sender:
    """Records what is renewed."""

    def __init__(self):
        self.tracked, self.stopped, self.steps, self.gone = [], [], 0, []

    def track(self, request, transfer_id, engine_id, bootstrap_address, seconds):
        assert 0 < seconds <= 60
        self.tracked.append((request, transfer_id, engine_id, bootstrap_address))

    def stop(self, request):
        self.stopped.append(request)

    def stepped(self):
        self.steps += 1

    def take_gone(self):
        gone, self.gone = self.gone, []
        return gone

    def take_stats(self):
        return {"sent_renewals": 2}


def side(role, *, groups=1, states=False, renewals=None, allow_peer=None):
    """The transfer groups are the last `groups` of one more."""
    return PDSchedulerSide(
        role,
        [(0, 32)] * groups,
        select=lambda blocks: blocks[-groups:],
        keeps_last_token=states,
        request_timeout=60.0,
        renewals=renewals,
        allow_peer=allow_peer,
    )


def output(received=(), sent=()):
    return types.SimpleNamespace(finished_recving=set(received), finished_sending=set(sent))


def prefilled(scheduler, request):
    scheduler.on_new_request(request)
    assert scheduler.num_new_matched_tokens(request, 0) == (0, False)
    scheduler.update_state_after_alloc(request, Blocks([9], [1]), 0)


def test_what_renewals_have_met_is_told_where_there_are_some():
    assert side("kv_consumer", renewals=Sender()).counters() == {"sent_renewals": 2}
    assert side("kv_consumer").counters() == side("kv_producer").counters() == {}


@pytest.mark.parametrize("status", [Status.FINISHED_LENGTH_CAPPED, Status.FINISHED_STOPPED])
def test_a_whole_prefill_keeps_its_blocks_until_they_are_sent(status):
    scheduler = side("kv_producer")
    request = Request(transfer_id="xfer-1")
    request.status = status
    prefilled(scheduler, request)
    assert scheduler.has_orders()
    prefill, decode = scheduler.take_orders()
    assert b"xfer-1" in prefill and b"announced" in prefill and decode == b""
    assert scheduler.request_finished(request, ([9], [1, 2])) is True
    assert b"finished" in scheduler.take_orders()[0]
    assert not scheduler.has_orders()
    scheduler.update_output(output(sent=["r", "of another connector"]))


def test_an_abort_frees_at_once_and_is_told():
    scheduler = side("kv_producer")
    request = Request(transfer_id="xfer-1")
    prefilled(scheduler, request)
    request.status = Status.FINISHED_ABORTED
    assert scheduler.request_finished(request, ([9], [1])) is False
    prefill, _ = scheduler.take_orders()
    assert b"aborted" in prefill and b"announced" not in prefill


def test_decoded_tokens_are_not_taken_for_the_prompt(caplog):
    scheduler = side("kv_producer")
    request = Request(transfer_id="xfer-1")
    request.num_output_tokens = 2
    prefilled(scheduler, request)
    with caplog.at_level(logging.WARNING, "vllm.tenure"):
        assert scheduler.request_finished(request, ([9], [1])) is False
    assert "set max_tokens to 1" in caplog.text
    assert b"aborted" in scheduler.take_orders()[0]


@pytest.mark.parametrize(
    "params, said",
    [
        ({}, "has no transfer_id"),
        ({"transfer_id": 7}, "transfer_id is 7; use text"),
        ({"transfer_id": "xfer-\ud800"}, "transfer_id is 'xfer-\\ud800', which is no Unicode text"),
    ],
)
def test_a_prefill_without_usable_transfer_id_runs_alone(caplog, params, said):
    scheduler = side("kv_producer")
    request = Request(**params)
    with caplog.at_level(logging.WARNING, "vllm.tenure"):
        prefilled(scheduler, request)
    assert said in caplog.text
    assert scheduler.request_finished(request, ([9], [1])) is False
    assert scheduler.take_orders() == (b"", b"")


def test_the_second_child_of_a_prompt_is_refused_with_a_text(caplog):
    scheduler = side("kv_both")
    first, second = Request("0_r", transfer_id="xfer-1"), Request("1_r", transfer_id="xfer-1")
    prefilled(scheduler, first)
    with caplog.at_level(logging.WARNING, "vllm.tenure"):
        prefilled(scheduler, second)
    assert "transfer_id xfer-1 belongs to request 0_r" in caplog.text
    assert scheduler.request_finished(second, ([9], [2])) is False
    assert scheduler.request_finished(first, ([9], [1])) is True


def test_a_prompt_is_pulled_once():
    scheduler = side("kv_consumer", groups=2)
    request = Request(decode=True, **REMOTE)
    scheduler.on_new_request(request)
    assert scheduler.num_new_matched_tokens(request, 32) == (68, True)
    scheduler.update_state_after_alloc(request, Blocks([7], [4, 5], [6]), 68)
    prefill, decode = scheduler.take_orders()
    assert prefill == b"" and b"xfer-1" in decode and b"\x92\x92\x04\x05\x91\x06" in decode
    assert scheduler.num_new_matched_tokens(request, 0) == (0, False)
    scheduler.update_output(output(received=["r"]))
    scheduler.update_state_after_alloc(request, Blocks([7], [], []), 0)
    assert scheduler.request_finished(request, ([7], [4, 5], [6])) is False
    assert scheduler.take_orders() == (b"", b"")
    assert request.kv_transfer_params["do_remote_prefill"] is True  # Siblings share the dictionary.


def test_an_abort_before_the_schedule_only_releases():
    scheduler = side("kv_consumer")
    request = Request(decode=True, **REMOTE)
    scheduler.on_new_request(request)
    assert scheduler.request_finished(request, ()) is False
    assert scheduler.has_orders()
    assert b"xfer-1" in scheduler.take_orders()[1]


@pytest.mark.parametrize("missing", sorted(REMOTE))
def test_a_field_that_is_missing_is_named_and_the_prompt_computed(caplog, missing):
    scheduler = side("kv_consumer")
    request = Request(decode=True, **{name: value for name, value in REMOTE.items() if name != missing})
    with caplog.at_level(logging.WARNING, "vllm.tenure"):
        scheduler.on_new_request(request)
    assert f"has no {missing}" in caplog.text
    assert scheduler.num_new_matched_tokens(request, 0) == (0, False)
    scheduler.update_state_after_alloc(request, Blocks([7], [4]), 0)
    assert scheduler.request_finished(request, ([7], [4])) is False
    assert not scheduler.has_orders()


@pytest.mark.parametrize("address", ["http://127.0.0.1:8999", "http://169.254.169.254:80", "http://127.0.0.1:8998@evil:1", "x" * 5000])
def test_a_peer_that_is_not_allowed_is_asked_nothing_and_the_prompt_computed(caplog, address):
    sender = Sender()
    scheduler = side("kv_consumer", renewals=sender, allow_peer=("http://127.0.0.1:8998",))
    request = Request(decode=True, **{**REMOTE, "remote_bootstrap_addr": address})
    with caplog.at_level(logging.WARNING, "vllm.tenure"):
        scheduler.on_new_request(request)
    assert f"remote_bootstrap_addr is '{address[:50]}" in caplog.text and "not in allow_peer" in caplog.text and len(caplog.text) < 1000
    assert scheduler.num_new_matched_tokens(request, 0) == (0, False)
    scheduler.update_state_after_alloc(request, Blocks([7], [4]), 0)
    assert scheduler.request_finished(request, ([7], [4])) is False
    assert not scheduler.has_orders() and not sender.tracked


@pytest.mark.parametrize("address", ["http://127.0.0.1:8998", "HTTP://127.0.0.1:8998/"])
def test_a_peer_that_is_allowed_is_pulled_from(address):
    sender = Sender()
    scheduler = side("kv_consumer", renewals=sender, allow_peer=("http://127.0.0.1:8998",))
    request = Request(decode=True, **{**REMOTE, "remote_bootstrap_addr": address})
    scheduler.on_new_request(request)
    assert scheduler.num_new_matched_tokens(request, 0)[1] and len(sender.tracked) == 1


@pytest.mark.parametrize("field", sorted(REMOTE))
@pytest.mark.parametrize("value", [7, "half of a pair: \udfff", "x" * 5000])
def test_a_field_that_no_message_can_carry_is_named_and_the_prompt_computed(caplog, field, value):
    scheduler = side("kv_consumer")
    request = Request(decode=True, **{**REMOTE, field: value})
    with caplog.at_level(logging.WARNING, "vllm.tenure"):
        scheduler.on_new_request(request)
    assert field in caplog.text
    assert scheduler.num_new_matched_tokens(request, 0) == (0, False)
    assert scheduler.request_finished(request, ([7], [4])) is False
    assert not scheduler.has_orders()


@pytest.mark.parametrize("role, decode", [("kv_producer", True), ("kv_consumer", False)])
def test_the_other_half_of_a_role_is_refused_with_a_text(caplog, role, decode):
    scheduler = side(role)
    request = Request(decode=decode, **REMOTE)
    with caplog.at_level(logging.WARNING, "vllm.tenure"):
        scheduler.on_new_request(request)
    assert f"kv_role is {role}" in caplog.text
    assert scheduler.num_new_matched_tokens(request, 0) == (0, False)
    scheduler.update_state_after_alloc(request, Blocks([7], [4]), 0)
    assert scheduler.request_finished(request, ([7], [4])) is False
    assert scheduler.take_orders() == (b"", b"")


def test_a_request_without_parameters_is_none_of_ours():
    scheduler = side("kv_both")
    request = Request()
    request.kv_transfer_params = None
    scheduler.on_new_request(request)
    assert scheduler.num_new_matched_tokens(request, 0) == (0, False)
    scheduler.update_state_after_alloc(request, Blocks([7], [4]), 0)
    assert scheduler.request_finished(request, ([7], [4])) is False
    assert not scheduler.has_orders()


def test_a_transfer_is_renewed_from_arrival_until_its_pull_is_settled():
    sender = Sender()
    scheduler = side("kv_consumer", renewals=sender)
    request = Request(decode=True, **REMOTE)
    scheduler.on_new_request(request)
    assert sender.tracked == [("r", "xfer-1", "p", "http://127.0.0.1:8998")]
    scheduler.update_state_after_alloc(request, Blocks([7], [4]), 100)
    scheduler.take_orders()
    assert sender.stopped == [] and sender.steps == 1
    scheduler.update_output(output(received=["r"]))
    assert sender.stopped == ["r"]


def test_a_release_ends_the_renewal():
    sender = Sender()
    scheduler = side("kv_consumer", renewals=sender)
    request = Request(decode=True, **REMOTE)
    scheduler.on_new_request(request)
    scheduler.update_state_after_alloc(request, Blocks([7], []), 0)
    scheduler.take_orders()
    assert sender.stopped == ["r"]


def test_a_transfer_that_p_holds_no_more_is_computed_at_d(caplog):
    sender = Sender()
    scheduler = side("kv_consumer", renewals=sender)
    request = Request(decode=True, **REMOTE)
    scheduler.on_new_request(request)
    sender.gone = [("p", "xfer-1"), ("p", "another")]
    with caplog.at_level(logging.WARNING, "vllm.tenure"):
        assert scheduler.take_orders() == (b"", b"")
    assert "engine p holds transfer xfer-1 no more" in caplog.text
    assert scheduler.num_new_matched_tokens(request, 0) == (0, False)
    assert sender.stopped == ["r"]


def test_models_with_states_hand_over_all_but_the_last_token():
    scheduler = side("kv_both", states=True)
    request = Request(transfer_id="xfer-1")
    given = request.prompt_token_ids
    scheduler.on_new_request(request)
    assert (request.num_prompt_tokens, request.num_tokens, len(request.prompt_token_ids), request.max_tokens) == (99, 99, 99, 1)
    assert len(given) == 100
    wanting = Request("d", decode=True, **{**REMOTE, "transfer_id": "xfer-2"})
    scheduler.on_new_request(wanting)
    assert scheduler.num_new_matched_tokens(wanting, 0) == (99, True)


def test_prompts_that_load_nothing_and_single_tokens_stay_whole():
    scheduler = side("kv_producer", states=True)
    scored, single = Request(transfer_id="a"), Request(length=1, transfer_id="b")
    scored.skip_reading_prefix_cache = True
    scheduler.on_new_request(scored)
    scheduler.on_new_request(single)
    assert (scored.num_prompt_tokens, single.num_prompt_tokens) == (100, 1)


def test_known_requests_can_be_cut():
    check_cut(Request(length=3))


def test_unknown_requests_are_refused_by_name():
    request = Request(length=3)
    del request._all_token_ids
    with pytest.raises(RuntimeError, match="requests without _all_token_ids; TenurePDConnector knows those of vLLM 0.32"):
        check_cut(request)
    request = Request(length=3)
    request.all_token_ids = tuple(request.all_token_ids)  # No view of the list any more.
    with pytest.raises(RuntimeError, match="whose prompt cannot be cut"):
        check_cut(request)


def test_a_cut_leaves_other_holders_of_the_prompt_alone():
    request = Request(length=3)
    given = request.prompt_token_ids
    cut_last_token(request)
    assert given == [0, 1, 2] and request.prompt_token_ids == [0, 1]
