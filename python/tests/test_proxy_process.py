"""tenure-proxy as a process: start, wrong starts, end by signal."""

import asyncio
import json
import pathlib
import signal
import subprocess
import sys
import time

import aiohttp
import pytest
from proxy_engines import Rig, event, run

import tenure

COMMAND = [sys.executable, "-m", "tenure.proxy"]


def finished(arguments, code=None):
    command = [*COMMAND, *arguments] if code is None else [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def test_wrong_option_is_one_line_and_status_2():
    done = finished(["--prefill", "http://p:1", "--decode", "d"])
    assert done.returncode == 2 and done.stdout == "" and done.stderr == "tenure-proxy: --decode is 'd'; give http://HOST:PORT\n"


def test_help_names_every_option():
    done = finished(["--help"])
    assert done.returncode == 0 and "--prefill URL" in done.stdout and "--requests-max" in done.stdout


def test_without_aiohttp_the_remedy_is_one_line():
    done = finished([], "import sys; sys.modules['aiohttp'] = None; import tenure.proxy.__main__ as m; sys.exit(m.main())")
    assert done.returncode == 1 and done.stderr == 'tenure-proxy: aiohttp is not installed; install it with: pip install "tenure[proxy]"\n'


def test_package_does_not_need_aiohttp_elsewhere():
    code = "import sys; sys.modules['aiohttp'] = None; import tenure, tenure.proxy, tenure.pd.wire"
    assert finished([], code).returncode == 0


def test_entry_point_is_the_module():
    project = (pathlib.Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert 'tenure-proxy = "tenure.proxy.__main__:main"' in project
    assert tenure.__all__


class Process:
    """A proxy in front of a rig's engines."""

    def __init__(self, rig, *more):
        self.rig = rig
        self.arguments = ["--port", "0", "--health-interval", "0.05", *more]

    async def __aenter__(self):
        prefill, decode = self.rig.prefill, self.rig.decode
        engines = ["--prefill", prefill.url, str(prefill.bootstrap.port), "--decode", decode.url]
        self.process = await asyncio.create_subprocess_exec(*COMMAND, *engines, *self.arguments, stderr=asyncio.subprocess.PIPE)
        self.lines = []
        while not self.lines or "listening on" not in self.lines[-1]:
            self.lines.append((await self.process.stderr.readline()).decode())
            assert self.lines[-1], self.lines
        self.rig.url = self.lines[-1].split()[-1]
        self.reading = asyncio.create_task(self._read())
        return self

    async def _read(self):
        while line := await self.process.stderr.readline():
            self.lines.append(line.decode())

    async def __aexit__(self, *_exception):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self.reading


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_signal_ends_every_request_with_its_reason(number, status):
    async def test():
        rig = Rig()
        async with rig.engines(), Process(rig) as proxy, aiohttp.ClientSession() as rig.client:
            while (await rig.get("/health"))[0] != 200:
                await asyncio.sleep(0.01)
            assert (await rig.post())[0] == 200
            role = event({"choices": [{"delta": {"role": "assistant"}}]})

            async def begins(request, body):
                if body.get("stream"):
                    stream = await rig.decode.begin_stream(request)
                    await stream.write(role)
                await asyncio.Event().wait()

            rig.decode.answer = begins
            whole = asyncio.create_task(rig.post())
            async with rig.send(stream=True) as answer:
                assert await answer.content.readuntil(b"\n\n") == role
                while len(rig.decode.calls) < 3:
                    await asyncio.sleep(0.005)
                start = time.monotonic()
                proxy.process.send_signal(number)
                text = (await answer.read()).decode()
                assert json.loads(text.split("\n\n")[0].removeprefix("data: "))["error"]["message"] == "the proxy is ending"
            assert (await whole)[0] == 503
            assert await proxy.process.wait() == status
            print(f"ended in {time.monotonic() - start:.3f} s")
            await proxy.reading
            assert not [line for line in proxy.lines if "Traceback" in line or "never retrieved" in line], proxy.lines

    run(test())


def test_port_in_use_is_one_line():
    async def test():
        rig = Rig()
        async with rig.engines():
            port = str(rig.decode.port)
            done = await asyncio.to_thread(finished, ["--prefill", rig.prefill.url, "--decode", rig.decode.url, "--port", port])
            assert done.returncode == 1
            line = done.stderr.splitlines()[-1]
            assert line.startswith(f"tenure-proxy: cannot listen on --host 127.0.0.1 --port {port}:") and "Traceback" not in done.stderr

    run(test())


def test_host_that_is_none_is_one_line():
    for host in ("nowhere.invalid", "a..b"):
        done = finished(["--prefill", "http://127.0.0.1:1", "--decode", "http://127.0.0.1:2", "--host", host])
        assert done.returncode == 1 and f"cannot listen on --host {host} --port 8000" in done.stderr and "Traceback" not in done.stderr


def test_junk_on_the_port_leaves_no_traceback_in_the_log():
    async def test():
        rig = Rig()
        async with rig.engines(), Process(rig) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(rig.url.rsplit(":", 1)[1]))
            writer.write(b"\x16\x03\x01\x00\r\n\r\n")
            assert b"400" in await reader.read()
            writer.close()
            proxy.process.send_signal(signal.SIGINT)
            await proxy.reading
            assert not [line for line in proxy.lines if "Traceback" in line], proxy.lines

    run(test())
