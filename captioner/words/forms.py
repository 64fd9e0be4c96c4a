"""Words that mean the same to somebody who searches: the forms of a word, its synonyms, and kinds of a thing.

Searching in a browser uses the same rules and tables, which `table` has as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from captioner.words.coco import COMPOUNDS
from captioner.words.english import FUNCTION_WORDS
from captioner.words.plurals import plurals
from captioner.words.things import more_general

STEMS = (
    ("(?:[cdjlmnstv]|un|quest|[a-z]{0,3}ll|[a-z]*qu)['’](..+)", ""),
    ("(.+)['’]s", ""),
    ("([a-z]{2,})['’][a-z]{1,4}", ""),
    ("(..+)men", "man"),
    ("(..+)ies", "y"),
    ("(.*(?:ss|sh|ch|x|zz))es", ""),
    ("(.+[^sui'’])s", ""),
    ("(.*[aeiouy].*)ing", ""),
    ("(.*[aeiouy].*[^e])ed", ""),
    (r"(.*([bdfgmnprt]))\2", ""),
    ("(..+)e", ""),
    ("(..+)y", "i"),
)
"""Patterns of whole words, tried in this order, each on what the ones before it left: the first group and the
ending stay. What is left need not be a word, but is the same for "ride", "rides" and "riding". "l'homme" and
"dell'uomo" lose what was joined to them, as does "Ankara'da"."""

_SAME = """
child kid youngster; baby infant; person human; man guy gentleman; woman lady; bicycle bike; motorcycle
motorbike; car automobile; airplane plane aeroplane; truck lorry; couch sofa; tv television; phone cellphone
telephone smartphone; refrigerator fridge; ocean sea; stone rock; photo picture photograph image; street
road; path trail; forest wood; grass lawn; jump leap; run jog sprint; walk stroll; look stare gaze; big
large huge; small little tiny; gray grey; flower blossom; cat kitty feline; dog doggy doggie canine; puppy
pup; toddler tot; policeman cop; glasses eyeglasses; mug cup; backpack rucksack knapsack; racket racquet;
donut doughnut; boat ship; snowy snow; rocky stone; grassy grass; sandy sand; wooden wood; sunny sun; watery
water; shore seashore; jacket coat; pants trousers
"""
"""Synonyms, and adjectives with their nouns."""
_SAME_AS_COMPOUNDS = (["hot dog", "hotdog"], ["teddy bear", "teddy", "teddybear"])

_IRREGULAR = """
run ran; sit sat; stand stood; ride rode ridden; swim swam swum; throw threw thrown; catch caught; hold
held; eat ate eaten; drink drank drunk; wear wore worn; drive drove driven; fly flew flown flies; lie lying
lies lay lain; take took taken; make made; sleep slept; fall fell fallen; blow blew blown; dig dug; swing
swung; hang hung; sing sang sung; give gave given; write wrote written; read; build built; break broke
broken; fight fought; shake shook shaken; spin spun; stick stuck; sweep swept; lead led; feed fed; kneel
knelt; lean leant; leap leapt; climb; ski skis; taxi taxis; tie tying tied; bus buses busses; gas gases
"""
"""Forms of verbs and nouns that neither the stems nor the plurals tell."""
_IRREGULAR_NOUNS = """man woman child person foot tooth goose mouse ox knife leaf wife wolf shelf loaf
    half calf scarf life""".split()  # noqa: SIM905

_KINDS = {
    "child": ("boy", "girl", "baby", "toddler"),
    "baby": ("toddler",),
    "fruit": ("banana", "apple", "orange", "strawberry"),
}
"""Kinds beside those of `captioner.words.things`."""


_LONGEST = max(map(len, COMPOUNDS))


def joined(words: Sequence[str]) -> Iterator[str]:
    """The lower-case words of a text, each of `COMPOUNDS` as one."""
    start = 0
    while start < len(words):
        ends = range(min(len(words), start + _LONGEST), start + 1, -1)
        end = next((end for end in ends if tuple(words[start:end]) in COMPOUNDS), start + 1)
        yield " ".join(words[start:end])
        start = end


def stem(word: str) -> str:
    """What the forms of a lower-case word have in common."""
    for pattern, ending in STEMS:
        if found := re.fullmatch(pattern, word):
            word = found[1] + ending
    return word


def base(word: str) -> str:
    """The same text for all forms and synonyms of a word or a compound, in capitals or not."""
    word = word.lower()
    bases = _bases()
    if word in bases:
        return bases[word]
    found = stem(word)
    return bases.get(found, found)


def kinds(word_base: str) -> frozenset[str]:
    """The bases of kinds of a thing, given its base: those of boy and girl for that of child."""
    return _kinds().get(word_base, frozenset())


def table() -> dict[str, Any]:
    """All of this as JSON, for the pages."""
    return {
        "small": sorted(FUNCTION_WORDS),
        "compounds": sorted(map(" ".join, COMPOUNDS)),
        "stems": STEMS,
        "bases": {word: found for word, found in _bases().items() if stem(word) != found},
        "kinds": {word: sorted(found) for word, found in _kinds().items()},
    }


@cache
def _bases() -> dict[str, str]:
    bases: dict[str, str] = {}
    for group in (*_groups(_SAME), *_SAME_AS_COMPOUNDS):
        common = bases.get(group[0], stem(group[0]))
        for word in group:
            for form in (word, *plurals(word)):
                bases.setdefault(stem(form), common)
                bases.setdefault(form, common)
    irregular = [*_groups(_IRREGULAR), *([noun, *plurals(noun)] for noun in _IRREGULAR_NOUNS)]
    for word, *forms in irregular:
        common = bases.get(word) or bases.get(stem(word), stem(word))
        for form in (word, *forms):
            bases[form] = common
            bases.setdefault(stem(form), common)
    return bases


@cache
def _kinds() -> dict[str, frozenset[str]]:
    general = more_general()
    pairs = [(name, kind) for name, names in _KINDS.items() for kind in names]
    for kind in general:
        above = general[kind]
        while above:
            pairs.append((above, kind))
            above = general[above]
    found: dict[str, set[str]] = {}
    for name, kind in pairs:
        if _is_one_word(name) and _is_one_word(kind) and base(name) != base(kind):
            found.setdefault(base(name), set()).add(base(kind))
    return {word: frozenset(of) for word, of in found.items()}


def _is_one_word(name: str) -> bool:
    return " " not in name or tuple(name.split()) in COMPOUNDS


def _groups(text: str) -> list[list[str]]:
    return [group.split() for group in text.split(";")]
