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

from captioner.printable import clean

_FOLDER = resources.files("captioner.overlay") / "templates"


def load(*names: str) -> str:
    """The content of the named template files, concatenated."""
    return "\n".join((_FOLDER / name).read_text(encoding="utf-8").rstrip() for name in names)


def load_style(*names: str) -> str:
    """The named style sheets and the font of captions, which they hold whole: pages look alike everywhere.

    A content security policy must allow `font-src data:`.
    """
    font = base64.b64encode((_FOLDER / "source-serif-4.woff2").read_bytes()).decode()
    face = (
        '@font-face { font-family: "Source Serif 4"; font-weight: 400 600; font-display: block; '
        f'src: url("data:font/woff2;base64,{font}") format("woff2"); }}'
    )
    return f"{face}\n{load(*names)}"


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
