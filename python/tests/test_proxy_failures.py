"""tenure-proxy when something fails: each failure has a status or an event that says why, and no call is left behind."""

import asyncio
import contextlib
import json

import pytest
from aiohttp import web
from proxy_engines import Rig, event, failing, idle, message, never, outcome_count, run, stream_of, token, until

from tenure.proxy import relay, sending, supervision


@pytest.mark.parametrize("stream", [False, True])
def test_failed_prefill_ends_decode_and_says_why(stream):
    async def test():
        async with Rig().running() as rig:
            async def after_decode_began(request, body):
                await until(lambda: rig.decode.calls)
                return await failing(500, "no memory for it")(request, body)

            rig.prefill.answer = after_decode_began
            answer = await rig.post(stream=stream)
            assert answer[0] == 502 and answer[1]["error"]["type"] == "prefill_error"
            assert message(answer) == f"prefill at {rig.prefill.url} failed: status 500: no memory for it"
            await until(lambda: rig.decode.cancelled == 1)
            await idle(rig)
            assert await outcome_count(rig, "prefill_failed") == 1

    run(test())


def test_prefills_refusal_of_the_request_is_passed_on():
    async def test():
        async with Rig().running() as rig:
            rig.prefill.answer = failing(400, "the prompt is too long")
            assert await rig.post() == (400, {"error": {"message": "the prompt is too long", "type": "x", "param": None, "code": 400}})
            assert await outcome_count(rig, "refused_upstream") == 1
            rig.prefill.answer = rig.prefill.serve

            async def plain(_request, _body):
                return web.Response(status=422, text="what is that?")

            rig.decode.answer = plain
            answer = await rig.post()
            assert answer[0] == 422 and message(answer) == f"decode at {rig.decode.url} refused the request with status 422: what is that?"

            async def elsewhere(_request, _body):
                return web.Response(status=307, headers={"Location": "http://10.0.0.9/"})

            rig.decode.answer = elsewhere
            answer = await rig.post()
            assert answer[0] == 502 and message(answer).endswith("failed: status 307: no reason given")

    run(test())


def test_prefill_that_fails_after_the_first_event_is_an_event_of_the_stream():
    async def test():
        async with Rig().running() as rig:
            role = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})

            async def role_then_wait(request, _body):
                stream = await rig.decode.begin_stream(request)
                await stream.write(role)
                await asyncio.Event().wait()

            rig.decode.answer = role_then_wait
            failed = asyncio.Event()

            async def late(request, body):
                await failed.wait()
                return await failing(503, "engine is dead")(request, body)

            rig.prefill.answer = late
            async with rig.send("/v1/chat/completions", stream=True) as answer:
                assert answer.status == 200 and await answer.content.readuntil(b"\n\n") == role
                failed.set()
                rest = await stream_of(answer)
            assert rest[0]["error"]["message"].endswith("status 503: engine is dead") and rest[0]["error"]["code"] == 502 and rest[1:] == ["[DONE]"]
            await until(lambda: rig.decode.cancelled == 1)
            assert await outcome_count(rig, "prefill_failed") == 1

    run(test())


def test_prefill_that_fails_after_decodes_first_token_is_not_the_clients_loss():
    async def test():
        async with Rig().running() as rig:
            failed = asyncio.Event()

            async def late(request, body):
                await failed.wait()
                return await failing(500, "killed")(request, body)

            rig.prefill.answer = late

            async def two_tokens(request, _body):
                stream = await rig.decode.begin_stream(request)
                await stream.write(token("A"))
                failed.set()
                while (await rig.health_of(rig.prefill))["in_flight"]:
                    await asyncio.sleep(0.005)
                await stream.write(token("B", "stop") + b"data: [DONE]\n\n")
                return stream

            rig.decode.answer = two_tokens
            async with rig.send(stream=True) as answer:
                assert await answer.read() == token("A") + token("B", "stop") + b"data: [DONE]\n\n"
            assert await outcome_count(rig, "answered") == 1

    run(test())


def test_failed_decode_ends_prefill_and_has_the_reason_of_the_bootstrap_server():
    async def test():
        async with Rig().running() as rig:
            rig.prefill.answer = never

            async def mismatched(request, body):
                await until(lambda: rig.prefill.calls)
                entry = {"transfer_id": body["kv_transfer_params"]["transfer_id"], "text": "kv_lease_duration is 30 s at P and off at D"}
                rig.prefill.bootstrap.status = {"mismatches": [{"transfer_id": "xfer-other", "text": "no"}, entry]}
                return await failing(500, "Internal server error")(request, body)

            rig.decode.answer = mismatched
            answer = await rig.post()
            assert answer[0] == 502 and answer[1]["error"]["type"] == "decode_error"
            text = f"decode at {rig.decode.url} failed: status 500: Internal server error; kv_lease_duration is 30 s at P and off at D"
            assert message(answer) == text
            await until(lambda: rig.prefill.cancelled == 1)

    run(test())


def test_bootstrap_server_that_learns_the_reason_a_moment_later_is_asked_again():
    async def test():
        async with Rig().running() as rig:
            rig.prefill.answer = never

            async def mismatched(request, body):
                await until(lambda: rig.prefill.calls)
                return await failing(500, "Internal server error")(request, body)

            rig.decode.answer = mismatched
            asking = asyncio.create_task(rig.post())
            await until(lambda: rig.prefill.bootstrap.asked)
            (_path, _headers, body), bootstrap = rig.decode.calls[0], rig.prefill.bootstrap
            bootstrap.status = {"mismatches": [{"transfer_id": body["kv_transfer_params"]["transfer_id"], "text": "leases differ"}]}
            assert message(await asking).endswith("status 500: Internal server error; leases differ")
            assert bootstrap.asked == 2

    run(test())


@pytest.mark.parametrize("status", [None, {}, [], {"mismatches": {}}, {"mismatches": [1, {"transfer_id": 1}, {"text": "t"}]}, "x" * 2_000_000])
def test_bootstrap_server_that_knows_nothing_adds_nothing(status):
    async def test():
        async with Rig().running() as rig:
            rig.prefill.bootstrap.status = status
            rig.decode.answer = failing(500, "Internal server error")
            assert message(await rig.post()).endswith("status 500: Internal server error")

    run(test())


def test_failures_of_both_are_told_together(monkeypatch):
    monkeypatch.setattr(supervision, "REASON_SECONDS", 60)

    async def test():
        async with Rig().running() as rig:
            async def after_decodes_call_ended(request, body):
                await until(lambda: rig.decode.calls)
                while (await rig.health_of(rig.decode))["in_flight"]:
                    await asyncio.sleep(0.005)
                return await failing(500, "CUDA error")(request, body)

            rig.prefill.answer = after_decodes_call_ended
            rig.decode.answer = failing(500, "Internal server error")
            decode = f"decode at {rig.decode.url} failed: status 500: Internal server error"
            assert message(await rig.post()) == f"{decode}; prefill at {rig.prefill.url} failed: status 500: CUDA error"

    run(test())


def test_error_as_a_streams_first_event_becomes_a_status():
    async def test():
        async with Rig().running() as rig:
            async def error_event(request, _body):
                stream = await rig.decode.begin_stream(request)
                await stream.write(event({"error": {"message": "Internal server error", "code": 500}}) + b"data: [DONE]\n\n")
                return stream

            rig.decode.answer = error_event
            answer = await rig.post(stream=True)
            assert answer[0] == 502 and message(answer) == f"decode at {rig.decode.url} failed: Internal server error"

    run(test())


def test_decodes_error_event_inside_its_stream_is_sent_on_and_counted():
    async def test():
        async with Rig().running() as rig:
            sent = event({"choices": [{"delta": {"role": "assistant"}}]}) + event({"error": {"message": "lost"}})

            async def error_later(request, _body):
                stream = await rig.decode.begin_stream(request)
                for part in sent.split(b"\n\n")[:-1]:
                    await stream.write(part + b"\n\n")
                    await asyncio.sleep(0.01)
                return stream

            rig.decode.answer = error_later
            async with rig.send(stream=True) as answer:
                assert await answer.read() == sent
            assert await outcome_count(rig, "decode_failed") == 1

    run(test())


def test_killed_decode_ends_the_stream_with_the_reason():
    async def test():
        async with Rig().running() as rig:
            async def half(request, _body):
                stream = await rig.decode.begin_stream(request)
                await stream.write(token("A") + b'data: {"half of an ev')
                await asyncio.Event().wait()

            rig.decode.answer = half
            async with rig.send(stream=True) as answer:
                assert await answer.content.readuntil(b"\n\n") == token("A")
                await rig.decode.kill()
                rest = await stream_of(answer)
            expected = f"decode at {rig.decode.url} failed: connection closed in the middle of the answer"
            assert rest[0]["error"]["message"] == expected and rest[1:] == ["[DONE]"]
            await rig.decode.start()

    run(test())


def test_killed_prefill_ends_requests_that_wait_for_it_and_new_ones_are_refused():
    async def test():
        async with Rig().running(health_interval=60) as rig:
            rig.prefill.gate.clear()
            asking = [asyncio.create_task(rig.post(stream=stream)) for stream in (False, True)]
            await until(lambda: len(rig.prefill.calls) == len(rig.decode.calls) == 2)
            await rig.prefill.kill()
            for answer in await asyncio.gather(*asking):
                assert answer[0] == 502 and message(answer) == f"prefill at {rig.prefill.url} failed: connection closed without an answer"
            await until(lambda: rig.decode.cancelled == 2)
            answer = await rig.post()
            assert answer[0] == 503 and message(answer).startswith(f"no prefiller is healthy ({rig.prefill.url}: ")
            await rig.prefill.start()

    run(test())


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_deadline_names_the_side_that_was_waited_for(side):
    async def test():
        async with Rig().running(request_timeout=0.2) as rig:
            server = getattr(rig, side)
            server.answer = never
            answer = await rig.post()
            assert answer[0] == 504 and message(answer).endswith(f"it waited for {side} at {server.url}")
            await until(lambda: server.cancelled == 1)
            assert await outcome_count(rig, "timed_out") == 1

    run(test())


def test_deadline_inside_a_stream_is_an_event():
    async def test():
        async with Rig().running(request_timeout=0.3) as rig:
            async def stalls(request, _body):
                stream = await rig.decode.begin_stream(request)
                await stream.write(token("A"))
                await asyncio.Event().wait()

            rig.decode.answer = stalls
            async with rig.send(stream=True) as answer:
                values = await stream_of(answer)
            assert values[0]["choices"][0]["text"] == "A" and values[1]["error"]["code"] == 504 and values[2:] == ["[DONE]"]
            await until(lambda: rig.decode.cancelled == 1)

    run(test())


@pytest.mark.parametrize("begun", [False, True])
def test_client_that_goes_away_ends_both_calls(begun):
    async def test():
        async with Rig().running() as rig:
            async def stalls(request, body):
                if begun:
                    stream = await rig.decode.begin_stream(request)
                    await stream.write(event({"choices": []}))
                await asyncio.Event().wait()

            rig.prefill.answer = never
            rig.decode.answer = stalls
            asking = asyncio.create_task(rig.send(stream=True).__aenter__())
            await until(lambda: rig.prefill.calls and rig.decode.calls)
            if begun:
                (await asking).close()
            else:
                asking.cancel()
            await until(lambda: rig.prefill.cancelled == 1 and rig.decode.cancelled == 1)
            await idle(rig)
            assert await outcome_count(rig, "disconnected") == 1

    run(test())


async def flooded_client(rig):
    """A client that takes the status line only of a stream without end; the bytes that D has sent are counted in the list."""
    written = [0]

    async def floods(request, _body):
        stream = await rig.decode.begin_stream(request)
        while True:
            await stream.write(token("x" * 100_000))
            written[0] += 100_000

    rig.decode.answer = floods
    body = json.dumps({"prompt": "p", "stream": True})
    reader, writer = await asyncio.open_connection("127.0.0.1", int(rig.url.rsplit(":", 1)[1]), limit=1024)
    writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    await reader.readline()
    await until(lambda: rig.decode.cancelled == 1)
    return reader, writer, written[0]


def test_client_that_takes_nothing_holds_decode_back_and_is_cut_off_at_the_deadline(monkeypatch):
    monkeypatch.setattr(sending, "END_SECONDS", 0.05)

    async def test():
        async with Rig().running(request_timeout=1) as rig:
            reader, writer, written = await flooded_client(rig)
            await idle(rig)
            assert written < 200_000_000
            assert await outcome_count(rig, "timed_out") == 1
            taken = b""
            with contextlib.suppress(ConnectionResetError):
                while chunk := await reader.read(1 << 20):
                    taken += chunk
            assert b'"error"' not in taken
            writer.close()

    run(test())


def test_slow_client_still_gets_the_reason_at_the_deadline(monkeypatch):
    monkeypatch.setattr(sending, "END_SECONDS", 60)

    async def test():
        async with Rig().running(request_timeout=1) as rig:
            reader, writer, _written = await flooded_client(rig)
            taken = b""
            while not taken.endswith(b"\r\n0\r\n\r\n"):
                assert (chunk := await reader.read(1 << 20))
                taken += chunk
            assert b"--request-timeout" in taken and b"data: [DONE]\n\n" in taken[-100:]
            await idle(rig)
            assert await outcome_count(rig, "timed_out") == 1
            writer.close()

    run(test())


def test_failure_of_the_proxy_itself_is_an_answer(monkeypatch):
    async def test():
        async with Rig().running() as rig:
            def broken(*_arguments):
                raise RuntimeError("a fault for this test")

            monkeypatch.setattr(relay.events, "values", broken)
            answer = await rig.post(stream=True)
            assert answer[0] == 500 and answer[1]["error"]["type"] == "internal_error"
            monkeypatch.undo()
            assert (await rig.post())[0] == 200
            assert await outcome_count(rig, "internal_error") == 1

    run(test())
