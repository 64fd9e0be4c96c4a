"""The parts of METEOR: words, matches, alignment and its data."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from captioner.errors import DataError
from captioner.metrics.meteor import Meteor, meteor_score
from captioner.metrics.meteor.alignment import Match, align
from captioner.metrics.meteor.matchers import exact_matches
from captioner.metrics.meteor.normalizer import normalize
from captioner.metrics.meteor.resources import read_paraphrases


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ("a t-shirt", "a t shirt"),
        ("tug-o-war", "tug o-war"),
        ("dog 's", "dog ' s"),
        ("do n't", "do n 't"),
        ("80 's", "80 ' s"),
        ("the u.s. team", "the us team"),
        ("mr. smith", "mr. smith"),
        ("on main st.", "on main st ."),
        ("at 6:10", "at 6 : 10"),
        ("1,000 men", "1,000 men"),
        ("black/white", "black / white"),
        ("-lrb- left -rrb-", "-lrb- left -rrb-"),
        ("", ""),
    ],
)
def test_words_are_split_once_more(tokens: str, words: str) -> None:
    assert normalize(tokens.split()) == words.split()


def chunks(candidate: str, reference: str) -> tuple[int, int]:
    said, truth = candidate.split(), reference.split()
    chosen, count = align(exact_matches(said, truth), len(said), len(truth))
    return len(chosen), count


def test_chunks_are_runs_that_match_in_the_same_order() -> None:
    assert chunks("a b c d", "a b c d") == (4, 1)
    assert chunks("c d a b", "a b c d") == (4, 2)
    assert chunks("a x b", "a b") == (2, 2)
    assert chunks("x y", "a b") == (0, 0)


def test_among_repeated_words_those_are_matched_that_make_fewest_chunks() -> None:
    assert chunks("a man and a dog", "a dog") == (2, 1)
    assert chunks("the dog the cat", "the cat the dog") == (4, 2)


def test_a_word_is_matched_once() -> None:
    assert chunks("a a a", "a") == (1, 1)


def test_phrases_cover_several_words() -> None:
    phrase = Match(matcher=3, start=1, length=2, candidate_start=1, candidate_length=3)
    words = [Match(0, 0, 1, 0, 1), phrase, Match(3, 1, 1, 3, 1)]
    chosen, count = align(words, candidate_length=4, reference_length=3)
    assert chosen == [words[0], phrase]
    assert count == 1


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A small stand-in for METEOR's archive and paraphrase table."""
    with zipfile.ZipFile(tmp_path / "meteor-1.5.jar", "w") as archive:
        archive.writestr("synonym/english.synsets", "puppy\n1 2\ndog\n3\npup\n2\ngoose\n4\n")
        archive.writestr("synonym/english.exceptions", "goose\ngeese\n")
        archive.writestr("function/english.words", "a\nthe\nin\n")
    (tmp_path / "data").mkdir()
    with gzip.open(tmp_path / "data" / "paraphrase-en.gz", "wt", encoding="utf-8") as table:
        table.write("0.5\nin front of\nbefore\n0.1\na zebra\nthe zebra\n")
    return tmp_path


def test_synonyms_are_found_from_inflected_words(data: Path) -> None:
    synonyms = Meteor.load(data).synonyms
    assert synonyms is not None
    assert synonyms.of("puppies") & synonyms.of("pups") == {"2"}
    assert synonyms.of("geese") == {"4"}
    assert synonyms.of("grass") == frozenset()


def test_synonyms_and_paraphrases_raise_the_score(data: Path) -> None:
    said, truth = ["a", "puppy", "in", "front", "of", "a", "house"], ["a", "pup", "before", "a", "house"]
    full = Meteor.load(data)
    scores = [
        meteor_score(variant.statistics([said], [[truth]])).item()
        for variant in (Meteor(), Meteor(synonyms=full.synonyms), full)
    ]
    assert scores == sorted(set(scores))


def test_only_known_phrases_are_read(data: Path) -> None:
    known = {("in", "front", "of"), ("before",), ("a", "zebra")}
    assert read_paraphrases(data, known) == {("in", "front", "of"): [("before",)]}


def test_what_is_not_meteors_data_is_an_error(data: Path) -> None:
    with pytest.raises(DataError, match=r"not the archive of METEOR 1\.5 \(No such file or directory\)"):
        Meteor.load(data / "data")
    (data / "data" / "paraphrase-en.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="not METEOR's paraphrase table"):
        Meteor.load(data).statistics([["a"]], [[["a"]]])
