"""What can be said of a photo: its caption and its keywords."""

from __future__ import annotations

from dataclasses import dataclass

from captioner.folder.outputs.xmp import keywords_of
from captioner.results import Caption


@dataclass(frozen=True, slots=True)
class Keyword:
    """A word that names something in the photo."""

    text: str
    probability: float
    """That of the word in the caption, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the caption of a photo says."""

    caption: str
    confidence: float | None
    """Calibrated probability that the caption is good, 0 to 1."""
    keywords: tuple[Keyword, ...]

    @classmethod
    def of(cls, caption: Caption) -> Facts:
        chances = {word.text.lower(): word.probability for word in reversed(caption.words)}
        keywords = (
            Keyword(text, min(chances.get(part, 1.0) for part in text.lower().split()))
            for text in keywords_of(caption.text)
            if text
        )
        return cls(caption.text, caption.confidence, tuple(keywords))
