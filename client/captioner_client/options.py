"""Options of a client, besides those of captions."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from captioner.errors import OptionsError, clip
from captioner.options import plain_number

_RANGES: dict[str, tuple[type, float, float]] = {
    "timeout_s": (float, 0.001, 86_400),
    "max_attempts": (int, 1, 5),
    "wait_s": (float, 0, 86_400),
    "max_image_bytes": (int, 1, 2**30),
    "shrink_to": (int, 64, 65_535),
    "batch_window": (int, 1, 1024),
}
_MAX_NAME_BYTES = 4096
"""Servers reject longer texts."""
_OPTIONAL = ("wait_s", "shrink_to")
_FILES = ("root_certificates", "certificate", "key")
_TOKEN = re.compile("[!-~]+")
"""What an HTTP header can carry, and no space, which separates tokens in a server's file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Deadlines, retries, credentials and limits. Raises `OptionsError` when one is out of its range or
    of a wrong kind."""

    model: str = ""
    """Name of the model to use; "" for the server's default."""
    timeout_s: float = 60.0
    """Longest wait for an answer, retries included; in a batch, for the next answer; in a stream, for all of
    it, with the time that the caller takes between words."""
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
    root_certificates: str | Path | None = None
    """PEM file of trusted authorities; None uses those of the system. Implies `tls`."""
    certificate: str | Path | None = None
    """PEM file with the client's own certificate, for servers that ask for one (mutual TLS)."""
    key: str | Path | None = None
    """PEM file with its private key."""
    token: str | None = None
    """Bearer token for every call, of visible ASCII characters. Without `tls` it is sent unencrypted."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise OptionsError("certificate and key belong together", "key")
        for name, (kind, low, high) in _RANGES.items():
            value = plain_number(getattr(self, name))
            object.__setattr__(self, name, value)
            if value is not None or name not in _OPTIONAL:
                _check_number(name, value, kind, low, high)
        _check_name("" if self.model is None else self.model)
        for name in _FILES:
            if (file := getattr(self, name)) is not None:
                object.__setattr__(self, name, _path(name, file))
        if self.token is not None and not (isinstance(self.token, str) and _TOKEN.fullmatch(self.token)):
            raise OptionsError("token must be visible ASCII characters, without spaces", "token")


def check_timeout(value: object) -> None:
    """Raise `OptionsError` for what is no time in seconds. One that has passed is 0 or less."""
    value = plain_number(value)
    passed = isinstance(value, (int, float)) and not isinstance(value, bool) and value <= 0
    if not passed:
        _check_number("timeout_s", value, float, 0, _RANGES["timeout_s"][2])


def _path(name: str, file: object) -> Path:
    if not isinstance(file, (str, os.PathLike)):
        raise OptionsError(f"{name} must be a path, got {clip(repr(file))}", name)
    return Path(file)


def _check_name(model: object) -> None:
    try:
        fits = isinstance(model, str) and len(model.encode()) <= _MAX_NAME_BYTES
    except UnicodeEncodeError:
        fits = False
    if not fits:
        what = f"a text of at most {_MAX_NAME_BYTES} bytes in UTF-8"
        raise OptionsError(f"model must be {what}, got {clip(repr(model))}", "model")


def _check_number(name: str, value: object, kind: type, low: float, high: float) -> None:
    kinds = (int, float) if kind is float else int
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        what = "a whole number" if kind is int else "a number"
        raise OptionsError(f"{name} must be {what} from {low} to {high}, got {clip(repr(value))}", name)
