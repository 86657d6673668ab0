"""Engines for tests of tenure-proxy: real HTTP servers on loopback that play P, its bootstrap server, and D.

P "computes" a transfer and D waits for it, as real ones do. Tests replace `answer` of an engine, or hold P with `gate`.
"""

import asyncio
import contextlib
import json

import aiohttp
from aiohttp import web

from tenure.proxy.options import PrefillAddress, ProxyOptions
from tenure.proxy.process import listening


def run(coroutine):
    """A test's coroutine; what does not come within a minute never comes."""
    return asyncio.run(asyncio.wait_for(coroutine, 60))


async def until(condition):
    """Waits for what other tasks bring about; run() bounds it."""
    while not condition():
        await asyncio.sleep(0.005)


def event(value):
    """A value as a server-sent event."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def token(text, finish=None):
    """An event of a completion's stream."""
    return event({"id": "cmpl-1", "choices": [{"index": 0, "text": text, "finish_reason": finish}]})


class HttpServer:
    """Serves on a port of its own, which it keeps over a restart; kill() breaks every connection at once."""

    def __init__(self):
        self.port = 0
        self._runner = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def start(self):
        application = web.Application(client_max_size=1 << 30)
        self.add_routes(application.router)
        self._runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def kill(self):
        for site in list(self._runner.sites):
            await site.stop()
        for connection in list(self._runner.server.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()


class Engine(HttpServer):
    """What P and D have in common. calls: (path, headers, body) of each completion call; cancelled: calls whose client went away."""

    def __init__(self, kv):
        super().__init__()
        self.kv = kv
        self.calls = []
        self.cancelled = 0
        self.health_status = 200
        self.answer = self.serve

    def add_routes(self, router):
        router.add_get("/health", self._health)
        router.add_post("/v1/completions", self._complete)
        router.add_post("/v1/chat/completions", self._complete)

    async def health(self, _request):
        return web.Response(status=self.health_status)

    async def _health(self, request):
        return await self.health(request)

    async def _complete(self, request):
        body = json.loads(await request.read())
        self.calls.append((request.path, request.headers.copy(), body))
        try:
            return await self.answer(request, body)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class Bootstrap(HttpServer):
    """P's list of ranks. status: what GET /status answers; None: 404, as stock's. asked: how often."""

    def __init__(self, engines):
        super().__init__()
        self.engines = engines
        self.status = None
        self.asked = 0

    def add_routes(self, router):
        router.add_get("/query", self._query)
        router.add_get("/status", self._status)

    async def _query(self, _request):
        entries = {str(rank): {"engine_id": name, "worker_addr": {"0": {"0": "tcp://127.0.0.1:1"}}} for rank, name in self.engines.items()}
        return web.json_response(entries)

    async def _status(self, _request):
        self.asked += 1
        return web.Response(status=404) if self.status is None else web.json_response(self.status)


class Prefill(Engine):
    """P with its bootstrap server. Computes once `gate` is set."""

    def __init__(self, kv, engines=None):
        super().__init__(kv)
        self.bootstrap = Bootstrap(engines or {0: "engine-0"})
        self.gate = asyncio.Event()
        self.gate.set()

    async def start(self):
        await super().start()
        await self.bootstrap.start()

    async def kill(self):
        await super().kill()
        await self.bootstrap.kill()

    async def restart(self, engines):
        """As another process does at the same address."""
        self.bootstrap.engines = engines
        await self.start()

    async def serve(self, _request, body):
        await self.gate.wait()
        self.kv.done(body["kv_transfer_params"]["transfer_id"])
        return web.json_response({"choices": [{"text": "text of P", "finish_reason": "length"}]})


class Decode(Engine):
    """D: waits for the transfer, then answers with `tokens`."""

    tokens = ("A", "B", "C")

    def add_routes(self, router):
        super().add_routes(router)
        router.add_get("/v1/models", self._models)

    async def _models(self, request):
        return web.json_response({"data": [{"id": "m"}], "auth": request.headers.get("Authorization")})

    async def serve(self, request, body):
        await self.kv.wait(body["kv_transfer_params"]["transfer_id"])
        if not body.get("stream"):
            return web.json_response({"choices": [{"text": "".join(self.tokens), "finish_reason": "stop"}]})
        stream = await self.begin_stream(request)
        for text in self.tokens:
            await stream.write(token(text))
        await stream.write(token("", "stop") + b"data: [DONE]\n\n")
        return stream

    @staticmethod
    async def begin_stream(request):
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await stream.prepare(request)
        return stream


class Transfers:
    """The KV that P has computed, by transfer id."""

    def __init__(self):
        self._events = {}

    def _event(self, transfer_id):
        return self._events.setdefault(transfer_id, asyncio.Event())

    def done(self, transfer_id):
        self._event(transfer_id).set()

    async def wait(self, transfer_id):
        await self._event(transfer_id).wait()


class Rig:
    """Engines, a proxy in front of them, and a client."""

    def __init__(self, prefills=1, decodes=1, engines=None):
        self.kv = Transfers()
        self.prefills = [Prefill(self.kv, engines) for _ in range(prefills)]
        self.decodes = [Decode(self.kv) for _ in range(decodes)]
        self.prefill, self.decode = self.prefills[0], self.decodes[0]

    def options(self, **changes):
        changes.setdefault("health_interval", 0.02)
        return ProxyOptions(
            prefill=tuple(PrefillAddress(prefill.url, prefill.bootstrap.url) for prefill in self.prefills),
            decode=tuple(decode.url for decode in self.decodes),
            port=0,
            **changes,
        )

    @contextlib.asynccontextmanager
    async def engines(self):
        servers = [*self.prefills, *self.decodes]
        for server in servers:
            await server.start()
        try:
            yield self
        finally:
            for server in servers:
                await server.kill()

    @contextlib.asynccontextmanager
    async def running(self, ready=True, **changes):
        """The proxy; waits until it is ready."""
        async with self.engines(), listening(self.options(**changes)) as port:
            self.url = f"http://127.0.0.1:{port}"
            async with aiohttp.ClientSession() as self.client:
                while ready and (await self.get("/health"))[0] != 200:
                    await asyncio.sleep(0.005)
                yield self

    async def get(self, path, **options):
        async with self.client.get(self.url + path, **options) as answer:
            body = await answer.text()
            return answer.status, json.loads(body) if answer.content_type == "application/json" else body

    async def post(self, path="/v1/completions", **body):
        """Status and JSON of a request."""
        async with self.send(path, **body) as answer:
            return answer.status, json.loads(await answer.read())

    def send(self, path="/v1/completions", headers=None, **body):
        return self.client.post(self.url + path, data=json.dumps({"model": "m", "prompt": "p", **body}), headers=headers)

    async def health_of(self, server):
        """What /status has of an engine."""
        _status, page = await self.get("/status")
        return next(entry for entry in page["prefillers"] + page["decoders"] if entry["url"] == server.url)

    async def wait_healthy(self, server, healthy=True, **more):
        wanted = {"healthy": healthy, **more}
        while (found := await self.health_of(server)) | wanted != found:
            await asyncio.sleep(0.005)


async def stream_of(answer):
    """The values of a stream's events, [DONE] as text."""
    text = (await answer.read()).decode()
    parts = [part.removeprefix("data: ") for part in text.split("\n\n") if part]
    return [part if part == "[DONE]" else json.loads(part) for part in parts]


def message(answer):
    """The message of an error's body, whose form is checked."""
    status, body = answer
    assert body["error"]["code"] == status and set(body["error"]) == {"message", "type", "param", "code"}
    return body["error"]["message"]


def failing(status, text):
    """An engine's answer that is an error."""

    async def answer(_request, _body):
        return web.json_response({"error": {"message": text, "type": "x", "param": None, "code": status}}, status=status)

    return answer


async def never(_request, _body):
    """An engine's answer that does not come."""
    await asyncio.Event().wait()


async def outcome_count(rig, outcome):
    """How many requests ended so, by the metrics."""
    _status, text = await rig.get("/metrics")
    counts = [line for line in text.splitlines() if line.startswith("tenure_proxy_requests_total")]
    return sum(int(line.rsplit(" ", 1)[1]) for line in counts if f'outcome="{outcome}"' in line)


async def idle(rig):
    """Every call of every engine has ended."""
    while True:
        _status, page = await rig.get("/status")
        if page["requests_in_flight"] == 0 and not any(server["in_flight"] for server in page["prefillers"] + page["decoders"]):
            return
        await asyncio.sleep(0.005)
