"""The load of a case: requests to both engines as vLLM's example proxy sends them, probes to the prefiller, and samples of its KV.

Each request goes to P and to D at once under one transfer id, and P's call goes on whatever happens to D's: what is measured is the
connector. tenure-proxy would also cancel P's call when D dies. Times are seconds since the load began.
"""

import asyncio
import json
import time
import uuid

import aiohttp

USAGE = "vllm:kv_cache_usage_perc"
EVENTS = "vllm:tenure_pd_events_total"
PREEMPTIONS = "vllm:num_preemptions_total"
SAMPLE_SECONDS = 0.1
# Counters of P in each sample.
SAMPLED_EVENTS = ("renewals", "kv_expired_reqs")


def metric(page, name, label=""):
    """The sum of a metric over the label sets that contain `label`, of a page of Prometheus' text format. 0 without any."""
    lines = (line for line in page.splitlines() if line.startswith((name + "{", name + " ")) and label in line)
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def event(page, name):
    """One of the connector's counters."""
    return metric(page, EVENTS, f'event="{name}"')


class Load:
    """One load on one pair of engines; used in one event loop."""

    def __init__(self, model, prefill, decode, bootstrap, prefill_engine_id, max_tokens):
        self._model = model
        self._prefill, self._decode = prefill, decode
        self._remote = {"remote_bootstrap_addr": bootstrap, "remote_engine_id": prefill_engine_id}
        self._max_tokens = max_tokens
        self._began = time.monotonic()
        self._calls = set()
        self.requests, self.probes, self.samples = [], [], []

    async def __aenter__(self):
        # A connection for each call: a server ends an idle one after 5 s, maybe just when the next call is on its way there.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        return self

    async def __aexit__(self, *_):
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._session.close()

    def now(self):
        return round(time.monotonic() - self._began, 4)

    def begin(self):
        """From here on times count."""
        self._began = time.monotonic()

    def start(self, call):
        """Runs `call` until it ends or the load does."""
        task = asyncio.create_task(call)
        self._calls.add(task)
        return task

    async def finished(self):
        """Waits for all calls."""
        await asyncio.gather(*self._calls)
        self._calls.clear()

    def request(self, prompt):
        """Sends a request to both engines."""
        entry = {"sent": self.now(), "prefilled": None, "first_token": None, "ended": None, "outcome": "unfinished"}
        self.requests.append(entry)
        transfer_id = f"xfer-{uuid.uuid4()}"
        to_prefill = {"do_remote_decode": True, "do_remote_prefill": False, "transfer_id": transfer_id}
        to_decode = {"do_remote_decode": False, "do_remote_prefill": True, "transfer_id": transfer_id, **self._remote}
        self.start(self._prefill_call(entry, self._body(prompt, 1, to_prefill)))
        self.start(self._decode_call(entry, self._body(prompt, self._max_tokens, to_decode)))

    async def probe(self, prompt):
        """Asks the prefiller for one token, and nobody else."""
        entry = {"sent": self.now(), "answered": None}
        self.probes.append(entry)
        async with self._session.post(f"{self._prefill}/v1/completions", json=self._body(prompt, 1)) as answer:
            await answer.read()
            if answer.status == 200:
                entry["answered"] = self.now()

    async def sample(self):
        """Reads P's KV usage and counters until the load ends."""
        due = self.now()
        while True:
            page = await self.page(self._prefill)
            self.samples.append({"t": self.now(), "usage": metric(page, USAGE), **{name: event(page, name) for name in SAMPLED_EVENTS}})
            due = max(due + SAMPLE_SECONDS, self.now())
            await asyncio.sleep(due - self.now())

    async def page(self, url):
        """An engine's metrics."""
        async with self._session.get(f"{url}/metrics") as answer:
            return await answer.text()

    def _body(self, prompt, max_tokens, params=None):
        body = {"model": self._model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        return body if params is None else {**body, "kv_transfer_params": params}

    async def _prefill_call(self, entry, body):
        async with self._session.post(f"{self._prefill}/v1/completions", json=body) as answer:
            await answer.read()
            if answer.status == 200:
                entry["prefilled"] = self.now()

    async def _decode_call(self, entry, body):
        entry["outcome"] = "failed"
        try:
            async with self._session.post(f"{self._decode}/v1/completions", json={**body, "stream": True}) as answer:
                if answer.status == 200:
                    await self._read_stream(entry, answer.content)
        except aiohttp.ClientError:
            entry["outcome"] = "cut off"  # D is gone.
        entry["ended"] = self.now()

    async def _read_stream(self, entry, lines):
        async for line in lines:
            if not line.startswith(b"data: {"):
                continue
            choices = json.loads(line[len(b"data: ") :]).get("choices") or []
            reasons = [choice["finish_reason"] for choice in choices]
            if choices and reasons != ["error"] and entry["first_token"] is None:
                entry["first_token"] = self.now()
            if reasons == ["length"]:
                entry["outcome"] = "succeeded"
