"""Finds photos again: by the words of their captions, and by what they look like."""

from __future__ import annotations

from captioner.retrieval.index import CaptionIndex, CaptionText, Match
from captioner.retrieval.query import Query

__all__ = ["CaptionIndex", "CaptionText", "Match", "Query"]
