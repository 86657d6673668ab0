"""The options of TenurePDConnector: kv_connector_extra_config, and the environment variables of the stock connector.

Stock names keep stock's meaning and default. Each wrong value is one line that names it, its value and the remedy, before any
memory is taken. docs/reference/vllm-pd.md lists them; a test compares the two.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping

from tenure.pd import peers
from tenure.pd.keys import read_key
from tenure.vllm import checks

ROLES = ("kv_producer", "kv_consumer", "kv_both")
TRANSPORTS = ("auto", "local", "tcp", "ucx", "mooncake")
ANY_HOST = ("0.0.0.0", "::")
_SECONDS_MAX = 7 * 86400
# P learns of a prefill's end, and D of a pull's, with a step; a lease that ends within one is none.
STEP_SECONDS = 0.1
_seconds = checks.seconds(_SECONDS_MAX)


@dataclasses.dataclass(frozen=True)
class CurveKeys:
    """Of the side channel: P's secret key, where this engine is P; P's public key, where it is D. None: in the clear."""

    secret: str | None = dataclasses.field(default=None, repr=False)
    public: str | None = None


@dataclasses.dataclass(frozen=True)
class PDOptions:
    """The checked options; seconds where not said otherwise.

    bootstrap_server_address: "host:port" of a bootstrap server of others; empty: the first worker of the engine runs one, which
    listens on bootstrap_listen_host; empty: where peers reach that worker (VLLM_HOST_IP). bootstrap_token: what workers say to register; never an option, which vLLM would log.
    allow_peer: the bootstrap servers, "http://HOST:PORT", that requests at D may name; None: any.
    curve_secret_key_file, curve_public_key_file: of P's pair, for P and for D; files, since vLLM logs options. None: in the clear.
    kv_lease_duration: None is off; P then holds a finished prefill for abort_timeout. renew_without_step: how long D renews while its
    scheduler does not step; None is 10 leases. request_timeout: from a request's arrival at D to the end of its pull.
    """

    transport: str = "auto"
    num_workers: int = 10
    mooncake_protocol: str = "rdma"
    device_name: str = ""
    bootstrap_server_address: str = ""
    bootstrap_listen_host: str = ""
    curve_secret_key_file: str | None = None
    curve_public_key_file: str | None = None
    allow_peer: tuple[str, ...] | None = None
    kv_lease_duration: float | None = None
    renew_without_step: float | None = None
    request_timeout: float = 0.0
    # From the environment.
    bootstrap_port: int = 8998
    abort_timeout: float = 480.0
    connector_timeout: float = 30.0
    bootstrap_token: str = ""

    @property
    def bootstrap_host_and_port(self) -> tuple[str, int] | None:
        """Where the bootstrap server of others listens."""
        return split_host_port("bootstrap_server_address", self.bootstrap_server_address) if self.bootstrap_server_address else None

    def curve_keys(self, role: str) -> CurveKeys:
        """The keys of the side channel, read from their files. ValueError names the option, its value and the remedy: keys that a role
        needs and lacks, or has and does not use, never mean a channel in the clear."""
        files = {"curve_secret_key_file": self.curve_secret_key_file, "curve_public_key_file": self.curve_public_key_file}
        if all(path is None for path in files.values()):
            return CurveKeys()
        for name, path in files.items():
            if path is not None and role not in _CURVE_ROLES[name]:
                needed = " and ".join(other for other, roles in _CURVE_ROLES.items() if role in roles)
                raise ValueError(f"{name} is {path!r}, which {role} does not use; remove it, and set {needed}")
        for name, path in files.items():
            if path is None and role in _CURVE_ROLES[name]:
                raise ValueError(f"{name} is unset, but {role} with CURVE keys needs it; set it to the path of a key file, or remove the other one")
        keys = {name: None if path is None else read_key(name, path) for name, path in files.items()}
        return CurveKeys(keys["curve_secret_key_file"], keys["curve_public_key_file"])

    @staticmethod
    def from_mapping(options: Mapping[str, Any], environment: Mapping[str, str]) -> PDOptions:
        """The options of one connector. ValueError or TypeError names the option, its value and the remedy."""
        values: dict[str, Any] = {}
        for name, value in options.items():
            if name not in _CHECKS:
                checks.refuse_unknown(name, value, _CHECKS, "vllm-pd.md")
            if value is None and _FIELDS[name].default is None:
                continue  # As JSON says "unset".
            values[name] = _CHECKS[name](name, value)
        for name, (field, check) in _ENVIRONMENT.items():
            text = environment.get(name)
            if text is not None and (text.strip() or check is _token):  # Blank is unset to stock; never for what protects.
                values[field] = check(name, text.strip())
        # Stock waits a minute longer for P's answer than P waits for its prefill.
        values.setdefault("request_timeout", values.get("abort_timeout", 480.0) + 60.0)
        checked = PDOptions(**values)
        if checked.renew_without_step is not None and checked.kv_lease_duration is None:
            raise ValueError(
                f"renew_without_step is {checked.renew_without_step!r}, but kv_lease_duration is unset, so nothing is renewed; "
                "set kv_lease_duration or remove it"
            )
        return checked


def check_role(role: str | None) -> str:
    """kv_role, if it is one. ValueError names the known ones."""
    if role not in ROLES:
        raise ValueError(f"kv_role is {role!r}; use {' or '.join(ROLES)}")
    return role


def check_host(host: str) -> str:
    """The address by which peers reach this machine, which listeners bind to. ValueError for every address and for none."""
    if host in ANY_HOST or not host:
        raise ValueError(f"this machine's address is {host!r} to vLLM, which no peer can reach; set VLLM_HOST_IP to the one by which peers reach this worker")
    return host


def split_host_port(name: str, value: str) -> tuple[str, int]:
    """Host and port of "host:port", "[v6 address]:port". ValueError names `name`."""
    host, separator, port = value.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # An IPv6 address without brackets.
    if not separator or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError(f'{name} is {value!r}; use "host:port" with a port from 1 to 65535, as "10.0.0.1:8998" or "[fd00::1]:8998"')
    return host, int(port)


def _host_port(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f'{name} is {value!r}; use text, as "10.0.0.1:8998"')
    split_host_port(name, value)
    return value


def _host(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value or any(character.isspace() or character in "/[]" for character in value):
        raise ValueError(f'{name} is {value!r}; use a host name or address to listen on, as "0.0.0.0" or "10.0.0.1"')
    return value


def _path(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r}; use the path of a key file, which python -m tenure.pd.keys writes")
    return value


def _token(name: str, text: str) -> str:
    if not text or not all("!" <= character <= "~" for character in text):  # It goes into an HTTP header.
        raise ValueError(f"{name} is set, but to no printable ASCII text without spaces; set such a token, or unset the variable")
    return text


def _peers(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(peer, str) for peer in value):
        raise TypeError(f'{name} is {value!r}; use a list of bootstrap servers, as ["10.0.0.1:8998"]')
    return tuple(peers.address(name, peer) for peer in value)


def _lease_seconds(name: str, value: Any) -> float:
    seconds = _seconds(name, value)
    if seconds < STEP_SECONDS:
        raise ValueError(f"{name} is {value!r}, less than an engine's step; use seconds from {STEP_SECONDS} to {_SECONDS_MAX}")
    return seconds


def _seconds_text(name: str, text: str) -> float:
    try:
        return _seconds(name, float(text))
    except ValueError:
        raise ValueError(f"{name} is {text!r}; use seconds above 0, at most {_SECONDS_MAX}") from None


def _port_text(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise ValueError(f"{name} is {text!r}; use a port from 1 to 65535")
    return int(text)


_CURVE_ROLES = {"curve_secret_key_file": ("kv_producer", "kv_both"), "curve_public_key_file": ("kv_consumer", "kv_both")}
_CHECKS: dict[str, Any] = {
    "transport": checks.one_of(*TRANSPORTS),
    "num_workers": checks.threads,
    "mooncake_protocol": checks.text,
    "device_name": checks.text,
    "bootstrap_server_address": _host_port,
    "bootstrap_listen_host": _host,
    "curve_secret_key_file": _path,
    "curve_public_key_file": _path,
    "allow_peer": _peers,
    "kv_lease_duration": _lease_seconds,
    "renew_without_step": _lease_seconds,
    "request_timeout": _seconds,
}
_FIELDS = {field.name: field for field in dataclasses.fields(PDOptions)}
_ENVIRONMENT: dict[str, tuple[str, Any]] = {
    "VLLM_MOONCAKE_BOOTSTRAP_PORT": ("bootstrap_port", _port_text),
    "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT": ("abort_timeout", _seconds_text),
    "VLLM_MOONCAKE_CONNECTOR_TIMEOUT": ("connector_timeout", _seconds_text),
    "TENURE_PD_BOOTSTRAP_TOKEN": ("bootstrap_token", _token),
}
