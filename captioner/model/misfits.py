"""Where a word that a caption must contain does not read well, in English."""

from __future__ import annotations

from functools import cache

import numpy as np

from captioner.model.articles import ENGLISH
from captioner.model.bundle import Bundle
from captioner.model.search.including import Bools, Misfits
from captioner.words.english import ARTICLES
from captioner.words.plurals import is_plural
from captioner.words.things import things_by_form

_BEGINNINGS = frozenset("game living parking stop video".split())  # noqa: SIM905
"""Words that are hardly anything but the beginnings of names: living room, stop sign."""


def misfits_of(bundle: Bundle) -> Misfits | None:
    """After which words of the bundle's vocabulary a noun makes no sense: after another noun or the beginning
    of a name, unless they make a known one ("fire hydrant"), and a plural after "a". None for other
    languages."""
    if bundle.language != ENGLISH:
        return None
    words = bundle.vocabulary.words
    known = things_by_form()
    nouns = np.array([(word,) in known or word in _BEGINNINGS for word in words])
    articles = np.array([word in ARTICLES for word in words])

    @cache
    def misfits(token: int) -> Bools:
        word = words[token]
        if (word,) not in known:
            return np.zeros(len(words), dtype=np.bool_)
        compounds = {phrase[-2] for phrase in known if len(phrase) > 1 and phrase[-1] == word}
        apart = nouns & ~np.isin(words, [*compounds])
        return apart | articles if is_plural(word) else apart

    return misfits
