"""Captions from web pages, in which "&amp;" stands for "&"."""

from __future__ import annotations

import html
import re
from html.entities import html5

# Only with the semicolon: "&copy" and "&lt" also begin words.
_ENTITY = re.compile(r"&(#\d{1,7};|#[xX][0-9a-fA-F]{1,6};|\w{2,31};)")


def unescape_entities(caption: str) -> str:
    """The caption with the characters that its HTML entities stand for, spaces among them as others are."""
    if "&" not in caption:
        return caption
    return " ".join(_ENTITY.sub(_character, caption).split())


def _character(found: re.Match[str]) -> str:
    name = found[1]
    return html.unescape(found[0]) if name.startswith("#") else html5.get(name, found[0])
