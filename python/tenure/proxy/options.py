"""The command line of `tenure-proxy`: names, defaults, and what is refused. docs/reference/proxy.md lists them; a test compares the two.

A wrong option is one line that names it, its value and the remedy, and exit status 2.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import math
from typing import Any, NoReturn, Sequence
from urllib.parse import SplitResult, urlsplit

from tenure._native import parse_size
from tenure.pd import peers

_logger = logging.getLogger("tenure.proxy")

BOOTSTRAP_PORT = 8998


@dataclasses.dataclass(frozen=True)
class PrefillAddress:
    """A prefill engine. bootstrap: where its ranks are listed, "http://HOST:PORT", as D reaches it."""

    url: str
    bootstrap: str


@dataclasses.dataclass(frozen=True)
class ProxyOptions:
    """The checked options. Seconds and bytes."""

    prefill: tuple[PrefillAddress, ...]
    decode: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    request_timeout: float = 600.0
    connect_timeout: float = 5.0
    health_interval: float = 2.0
    health_timeout: float = 5.0
    requests_max: int = 1024
    body_bytes_max: int = 64 << 20
    header_bytes_max: int = 16 << 10
    allow_peer: frozenset[str] = frozenset()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"tenure-proxy: {message}; tenure-proxy --help lists the options\n")


def parser() -> argparse.ArgumentParser:
    """The options as texts; from_arguments checks them."""
    made = _Parser(
        prog="tenure-proxy",
        description="One OpenAI endpoint in front of prefill and decode engines.",
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--prefill", nargs="+", action="append", metavar=("URL", "BOOTSTRAP"), default=[],
        help="a prefill engine, and its bootstrap server: PORT at the same host, HOST:PORT, or none (8998); repeatable")  # fmt: skip
    add("--decode", action="append", metavar="URL", default=[], help="a decode engine; repeatable")
    add("--host", default="127.0.0.1", help="the address to listen on; 0.0.0.0 for all (default: %(default)s)")
    add("--port", default="8000", help="the port to listen on; 0: any free one (default: %(default)s)")
    add("--request-timeout", default="600", metavar="SECONDS", help="for a whole request with its stream (default: %(default)s)")
    add("--connect-timeout", default="5", metavar="SECONDS", help="to connect to an engine (default: %(default)s)")
    add("--health-interval", default="2", metavar="SECONDS", help="between two checks of an engine (default: %(default)s)")
    add("--health-timeout", default="5", metavar="SECONDS", help="for an engine to answer a check (default: %(default)s)")
    add("--requests-max", default="1024", metavar="COUNT", help="requests at one time; more are answered with 503 (default: %(default)s)")
    add("--body-bytes-max", default="64MiB", metavar="SIZE", help="of a request's body (default: %(default)s)")
    add("--header-bytes-max", default="16KiB", metavar="SIZE", help="of a line of a request's header (default: %(default)s)")
    add("--allow-peer", action="append", metavar="HOST:PORT", default=[],
        help="a bootstrap server that a client may name itself in kv_transfer_params; repeatable")  # fmt: skip
    return made


def parse(arguments: Sequence[str]) -> ProxyOptions:
    """The options of a command line. Prints one line and leaves with status 2 when one is wrong."""
    made = parser()
    try:
        return from_arguments(made.parse_args(arguments))
    except ValueError as error:
        made.exit(2, f"tenure-proxy: {error}\n")


def from_arguments(given: argparse.Namespace) -> ProxyOptions:
    """Checks every option. ValueError names it, its value and the remedy."""
    if not given.prefill:
        raise ValueError("--prefill is missing; give the URL of a prefill engine, as --prefill http://HOST:PORT [BOOTSTRAP_PORT]")
    if not given.decode:
        raise ValueError("--decode is missing; give the URL of a decode engine, as --decode http://HOST:PORT")
    decode = [_url("--decode", text) for text in given.decode]
    local = all(_is_local(url.hostname or "") for url in decode)
    options = ProxyOptions(
        prefill=tuple(_prefill(words, local) for words in given.prefill),
        decode=tuple(_engine(url, "--decode", local) for url in decode),
        host=given.host,
        port=_whole("--port", given.port, 0, 65535),
        request_timeout=_seconds("--request-timeout", given.request_timeout),
        connect_timeout=_seconds("--connect-timeout", given.connect_timeout),
        health_interval=_seconds("--health-interval", given.health_interval),
        health_timeout=_seconds("--health-timeout", given.health_timeout),
        requests_max=_whole("--requests-max", given.requests_max, 1, 1 << 20),
        body_bytes_max=_size("--body-bytes-max", given.body_bytes_max, 1024, 1 << 30),
        header_bytes_max=_size("--header-bytes-max", given.header_bytes_max, 1024, 1 << 20),
        allow_peer=frozenset(peers.address("--allow-peer", text) for text in given.allow_peer),
    )
    _refuse_twice("--prefill", [prefill.url for prefill in options.prefill])
    _refuse_twice("--decode", options.decode)
    return options


def _prefill(words: Sequence[str], decode_is_local: bool) -> PrefillAddress:
    if len(words) > 2:
        given = " ".join(words)
        raise ValueError(f"--prefill is {given!r}; give URL and at most one BOOTSTRAP, and repeat --prefill for each engine")
    url = _url("--prefill", words[0])
    place = words[1] if len(words) == 2 else "none"
    engine = _engine(url, "--prefill", decode_is_local)
    if place.lower() == "none" or place.isdecimal():
        port = BOOTSTRAP_PORT if place.lower() == "none" else _whole("BOOTSTRAP of --prefill", place, 1, 65535)
        host = urlsplit(engine).hostname or ""
        if _is_local(host) and not decode_is_local:
            text = "decode engines elsewhere are told %s:%d of --prefill %s; name its host if they cannot reach it"
            _logger.warning(text, host, port, words[0])
        return PrefillAddress(engine, f"http://{peers.bracketed(host)}:{port}")
    return PrefillAddress(engine, peers.address("BOOTSTRAP of --prefill", place))


def _url(name: str, text: str) -> SplitResult:
    remedy = "give http://HOST:PORT"
    try:
        url = urlsplit(text)
        port, host = url.port, url.hostname
    except ValueError as error:
        raise ValueError(f"{name} is {text!r}: {error}; {remedy}") from None
    if url.scheme not in ("http", "https") or not host or port == 0 or any(c.isspace() for c in text):
        raise ValueError(f"{name} is {text!r}; {remedy}")
    if url.query or url.fragment or url.username is not None or url.path.rstrip("/").endswith("/v1"):
        raise ValueError(f"{name} is {text!r}; {remedy}, without /v1, user, query and fragment")
    return url


def _engine(url: SplitResult, name: str, decode_is_local: bool) -> str:
    """The URL without a slash at its end. 0.0.0.0 is where a server listens, and no address to reach it at."""
    host = url.hostname or ""
    if peers.is_unspecified(host):
        if not decode_is_local:
            raise ValueError(f"{name} is {url.geturl()!r}, and not all engines are on this host; name the engine's own host")
        host = "::1" if ":" in host else "127.0.0.1"
    port = "" if url.port is None else f":{url.port}"
    return f"{url.scheme}://{peers.bracketed(host)}{port}{url.path.rstrip('/')}"


def _is_local(host: str) -> bool:
    address = peers.parse_ip(host)
    return host == "localhost" if address is None else address.is_loopback or address.is_unspecified


def _refuse_twice(name: str, values: Sequence[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{name} is {value!r} twice; name each engine once")


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or not 0 < value <= 86400:
        raise ValueError(f"{name} is {text!r}; use seconds above 0, at most 86400")
    return value


def _whole(name: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and least <= int(text) <= most):
        raise ValueError(f"{name} is {text!r}; use a whole number from {least} to {most}")
    return int(text)


def _size(name: str, text: str, least: int, most: int) -> int:
    value: Any = parse_size(name, text)
    if not least <= value <= most:
        raise ValueError(f"{name} is {text!r}; use a size from {least} to {most} bytes, as 64MiB")
    return int(value)
