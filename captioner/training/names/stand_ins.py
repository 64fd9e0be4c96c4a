"""Finds the word that a model uses for something that it cannot name: "a dog on a branch" for a raccoon.

Replacing that word with the new one gives a natural sentence. A constrained search alone uses both: "a dog
with a raccoon in its mouth".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from captioner.words.coco import PHRASES
from captioner.words.english import COLORS, UNCOUNTED, is_function_word
from captioner.words.imagenet import class_words
from captioner.words.nouns import stands_alone
from captioner.words.tokens import tokenize

PERSON = "person"
_GENERAL = frozenset(
    "animal creature dessert device food instrument machine meal object plant statue toy vehicle".split()  # noqa: SIM905
)
_SCENERY = frozenset(
    "background beach building city counter court field floor forest front garden grass ground hand head "  # noqa: SIM905
    "house middle mouth mountain ocean park photo picture road rock room sand scene sea shelf shore side "
    "sidewalk sky snow street table top track tree view wall water wave window woods".split()
)
"""Words for the surroundings of things."""
_CONTAINERS = frozenset(
    "basket bin bottle bowl box bucket cup dish glass jar mug pan plate pot tray vase".split()  # noqa: SIM905
)
"""What things are in or on: these stand for a new word only where nothing else does."""
_CLOTHES = frozenset(
    "boots cap coat costume dress gear glasses hat helmet jacket jersey jeans mask outfit pants shirt shoes "  # noqa: SIM905
    "shorts skirt suit sunglasses sweater tie uniform vest".split()
)
_NEVER = COLORS | _SCENERY | _CLOTHES
"""Words that a new one replaces only if they are among its relatives."""
_LONGEST = max(map(len, PHRASES))


class NamedThing(NamedTuple):
    """Words of a caption that name something."""

    start: int
    end: int
    """Index after the last of the words."""
    name: str
    is_person: bool


def named_things(words: Sequence[str], relatives: Iterable[str] = ()) -> Iterator[NamedThing]:
    """The things that a caption names: objects of COCO, classes of ImageNet, and `relatives`. Scenery and
    clothes count only if they are among `relatives`."""
    chosen = {tuple(relative.split()) for relative in relatives}
    start = 0
    while start < len(words):
        for end in range(min(len(words), start + _LONGEST), start, -1):
            phrase = tuple(words[start:end])
            if phrase in chosen or (_is_head(words, end) and _names(phrase)):
                yield NamedThing(start, end, " ".join(phrase), PHRASES.get(phrase) == PERSON)
                break
            if phrase in PHRASES and len(phrase) > 1:  # a known phrase that names no thing
                break
        else:
            end = start + 1
        start = end


def count_stand_ins(captions: Iterable[Sequence[str]], relatives: Sequence[str]) -> Counter[str]:
    """The number of captions that contain each name. People count only if no caption names a thing."""
    named = [list(named_things(caption, relatives)) for caption in captions]
    things = Counter(name for own in named for name in {thing.name for thing in own if not thing.is_person})
    return things or Counter(name for own in named for name in {thing.name for thing in own})


def replaced(
    captions: Sequence[Sequence[str]], word: str, stand_ins: Counter[str], relatives: Sequence[str]
) -> tuple[int, NamedThing] | None:
    """Where `word` can replace a name in one of a photo's captions, best first: the caption's index and the
    name; None if nowhere.

    `relatives` come first, containers last, otherwise the names that most photos of the word have; the best
    caption wins a tie.
    A singular never replaces a plural ("a jeans"), and a name that occurs twice is never replaced."""
    best = (False, False, 0)
    found: tuple[int, NamedThing] | None = None
    for number, caption in enumerate(captions):
        named = list(named_things(caption, relatives))
        times = Counter(thing.name for thing in named)
        for thing in named:
            count, is_container = stand_ins[thing.name], thing.name.split()[-1] in _CONTAINERS
            rank = (thing.name in relatives, count > 0 and not is_container, count)
            agrees = thing.name in UNCOUNTED or _is_several(thing.name) == stands_alone(word)
            if rank > best and times[thing.name] == 1 and agrees:
                best, found = rank, (number, thing)
    return found


def _is_several(name: str) -> bool:
    return stands_alone(name) and not name.startswith("pair of")


def _is_head(words: Sequence[str], end: int) -> bool:
    """Whether a name ends before `end`: true for "dog" in "dog on", false in "dog house"."""
    return end == len(words) or is_function_word(words[end]) or words[end].endswith(("ing", "s"))


def _names(phrase: Sequence[str]) -> bool:
    [word, *more] = phrase
    if PHRASES.get(tuple(phrase)):
        return phrase[-1] not in _NEVER
    known = word in _GENERAL or word in _classes()
    return (
        known and not more and not is_function_word(word) and word not in _NEVER and not word.endswith("ing")
    )


@cache
def _classes() -> frozenset[str]:
    return frozenset(token for names in class_words() for name in names for token in tokenize(name))
