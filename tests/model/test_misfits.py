"""Words that captions must contain stand where they read well."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from support.language import END, FIRST_WORD, Language, Speaker

from captioner.model.misfits import misfits_of
from captioner.model.search import search_each
from captioner.model.search.including import Bools
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.options import CaptionOptions

WORDS = "a an the of red wooden bowl bottle bottles fire hydrant living room walking"


def misfits(word: str, language: str | None = "en") -> set[str]:
    vocabulary = Vocabulary([*SPECIAL, *WORDS.split()])
    made = misfits_of(SimpleNamespace(language=language, vocabulary=vocabulary))  # type: ignore[arg-type]
    assert made is not None
    barred = made(vocabulary.words.index(word))
    return {text for text, is_barred in zip(vocabulary.words, barred, strict=True) if is_barred}


@pytest.mark.parametrize(
    ("word", "after"),
    [
        ("bowl", {"bowl", "bottle", "bottles", "fire", "hydrant", "living", "room"}),
        ("bottles", {"a", "an", "bowl", "bottle", "bottles", "fire", "hydrant", "living", "room"}),
        ("hydrant", {"bowl", "bottle", "bottles", "hydrant", "living", "room"}),
        ("room", {"bowl", "bottle", "bottles", "fire", "hydrant", "room"}),
        ("red", set()),
        ("walking", set()),
    ],
)
def test_a_noun_is_not_appended_to_another(word: str, after: set[str]) -> None:
    assert misfits(word) == after


def test_other_languages_have_other_rules() -> None:
    assert misfits_of(SimpleNamespace(language=None)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("image", range(4))
def test_a_search_avoids_the_places_that_do_not_fit(beam: int, image: int) -> None:
    language, word, never = Language(words=5), FIRST_WORD, FIRST_WORD + 1
    after = np.arange(language.size) == never
    asked = CaptionOptions(beam_size=beam, max_words=6, length_normalization=0.0, no_repeat_ngram=0)

    def find(misfits: Bools) -> tuple[int, ...]:
        [[best]] = search_each(Speaker(language, [image]), [asked], [[(word,)]], lambda _: misfits)
        assert word in best.tokens and END not in best.tokens
        return best.tokens

    tokens = find(after)
    assert tokens.index(word) == 0 or tokens[tokens.index(word) - 1] != never
    # If it fits nowhere, a caption with the word is better than none.
    assert find(np.ones(language.size, dtype=np.bool_)) == find(np.zeros(language.size, dtype=np.bool_))
