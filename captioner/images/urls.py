"""Tells URLs from paths."""

from __future__ import annotations

import re


def is_url(name: str) -> bool:
    """Whether a name is a URL of any kind and not a path."""
    return re.match(r"[a-z][a-z0-9+.-]+://", name, re.IGNORECASE) is not None
