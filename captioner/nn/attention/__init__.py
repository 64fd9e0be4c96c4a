"""Attentions over a grid. A new one is one file and one line in `ATTENTIONS`."""

from __future__ import annotations

from captioner.nn.attention.additive import AdditiveAttention
from captioner.nn.attention.attention_on_attention import AttentionOnAttention
from captioner.nn.attention.base import Attention
from captioner.nn.attention.general import GeneralAttention
from captioner.nn.attention.hard import HardAttention, drawn_cells
from captioner.nn.attention.multi_head import MultiHeadAttention
from captioner.nn.attention.none import NoAttention
from captioner.nn.attention.scaled_dot_product import ScaledDotProductAttention
from captioner.nn.attention.visual_sentinel import Sentinel, VisualSentinelAttention

ATTENTIONS: dict[str, type[Attention]] = {
    "additive": AdditiveAttention,
    "general": GeneralAttention,
    "scaled_dot_product": ScaledDotProductAttention,
    "multi_head": MultiHeadAttention,
    "visual_sentinel": VisualSentinelAttention,
    "hard": HardAttention,
    "attention_on_attention": AttentionOnAttention,
    "none": NoAttention,
}

__all__ = [
    "ATTENTIONS",
    "AdditiveAttention",
    "Attention",
    "AttentionOnAttention",
    "GeneralAttention",
    "HardAttention",
    "MultiHeadAttention",
    "NoAttention",
    "ScaledDotProductAttention",
    "Sentinel",
    "VisualSentinelAttention",
    "drawn_cells",
]
