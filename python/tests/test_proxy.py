"""tenure-proxy with engines that work: what P, D and the client are sent."""

import asyncio
import json
import re

import pytest
from proxy_engines import Rig, event, run, stream_of, token

TRANSFER = re.compile(r"xfer-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def test_prefill_is_sent_one_token_without_stream_and_decode_the_clients_request():
    async def test():
        async with Rig(engines={3: "engine-3"}).running() as rig:
            body = {"prompt": "p", "max_tokens": 9, "min_tokens": 4, "stream": True, "stream_options": {"include_usage": True}, "stop": ["x"]}
            async with rig.send(**body) as answer:
                await stream_of(answer)
            (_path, p_headers, p_body), (_path, d_headers, d_body) = rig.prefill.calls[0], rig.decode.calls[0]
            transfer_id = d_body["kv_transfer_params"]["transfer_id"]
            assert TRANSFER.fullmatch(transfer_id)
            assert p_body == {
                "model": "m",
                "prompt": "p",
                "max_tokens": 1,
                "min_tokens": 1,
                "stream": False,
                "stop": ["x"],
                "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer_id},
            }
            params = d_body.pop("kv_transfer_params")
            assert d_body == {"model": "m", **body}
            assert params == {
                "do_remote_decode": False,
                "do_remote_prefill": True,
                "remote_bootstrap_addr": rig.prefill.bootstrap.url,
                "remote_engine_id": "engine-3",
                "transfer_id": transfer_id,
            }
            assert p_headers["X-data-parallel-rank"] == "3" and "X-data-parallel-rank" not in d_headers
            assert p_headers["X-Request-Id"] == d_headers["X-Request-Id"] == answer.headers["X-Request-Id"]

    run(test())


def test_prefills_text_is_dropped():
    async def test():
        async with Rig().running() as rig:
            assert await rig.post() == (200, {"choices": [{"text": "ABC", "finish_reason": "stop"}]})

    run(test())


def test_chat_goes_to_chat_with_both_names_of_the_maximum():
    async def test():
        async with Rig().running() as rig:
            messages = [{"role": "user", "content": "hi"}]
            status, _answer = await rig.post("/v1/chat/completions", prompt=None, messages=messages, max_completion_tokens=50)
            path, _headers, body = rig.prefill.calls[0]
            assert status == 200 and path == rig.decode.calls[0][0] == "/v1/chat/completions"
            assert (body["max_tokens"], body["max_completion_tokens"], body["messages"]) == (1, 1, messages)
            assert rig.decode.calls[0][2]["max_completion_tokens"] == 50

    run(test())


def test_engines_are_called_at_the_same_time():
    async def test():
        async with Rig().running() as rig:
            rig.prefill.gate.clear()
            asking = asyncio.create_task(rig.post())
            while not (rig.prefill.calls and rig.decode.calls):
                await asyncio.sleep(0.005)
            rig.prefill.gate.set()
            assert (await asking)[0] == 200

    run(test())


def test_each_event_arrives_before_the_next_is_made():
    async def test():
        async with Rig().running() as rig:
            taken = asyncio.Queue()

            async def one_by_one(request, _body):
                stream = await rig.decode.begin_stream(request)
                for number in range(20):
                    await stream.write(token(str(number)))
                    assert await taken.get() == number
                await stream.write(b"data: [DONE]\n\n")
                return stream

            rig.decode.answer = one_by_one
            async with rig.send(stream=True) as answer:
                assert answer.content_type == "text/event-stream" and answer.headers["Cache-Control"] == "no-cache"
                for number in range(20):
                    assert await answer.content.readuntil(b"\n\n") == token(str(number))
                    taken.put_nowait(number)
                assert await answer.content.read() == b"data: [DONE]\n\n"

    run(test())


def test_stream_is_sent_on_byte_for_byte_however_it_is_cut():
    async def test():
        async with Rig().running() as rig:
            sent = b": a comment\r\n\r\n" + token("A \u00e4 \U0001f600") + event({"usage": {"total_tokens": 3}}) + b"data: [DONE]\n\nrest"

            async def cut(request, _body):
                stream = await rig.decode.begin_stream(request)
                for at in range(0, len(sent), 7):
                    await stream.write(sent[at : at + 7])
                return stream

            rig.decode.answer = cut
            async with rig.send(stream=True) as answer:
                assert await answer.read() == sent

    run(test())


def test_ranks_and_decoders_take_turns():
    async def test():
        async with Rig(prefills=2, decodes=3, engines={0: "a", 1: "b"}).running() as rig:
            for server in (*rig.prefills, *rig.decodes):
                await rig.wait_healthy(server)
            for _ in range(12):
                assert (await rig.post())[0] == 200
            assert [len(decode.calls) for decode in rig.decodes] == [4, 4, 4]
            for prefill in rig.prefills:
                ranks = [headers["X-data-parallel-rank"] for _path, headers, _body in prefill.calls]
                assert sorted(ranks) == ["0"] * 3 + ["1"] * 3
            # D is told of the rank that computes, and of its own prefiller's bootstrap server.
            engine_of = {body["kv_transfer_params"]["transfer_id"]: (prefill.bootstrap.url, headers["X-data-parallel-rank"])
                         for prefill in rig.prefills for _path, headers, body in prefill.calls}  # fmt: skip
            for decode in rig.decodes:
                for _path, _headers, body in decode.calls:
                    params = body["kv_transfer_params"]
                    bootstrap, rank = engine_of[params["transfer_id"]]
                    assert (params["remote_bootstrap_addr"], params["remote_engine_id"]) == (bootstrap, "ab"[int(rank)])

    run(test())


def test_many_requests_at_a_time_each_get_their_own_answer():
    async def test():
        async with Rig(prefills=2, decodes=2).running() as rig:
            async def echo(request, body):
                await rig.kv.wait(body["kv_transfer_params"]["transfer_id"])
                stream = await rig.decode.begin_stream(request)
                for part in range(5):
                    await stream.write(token(f"{body['prompt']}.{part}"))
                    await asyncio.sleep(0)
                return stream

            for decode in rig.decodes:
                decode.answer = echo

            async def ask(number):
                async with rig.send(prompt=str(number), stream=True) as answer:
                    assert [value["choices"][0]["text"] for value in await stream_of(answer)] == [f"{number}.{part}" for part in range(5)]

            await asyncio.gather(*(ask(number) for number in range(200)))
            calls = [body["kv_transfer_params"]["transfer_id"] for prefill in rig.prefills for _path, _headers, body in prefill.calls]
            assert len(set(calls)) == len(calls) == 200

    run(test())


@pytest.mark.parametrize(
    ("environment", "client", "expected"),
    [("", "Bearer c", "Bearer c"), ("k", "Bearer c", "Bearer c"), ("k", None, "Bearer k"), ("", None, None)],
)
def test_clients_key_goes_to_the_engines_and_else_the_proxys(monkeypatch, environment, client, expected):
    monkeypatch.setenv("OPENAI_API_KEY", environment)

    async def test():
        async with Rig().running() as rig:
            headers = {"Authorization": client} if client else {}
            async with rig.send(headers={**headers, "traceparent": "00-1-2-01", "Cookie": "c=1"}) as answer:
                assert answer.status == 200
            for _path, sent, _body in (*rig.prefill.calls, *rig.decode.calls):
                assert sent.get("Authorization") == expected
                assert sent["traceparent"] == "00-1-2-01" and "Cookie" not in sent

    run(test())


def test_models_are_a_decoders():
    async def test():
        async with Rig().running() as rig:
            assert await rig.get("/v1/models", headers={"Authorization": "Bearer c"}) == (200, {"data": [{"id": "m"}], "auth": "Bearer c"})

    run(test())


def test_status_and_metrics_show_engines_and_requests():
    async def test():
        async with Rig(engines={0: "a", 1: "b"}).running() as rig:
            assert (await rig.post())[0] == 200
            assert (await rig.post(n=2))[0] == 400
            _status, page = await rig.get("/status")
            assert page["ready"] and page["requests_in_flight"] == 0 and page["requests_max"] == 1024
            assert page["prefillers"][0]["engines"] == {"0": "a", "1": "b"} and page["prefillers"][0]["bootstrap"] == rig.prefill.bootstrap.url
            assert page["decoders"][0]["detail"] == "ok"
            _status, text = await rig.get("/metrics")
            lines = text.splitlines()
            for line in (
                'tenure_proxy_requests_total{path="/v1/completions",outcome="answered"} 1',
                'tenure_proxy_requests_total{path="/v1/completions",outcome="refused"} 1',
                'tenure_proxy_requests_total{path="/v1/chat/completions",outcome="answered"} 0',
                "tenure_proxy_requests_in_flight 0",
                "tenure_proxy_first_byte_seconds_count 1",
                'tenure_proxy_request_seconds_bucket{le="+Inf"} 1',
                f'tenure_proxy_server_healthy{{role="prefill",server="{rig.prefill.url}"}} 1',
                f'tenure_proxy_server_calls_in_flight{{role="decode",server="{rig.decode.url}"}} 0',
            ):
                assert line in lines, text

    run(test())


def test_peer_that_is_allowed_is_passed_to_decode_alone():
    async def test():
        async with Rig().running(allow_peer=frozenset({"http://10.0.0.1:8998"})) as rig:
            rig.kv.done("t-1")
            named = {"remote_bootstrap_addr": "http://10.0.0.1:8998", "remote_engine_id": "e", "transfer_id": "t-1"}
            status, _answer = await rig.post(kv_transfer_params={**named, "remote_host": "10.0.0.9", "do_remote_decode": True})
            assert status == 200 and not rig.prefill.calls
            assert rig.decode.calls[0][2]["kv_transfer_params"] == {"do_remote_decode": False, "do_remote_prefill": True, **named}

    run(test())


def test_large_body_and_answer_go_through():
    async def test():
        async with Rig().running() as rig:
            prompt = list(range(300_000))
            rig.decode.tokens = ("x" * 3_000_000,)
            async with rig.send(prompt=prompt, stream=True) as answer:
                values = await stream_of(answer)
            assert values[0]["choices"][0]["text"] == rig.decode.tokens[0]
            assert rig.decode.calls[0][2]["prompt"] == rig.prefill.calls[0][2]["prompt"] == prompt
            assert json.dumps(values[-1]) == '"[DONE]"'

    run(test())
