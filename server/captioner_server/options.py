"""The options of the server: a frozen dataclass, from which the flags of the command derive."""

# ruff: noqa: RUF009  (`option` is `dataclasses.field`)
from __future__ import annotations

import dataclasses
import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioner.cores import available_cores
from captioner.errors import OptionsError, clip
from captioner.images.formats import SAFE_FORMATS, parse_formats
from captioner.images.limits import ImageLimits
from captioner.images.workers import DEFAULT_MAX_CPU_S
from captioner.options import MAX_BEAM_SIZE, MAX_WORDS

_HOST = re.compile(r"\[[^/\]\s]+\]|[^/:\s]+")
_URL = re.compile(r"https?://[^/]+")
_ORIGIN = re.compile(r"\*|(?!file:)[a-z][a-z0-9+.-]*://[^\s/?#@]+")


def option(default: Any, help: str, low: float | None = None, high: float = float("inf")) -> Any:
    return dataclasses.field(default=default, metadata={"help": help, "low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Limits and addresses of a server. Raises `OptionsError` when a value is out of its range."""

    host: str = option(
        "127.0.0.1",
        "address to listen on; 0.0.0.0 or :: for every interface; unix:PATH for a socket (gRPC only)",
    )
    port: int = option(50051, "port to listen on; 0 takes a free one", 0, 65535)
    max_batch_size: int = option(16, "most images in a batch", 1, 1024)
    queue_size: int = option(256, "most images accepted and not yet answered", 1)
    max_wait_s: float = option(
        20.0,
        "longest wait for an answer, in seconds; a call is rejected at once if its expected time exceeds "
        "three quarters of this",
        0.001,
    )
    max_calls: int = option(1024, "most open calls of any kind", 1)
    max_streams: int = option(64, "most open StreamCaption and CaptionBatch calls", 1)
    stream_window: int = option(32, "most unanswered images of a CaptionBatch call", 1)
    stream_workers: int = option(2, "StreamCaption calls that are computed at the same time", 1)
    stream_idle_s: float = option(
        60.0, "longest time that a caller may neither send nor read, in seconds", 0.001
    )
    upload_bytes: int = option(0, "most bytes of messages in memory; 0 means a quarter of the memory", 0)
    upload_s: float = option(30.0, "longest time for a message to arrive, in seconds", 0.01)
    max_image_bytes: int = option(32 * 2**20, "largest image in bytes", 1, 2**30)
    max_image_pixels: int = option(100_000_000, "largest image in pixels, width x height", 1)
    max_beam_size: int = option(MAX_BEAM_SIZE, "largest beam size that callers may request", 1, MAX_BEAM_SIZE)
    max_words: int = option(MAX_WORDS, "longest caption that callers may request, in words", 1, MAX_WORDS)
    max_image_memory: int = option(
        512 * 2**20, "most memory that decoding an image may take, in bytes", 2**20
    )
    max_decode_s: float = option(
        DEFAULT_MAX_CPU_S, "most processor time that decoding an image may take, in seconds", 0.01
    )
    decode_workers: int = option(min(8, available_cores()), "image decoding processes", 1, 256)
    formats: str = option(",".join(SAFE_FORMATS), "image formats to accept, or all")
    failing_s: float = option(30.0, "exit if all batches fail for this long, in seconds", 0.0)
    stuck_s: float = option(300.0, "longest time for a batch, in seconds; a longer one counts as failed", 0.1)
    stalled_s: float = option(
        10.0,
        "report NOT_SERVING while images wait and none is answered for this long, in seconds",
        0.1,
    )
    shadow: str | None = option(
        None, "name of a model that also captions a share of the images of the default model, for comparison"
    )
    shadow_share: float = option(0.05, "share of the images that --shadow also captions", 0.0, 1.0)
    watch_s: float = option(
        5.0, "interval of checks for changed bundles, in seconds; 0 reloads on SIGHUP only", 0.0
    )
    lame_duck_s: float = option(
        5.0, "how long to accept calls after SIGTERM while health reports NOT_SERVING, in seconds", 0.0
    )
    grace_s: float = option(30.0, "longest time to finish open calls after SIGTERM, in seconds", 0.0)
    metrics_port: int | None = option(None, "port of Prometheus metrics over HTTP; none by default", 0, 65535)
    metrics_host: str = option("127.0.0.1", "address of the metrics; plaintext, and no token is needed")
    metrics_callers: bool = option(
        False, "show in metrics what each caller with a token uses, by the name of the token"
    )
    trace_endpoint: str | None = option(
        None, "URL of a collector for traces, OTLP over gRPC, such as http://localhost:4317; none by default"
    )
    trace_share: float = option(
        1.0, "share of calls to trace, unless the caller's traceparent already decides", 0.0, 1.0
    )
    http_port: int | None = option(
        None, "port of HTTP, with a web page; none by default; 0 takes a free one", 0, 65535
    )
    http_cors: str | None = option(
        None,
        "origins whose pages may call over HTTP (CORS), such as https://a.example or app://obsidian.md, "
        "separated by commas, or *; none by default",
    )
    http_hosts: str | None = option(
        None,
        "names by which HTTP may be called (Host), separated by commas, beside localhost and IP addresses; "
        "all by default",
    )
    http_keep_alive_s: float = option(
        75.0,
        "how long an HTTP connection may rest between requests, in seconds; longer than a load balancer's",
        0.1,
    )
    allow_urls: bool = option(
        False, "fetch images from URLs in OpenAI requests over HTTP, from public addresses only"
    )
    tls_certificate: Path | None = option(None, "PEM file with the server's certificate chain")
    tls_key: Path | None = option(None, "PEM file with the certificate's private key")
    tls_client_ca: Path | None = option(
        None, "PEM file with the authorities that must have signed callers' certificates (mutual TLS)"
    )
    insecure: bool = option(False, "allow plaintext on an address that can be reached from elsewhere")
    token_file: Path | None = option(
        None, "file with bearer tokens, one NAME TOKEN per line, or a single token"
    )
    reflection: bool = option(True, "answer server reflection")
    inference: bool = option(True, "answer the Open Inference Protocol")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, low, high = getattr(self, field.name), field.metadata["low"], field.metadata["high"]
            if low is not None and value is not None and not low <= value <= high:
                limit = f"at least {low}" if high == float("inf") else f"from {low} to {high}"
                raise OptionsError(f"{field.name} must be {limit}, got {value}", field.name)
        for name in ("host", "metrics_host"):
            with suppress(ValueError):
                if ipaddress.ip_address(getattr(self, name)).version == 6:
                    object.__setattr__(self, name, f"[{getattr(self, name)}]")
            host, is_socket = getattr(self, name), name == "host" and self.host.startswith("unix:")
            if not (is_socket or _HOST.fullmatch(host)):
                raise OptionsError(
                    f"{name} must be an address or a name, without a port or scheme, got {clip(host)!r}", name
                )
        if self.host == "unix:":
            raise OptionsError("host must name the socket, unix:PATH", "host")
        if self.host.startswith("unix:") and self.http_port is not None:
            raise OptionsError("HTTP needs an address, which unix: has not: leave out http_port", "http_port")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise OptionsError("tls_certificate and tls_key belong together", "tls_key")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise OptionsError("tls_client_ca needs tls_certificate and tls_key", "tls_client_ca")
        if self.trace_endpoint is not None and not _URL.match(self.trace_endpoint):
            raise OptionsError(
                f"trace_endpoint must be http://HOST:PORT or https://HOST:PORT, got {self.trace_endpoint!r}",
                "trace_endpoint",
            )
        parse_formats(self.formats)
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                what = "SCHEME://HOST[:PORT] or *"
                none = "; pages of files have none" if origin.startswith(("null", "file:")) else ""
                raise OptionsError(f"http_cors must be origins, {what}, got {origin!r}{none}", "http_cors")

    @property
    def address(self) -> str:
        """Where gRPC listens: HOST:PORT or unix:PATH."""
        return self.host if self.host.startswith("unix:") else f"{self.host}:{self.port}"

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The batch sizes in use, ascending: powers of two and the largest allowed.

        These few sizes are all run before the server is ready, so that no call is slowed by the first use of
        a shape (memory planning, choice of kernels).
        """
        powers = [2**power for power in range(self.max_batch_size.bit_length())]
        return tuple(sorted({*powers, self.max_batch_size}))

    @property
    def hosts(self) -> frozenset[str]:
        """The names in `http_hosts`, in lower case; none if all are accepted."""
        parts = (part.strip().lower() for part in (self.http_hosts or "").split(","))
        return frozenset(part for part in parts if part)

    @property
    def origins(self) -> frozenset[str]:
        """The origins in `http_cors`, as browsers write them."""
        parts = (part.strip().lower() for part in (self.http_cors or "").split(","))
        return frozenset(part for part in parts if part)

    @property
    def image_limits(self) -> ImageLimits:
        return ImageLimits(
            max_bytes=self.max_image_bytes,
            max_pixels=self.max_image_pixels,
            max_memory=self.max_image_memory,
            formats=parse_formats(self.formats),
        )

    @property
    def max_message_bytes(self) -> int:
        """Room for an image slightly over the limit, so that the error can name the limit, and for several
        images in a request. gRPC itself rejects larger messages."""
        return min(max(self.max_image_bytes, 2**25) + 2**20, 2**31 - 1)
