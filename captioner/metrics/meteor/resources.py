"""METEOR's resources for English: stems, synonyms, paraphrases and function words.

The stemmer is nltk's; synonyms (of WordNet 3) and the function words are in METEOR's own archive and the
paraphrase table is beside it, both as pycocoevalcap installs them. Missing resources are skipped, and the
metric is then named after what it has. The archive is read as a zip file, never run.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import itertools
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from captioner.errors import DataError, reason_of

ARCHIVE = "meteor-1.5.jar"
PARAPHRASES = Path("data") / "paraphrase-en.gz"

Phrase = tuple[str, ...]
Stemmer = Callable[[str], str]

# Endings of inflected words and what they give way to, in WordNet's order (its Morphy).
_MORPHY = """s> ses>s xes>x zes>z ches>ch shes>sh men>man ies>y
    es>e es> ed>e ed> ing>e ing> er> est> er>e est>e"""
_ENDINGS = [rule.split(">") for rule in _MORPHY.split()]


def find_data() -> Path | None:
    """The folder with METEOR's archive in an installed pycocoevalcap, if there is one."""
    spec = importlib.util.find_spec("pycocoevalcap")
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location) / "meteor"
        if (folder / ARCHIVE).is_file():
            return folder
    return None


def load_stemmer() -> Stemmer | None:
    """The Snowball stemmer for English (Porter 2001), if nltk is installed."""
    if importlib.util.find_spec("nltk") is None:
        return None
    from nltk.stem.snowball import EnglishStemmer  # type: ignore[import-untyped]

    return EnglishStemmer().stem


@dataclass(frozen=True, slots=True)
class Synonyms:
    """WordNet's synonym sets, by number."""

    sets: dict[str, frozenset[str]]
    """The sets of each word."""
    bases: dict[str, list[str]]
    """The base forms of irregularly inflected words ("geese": "goose")."""
    _cache: dict[str, frozenset[str]] = field(default_factory=dict)

    def of(self, word: str) -> frozenset[str]:
        """The sets of a word and of its base form."""
        if word not in self._cache:
            own = self.sets.get(word, frozenset())
            self._cache[word] = own.union(*(self.sets.get(base, frozenset()) for base in self._bases(word)))
        return self._cache[word]

    def _bases(self, word: str) -> list[str]:
        if word in self.bases:
            return self.bases[word]
        if word.endswith("ss") or len(word) <= 2:
            return []
        candidates = (word[: -len(old)] + new for old, new in _ENDINGS if word.endswith(old))
        return [base for base in candidates if base in self.sets][:1]


def read_archive(folder: Path) -> tuple[Synonyms, frozenset[str]]:
    """The synonyms and the function words of METEOR's archive. Raises `DataError`."""
    path = folder / ARCHIVE
    try:
        with zipfile.ZipFile(path) as archive:

            def lines(name: str) -> list[str]:
                return archive.read(name).decode("utf-8").splitlines()

            bases: dict[str, list[str]] = {}
            for base, inflected in _pairs(lines("synonym/english.exceptions")):
                for word in inflected.split():
                    bases.setdefault(word, []).append(base)
            sets = {
                word: frozenset(numbers.split()) for word, numbers in _pairs(lines("synonym/english.synsets"))
            }
            return Synonyms(sets, bases), frozenset(lines("function/english.words"))
    except (OSError, zipfile.BadZipFile, KeyError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not the archive of METEOR 1.5 ({reason_of(error)})") from None


def read_paraphrases(folder: Path, known: set[Phrase]) -> dict[Phrase, list[Phrase]]:
    """The part of the paraphrase table in which both sides are `known`, in the order of the table.

    The table has five million pairs and takes some seconds to read. Raises `DataError`.
    """
    path = folder / PARAPHRASES
    wanted = {" ".join(phrase): phrase for phrase in known}
    table: dict[Phrase, list[Phrase]] = {}
    try:
        with gzip.open(path) as compressed, io.TextIOWrapper(compressed, encoding="utf-8") as stream:
            # Three lines each: a probability, a phrase, its paraphrase.
            for _, phrase, paraphrase in zip(stream, stream, stream, strict=False):
                source = wanted.get(phrase.rstrip("\n"))
                if source is None:
                    continue
                target = wanted.get(paraphrase.rstrip("\n"))
                if target is not None:
                    table.setdefault(source, []).append(target)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not METEOR's paraphrase table ({reason_of(error)})") from None
    return table


def _pairs(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    iterator = iter(lines)
    return itertools.zip_longest(iterator, iterator, fillvalue="")
