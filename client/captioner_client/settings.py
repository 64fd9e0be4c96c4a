"""Settings of a client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from captioner.errors import OptionsError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Deadlines, retries, credentials and limits. Raises `OptionsError` when one is out of its range."""

    model: str = ""
    """Name of the model to use; "" for the server's default."""
    timeout_s: float = 60.0
    """Longest wait for an answer, retries included; in a batch and a stream, for the next answer."""
    max_attempts: int = 5
    """Attempts of a call while the server is busy, 1 (no retries) to 5; in a batch, consecutive attempts
    without any answer."""
    wait_s: float | None = None
    """Longest wait for a server that cannot be reached, is starting or shutting down, with a warning on the
    logger `captioner_client`. None: `timeout_s`. 0: only `max_attempts` attempts in quick succession."""
    max_image_bytes: int = 32 * 2**20
    """Larger images are rejected before they are sent."""
    shrink_to: int | None = None
    """Images with a longer side, in pixels, are downscaled before sending (JPEG, quality 95): for slow
    networks. Attention maps still cover the whole image. None sends files unchanged."""
    batch_window: int = 32
    """Maximum number of images of a batch that are sent but not yet answered."""
    health_check: bool | None = None
    """Whether to watch the health of each server and call only those that serve. None does so for several
    addresses: a single one may be a proxy, whose health would be that of one of its servers."""
    tls: bool = False
    """Use TLS, and verify the certificate of the server."""
    root_certificates: Path | None = None
    """PEM file of trusted authorities; None uses those of the system. Implies `tls`."""
    certificate: Path | None = None
    """PEM file with the client's own certificate, for servers that ask for one (mutual TLS)."""
    key: Path | None = None
    """PEM file with its private key."""
    token: str | None = None
    """Bearer token for every call. Without `tls` it is sent unencrypted."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise OptionsError("certificate and key belong together", "key")
        ranges = {
            "timeout_s": (0.001, 86_400),
            "max_attempts": (1, 5),
            "wait_s": (0, 86_400),
            "max_image_bytes": (1, 2**30),
            "shrink_to": (64, 65_535),
            "batch_window": (1, 1024),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise OptionsError(f"{name} must be from {low} to {high}, got {value}", name)
