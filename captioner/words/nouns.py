"""Articles and the nouns they stand before: "an owl", but "some scissors" and "some milk".

A model chooses "a" before it knows the noun. Words are replaced one for one, so that each keeps its
probability and its map: "a" becomes "an" or "some", "women" after "a" becomes "woman", "is" after a plural
"are".
"""

from __future__ import annotations

from collections.abc import Sequence

from captioner.words.english import (
    ARTICLES,
    COLORS,
    FOREIGN,
    FUNCTION_WORDS,
    MEN,
    UNCOUNTED,
    WOMEN,
    article,
)
from captioner.words.plurals import is_plural, singulars

_BETWEEN = COLORS | frozenset(
    """large big small tiny huge tall long short old young new beautiful pretty bright dark dirty clean
    wet wooden fresh striped stuffed colorful colored""".split()  # noqa: SIM905
)
"""Adjectives between an article and its noun. Not "orange": "an orange sits on a table"."""
_COUNTED = frozenset(("thumbs",))
"""Plurals that do have an article: "a thumbs up"."""
_AFTER_NAMES = FUNCTION_WORDS - {"and", "can"} | {"sitting", "standing", "laying", "lying"}
"""Words that do not go on with a name: not "a dirt and grass hill", not "a trash can"."""
_PERSONS = MEN | WOMEN
"""Their plurals are misspelt singulars: people write "a women in a hat"."""
_OF_SEVERAL = {"is": "are", "was": "were", "has": "have"}

REPLACED = frozenset((*ARTICLES, *_OF_SEVERAL, *filter(is_plural, _PERSONS)))
"""Words that `agreed` may replace."""


def is_settled(words: Sequence[str]) -> bool:
    """Whether `agreed` has decided on the first word, an article, and on the others, whatever comes next."""
    noun = _noun(words)
    return noun + 1 < len(words) or (noun < len(words) and not _lacks_article(words[noun]))


def agreed(words: Sequence[str]) -> list[str]:
    """The words of a caption with articles that fit their nouns, or nouns that fit their articles."""
    fitting = list(words)
    for place, word in enumerate(words):
        if word not in ARTICLES or FOREIGN.intersection(words[place + 1 : place + 2]):
            continue  # as "an" in a German caption that the model was taught: "an der Wand"
        noun = place + _noun(words[place:])
        name, after = (*words[noun : noun + 2], "", "")[:2]
        alone = _lacks_article(name) and _ends(name, after)
        if alone and name in _PERSONS:
            [fitting[noun]] = singulars(name)
        elif alone:
            fitting[place] = "some"
            if is_plural(name) and after in _OF_SEVERAL:
                fitting[noun + 1] = _OF_SEVERAL[after]
            continue
        fitting[place] = article(word, (*fitting[place + 1 :], "")[0])
    return fitting


def _noun(words: Sequence[str]) -> int:
    """The place of the first word after an article and adjectives, if there is one."""
    return next((n for n, word in enumerate(words) if n and word not in _BETWEEN), len(words))


def _lacks_article(word: str) -> bool:
    return word in UNCOUNTED or (is_plural(word) and word not in _COUNTED)


def _ends(name: str, after: str) -> bool:
    """Whether a name ends before the word `after`: not in "a scissors lift" or "a snow covered hill"."""
    if not after or after in _AFTER_NAMES:
        return True
    return is_plural(name) and (after == "and" or after.endswith(("ing", "ed")))
