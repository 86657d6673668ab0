"""Which prefill engines a client may name: their bootstrap servers, as "http://HOST:PORT"."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

__all__ = ["address", "bracketed", "is_allowed", "is_unspecified", "parse_ip"]


def address(name: str, text: str) -> str:
    """HOST:PORT, with or without http:// in front, as "http://HOST:PORT". ValueError with `name`, the text and the remedy."""
    remedy = "give HOST:PORT, with the port from 1 to 65535"
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        host, port = url.hostname, url.port
    except ValueError:
        raise ValueError(f"{name} is {text!r}; {remedy}") from None
    if url.scheme != "http" or not host or not port or url.path.strip("/") or url.query or url.fragment or url.username is not None:
        raise ValueError(f"{name} is {text!r}; {remedy}")
    if is_unspecified(host):
        raise ValueError(f"{name} is {text!r}, an address to listen on; {remedy} at which it is reached")
    return f"http://{bracketed(host)}:{port}"


def is_allowed(named: Any, allowed: Collection[str]) -> bool:
    """Whether a client's value is one of `allowed`, which address() has made. Nothing else is tried to be read as one."""
    return isinstance(named, str) and named.rstrip("/").lower() in allowed


def bracketed(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def parse_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_unspecified(host: str) -> bool:
    """Whether it means every address of a machine: to listen on, not to reach."""
    found = parse_ip(host)
    return found is not None and found.is_unspecified
