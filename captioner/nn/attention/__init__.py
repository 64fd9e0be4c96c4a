"""Attentions over a grid. A new one is one file and one line in `ATTENTIONS`."""

from __future__ import annotations

from captioner.nn.attention.additive import AdditiveAttention
from captioner.nn.attention.base import Attention

ATTENTIONS: dict[str, type[Attention]] = {
    "additive": AdditiveAttention,
}

__all__ = ["ATTENTIONS", "AdditiveAttention", "Attention"]
