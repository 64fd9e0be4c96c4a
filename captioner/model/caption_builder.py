"""Turns what the search found into captions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from captioner.images.letterbox import Mask, crop
from captioner.maps.saliency import resample
from captioner.model import articles
from captioner.model.bundle import Bundle
from captioner.model.calibration import Calibration
from captioner.model.search.choices import Floats
from captioner.model.search.history import Hypothesis
from captioner.options import CaptionOptions
from captioner.results import Alternative, Caption, Word
from captioner.words.nouns import REPLACED, agreed


class CaptionBuilder:
    """Builds captions with the vocabulary, grid and calibration of a bundle.

    `mask`, bool (rows, columns), marks the cells of the photo; maps are cut to it. Options are resolved.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self.calibration = Calibration.of(bundle.manifest)

    def caption(
        self,
        ranked: Sequence[Hypothesis],
        mask: Mask,
        options: CaptionOptions,
        keywords: Callable[[Sequence[str]], tuple[str, ...]] | None = None,
        certainty: float | None = None,
    ) -> Caption:
        """The caption of an image; all hypotheses but the first become its alternatives, less those that
        only differed by an article. `keywords` makes those of the caption from its words. `certainty` is that
        of the image (`captioner.model.calibration`), if it is known."""
        texts: dict[str, Hypothesis] = {}
        for hypothesis in ranked:
            texts.setdefault(self._text(hypothesis, options), hypothesis)
        (text, first), *others = texts.items()
        steps = zip(first.tokens, first.log_probs, first.attention, strict=False)  # the end has no token
        words = (self.word(*step, mask, options) for step in steps)
        return Caption(
            text=text,
            log_prob=first.log_prob,
            words=tuple(self.settled(words, options)),
            alternatives=tuple(Alternative(text, other.log_prob) for text, other in others),
            model=self._bundle.identity,
            confidence=self._confidence(text, first.log_prob, certainty),
            keywords=keywords(text.split()) if keywords else (),
        )

    def of_words(self, words: Sequence[Word], log_prob: float, certainty: float | None = None) -> Caption:
        """The caption of streamed words; `log_prob` includes the end token."""
        text = " ".join(word.text for word in words)
        confidence = self._confidence(text, log_prob, certainty)
        return Caption(text, log_prob, tuple(words), model=self._bundle.identity, confidence=confidence)

    def settled(self, words: Iterable[Word], options: CaptionOptions) -> Iterator[Word]:
        """The words with the articles that they get, each as soon as it is known."""
        return articles.settled(words) if self._has_articles(options) else iter(words)

    def word(
        self, token: int, log_prob: float, attention: Floats, mask: Mask, options: CaptionOptions
    ) -> Word:
        """A word as it was chosen, with its map; `attention` (cells,) covers the whole input of the model."""
        text = self._bundle.vocabulary.words[token]
        sentinel = max(0.0, 1.0 - float(attention.sum())) if self._bundle.has_sentinel else None
        if not options.attention:
            return Word(text, log_prob, None, sentinel, token)
        grid = crop(attention.reshape(self._bundle.grid), mask)
        if options.attention_size not in (None, grid.shape):
            assert options.attention_size is not None
            resized = resample(grid, options.attention_size)
            # If all attention went to the sentinel, the map is zero and stays so.
            grid = resized * (grid.sum() / max(float(resized.sum()), np.finfo(np.float32).tiny))
        return Word(text, log_prob, np.asarray(grid, dtype=np.float32), sentinel, token)

    def _confidence(self, text: str, log_prob: float, certainty: float | None) -> float | None:
        return None if self.calibration is None else self.calibration.confidence(text, log_prob, certainty)

    def _text(self, hypothesis: Hypothesis, options: CaptionOptions) -> str:
        words = self._bundle.vocabulary.decode(hypothesis.tokens)
        return " ".join(agreed(words) if self._has_articles(options) else words)

    def _has_articles(self, options: CaptionOptions) -> bool:
        """Whether articles are corrected: not if that could replace a word that the caption must include."""
        return self._bundle.language == articles.ENGLISH and not REPLACED & {*options.include}
