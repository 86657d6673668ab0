"""Bodies of completion requests: what is refused, and what P and D are sent (P/D spec, sections 4 and 8)."""

from __future__ import annotations

import json
from typing import Any, Collection

from tenure.pd.peers import is_allowed
from tenure.proxy.errors import ProxyError, refused

Body = dict[str, Any]

# Keys by which a client would tell an engine which other machine to connect to.
_PEER_KEYS = ("kv_transfer_params", "ec_transfer_params")
# What D needs of a transfer that was prefilled elsewhere.
_TRANSFER_KEYS = ("remote_engine_id", "remote_bootstrap_addr", "transfer_id")


def parse(raw: bytes) -> Body:
    """The object in a request's body. ProxyError 400 when there is none."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise refused(f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise refused(f"the body is a JSON {type(body).__name__}; send an object")
    return body


def check(body: Body) -> None:
    """Refuses what one transfer cannot serve. ProxyError 400 names the field and the remedy.

    A transfer id stands for one prompt computed once by P and pulled once by D. Engines give every choice and every prompt of a
    request the same id, and the KV of all but one would be held until its lease ends (P/D spec, section 9.12).
    """
    for name in ("n", "best_of"):
        if body.get(name) not in (None, 1):
            raise refused(f"{name} is {_short(body[name])}; each choice needs a transfer of its own: send one request a choice", name)
    if body.get("use_beam_search"):
        raise refused("use_beam_search is set; beams cannot share one transfer: leave it out", "use_beam_search")
    count = _prompts(body.get("prompt")) + (_prompts(body["prompt_embeds"]) if body.get("prompt_embeds") else 0)
    if count > 1:
        raise refused(f"prompt is a list of {count} prompts; each needs a transfer of its own: send one request a prompt", "prompt")
    # It means "what max_tokens leaves free", and P is sent another max_tokens: the KV would be that of another prompt.
    if body.get("truncate_prompt_tokens") == -1:
        name = "truncate_prompt_tokens"
        raise refused(f"{name} is -1, which P and D would read as different lengths: give a number", name)


def take_peer(body: Body, allowed: Collection[str]) -> Body | None:
    """Takes the transfer that the client names itself out of the body, and returns what D is sent of it; None without one.

    ProxyError 403 unless the bootstrap server that it names is in `allowed` ("http://HOST:PORT").
    """
    found = [name for name in _PEER_KEYS if body.get(name) is not None]
    for name in _PEER_KEYS:
        if name in body and name not in found:
            del body[name]
    if not found:
        return None
    name, params = found[0], body.pop(found[0])
    if len(found) > 1 or name != "kv_transfer_params" or not isinstance(params, dict):
        raise refused(f"{found[-1]} is chosen by the proxy; leave it out", found[-1])
    address = params.get("remote_bootstrap_addr")
    if not is_allowed(address, allowed):
        remedy = "leave kv_transfer_params out, or start the proxy with --allow-peer"
        raise ProxyError(403, "forbidden", f"{name} names the peer {_short(address)}, which is not allowed: {remedy}", param=name)
    for key in _TRANSFER_KEYS:
        if not isinstance(params.get(key), str) or not params[key]:
            raise refused(f"kv_transfer_params.{key} is {_short(params.get(key))}; give text", name)
    return {"do_remote_decode": False, "do_remote_prefill": True, **{key: params[key] for key in _TRANSFER_KEYS}}


def for_prefill(body: Body, transfer_id: str) -> Body:
    """What P is sent: the same prompt, one token, no stream."""
    params = {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer_id}
    prefill = {**body, "kv_transfer_params": params, "stream": False, "max_tokens": 1}
    if "max_completion_tokens" in prefill:
        prefill["max_completion_tokens"] = 1
    prefill.pop("stream_options", None)
    # P's token is dropped. A client's own minimum may be above 1, which an engine refuses; and without a minimum P may sample a stop
    # token, after which a stock P does not send the KV: D would wait 480 s.
    prefill["min_tokens"] = 1
    return prefill


def for_decode(body: Body, transfer_id: str, engine_id: str, bootstrap: str) -> Body:
    """What D is sent: the client's request, and where P's ranks are listed."""
    params = {
        "do_remote_decode": False,
        "do_remote_prefill": True,
        "remote_bootstrap_addr": bootstrap,
        "remote_engine_id": engine_id,
        "transfer_id": transfer_id,
    }
    return {**body, "kv_transfer_params": params}


def _prompts(prompt: Any) -> int:
    """How many prompts a value stands for: text, token ids, or a list of either."""
    if not isinstance(prompt, list) or all(isinstance(item, int) for item in prompt):
        return 0 if prompt is None else 1
    return len(prompt)


def _short(value: Any) -> str:
    """A client's value inside a message, bounded."""
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:200] + "..."
