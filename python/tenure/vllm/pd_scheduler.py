"""The scheduler's side of a P/D pair: vLLM's requests to the compiled schedulers, and their orders for the workers back.

One thread, the scheduler's. Needs nothing of vLLM but the objects that it is given, so that tests run without it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Callable, Collection, Mapping, Protocol, Sequence

from tenure._native import DecodeScheduler, Error, PrefillScheduler
from tenure.pd.peers import is_allowed

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

_logger = logging.getLogger("vllm.tenure")  # Under vLLM's logger, so that its handlers and levels apply.
# Ends after which all of a prompt's KV is there: the limit of one token, or a first token that stops.
_WHOLE = ("FINISHED_LENGTH_CAPPED", "FINISHED_STOPPED")

Blocks = Sequence[list[int]]


class Renewals(Protocol):
    """What sends renewals for this process: the compiled RenewalSender."""

    def track(self, request: str, transfer_id: str, engine_id: str, bootstrap_address: str, seconds: float) -> None: ...

    def stop(self, request: str) -> None: ...

    def stepped(self) -> None: ...

    def take_gone(self) -> Sequence[tuple[str, str]]: ...

    def take_stats(self) -> Mapping[str, int]: ...


class PDSchedulerSide:
    """What the connector does in the scheduler's process.

    windows: (tokens of the sliding window or 0, tokens of a block) of each transfer group. select: from blocks of all groups to those
    of the transfer groups. keeps_last_token: P computes all tokens of a prompt but the last (recurrent states). renewals: None when
    kv_lease_duration is unset. allow_peer: bootstrap servers that a request may name, as tenure.pd.peers.address has them; None: any.
    """

    def __init__(
        self,
        role: str,
        windows: Sequence[tuple[int, int]],
        *,
        select: Callable[[Blocks], Blocks],
        keeps_last_token: bool,
        request_timeout: float,
        renewals: Renewals | None,
        allow_peer: Collection[str] | None = None,
    ) -> None:
        self._select = select
        self._keeps_last_token = keeps_last_token
        self._prefill = None if role == "kv_consumer" else PrefillScheduler(list(windows))
        self._decode = (
            None
            if role == "kv_producer"
            else DecodeScheduler(list(windows), keeps_last_token=keeps_last_token, request_timeout=request_timeout)
        )
        self._role = role
        self._renewals = renewals
        self._allow_peer = allow_peer

    def on_new_request(self, request: Request) -> None:
        """A request has come: D begins to renew its transfer, P takes the last token off."""
        params = request.kv_transfer_params
        if not params:
            return
        if params.get("do_remote_prefill"):
            if self._decode is None:
                _logger.warning("request %s: do_remote_prefill, but kv_role is %s; its prompt is computed here", request.request_id, self._role)
            else:
                self._arrived(self._decode, request.request_id, params)
        elif params.get("do_remote_decode"):
            if self._prefill is None:
                _logger.warning("request %s: do_remote_decode, but kv_role is %s; its KV is not handed over", request.request_id, self._role)
            elif self._keeps_last_token and request.num_prompt_tokens > 1 and not request.skip_reading_prefix_cache:
                # Prompts whose logprobs are wanted load nothing at D, so they stay whole.
                cut_last_token(request)

    def num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int, bool]:
        """Tokens beyond the computed ones that a pull brings, in the background."""
        if self._decode is None or not request.kv_transfer_params or request.prompt_token_ids is None:
            return 0, False
        found = self._decode.offered(request.request_id, len(request.prompt_token_ids), num_computed_tokens)
        return found, found > 0

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        """The request has its blocks: D pulls into them, P announces it."""
        params = request.kv_transfer_params
        if not params:
            return
        if self._prefill is not None and _is_prefill(params):
            try:
                self._prefill.scheduled(request.request_id, _text_of(params, "transfer_id"))
            except (ValueError, Error) as error:
                _logger.warning("%s", error)
        elif self._decode is not None:
            wanted = self._select(blocks.get_unhashed_block_ids_all_groups()) if num_external_tokens > 0 else ()
            self._decode.allocated(request.request_id, [list(group) for group in wanted], num_external_tokens)

    def request_finished(self, request: Request, block_ids: Blocks) -> bool:
        """True: the blocks stay until every worker has reported them as sent."""
        params = request.kv_transfer_params
        if not params:
            return False
        if self._decode is not None:
            self._decode.finished(request.request_id)
        if self._prefill is None or not _is_prefill(params):
            return False
        whole = request.status.name in _WHOLE
        if whole and request.num_output_tokens > 1:
            # Blocks pair from the right, so those of decoded tokens would be taken for the prompt's.
            _logger.warning(
                "request %s: do_remote_decode with %d tokens decoded; its KV is not handed over: set max_tokens to 1",
                request.request_id,
                request.num_output_tokens,
            )
            whole = False
        try:
            transfer_id = _text_of(params, "transfer_id")
        except ValueError:
            transfer_id = ""  # Said when it was scheduled.
        selected = self._select(block_ids) if any(block_ids) else ()
        return self._prefill.finished(request.request_id, transfer_id, whole, [list(group) for group in selected])

    def take_orders(self) -> tuple[bytes, bytes]:
        """The orders of this step for P's and D's half of every worker."""
        if self._renewals is not None:
            self._renewals.stepped()
        self._drop_gone()
        prefill = b"" if self._prefill is None else self._prefill.take_orders()
        decode = b"" if self._decode is None else self._decode.take_orders()
        self._renew()
        return prefill, decode

    def update_output(self, output: KVConnectorOutput) -> None:
        """What all workers have reported: pulls settled, blocks sent. Ids of other connectors are among them."""
        if self._decode is not None:
            for request in sorted(output.finished_recving or ()):
                self._decode.settled(request)
            self._renew()
        if self._prefill is not None:
            for request in sorted(output.finished_sending or ()):
                self._prefill.sent(request)

    def has_orders(self) -> bool:
        """Whether the engine must step for orders alone."""
        return any(side is not None and side.has_orders for side in (self._prefill, self._decode))

    def counters(self) -> Mapping[str, int]:
        """What its renewals have met since the last call."""
        return {} if self._renewals is None else self._renewals.take_stats()

    def _arrived(self, decode: DecodeScheduler, request: str, params: Mapping[str, Any]) -> None:
        try:
            address = _text_of(params, "remote_bootstrap_addr")
            if self._allow_peer is not None and address and not is_allowed(address, self._allow_peer):
                shown = address if len(address) <= 200 else address[:200] + "..."
                raise ValueError(f"request {request}: remote_bootstrap_addr is {shown!r}, which is not in allow_peer; its prompt is computed here")
            decode.arrived(request, _text_of(params, "transfer_id"), _text_of(params, "remote_engine_id"), address)
        except (ValueError, Error) as error:
            _logger.warning("%s", error)
        self._renew()

    def _drop_gone(self) -> None:
        if self._decode is None or self._renewals is None:
            return
        for engine_id, transfer_id in self._renewals.take_gone():
            if request := self._decode.gone(engine_id, transfer_id):
                _logger.warning("request %s: engine %s holds transfer %s no more; its prompt is computed here", request, engine_id, transfer_id)

    def _renew(self) -> None:
        if self._decode is None:
            return
        stopped, tracked = self._decode.take_renewals()
        if self._renewals is None:
            return
        for request in stopped:
            self._renewals.stop(request)
        for track in tracked:
            try:
                self._renewals.track(*track)
            except (ValueError, Error) as error:
                _logger.warning("request %s is not renewed: %s", track[0], error)


def _is_prefill(params: Mapping[str, Any]) -> bool:
    return bool(params.get("do_remote_decode")) and not params.get("do_remote_prefill")


def _text_of(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"kv_transfer_params: {name} is {value!r}; use text")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON has escapes for halves of surrogate pairs.
        raise ValueError(f"kv_transfer_params: {name} is {value!r}, which is no Unicode text; use another") from None
    return value


_CUT_FIELDS = ("prompt_token_ids", "prompt_embeds", "prompt_is_token_ids", "_all_token_ids", "num_prompt_tokens", "max_tokens")


def cut_last_token(request: Any) -> None:
    """Takes the last token off a prompt, so that the prefill ends with the state before it. Touches private fields of vLLM's Request,
    which check_cut has found to be the known ones."""
    for name in ("prompt_token_ids", "prompt_embeds", "prompt_is_token_ids"):
        value = getattr(request, name)
        if value is not None:
            setattr(request, name, value[:-1])  # A new list: others may hold this one.
    request._all_token_ids.pop()  # In place: request.all_token_ids is a view.
    request.num_prompt_tokens -= 1
    request.max_tokens = 1


def check_cut(probe: Any) -> None:
    """Whether vLLM's requests are as cut_last_token knows them, tried on one with a prompt of three tokens. RuntimeError if not."""
    missing = [name for name in _CUT_FIELDS if not hasattr(probe, name)]
    if not missing:
        before = list(probe.all_token_ids)
        cut_last_token(probe)
        same = list(probe.all_token_ids) == before[:-1] == list(probe.prompt_token_ids) and probe.num_tokens == probe.num_prompt_tokens == 2
        if same:
            return
    found = f"without {', '.join(missing)}" if missing else "whose prompt cannot be cut"
    raise RuntimeError(
        f"this vLLM has requests {found}; TenurePDConnector knows those of vLLM 0.32, and needs them for models with recurrent states: "
        "use vLLM 0.32, or a model without recurrent states"
    )
