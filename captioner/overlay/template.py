"""Fills page templates safely: escaping, JSON inside a page, hashes for the content security policy."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from captioner.overlay.text import clean


def load(*names: str) -> str:
    """The content of the named template files, concatenated."""
    folder = resources.files("captioner.overlay") / "templates"
    return "\n".join((folder / name).read_text(encoding="utf-8").rstrip() for name in names)


def fill(template: str, values: Mapping[str, str]) -> str:
    """`template` with every {{name}} replaced; values are inserted verbatim and never searched."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)


def escape(text: str) -> str:
    """Escape any text for an element or a quoted attribute."""
    return html.escape(clean(text), quote=True)


def to_json(data: Any) -> str:
    """JSON that is safe inside <script>, as data and as code: pure ASCII without <, > and &."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def content_hash(text: str) -> str:
    """The source expression with which a content security policy allows exactly this inline script or
    style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
