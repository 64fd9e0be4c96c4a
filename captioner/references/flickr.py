"""Captions of Flickr8k: lines of tokens."""

from __future__ import annotations

from pathlib import Path

from captioner.errors import DataError
from captioner.references.image import CaptionedImage


def parse_tokens(path: Path, text: str) -> list[CaptionedImage]:
    """Lines of `NAME.jpg#0<TAB>caption`. Raises `DataError`."""
    captions: dict[str, list[str]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        key, tab, caption = line.partition("\t")
        name, mark, _ = key.rpartition("#")
        if not (tab and mark and name):
            raise DataError(f"{path}, line {number}: not NAME#NUMBER<TAB>caption")
        captions.setdefault(name, []).append(caption.strip())
    return [CaptionedImage(name, tuple(texts), "") for name, texts in captions.items()]
