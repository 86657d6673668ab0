"""What tenure-proxy refuses before an engine is called, and its limits."""

import asyncio
import socket

import pytest
from proxy_engines import Rig, message, run, until


def test_more_requests_than_the_maximum_are_told_to_come_again():
    async def test():
        async with Rig().running(requests_max=2) as rig:
            rig.prefill.gate.clear()
            asking = [asyncio.create_task(rig.post()) for _ in range(2)]
            await until(lambda: len(rig.decode.calls) == 2)
            async with rig.send() as answer:
                assert answer.status == 503 and answer.headers["Retry-After"] == "1"
                assert "--requests-max" in (await answer.json())["error"]["message"]
            rig.prefill.gate.set()
            assert [status for status, _body in await asyncio.gather(*asking)] == [200, 200]
            assert (await rig.post())[0] == 200

    run(test())


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"{", "is not JSON"),
        (b"[1]", "JSON list"),
        (b"[" * 200_000, "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b'{"n": 1' + b"1" * 5000 + b"}", "is not JSON"),
        (b"", "is not JSON"),
    ],
)
def test_body_that_is_no_object_is_refused(raw, text):
    async def test():
        async with Rig().running() as rig:
            async with rig.client.post(rig.url + "/v1/completions", data=raw) as answer:
                assert answer.status == 400 and text in (await answer.json())["error"]["message"]
            assert not rig.prefill.calls and not rig.decode.calls

    run(test())


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 2}, "n"),
        ({"n": "2"}, "n"),
        ({"best_of": 3}, "best_of"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [[1, 2], [3]]}, "prompt"),
        ({"prompt": "a", "prompt_embeds": ["e"]}, "prompt"),
        ({"truncate_prompt_tokens": -1}, "truncate_prompt_tokens"),
        ({"kv_transfer_params": {"do_remote_prefill": True}}, "kv_transfer_params"),
        ({"kv_transfer_params": {"remote_bootstrap_addr": "http://169.254.1.1:80"}}, "kv_transfer_params"),
        ({"kv_transfer_params": "x"}, "kv_transfer_params"),
        ({"ec_transfer_params": {"remote_host": "h"}}, "ec_transfer_params"),
    ],
)
def test_what_one_transfer_cannot_serve_is_refused(body, param):
    async def test():
        async with Rig().running(allow_peer=frozenset({"http://10.0.0.1:8998"})) as rig:
            answer = await rig.post(**body)
            assert answer[0] == (403 if param == "kv_transfer_params" and isinstance(body[param], dict) else 400)
            assert answer[1]["error"]["param"] == param and param in message(answer)
            assert not rig.prefill.calls and not rig.decode.calls

    run(test())


@pytest.mark.parametrize(
    "body",
    [
        {"n": 1},
        {"n": None, "best_of": 1},
        {"prompt": ["a"]},
        {"prompt": [1, 2, 3]},
        {"prompt": [[1, 2]]},
        {"kv_transfer_params": None},
        {"truncate_prompt_tokens": 8},
    ],
)
def test_one_prompt_in_any_form_is_served(body):
    async def test():
        async with Rig().running() as rig:
            assert (await rig.post(**body))[0] == 200

    run(test())


def test_limits_of_body_and_header():
    async def test():
        async with Rig().running(body_bytes_max=10_000, header_bytes_max=2000) as rig:
            answer = await rig.post(prompt="x" * 20_000)
            assert answer[0] == 413 and "--body-bytes-max" in message(answer)
            async with rig.send(headers={"X-Long": "x" * 4000}) as answer:
                assert answer.status == 400
            async with rig.client.post(rig.url + "/v1/completions", data=b"no gzip", headers={"Content-Encoding": "gzip"}) as answer:
                assert answer.status == 400
            assert (await rig.post())[0] == 200

    run(test())


def test_what_is_not_served_says_what_is():
    async def test():
        async with Rig().running() as rig:
            answer = await rig.post("/v1/responses")
            assert answer[0] == 404 and "/v1/chat/completions" in message(answer)
            status, _page = await rig.get("/v1/completions")
            assert status == 405

    run(test())


def test_connection_that_is_not_http_is_dropped():
    async def test():
        async with Rig().running() as rig:
            with socket.create_connection(("127.0.0.1", int(rig.url.rsplit(":", 1)[1]))) as peer:
                peer.setblocking(False)
                await asyncio.get_running_loop().sock_sendall(peer, b"\x00\x01\x02\r\n\r\n")
                assert b"400" in await asyncio.get_running_loop().sock_recv(peer, 4096)
            assert (await rig.post())[0] == 200

    run(test())
