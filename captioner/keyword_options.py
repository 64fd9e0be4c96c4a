"""A photo's own keywords as words that its caption must contain."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Sequence

from captioner.errors import OptionsError, clip
from captioner.options import MAX_HYPOTHESES, MAX_INCLUDE, CaptionOptions
from captioner.protocol import PixelModel

MAX_UNKNOWN = 10_000
"""Most keywords that are counted; of more, those that occurred least are forgotten."""


class KeywordOptions:
    """Caption options for each photo: those given, with the photo's keywords in `include`. Thread-safe."""

    def __init__(self, model: PixelModel, options: CaptionOptions | None = None) -> None:
        """Raises `OptionsError` for options that the model cannot fulfil."""
        self._model, self._options = model, options or CaptionOptions()
        resolved = self._options.resolve(model.defaults)
        most = min(MAX_INCLUDE, resolved.max_words or MAX_INCLUDE)
        while resolved.widest_beam * 2**most > MAX_HYPOTHESES:
            most -= 1
        self._most = max(most, len(self._options.include))
        self._lock = threading.Lock()
        self.unknown: Counter[str] = Counter()
        """Skipped keywords (phrases, and words that the model does not know), with the number of photos that
        had each; of very many, the most frequent."""

    def of(self, keywords: Sequence[str]) -> CaptionOptions:
        """The options for a photo: the first of its keywords that the model knows, as many as a search for
        `options` can include."""
        found = list(self._options.include)
        for keyword in dict.fromkeys(keyword.lower() for keyword in keywords):
            if not self._knows(keyword):
                with self._lock:
                    self.unknown[clip(keyword)] += 1
                    if len(self.unknown) > MAX_UNKNOWN:
                        self.unknown = Counter(dict(self.unknown.most_common(MAX_UNKNOWN // 2)))
            elif keyword not in found and len(found) < self._most:
                found.append(keyword)
        return dataclasses.replace(self._options, include=tuple(found))

    def _knows(self, keyword: str) -> bool:
        try:
            self._model.check_include([keyword])
        except OptionsError:
            return False
        return True
