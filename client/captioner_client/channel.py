"""Opens a channel for addresses and options: load balancing, retries, credentials."""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import re
import socket
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc

from captioner.certificates import expiry_of
from captioner.errors import OptionsError, clip, reason_of
from captioner.grpc_log import leave_out_headers
from captioner_client.errors import ServerError
from captioner_client.options import ClientOptions
from captioner_client.threads import in_thread
from captioner_client.waiting import BACKOFF_FACTOR, FIRST_BACKOFF_S, MAX_BACKOFF_S

log = logging.getLogger("captioner_client")
leave_out_headers()

SERVICE = "captioner.v1.CaptionService"
MAX_ANSWER_BYTES = 2**25
"""Longer answers are rejected. The largest legal one has maps of 256 x 256 float32 weights for 64 words:
16 MiB, and some KiB of text."""
_NAME = re.compile(r"[\w.-]+")
"""A host's name, or an address of IPv4."""
_SCOPED = re.compile(r"[^%]+(%[\w.-]+)?")
"""An address of IPv6, where its other characters are right."""
_MAX_SOCKET_BYTES = 107
"""The longest path of a Unix socket, without the byte that ends it."""
_opened_in: int | None = None
"""The process in which the first channel was opened."""
_open: weakref.WeakSet[grpc.aio.Channel] = weakref.WeakSet()
_inherited: list[grpc.aio.Channel] = []
"""Channels of the process from which this one was forked. To free the last would wait for its threads."""


def parse_addresses(addresses: str | Sequence[str]) -> list[str]:
    """One address or several (a sequence, or separated by commas), each HOST:PORT or unix:PATH.

    Raises `OptionsError` for anything else.
    """
    given = addresses.split(",") if isinstance(addresses, str) else addresses
    several: list[object] = list(given) if isinstance(given, Iterable) else [given]
    names = [name.strip() for name in several if isinstance(name, str)]
    if len(names) < len(several):
        raise OptionsError(f"addresses must be texts, HOST:PORT, got {clip(repr(addresses))}", "server")
    if not names:
        raise OptionsError("a client needs the address of a server", "server")
    for name in names:
        if len(names) == 1 and name.startswith("unix:"):
            _check_socket(name)
        else:
            _split(name)
    return names


def check_process() -> None:
    """Raise `ServerError` in a process that was forked from one that had opened a channel: there, gRPC would
    hang or crash."""
    if _opened_in not in (None, os.getpid()):
        raise ServerError(
            "this process was forked from one that had used a client, which gRPC does not survive: start "
            "processes by spawn or forkserver, or use clients in the forked processes only"
        )


def _keep_all() -> None:
    _inherited.extend(_open)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_all)


async def open_channel(addresses: Sequence[str], options: ClientOptions) -> grpc.aio.Channel:
    """A channel over parsed addresses, for the running event loop.

    Raises `OptionsError` for a host that has no address, or a certificate file that cannot be used, and as
    `check_process` does.
    """
    global _opened_in
    check_process()
    target, arguments, files = await in_thread(_prepare, addresses, options)
    _opened_in = os.getpid()
    if files is None:
        channel = grpc.aio.insecure_channel(target, arguments)
    else:
        channel = grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(*files), arguments)
    _open.add(channel)
    return channel


def _prepare(
    addresses: Sequence[str], options: ClientOptions
) -> tuple[str, list[tuple[str, Any]], tuple[bytes | None, ...] | None]:
    """The target, the arguments, and the files for TLS: what takes looking up names and reading files."""
    target = make_target(addresses)
    arguments: list[tuple[str, Any]] = [
        (
            "grpc.service_config",
            json.dumps(service_config(options.max_attempts, watch=watches_health(addresses, options))),
        ),
        ("grpc.enable_retries", 1),
        # A call is tried again only while its message is kept: keep the largest.
        ("grpc.per_rpc_retry_buffer_size", options.max_image_bytes + 2**20),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
        ("grpc.max_reconnect_backoff_ms", 2_000),  # a server that has started is soon found
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        # gRPC takes http_proxy for all addresses, but a proxy cannot reach those of this machine.
        ("grpc.enable_http_proxy", int(not any(map(_is_local, addresses)))),
    ]
    if not (options.tls or options.root_certificates or options.certificate):
        return target, arguments, None
    if not target.startswith(("dns:", "unix:")):  # then the name to check the certificate for is lost
        first, *others = dict.fromkeys(_split(address)[0] for address in addresses)
        if others:
            log.warning("the certificates of all servers must be valid for %s, the first host", first)
        arguments.append(("grpc.default_authority", first))
    names = ("root_certificates", "key", "certificate")
    return target, arguments, tuple(_read(options, name) for name in names)


def watches_health(addresses: Sequence[str], options: ClientOptions) -> bool:
    """Whether the channel watches the health of the servers: as the options say, by default for several."""
    if options.health_check is not None:
        return options.health_check
    if len(addresses) > 1:
        return True
    if addresses[0].startswith("unix:"):
        return False
    try:
        return len(_resolve(*_split(addresses[0]))) > 1
    except OptionsError:
        return False


def _is_local(address: str) -> bool:
    """Whether an address is one of this machine's loopback interface."""
    if address.startswith("unix:"):
        return True
    try:
        endpoints = _resolve(*_split(address))
    except OptionsError:
        return False
    return all(ipaddress.ip_address(host.partition("%")[0]).is_loopback for host, _ in endpoints)


def _read(options: ClientOptions, name: str) -> bytes | None:
    path: Path | None = getattr(options, name)
    if path is None:
        return None
    try:
        content = path.read_bytes()
    except OSError as error:
        raise OptionsError(f"cannot read {path}: {reason_of(error)}", name) from error
    what = "key" if name == "key" else "certificate"
    if not re.search(rb"-----BEGIN [A-Z ]*" + what.upper().encode(), content):
        # gRPC would say so in its log only, and try to connect until the deadline.
        raise OptionsError(f"{path} has no {what} in PEM", name)
    expiry = expiry_of(content) if name == "certificate" else None
    if expiry and expiry < datetime.now(UTC):  # servers that ask for it close the connection without a reason
        log.warning("the client's certificate %s has expired, on %s", path, expiry.date())
    return content


def make_target(addresses: Sequence[str]) -> str:
    """A gRPC target: one address becomes a DNS name that gRPC resolves repeatedly; several become a fixed
    list of IP addresses. Raises `OptionsError` for addresses that cannot be used."""
    if len(addresses) == 1:
        if addresses[0].startswith("unix:"):
            return addresses[0]
        host, port = _split(addresses[0])
        return f"dns:///{_join(host, port)}"
    resolved = sorted({endpoint for address in addresses for endpoint in _resolve(*_split(address))})
    kinds = {ipaddress.ip_address(host).version for host, _ in resolved}
    if len(kinds) != 1:
        raise OptionsError("several addresses must be all IPv4 or all IPv6", "server")
    scheme = "ipv4" if kinds == {4} else "ipv6"
    return f"{scheme}:{','.join(_join(host, port) for host, port in resolved)}"


def service_config(max_attempts: int, *, watch: bool) -> dict[str, object]:
    """Round robin over the servers, with `watch` over those that report themselves healthy; backoff between
    attempts, which a server overrides with the delay of its RetryInfo (`grpc-retry-pushback-ms`).

    Not for CaptionBatch, which `batch.Batch` sends again itself: when gRPC repeats a call with several
    messages, it ends the process now and then, or never ends the call (grpc/grpc#40283)."""
    names = [{"service": SERVICE, "method": name} for name in ("Caption", "StreamCaption", "GetModel")]
    method: dict[str, object] = {"name": names}
    if max_attempts > 1:
        method["retryPolicy"] = {
            "maxAttempts": max_attempts,
            "initialBackoff": f"{FIRST_BACKOFF_S:g}s",
            "maxBackoff": f"{MAX_BACKOFF_S:g}s",
            "backoffMultiplier": BACKOFF_FACTOR,
            "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
        }
    return {
        "loadBalancingConfig": [{"round_robin": {}}],
        **({"healthCheckConfig": {"serviceName": SERVICE}} if watch else {}),
        "methodConfig": [method],
    }


def _check_socket(address: str) -> None:
    """gRPC would try to connect to what can be no socket until the deadline."""
    path = os.fsencode(address.removeprefix("unix:").removeprefix("//"))
    if not 0 < len(path) <= _MAX_SOCKET_BYTES:
        most = f"a path of at most {_MAX_SOCKET_BYTES} bytes"
        raise OptionsError(f"a server's socket is unix:PATH with {most}, got {clip(address)!r}", "server")


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536
    if not colon or not _is_host(host) or not is_port:
        raise OptionsError(f"a server's address is HOST:PORT, got {clip(address)!r}", "server")
    try:
        host.encode("idna")  # as looking it up does
    except UnicodeError:
        reason = "parts between dots have 1 to 63 letters, digits or hyphens"
        raise OptionsError(f"no host can have the name {clip(host)!r}: {reason}", "server") from None
    return host, int(port)


def _is_host(host: str) -> bool:
    if _NAME.fullmatch(host):
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).version == 6 and _SCOPED.fullmatch(host) is not None
    return False


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _resolve(host: str, port: int) -> list[tuple[str, int]]:
    """The addresses of a host in one IP version: IPv4 if it has any."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise OptionsError(f"cannot find {host!r}: {reason_of(error)}", "server") from error
    endpoints = {(str(endpoint[0]), port) for family, *_, endpoint in found if family == socket.AF_INET}
    return sorted(endpoints or {(str(endpoint[0]), port) for *_, endpoint in found})
