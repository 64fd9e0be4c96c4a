"""Tells URLs from paths, and reads those that hold their data themselves."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from captioner.errors import NotAnImageError


def is_url(name: str) -> bool:
    """Whether a name is a URL of any kind that leads elsewhere, and not a path."""
    return re.match(r"[a-z][a-z0-9+.-]+://", name, re.IGNORECASE) is not None


def is_data_url(name: str) -> bool:
    """Whether a name is a URL that holds its data, data:image/png;base64,..."""
    return re.match(r"data:[^,]{0,200},", name, re.IGNORECASE) is not None


def read_data_url(url: str) -> bytes:
    """The data in a URL, also where its base64 is broken into lines. Raises `NotAnImageError`."""
    head, _, data = url.partition(",")
    content = unquote_to_bytes(data)
    if not head.lower().endswith(";base64"):
        return content
    try:
        return base64.b64decode(b"".join(content.split()), validate=True)
    except binascii.Error as error:
        raise NotAnImageError("the data URL is not valid base64") from error
