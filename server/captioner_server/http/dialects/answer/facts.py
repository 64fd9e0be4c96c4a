"""What can be said of a photo: its caption and its keywords."""

from __future__ import annotations

import re
from dataclasses import dataclass

from captioner.results import Caption
from captioner.words.alt_text import alt_text
from captioner.words.keywords import find_things, hierarchy_of


@dataclass(frozen=True, slots=True)
class Keyword:
    """A word that names something in the photo."""

    text: str
    probability: float
    """That of the word in the caption, 0 to 1."""

    @property
    def hashtag(self) -> str:
        return "#" + re.sub(r"\W", "", self.text)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the caption of a photo says."""

    caption: str
    confidence: float | None
    """Calibrated probability that the caption is good, 0 to 1."""
    keywords: tuple[Keyword, ...]

    @property
    def alt_text(self) -> str:
        """The caption for screen readers."""
        return alt_text(self.caption)

    @property
    def general(self) -> tuple[Keyword, ...]:
        """What the keywords are kinds of, the nearest first: a dog is an animal."""
        kinds = {
            kind: Keyword(kind, one.probability)
            for one in self.keywords
            for kind in reversed(hierarchy_of(one.text)[:-1])
        }
        named = {one.text for one in self.keywords}
        return tuple(one for kind, one in kinds.items() if kind not in named)

    @classmethod
    def of(cls, caption: Caption) -> Facts:
        keywords: dict[str, Keyword] = {}
        for thing in find_things([word.text.lower() for word in caption.words]):
            chance = min(word.probability for word in caption.words[thing.start : thing.end])
            keywords.setdefault(thing.name, Keyword(thing.name, chance))
        return cls(caption.text, caption.confidence, tuple(keywords.values()))
