"""How a client talks to its servers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from captioner.errors import OptionsError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Deadlines, retries, credentials and limits. Raises `OptionsError` when one is out of its range."""

    timeout_s: float = 60.0
    """Longest wait for an answer, retries included; in a batch and a stream, for the next answer."""
    max_attempts: int = 5
    """Tries of a call that the server was unavailable or too busy for, 1 (no retries) to 5; in a batch,
    tries in a row without any answer."""
    max_image_bytes: int = 32 * 2**20
    """Larger images are refused before they are sent."""
    shrink_to: int | None = None
    """Images with a side longer than this, in pixels, are sent smaller (as JPEG, quality 95): for slow
    networks. Attention maps still cover the whole image. None sends files as they are."""
    batch_window: int = 32
    """Most images of a batch that are sent and not yet answered."""
    health_check: bool | None = None
    """Whether to watch the health of each server, and to call none that says it does not serve. None watches
    where there are several addresses: behind one there may be a proxy, and the watch would say how one of the
    servers behind it is."""
    tls: bool = False
    """Encrypt, and check the server's certificate."""
    root_certificates: Path | None = None
    """PEM file of the authorities to trust; None takes the system's. Implies `tls`."""
    certificate: Path | None = None
    """PEM file with the client's own certificate, for servers that ask for one (mutual TLS)."""
    key: Path | None = None
    """PEM file with its private key."""
    token: str | None = None
    """Bearer token to send with every call. Without `tls` it travels in the clear."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise OptionsError("certificate and key belong together", "key")
        ranges = {
            "timeout_s": (0.001, 86_400),
            "max_attempts": (1, 5),
            "max_image_bytes": (1, 2**30),
            "shrink_to": (64, 65_535),
            "batch_window": (1, 1024),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise OptionsError(f"{name} must be from {low} to {high}, got {value}", name)
