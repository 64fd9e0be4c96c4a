"""Captions to words, as the COCO caption evaluation does it (Chen et al. 2015, arXiv:1504.00325).

There, Stanford's PTBTokenizer splits in the manner of the Penn Treebank ("it's" is "it 's", "don't" is
"do n't"), the words are lower-cased, and the marks of `PUNCTUATION` are dropped. This is the same in
Python for the English of captions; `benchmarks/metrics_parity.py` compares the two on any captions.
Words of other scripts keep their combining marks.
"""

from __future__ import annotations

import unicodedata

import regex

from captioner.words.tokens import PLAIN, lowered, undotted

PUNCTUATION = frozenset(["''", '"', "'", "``", "`", "?", "!", ",", ":", ";"])
"""Dropped, as are rows of periods and dashes. Brackets are not: the list of the COCO code has "-LRB-", but
what it meets is "-lrb-"."""

_OTHER_PUNCTUATION = regex.compile(
    r"[\p{P}--\p{Script=Common}] | [\p{P}&&[\u3000-\u303F\uFF00-\uFFEF]] | [।॥・،؟؛¿¡]",
    regex.VERSION1 | regex.VERBOSE,
)
"""Dropped too: marks of other scripts, which the code of COCO keeps."""

_UNKNOWN = regex.compile(
    r"[\p{Cf}\p{Co}\p{Cs}\p{Variation_Selector}\uFFFC\uFFFD]|[\U00010000-\U0010FFFF--[\p{L}\p{M}\p{N}]]",
    regex.VERSION1,
)
"""Dropped as well: what PTBTokenizer does not know, such as most emoji and invisible characters."""

_PLAIN = str.maketrans({"‘": "`", "…": " ... ", "½": " 1/2 ", "¼": " 1/4 ", "¾": " 3/4 "})
_PLAIN |= {ord("\N{SOFT HYPHEN}"): ""} | PLAIN
_PLAIN |= dict.fromkeys(map(ord, "“”«»"), ' " ') | dict.fromkeys(map(ord, "–—―"), " -- ")
_WRITTEN = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_WRITTEN |= {"£": "#", "€": "$", "¢": "cents"}

# One word to the reader, two to the treebank.
_SPLIT = {
    "cannot": ["can", "not"],
    "gonna": ["gon", "na"],
    "gotta": ["got", "ta"],
    "wanna": ["wan", "na"],
    "gimme": ["gim", "me"],
    "lemme": ["lem", "me"],
}

# Abbreviations that keep their period, even at the end of a sentence.
_ABBREVIATION = """jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mon|tues?|wed|thu|thurs|fri|mr|mrs|ms|dr|prof
    |gen|sen|rep|gov|col|lt|lieut|sgt|capt|cpl|pvt|maj|brig|adm|cmdr|atty|supt|hon|rev|insp|messrs|mlle|mme
    |msgr|pres|asst|assoc|sr|jr|esq|alex|wm|jos|ste?|mt|ft|ave|blvd|rd|ct|sq|bldg|bros|inc|ltd|cos?|corp
    |bancorp|cie|assn|dept|univ|plc|intl|natl|sys|tel|ext|est|al|etc|vs|cf|seq|ph\\.d|ala|ariz|calif|colo|conn
    |dak|fla|ga|ind|kans?|ky|md|mich|minn|mo|mont|neb|nev|okla|penn|tenn|va|vt|wis|wyo"""
# These are words or names too, and count as abbreviations only with a capital.
_CAPITAL_ABBREVIATION = "Ark|Del|Ill|La|Mass|Miss|Ore|Pa|Tex|Wash"
# A letter, a period and one of these: a sentence has ended ("vitamin c. The", but "J. Smith").
_SENTENCE_STARTER = """A|After|An|As|At|But|He|Her|However|If|In|It|Last|Many|More|Now|One|Other|Our|She|Since
    |So|Some|Such|That|The|Their|Then|There|These|They|This|We|What|When|While|Yet|You"""

_LETTER = r"[^\W\d_]"
_WORD = r"[^\W_]+"
_COMPOUND = rf"{_WORD}(?:[-_]{_WORD})*"
_DOTTED = rf"{_LETTER}[^\W_]*"

# Whole words between spaces, most of any caption, need no more than this.
_EASY = regex.compile(r"[^\W\d_]+(?=\s|$)")
# What else a token can look like. The longest match is taken, the first of several as long. The group
# "next" counts towards the length, but is left to the next token.
_SHAPES = [
    regex.compile(shape, regex.VERBOSE | flags)
    for shape, flags in [
        (_COMPOUND, 0),
        (rf"{_LETTER}+?(?P<next>n't)", regex.IGNORECASE),
        (r"n't | '(?:s|m|d|ll|re|ve|em|till?|cause|n'?|(?<!\w')\d\ds?)(?![^\W_])", regex.IGNORECASE),
        (r"'t(?P<next>is|was)\b", regex.IGNORECASE),
        (rf"[dlno]'{_LETTER}{_COMPOUND} | [djlty]' | ol' | 'n'", regex.IGNORECASE),
        (r"ma'am | cap'n | n?e'er | o'er | nor'easter | hawai'i | li'l | s'mores", regex.IGNORECASE),
        (rf"[-+]?(?: \d*(?:[.:,]\d+)+ | \d+ )(?:-{_WORD})*", 0),  # 1,000  10:30  5.5-inch
        (rf"{_COMPOUND}(?:/{_COMPOUND})+", 0),  # black/white  1/2
        (rf"{_DOTTED}(?:\.{_DOTTED})+", 0),  # example.com  t.v
        (rf"(?:{_LETTER}\.){{2,}} | {_LETTER}\.(?!\s+(?:{_SENTENCE_STARTER})\b)", 0),  # u.s.  j. smith
        (rf"(?:{_WORD}-)*(?:{_LETTER}\.){{2,}}{_LETTER}?(?:-{_WORD})*", 0),  # non-u.s.  u.s.-based
        (rf"(?:{_ABBREVIATION})\.", regex.IGNORECASE),
        (rf"(?:{_CAPITAL_ABBREVIATION})\.", 0),
        (r"(?:nos?|pp|fig)\.(?=\s*\d)", regex.IGNORECASE),
        (r"[A-Z]+(?:&[A-Z]+)+", 0),  # AT&T, but "at & t"
        (rf"{_LETTER}+[!?]{_LETTER}+", 0),
        (r"""(?:https?://|www\.)[^\s"<>()]*[^\s"<>().,;:!?]""", regex.IGNORECASE),
        (r"[\w.]+@[\w-]+(?:\.[\w-]+)*", 0),
        (rf"[#@]{_LETTER}\w*", 0),
        (r"</?[A-Za-z][^<>\s]*>", 0),  # <unk>
        (r"\.{3,} | -{2,} | [!?]+ | __+ | \*+ | '' | `` | \S", 0),
    ]
]
_LONGEST = 2**10
"""Characters of a token. `regex` looks for letters that a shape must have in all of the text."""


def tokenize(text: str) -> list[str]:
    """The words of a caption, lower-cased, without punctuation."""
    text = (text if text.isascii() else unicodedata.normalize("NFC", undotted(text))).translate(_PLAIN)
    tokens: list[str] = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        easy = _EASY.match(text, position)
        end = easy.end() if easy else _longest(text, position)
        token = lowered(text[position:end])
        if token.strip(".-") and token not in PUNCTUATION and not _is_dropped(token):
            tokens += _SPLIT.get(token) or [_WRITTEN.get(token, token)]
        position = end
    return tokens


def _is_dropped(token: str) -> bool:
    """Whether a token is no word outside ASCII."""
    return not token.isascii() and any(kind.fullmatch(token) for kind in (_OTHER_PUNCTUATION, _UNKNOWN))


def _longest(text: str, position: int) -> int:
    """End of the token that begins at `position`."""
    longest = end = position
    for shape in _SHAPES:
        match = shape.match(text, position, position + _LONGEST)
        if match and match.end() > longest:
            longest = match.end()
            end = match.start("next") if "next" in shape.groupindex else longest
    return end
