"""tenure-proxy when an engine fails and there is another one: the client gets one whole answer, and each engine fails a request once."""

import asyncio

import pytest
from aiohttp import web
from proxy_engines import Rig, event, failing, idle, message, never, outcome_count, run, stream_of, token, until


def transfers(engine):
    """The transfer ids of its calls, in their order."""
    return [body["kv_transfer_params"]["transfer_id"] for _path, _headers, body in engine.calls]


async def failovers(rig, server):
    """How many requests went from an engine to another one, by the metrics."""
    _status, text = await rig.get("/metrics")
    (line,) = [line for line in text.splitlines() if line.startswith("tenure_proxy_failovers_total{") and f'server="{server.url}"' in line]
    return int(line.rsplit(" ", 1)[1])


def after(condition, answer):
    """An engine's answer once `condition` holds."""

    async def held(request, body):
        await until(condition)
        return await answer(request, body)

    return held


async def breaks(request, _body):
    """An engine that dies with the request."""
    request.transport.abort()
    return web.Response()


async def texts(answer):
    """The tokens of a stream that ended as it should."""
    values = await stream_of(answer)
    assert values[-1] == "[DONE]" and not any("error" in value for value in values[:-1])
    return [value["choices"][0]["text"] for value in values[:-1] if value["choices"][0]["text"]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["dead", "breaks", "500"])
def test_failed_prefill_is_replaced_under_a_new_transfer(how, stream):
    async def test():
        async with Rig(prefills=2).running(health_interval=60) as rig:
            await rig.wait_healthy(rig.prefills[1])
            bad, good = rig.prefills
            if how == "dead":
                await bad.kill()
            else:
                # D was asked for the first transfer, too.
                bad.answer = after(lambda: rig.decode.calls, breaks if how == "breaks" else failing(500, "no memory"))
            async with rig.send(stream=stream) as answer:
                assert answer.status == 200
                if stream:
                    assert await texts(answer) == ["A", "B", "C"]
                else:
                    assert (await answer.json())["choices"][0]["text"] == "ABC"
                request_id = answer.headers["X-Request-Id"]
            assert transfers(good) == [f"xfer-{request_id}-2"]
            assert transfers(rig.decode)[-1] == f"xfer-{request_id}-2"
            assert good.calls[0][1]["X-Request-Id"] == f"{request_id}-2"
            # The call for the first transfer was ended at D, which drops the request then.
            await until(lambda: rig.decode.cancelled == len(rig.decode.calls) - 1)
            assert (await failovers(rig, bad), await failovers(rig, good)) == (1, 0)
            assert await outcome_count(rig, "answered") == 1 and await outcome_count(rig, "prefill_failed") == 0
            if how == "dead":
                await bad.start()

    run(test())


def test_decode_that_cannot_be_connected_to_is_replaced_and_prefill_goes_on():
    async def test():
        async with Rig(decodes=2).running(health_interval=60) as rig:
            await rig.wait_healthy(rig.decodes[1])
            bad, good = rig.decodes
            await bad.kill()
            assert (await rig.post())[1]["choices"][0]["text"] == "ABC"
            assert len(rig.prefill.calls) == 1 and rig.prefill.cancelled == 0
            assert transfers(good) == transfers(rig.prefill)
            assert await failovers(rig, bad) == 1
            await bad.start()

    run(test())


@pytest.mark.parametrize("how", ["breaks", "500", "half an event", "half an answer", "error event"])
def test_decode_that_fails_after_the_prefill_is_replaced_under_a_new_transfer(how):
    async def test():
        async with Rig(decodes=2).running() as rig:
            await rig.wait_healthy(rig.decodes[1])
            bad, good = rig.decodes

            async def fails(request, body):
                await rig.kv.wait(body["kv_transfer_params"]["transfer_id"])
                if how == "500":
                    return await failing(500, "lost")(request, body)
                if how == "breaks":
                    return await breaks(request, body)
                if how == "half an answer":
                    whole = web.StreamResponse(headers={"Content-Length": "100"})
                    await whole.prepare(request)
                    await whole.write(b'{"choices": [{"text": "AB')
                    request.transport.abort()
                    return whole
                stream = await bad.begin_stream(request)
                await stream.write(token("A")[:-2] if how == "half an event" else event({"error": {"message": "lost"}}))
                request.transport.abort()
                return stream

            bad.answer = fails
            async with rig.send(stream=True) as answer:
                assert await texts(answer) == ["A", "B", "C"]
            first, second = transfers(rig.prefill)
            assert (transfers(bad), transfers(good)) == ([first], [second]) and first != second

    run(test())


def test_prefill_under_way_is_ended_when_its_decode_fails():
    async def test():
        async with Rig(prefills=1, decodes=2).running() as rig:
            await rig.wait_healthy(rig.decodes[1])
            rig.prefill.gate.clear()
            rig.decodes[0].answer = after(lambda: rig.prefill.calls, failing(500, "lost"))
            asking = asyncio.create_task(rig.post())
            await until(lambda: len(rig.prefill.calls) == 2)
            assert rig.prefill.cancelled == 1
            rig.prefill.gate.set()
            assert (await asking)[0] == 200
            await idle(rig)

    run(test())


def test_decode_is_tried_again_when_it_was_prefill_that_failed():
    async def test():
        async with Rig(prefills=2, decodes=1).running() as rig:
            await rig.wait_healthy(rig.prefills[1])
            rig.prefills[0].answer = after(lambda: rig.decode.calls, failing(500, "killed"))

            async def fails_with_it(request, body):
                rig.decode.answer = rig.decode.serve
                return await failing(500, "Internal server error")(request, body)

            rig.decode.answer = fails_with_it
            assert (await rig.post())[0] == 200
            assert len(rig.decode.calls) == 2

    run(test())


def test_when_all_have_failed_each_was_tried_once_and_is_named():
    async def test():
        async with Rig(prefills=3, decodes=1).running() as rig:
            for number, prefill in enumerate(rig.prefills):
                await rig.wait_healthy(prefill)
                prefill.answer = failing(500, f"broken {number}")
            answer = await rig.post()
            assert answer[0] == 502 and answer[1]["error"]["type"] == "prefill_error"
            assert [len(prefill.calls) for prefill in rig.prefills] == [1, 1, 1]
            assert all(f"{prefill.url} failed: status 500: broken {number}" in message(answer) for number, prefill in enumerate(rig.prefills))
            assert await outcome_count(rig, "prefill_failed") == 1

    run(test())


def test_dead_decoders_and_a_failing_prefill_are_told_together():
    async def test():
        async with Rig(prefills=2, decodes=2).running(health_interval=60) as rig:
            for server in (*rig.prefills, *rig.decodes):
                await rig.wait_healthy(server)
            rig.prefill.answer = rig.prefills[1].answer = never
            for decode in rig.decodes:
                await decode.kill()
            answer = await rig.post()
            assert answer[0] == 502 and answer[1]["error"]["type"] == "decode_error"
            assert all(f"decode at {decode.url} failed: cannot connect: Connection refused" in message(answer) for decode in rig.decodes)
            # Without a decoder, no other prefiller is asked.
            assert sum(len(prefill.calls) for prefill in rig.prefills) <= 1
            for decode in rig.decodes:
                await decode.start()

    run(test())


def test_nothing_is_tried_again_after_the_first_byte():
    async def test():
        async with Rig(prefills=2, decodes=2).running() as rig:
            for server in (*rig.prefills, *rig.decodes):
                await rig.wait_healthy(server)

            async def dies_later(request, _body):
                stream = await rig.decode.begin_stream(request)
                await stream.write(token("A"))
                await asyncio.sleep(0.01)
                request.transport.abort()
                return stream

            for decode in rig.decodes:
                decode.answer = dies_later
            async with rig.send(stream=True) as answer:
                values = await stream_of(answer)
            assert values[0]["choices"][0]["text"] == "A" and values[1]["error"]["code"] == 502 and values[2:] == ["[DONE]"]
            assert sum(len(decode.calls) for decode in rig.decodes) == 1
            assert await outcome_count(rig, "decode_failed") == 1

    run(test())


@pytest.mark.parametrize("side", ["prefills", "decodes"])
def test_refusal_of_the_request_is_not_tried_again(side):
    async def test():
        async with Rig(prefills=2, decodes=2).running() as rig:
            for server in (*rig.prefills, *rig.decodes):
                await rig.wait_healthy(server)
            for server in getattr(rig, side):
                server.answer = failing(422, "the prompt is too long")
            assert (await rig.post())[0] == 422
            assert sum(len(server.calls) for server in getattr(rig, side)) == 1

    run(test())


def test_deadline_counts_for_all_attempts_together():
    async def test():
        async with Rig(prefills=2).running(request_timeout=0.3) as rig:
            await rig.wait_healthy(rig.prefills[1])
            rig.prefills[0].answer, rig.prefills[1].answer = failing(500, "broken"), never
            answer = await rig.post()
            assert answer[0] == 504 and "--request-timeout (0.3 s)" in message(answer)
            assert message(answer).endswith(f"before that, prefill at {rig.prefill.url} failed: status 500: broken")
            await until(lambda: rig.prefills[1].cancelled == 1)
            await idle(rig)

    run(test())


def test_client_that_goes_away_ends_the_attempt_that_is_under_way():
    async def test():
        async with Rig(prefills=2).running() as rig:
            await rig.wait_healthy(rig.prefills[1])
            rig.prefills[0].answer, rig.prefills[1].answer = failing(500, "broken"), never
            asking = asyncio.create_task(rig.post())
            await until(lambda: rig.prefills[1].calls and len(rig.decode.calls) >= 1)
            asking.cancel()
            await until(lambda: rig.prefills[1].cancelled == 1)
            await idle(rig)
            assert await outcome_count(rig, "disconnected") == 1

    run(test())
