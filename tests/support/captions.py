"""Captions whose maps are known, for overlays and pages."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from captioner.results import Alternative, Caption, Word

HOSTILE_TEXTS = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "{{data}} ${1+1} `${1}`",
    "\u202egpj.exe",
    "שלום עולם",
    "👩‍🚀 emoji 中文",
    "javascript:alert(1)//#%?&",
    "tab\there\nnewline\x00\x1b[31m",
    "\udcff not utf-8",
    "x" * 300,
)
"""Texts that try to break out of a page, a picture or a terminal."""


def lit_cell(row: int, column: int, grid: tuple[int, int] = (14, 14)) -> np.ndarray:
    """A map with all weight on one cell."""
    weights = np.zeros(grid, dtype=np.float32)
    weights[row, column] = 1.0
    return weights


def blob(row: float, column: float, spread: float, grid: tuple[int, int] = (14, 14)) -> np.ndarray:
    """A map with a round peak; place and spread in cells."""
    rows, columns = np.mgrid[0 : grid[0], 0 : grid[1]]
    weights = np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * spread**2))
    return (weights / weights.sum()).astype(np.float32)


def make_caption(
    texts: Sequence[str] = ("a", "small", "lit", "place"),
    maps: Sequence[np.ndarray] | None = None,
    sentinel: float | None = None,
) -> Caption:
    """A caption of these words; by default each looks at a place further along the diagonal."""
    count = len(texts)
    if maps is None:
        maps = [blob(13 * at / max(1, count - 1), 13 * at / max(1, count - 1), 1.2) for at in range(count)]
    share = 1 - (sentinel or 0)
    words = tuple(
        Word(text, math.log(0.2 + 0.7 * at / count), weights * share, sentinel)
        for at, (text, weights) in enumerate(zip(texts, maps, strict=True))
    )
    total = sum(word.log_prob for word in words) - 0.2
    others = (Alternative("another <b>caption</b>", total - 0.7), Alternative("a third", total - 2.0))
    return Caption(" ".join(texts), total, words, others, "test@0123456789ab")
