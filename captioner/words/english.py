"""English words that caption rules know."""

from __future__ import annotations

import re
from collections.abc import Iterable

ARTICLES = ("a", "an")

FUNCTION_WORDS = frozenset(
    """a an the this that these those some any each every another other both all no its it his him he her
    hers she they them their my your our who which what there here and or but nor while as because
    if so than with without of from to at for in into inside on onto off over under above below by
    near next beside besides between among behind before after around across along against through
    throughout toward towards up down out outside upon within about during beneath underneath is are
    was were be been being am has have having had do does doing did can could will would may might
    not very too also just only such""".split()  # noqa: SIM905
)
"""Determiners, pronouns, conjunctions, prepositions and auxiliaries, which name nothing in a photo: they are
drawn smaller, are no keywords, and their maps say little."""

UNFINISHED = frozenset(
    """a an the his its their my your our this these every some
    and or but nor while as because if than which who whose
    is are was were be been being am
    of with from to at for in into onto near against between among beside beneath during through toward
    towards under across upon within without""".split()  # noqa: SIM905
)
"""After these something must follow, so that a caption which ends with one was cut off or lost its thread:
articles and determiners, conjunctions, forms of "be", and the prepositions that people do not leave hanging
(they do write "a man looks on", "a car drives by", "a dog runs behind")."""

MEN = frozenset("man men boy boys guy guys male males gentleman gentlemen".split())  # noqa: SIM905
WOMEN = frozenset("woman women girl girls lady ladies female females".split())  # noqa: SIM905

FOREIGN = frozenset(
    """auf das der einem einen einer eine eines ein frau hund mann mit sieht sind steht und zwei
    een het hond naast twee zijn
    avec chien dans deux femme homme sont un une
    gato hombre junto mujer perro una
    cachorro homem mulher uma
    della donna uomo
    det ett mand och og
    je kobieta muž na pes się žena
    az egy jest koira mies nainen
    bir ile köpek ve
    seorang yang""".split()  # noqa: SIM905
)
"""Frequent words of other languages that are not English words."""
_IN_NAMES = r"\b(?:con|de|del|des|du|el|en|il|la|le|les|los|met|para|per|sur)\b"
"""Other such words, of which English captions have one in names: "a street in La Paz"."""
_LETTERS = "[ãăąåæćčďđęěğłńňõőøřśşșťțůűýźżžðþßươạ-ỹ]"
"""Letters of these languages that hardly any word in English has, unlike those of "café" and "piñata"."""
NOT_ENGLISH = rf"\b(?:{'|'.join(sorted(FOREIGN))})\b|{_LETTERS}|{_IN_NAMES}.*{_IN_NAMES}"
"""Matches most captions in other languages with Latin letters, and hardly any English caption: a word of
`FOREIGN`, such a letter, or two words that names have. Python and JavaScript read this pattern alike."""
ANOTHER_LANGUAGE = rf"{NOT_ENGLISH}|[\u0370-\u1dff\u2c00-\ud7ff\uf900-\uffdc]"
"""The same, and captions with letters that are not Latin."""
FEW_FOREIGN = 0.1
"""At most this share of captions in English looks as if it were not."""
_FOREIGN = re.compile(NOT_ENGLISH, re.IGNORECASE)
_ANOTHER = re.compile(ANOTHER_LANGUAGE, re.IGNORECASE)

NEUTRAL = {
    **dict.fromkeys(("man", "woman", "guy", "lady", "gentleman", "male", "female"), "person"),
    **dict.fromkeys(("men", "women", "guys", "ladies", "gentlemen", "males", "females"), "people"),
    **dict.fromkeys(("boy", "girl"), "child"),
    **dict.fromkeys(("boys", "girls"), "children"),
    **dict.fromkeys(("his", "her"), "their"),
    "him": "them",
    **dict.fromkeys(("himself", "herself"), "themself"),
    "businessman": "business person",
    "businesswoman": "business person",
    "fireman": "firefighter",
    "firemen": "firefighters",
    "policeman": "police officer",
    "policemen": "police officers",
    "man's": "person's",
    "woman's": "person's",
    "boy's": "child's",
    "girl's": "child's",
}
"""Words that tell a person's gender, and those that say the same without."""

COLORS = frozenset("black white red blue green yellow brown gray grey pink purple gold silver tan".split())  # noqa: SIM905
"""Beside these "orange" is one of them."""

UNCOUNTED = frozenset(
    """water milk coffee tea juice wine rice bread butter meat beef pork bacon broccoli spinach asparagus
    celery garlic pasta spaghetti popcorn guacamole sushi seaweed food furniture luggage baggage equipment
    clothing jewelry money cash trash garbage graffiti traffic snow sand dirt mud smoke steam hay foliage
    vegetation greenery scenery""".split()  # noqa: SIM905
)
"""Nouns that take no article though they are singular."""


def is_foreign(text: str) -> bool:
    """Whether a word or a caption is in another language, as far as `NOT_ENGLISH` knows it."""
    return _FOREIGN.search(text) is not None


def language_of_captions(captions: Iterable[str]) -> str:
    """The language of captions for HTML's `lang`: "en", or "" (unknown) where more of them are in another
    language than `FEW_FOREIGN`."""
    foreign = [_ANOTHER.search(caption) is not None for caption in captions]
    return "" if sum(foreign) > FEW_FOREIGN * len(foreign) else "en"


def is_function_word(word: str) -> bool:
    """Whether it is one of `FUNCTION_WORDS`, in capitals or not."""
    return word.lower() in FUNCTION_WORDS
