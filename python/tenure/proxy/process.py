"""The process: listens, says where, and ends within a second of SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from typing import AsyncIterator, Sequence

from aiohttp import web

from tenure.proxy.app import Proxy
from tenure.proxy.options import ProxyOptions, parse

# For requests to end after they were told to; what is left then is cut off.
_END_SECONDS = 0.4


@contextlib.asynccontextmanager
async def listening(options: ProxyOptions) -> AsyncIterator[int]:
    """A running proxy: yields its port. OSError when the address cannot be listened on."""
    proxy = Proxy(options)
    runner = web.AppRunner(
        proxy.application(),
        access_log=None,
        handler_cancellation=True,  # A client that goes away takes its calls to the engines along.
        shutdown_timeout=_END_SECONDS,
        max_line_size=options.header_bytes_max,
        max_field_size=options.header_bytes_max,
    )
    await proxy.start()
    try:
        await runner.setup()
        await web.TCPSite(runner, options.host, options.port, backlog=1024).start()
        yield runner.addresses[0][1]
    finally:
        proxy.end_requests()
        await runner.cleanup()
        await proxy.close()


async def serve(options: ProxyOptions) -> int:
    """The exit status."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(status: int) -> None:
        if not ended.done():
            ended.set_result(status)

    loop.add_signal_handler(signal.SIGINT, end, 130)
    loop.add_signal_handler(signal.SIGTERM, end, 0)
    try:
        async with listening(options) as port:
            host = f"[{options.host}]" if ":" in options.host else options.host
            print(f"tenure-proxy: listening on http://{host}:{port}", file=sys.stderr, flush=True)
            return await ended
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        print(f"tenure-proxy: cannot listen on --host {options.host} --port {options.port}: {reason}; choose others", file=sys.stderr)
        return 1


def run(arguments: Sequence[str]) -> int:
    """The program without its name; the exit status."""
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.INFO)
    # aiohttp reports every malformed request with a traceback; failures of the proxy's own are logged by the proxy.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    options = parse(arguments)
    try:
        return asyncio.run(serve(options))
    except KeyboardInterrupt:  # Before the handlers stood, or a second one.
        return 130
