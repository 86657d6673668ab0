"""Engines that start, die, restart and answer late behind tenure-proxy."""

import asyncio

import aiohttp
import pytest
from proxy_engines import Rig, failing, message, run

from tenure.proxy.process import listening


def test_restarted_prefill_is_used_again_with_its_new_engine_id():
    async def test():
        async with Rig().running() as rig:
            assert (await rig.post())[0] == 200
            await rig.prefill.kill()
            await rig.wait_healthy(rig.prefill, healthy=False)
            await rig.prefill.restart({0: "engine-new"})
            await rig.wait_healthy(rig.prefill, engines={"0": "engine-new"})
            assert (await rig.post())[0] == 200
            assert [body["kv_transfer_params"]["remote_engine_id"] for _p, _h, body in rig.decode.calls] == ["engine-0", "engine-new"]

    run(test())


def test_engine_id_that_changed_unseen_is_read_after_the_request_that_failed():
    async def test():
        async with Rig().running(health_interval=3600) as rig:
            rig.prefill.bootstrap.engines = {0: "engine-new"}

            async def knows_new(request, body):
                if body["kv_transfer_params"]["remote_engine_id"] != "engine-new":
                    return await failing(500, "Internal server error")(request, body)
                return await rig.decode.serve(request, body)

            rig.decode.answer = knows_new
            assert (await rig.post())[0] == 502
            await rig.wait_healthy(rig.prefill, engines={"0": "engine-new"})
            assert (await rig.post())[0] == 200

    run(test())


def test_requests_go_around_a_dead_engine_until_it_is_back():
    async def test():
        async with Rig(prefills=2, decodes=2).running() as rig:
            for server in (*rig.prefills, *rig.decodes):
                await rig.wait_healthy(server)
            await rig.prefills[0].kill()
            await rig.decodes[1].kill()
            await rig.wait_healthy(rig.prefills[0], healthy=False)
            await rig.wait_healthy(rig.decodes[1], healthy=False)
            for _ in range(6):
                assert (await rig.post())[0] == 200
            assert (await rig.get("/health"))[0] == 200
            await rig.prefills[0].start()
            await rig.decodes[1].start()
            await rig.wait_healthy(rig.prefills[0])
            await rig.wait_healthy(rig.decodes[1])
            for _ in range(4):
                assert (await rig.post())[0] == 200
            assert rig.prefills[0].calls and rig.decodes[1].calls

    run(test())


def test_requests_before_the_engines_are_there_say_what_is_missing():
    async def test():
        rig = Rig()
        async with rig.engines():
            await rig.prefill.kill()
            await rig.decode.kill()
            async with listening(rig.options()) as port, aiohttp.ClientSession() as rig.client:
                rig.url = f"http://127.0.0.1:{port}"
                status, page = await rig.get("/health")
                assert status == 503 and "no prefiller is healthy" in page["error"]["message"] and "no decoder is healthy" in page["error"]["message"]
                async with rig.send() as answer:
                    assert answer.status == 503 and answer.headers["Retry-After"] == "2"
                await rig.decode.start()
                await rig.wait_healthy(rig.decode)
                assert "Connect" in message(await rig.post()) or "connect" in message(await rig.post())
                await rig.prefill.start()
                await rig.wait_healthy(rig.prefill)
                assert (await rig.post())[0] == 200

    run(test())


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda prefill: setattr(prefill, "health_status", 500), "/health gave status 500"),
        (lambda prefill: prefill.bootstrap.engines.clear(), "no engine has registered at"),
        (lambda prefill: prefill.bootstrap.engines.update({0: ""}), "malformed engine id"),
        (lambda prefill: prefill.bootstrap.engines.update({"zero": "e"}), "gave no list of engines"),
    ],
)
def test_unhealthy_prefill_is_out_of_service_with_a_reason(spoil, reason):
    async def test():
        async with Rig().running() as rig:
            spoil(rig.prefill)
            await rig.wait_healthy(rig.prefill, healthy=False)
            answer = await rig.post()
            assert answer[0] == 503 and reason in message(answer)
            rig.prefill.health_status = 200
            rig.prefill.bootstrap.engines = {0: "e"}
            await rig.wait_healthy(rig.prefill)

    run(test())


def test_wrong_bootstrap_port_names_the_setting_of_both_sides():
    async def test():
        async with Rig().running() as rig:
            await rig.prefill.bootstrap.kill()
            await rig.wait_healthy(rig.prefill, healthy=False)
            text = (await rig.health_of(rig.prefill))["detail"]
            assert f"{rig.prefill.bootstrap.url}/query: cannot connect" in text
            assert "--prefill" in text and "VLLM_MOONCAKE_BOOTSTRAP_PORT" in text
            await rig.prefill.bootstrap.start()

    run(test())


def test_engine_that_answers_checks_late_stays_until_it_was_late_three_times():
    async def test():
        async with Rig().running(health_timeout=0.05) as rig:
            late = asyncio.Event()
            seen = []
            ok = rig.decode.health

            async def slow(request):
                seen.append((await rig.health_of(rig.decode))["healthy"])
                await late.wait()
                return await ok(request)

            rig.decode.health = slow
            await rig.wait_healthy(rig.decode, healthy=False)
            assert seen[:3] == [True, True, True]
            assert "no answer to a health check" in (await rig.health_of(rig.decode))["detail"]
            late.set()
            await rig.wait_healthy(rig.decode)

    run(test())


def test_models_without_a_decoder_is_unavailable_and_a_failed_one_is_told():
    async def test():
        async with Rig().running(health_interval=60) as rig:
            await rig.decode.kill()
            status, page = await rig.get("/v1/models")
            assert status == 502 and "cannot connect" in page["error"]["message"]
            status, page = await rig.get("/v1/models")
            assert status == 503 and "no decoder is healthy" in page["error"]["message"]
            await rig.decode.start()

    run(test())
