"""The words of a text, in any script that writes them apart."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable

import regex

# A word is letters and digits with inner apostrophes or hyphens kept ("t-shirt", "man's"), and what is within
# a number ("3.5", "10:30"). Combining marks and joiners belong to the letter before them (UAX 29): `re` would
# split most words of Hindi at their vowels.
_WORD = regex.compile(r"(?!\p{M})[^\W_]+(?:(?:['·״-]|(?<=\p{Nd})[.,:/٫٬](?=\p{Nd}))[^\W_]+)*")
PLAIN = dict.fromkeys(map(ord, "’ʼ´"), "'") | dict.fromkeys(map(ord, "\u2010\u2011"), "-")
"""Typographic apostrophes and hyphens, and what people type for them."""

# Joiners that change how letters are written: after and before a virama (Hindi, Sinhala, Bengali), and
# between letters that would be connected (Persian). Elsewhere they show nothing.
_JOINER = regex.compile(
    r"(?<=\p{ccc=virama})[\u200c\u200d]|(?<=\p{L})\u200d(?=\p{ccc=virama})"
    r"|(?<=[\p{Arabic}\p{M}])\u200c(?=\p{Arabic})"
)
_DOTTED = regex.compile("[ıİğĞ]|[gG]\N{COMBINING BREVE}")
"""Letters of languages in which the capital of "ı" is "I", and that of "i" is "İ"."""

_ANY_JOINER = regex.compile(rf"({_JOINER.pattern})|[\u200c\u200d\u2060\u00ad\u0640\ufe0e\ufe0f\u20e3]")
"""Also what changes no word: word joiners, soft hyphens, the tatweel, which makes Arabic words longer, and
what makes emoji of symbols and digits."""

# Han, kana, and the scripts of Southeast Asia (Thai, Lao, Khmer, Burmese): words are not written apart.
_RUN = regex.compile(r"(?P<east>[\p{Han}\p{Hiragana}\p{Katakana}ー]+)|\p{Line_Break=Complex_Context}+")
_LONGEST_EAST, _LONGEST = 4, 10
"""Mean lengths of words in these scripts, in characters, that texts with spaces hardly reach."""
_SHARE = 0.1


def tokenize(text: str) -> list[str]:
    """The lower-cased words of a caption without punctuation, as used in training. Composed and decomposed
    letters are equal."""
    return _WORD.findall(lowered(text))


def lowered(text: str) -> str:
    """Text in lower case, its letters composed, with plain apostrophes and hyphens, without joiners and the
    like that change no word."""
    if text.isascii():
        return text.lower()
    # `str.lower` makes "i" and a dot of the Turkish capital, so that "İki" and "iki" would be two words.
    lower = undotted(text).lower().replace("i\N{COMBINING DOT ABOVE}", "i")
    return _ANY_JOINER.sub(r"\1", unicodedata.normalize("NFC", lower)).translate(PLAIN)


def undotted(text: str) -> str:
    """Text with "ı" for each "I", if it is in Turkish or a language with the same letters."""
    text = text.replace("I\N{COMBINING DOT ABOVE}", "İ")
    return text.replace("I", "ı") if _DOTTED.search(text) else text


def joiners(text: str) -> set[int]:
    """Where a text has the joiners that its script needs, which are no control characters there."""
    return set() if text.isascii() else {found.start() for found in _JOINER.finditer(text)}


def is_undivided(word: str) -> bool:
    """Whether a word has letters of a script that does not write words apart: it may be a whole clause."""
    return not word.isascii() and _RUN.search(word) is not None


def join_undivided(words: Iterable[str]) -> list[str]:
    """The words, neighbours of such scripts joined as they are written: a program may have divided them."""
    groups = itertools.groupby(words, is_undivided)
    return [word for joins, group in groups for word in (["".join(group)] if joins else group)]


def find_unspaced(captions: Iterable[str]) -> str | None:
    """A caption whose words are not written apart, so that `tokenize` would take a clause for one word; None
    if at most a tenth of the captions are like that."""
    count, found = 0, []
    for caption in captions:
        count += 1
        if not caption.isascii() and _is_unspaced(caption):
            found.append(caption)
    return found[0] if len(found) > _SHARE * count else None


def _is_unspaced(caption: str) -> bool:
    runs = list(_RUN.finditer(caption))
    return bool(runs) and sum(map(_excess, runs)) > 0


def _excess(run: regex.Match[str]) -> int:
    return len(run[0]) - (_LONGEST_EAST if run["east"] else _LONGEST)
