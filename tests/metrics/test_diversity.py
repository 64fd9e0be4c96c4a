"""What captions say, without references."""

from __future__ import annotations

import pytest

from captioner.metrics.diversity import diversity


def tokens(*captions: str) -> list[list[str]]:
    return [caption.split() for caption in captions]


def test_counts_words_pairs_and_lengths() -> None:
    counted = diversity(tokens("a dog runs", "a dog sleeps", "a cat"))
    assert counted.vocabulary == 5
    assert counted.distinct_1 == 5 / 8
    assert counted.distinct_2 == 4 / 5
    assert counted.mean_length == pytest.approx(8 / 3)


def test_repeated_captions_are_counted_by_image() -> None:
    assert diversity(tokens("a dog", "a dog", "a dog", "a cat")).repeated == 3 / 4
    assert diversity(tokens("a dog", "a cat")).repeated == 0


@pytest.mark.parametrize("ending", ["in a", "with the", "and", "of", "in front of", "next to", "his", "is"])
def test_unfinished_captions_end_badly(ending: str) -> None:
    assert diversity(tokens(f"a man stands {ending}")).bad_endings == 1


@pytest.mark.parametrize("ending", ["by", "on", "behind her", "up", "outside", "in front"])
def test_what_people_end_captions_with_is_no_bad_ending(ending: str) -> None:
    assert diversity(tokens(f"a man looks {ending}")).bad_endings == 0


@pytest.mark.parametrize("caption", ["ein mann sieht sie an", "köpek ve bir at"])
def test_words_of_other_languages_are_no_bad_endings(caption: str) -> None:
    assert diversity(tokens(caption)).bad_endings == 0


def test_captions_of_no_words() -> None:
    nothing = diversity([[], []])
    assert (nothing.vocabulary, nothing.mean_length, nothing.distinct_1, nothing.bad_endings) == (0, 0, 0, 0)
    assert nothing.repeated == 1
