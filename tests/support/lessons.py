"""Corrections, as a gallery writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def corrections(path: Path, captions: Mapping[str, str]) -> Path:
    """Write edited captions, by the name of the photo, to `path`."""
    lines = [{"image": name, "caption": text, "status": "edited"} for name, text in captions.items()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
