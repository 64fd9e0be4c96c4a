"""Articles and the nouns they stand before: "an owl", but "some scissors" and "some milk".

"a" and "an" go by the sound of the next word: "an orange", "an hour", "a uniform".
A model chooses "a" before it knows the noun. Words are replaced one for one, so that each keeps its
probability and its map: "a" becomes "an" or "some", "women" after "a" becomes "woman", "is" after a plural
"are".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from captioner.words.english import ARTICLES, COLORS, FUNCTION_WORDS, MEN, UNCOUNTED, WOMEN, is_foreign
from captioner.words.plurals import is_plural, singulars
from captioner.words.tokens import tokenize

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

# "Use a before consonant sounds and an before vowel sounds" is the rule of the Chicago Manual of Style. The
# exceptions from spelling are those in captions of COCO and Flickr and names of ImageNet, and their kin.
_VOWEL_SOUND = re.compile(
    r"""
    (?! eu | ewe | u\b | u[kv] | us[aeiu] | us\b | usb\b | usps\b | ups\b | ufo | ubiq | ugand  # as "you"
      | uni(?!de|ll|m|n|ro|ss) | unanim | ur[aeiou] | ut[aeio]
      | one(?:s|self)?\b | once\b | ouija                                                    # as "won"
    ) [aeiou]
    | hour | honest | honou?r | heir | hors\b
    | 8 | 1[18](?!\d)                                                       # eight, eleven, eighteen
    | [fhlmnrsx]\b | (?:hd|hdtv|lcd|led|mlb|mp3|mri|nba|nfl|nhl|rv|suv|xbox)s?\b   # letters: x-ray
    """,
    re.VERBOSE,
)


def article(said: str, following: str) -> str:
    """The word `said`, or the article that it should be before the word `following` ("" at the end)."""
    if said not in ARTICLES or following in ARTICLES:
        return said
    # Without accents: "éclair" sounds as it starts.
    plain = unicodedata.normalize("NFD", following.lower())
    if not re.match("[a-z0-9]", plain):
        return said
    return "an" if _VOWEL_SOUND.match(plain) else "a"


def with_article(name: str) -> str:
    """A name of one or more words with its article, if it takes one: a giant panda, an owl, jeans."""
    return name if stands_alone(name) else f"{article('a', tokenize(name)[0])} {name}"


def stands_alone(name: str) -> bool:
    """Whether a name of one or more words takes no article: jeans, people, furniture."""
    last = tokenize(name)[-1]
    return is_plural(last) or last in UNCOUNTED


def is_settled(words: Sequence[str]) -> bool:
    """Whether `agreed` has decided on the first word, an article, and on the others, whatever comes next."""
    noun = _noun(words)
    return noun + 1 < len(words) or (noun < len(words) and not _lacks_article(words[noun]))


def agreed(words: Sequence[str], before: str = "") -> list[str]:
    """The words of a caption, after the word `before`, with articles that agree with their nouns, or
    nouns with their articles."""
    agreeing = list(words)
    for place, word in enumerate(words):
        if word not in ARTICLES:
            continue
        if any(map(is_foreign, (words[place - 1] if place else before, *words[place + 1 : place + 2]))):
            continue  # as in captions that the model was taught: German "an der Wand", Czech "muž a auto"
        noun = place + _noun(words[place:])
        name, after = (*words[noun : noun + 2], "", "")[:2]
        alone = _lacks_article(name) and _ends(name, after)
        if alone and name in _PERSONS:
            [agreeing[noun]] = singulars(name)
        elif alone:
            agreeing[place] = "some"
            if is_plural(name) and after in _OF_SEVERAL:
                agreeing[noun + 1] = _OF_SEVERAL[after]
            continue
        agreeing[place] = article(word, (*agreeing[place + 1 :], "")[0])
    return agreeing


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
