"""The names of the 1000 classes of ImageNet (ILSVRC 2012)."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

CLASSES = 1000
_FILE = "imagenet.json"
"""For each class, in order: its name in torchvision, and all names that are right for it, of one or more
words, the most exact first: its own, then those of what it is a kind of (WordNet 3.0)."""


@cache
def class_words() -> list[list[str]]:
    """The names of each class, of one or several words, the most exact first."""
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    return [entry["words"] for entry in json.loads(text)]
