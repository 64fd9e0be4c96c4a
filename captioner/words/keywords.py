"""Keywords: the names of things in a caption, and what they are kinds of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from captioner.words.coco import PHRASES
from captioner.words.colors import ENDS, RARE_COLORS, TINTS, is_color
from captioner.words.english import COLORS, FUNCTION_WORDS, is_foreign
from captioner.words.plurals import singulars
from captioner.words.things import more_general, things_by_form
from captioner.words.tokens import tokenize

# Heads of phrases in captions that name nothing to look for, beside words that end with "ing": places in the
# picture, parts of bodies, actions, quantities.
_NO_THING = """
    front group air mouth top background picture side trick ground back head hand game wave face middle
    night jump body midair edge arm lot bunch distance line slice piece tongue pair corner left right row
    way image base stunt display other closeup close-up close play smile handstand set shot bottom look hole
    lap neck foot foreground leg event competition flight dusk photograph photo wheelie shoulder flip number
    pitch beard shade day war pack barrier eye ear nose tooth curve area home mound walk finger break
    reflection light stomach winter match motion thumb spray action frame party dark tail nap sort kind type
    pose hold silhouette horizon himself herself themselves itself run catch fall variety mess knee dance
    bend series progress midst talk circle help band step lead rear half land control belly splash lip wind
    target attention joy leap marathon waist wild view viewer formation item thing object treat small large
    big little cut song post square stone conversation fight kiss laugh opponent part forehead process sail
    presentation bite work figure arrow start point serve case protest birthday content artwork focus many
    individual chin blow exhibit ridge hike hug performance nighttime daytime embrace unison litter roll
    business ad ceremony order activity layer spot bit time victory stack direction collage swim few
    collection block sunlight autumn morning evening afternoon pile tip third act end turn ride stop take
    make try wait read wear carry public same gear rest scene slip goal surf style shape size color colour
    design pattern position place space center centre hair fur skin cheek hip chest toe heel palm wrist
    elbow thigh jaw forearm yawn glance stare gaze grin frown pace speed somersault backflip dive throw toss
    punch kick swing
"""
_NO_THINGS = frozenset(_NO_THING.split())
_BEFORE = frozenset("a an the of with and in on his her their its some two three several".split())  # noqa: SIM905
_COLORS = COLORS | RARE_COLORS
_PARTS = frozenset(
    """half halves leaf leaves peel peels petal petals piece pieces segment segments slice slices wedge
    wedges""".split()  # noqa: SIM905
)
"""What follows the name of a thing, not a colour: "orange slices"."""
_LOOKS = frozenset("small large big little young old new tall wooden stuffed cute fluffy wild baby".split())  # noqa: SIM905


class Thing(NamedTuple):
    """Words of a caption that name something to be seen."""

    name: str
    """In the singular, unless it has none."""
    start: int
    end: int
    """Index after the last of its words."""


def keywords_of(text: str) -> list[str]:
    """The things that a caption names, each once, in order: whole compounds in the singular, no fillers."""
    return list(dict.fromkeys(thing.name for thing in find_things(tokenize(text))))


def find_things(words: Sequence[str]) -> Iterator[Thing]:
    """The things that a tokenized caption names: known ones, the longest names first, and unknown words in
    the places of nouns, such as words that somebody taught a model. None in other languages: a French
    "chair" is no chair."""
    if is_foreign(" ".join(words)):
        return
    known = things_by_form()
    longest = max(map(len, known))
    start = 0
    while start < len(words):
        for end in range(min(len(words), start + longest), start, -1):
            phrase = tuple(words[start:end])
            if name := known.get(phrase):
                if not _is_tint(words, start):
                    yield Thing(name, start, end)
                break
            if phrase in PHRASES:  # what only sounds like a thing
                break
        else:
            end = start + 1
            if _is_noun(words, start):
                yield Thing((*singulars(words[start]), words[start])[0], start, end)
        start = end


def hierarchy_of(keyword: str) -> list[str]:
    """The keyword after what it is a kind of, the most general first: animal, dog, dalmatian."""
    path = [keyword]
    while general := more_general().get(path[0]):
        path.insert(0, general)
    return path


def _is_noun(words: Sequence[str], place: int) -> bool:
    """Whether an unknown word stands where a noun does: after an article or the like, before a word that
    joins it to others or the end."""
    word = words[place]
    if not word[0].isalpha() or word.endswith(("ing", "'s")) or word in FUNCTION_WORDS | _COLORS:
        return False
    if _is_tint(words, place):
        return False
    before, after = words[place - 1] if place else "", words[place + 1] if place + 1 < len(words) else ""
    if before and before not in _BEFORE | _COLORS | TINTS | _LOOKS:
        return False
    if after and after not in FUNCTION_WORDS and not _is_verb(after):
        return False
    return not _NO_THINGS.intersection((word, *singulars(word)))


def _is_verb(word: str) -> bool:
    return word.endswith("ing") and (word,) not in things_by_form()


def _is_tint(words: Sequence[str], place: int) -> bool:
    """Whether the name of a thing is that of a colour here, or of what something else is made of or tastes
    of: "an orange helmet", "in rose", "a peach pie"."""

    def ends_name(word: str) -> bool:
        return word in ENDS | FUNCTION_WORDS | _PARTS or _is_verb(word)

    return words[place] in TINTS and is_color(words, place, ends_name)
