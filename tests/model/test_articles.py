"""English articles fit their nouns, in captions of models that say that they are English."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from captioner import Caption, Captioner, CaptionOptions, Word
from captioner.cli.commands.evaluate.attention_tests import (
    AttentionTestRequest,
    AttentionTests,
    add_arguments,
)
from captioner.errors import DataError
from captioner.metrics.attention import faithfulness
from captioner.model import articles
from captioner.model.bundle import WORDS, Bundle, change_manifest
from captioner.model.caption_builder import CaptionBuilder
from captioner.model.search.history import Hypothesis
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.references import CaptionedImage
from captioner.words.english import ARTICLES
from captioner.words.nouns import agreed

EXAMPLES = Path(__file__).parents[2] / "examples"
PHOTOS = sorted(EXAMPLES.glob("*.jpg"))[:6]


def corrected(text: str) -> str:
    return " ".join(agreed(text.split()))


def test_all_articles_of_a_caption() -> None:
    assert corrected("a elephant and an man with a orange") == "an elephant and a man with an orange"
    assert corrected("a a orange on a") == "a an orange on a"
    assert corrected("a scissors on a elephant with a milk") == "some scissors on an elephant with some milk"
    assert corrected("") == ""


@pytest.mark.parametrize(
    "text",
    [
        "a orange on an plate", "man", "", "an", "a a a orange", "on a red a", "a red", "a scissors",
        "a scissors is on a red shoes and a blue women a a milk a milk can a old", "a milk sitting a orange",
        "muž a auto a a orange pes a auto", "a muž a a auto a owl",
    ],
)  # fmt: skip
def test_words_that_are_being_chosen(text: str) -> None:
    said = text.split()
    words = [Word(word, -float(number), sentinel=0.5) for number, word in enumerate(said)]
    expected = [dataclasses.replace(word, text=text) for word, text in zip(words, agreed(said), strict=True)]
    assert list(articles.settled(iter(words))) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("two men with a orange and a", "+two two +men men +with with +a +orange an orange +and and +a a"),
        ("a big dog on a skis on", "+a +big +dog a big dog +on on +a +skis +on some skis on"),
    ],
)
def test_words_are_held_back_until_the_noun_is_known(said: str, expected: str) -> None:
    events = []

    def chosen() -> Iterator[Word]:
        for text in said.split():
            events.append(f"+{text}")
            yield Word(text, -1.0)

    for word in articles.settled(chosen()):
        events.append(word.text)
    assert " ".join(events) == expected


@pytest.mark.parametrize(
    ("words", "language"),
    [
        ("a an the", "en"),
        ("a the", None),
        ("an the", None),
        ("a an az", None),
        ("a an the los angeles", "en"),
        ("a an the dog an der wand ein hund", None),
        ("a an the kočka a pes šálek", None),
        ("a an the café piñata", "en"),
        ("a an the dog un chien dans la rue", None),
    ],
)
def test_a_vocabulary_is_english_when_it_has_all_articles_and_no_other_language(
    words: str, language: str | None
) -> None:
    assert articles.language_of(words.split()) == language


# -- captions of a bundle ----------------------------------------------------------------------------------


def make_bundle(folder: Path, source: Path, language: str | None) -> Path:
    """The tiny bundle, in which all words but "a" begin with an O. It has no "an"."""
    shutil.copytree(source, folder)
    words = (folder / WORDS).read_text().split("\n")
    odd = [word if word in (*SPECIAL, "a", "") else f"o{word}" for word in words]
    (folder / WORDS).write_text("\n".join(odd))
    change_manifest(folder, {} if language is None else {"language": language})
    return folder


LANGUAGES = (None, "en", "fr")


@pytest.fixture(scope="module")
def bundles(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, Path]:
    """By their language."""
    folder = tmp_path_factory.mktemp("bundles")
    return {language: make_bundle(folder / str(language), tiny_bundle, language) for language in LANGUAGES}


@pytest.fixture(scope="module")
def captioners(bundles: dict[str | None, Path]) -> dict[str | None, Captioner]:
    return {language: Captioner.load(bundle, device="cpu", threads=1) for language, bundle in bundles.items()}


def without_model(caption: Caption) -> Caption:
    return dataclasses.replace(caption, model="")


def test_a_bundle_says_its_language(bundles: dict[str | None, Path], tiny_bundle: Path) -> None:
    assert {language: Bundle.load(path).language for language, path in bundles.items()} == {
        None: None, "en": "en", "fr": "fr"
    }  # fmt: skip
    assert Bundle.load(tiny_bundle).language is None


@pytest.mark.parametrize("beam", [1, 3])
def test_only_articles_of_english_captions_change(captioners, beam: int) -> None:
    options = CaptionOptions(beam_size=beam)
    plain, english, french = (captioners[language].caption(PHOTOS, options) for language in LANGUAGES)
    assert [without_model(caption) for caption in french] == [without_model(caption) for caption in plain]
    assert any(" an " in f" {caption.text} " for caption in english)
    known = captioners["en"].bundle.vocabulary.words
    for before, after in zip(plain, english, strict=True):
        assert after.text == corrected(before.text) == " ".join(word.text for word in after.words)
        for word, chosen in zip(after.words, before.words, strict=True):
            assert dataclasses.replace(word, text=chosen.text) == chosen  # the same numbers and map
            assert known[word.token] == chosen.text
        assert (after.log_prob, after.confidence) == (before.log_prob, before.confidence)


def test_a_stream_is_the_greedy_caption(captioners) -> None:
    english = captioners["en"]
    for photo in PHOTOS:
        pixels = english.preprocess(photo)
        *words, caption = english.stream_pixels(pixels)
        assert tuple(words) == caption.words
        [greedy] = english.caption_pixels(pixels[None], CaptionOptions(beam_size=1))
        assert (caption.text, caption.confidence) == (greedy.text, greedy.confidence)
        *_, before = captioners[None].stream_pixels(pixels)
        assert caption.log_prob == before.log_prob
        assert caption.text == corrected(before.text)


def test_a_stream_yields_an_article_with_the_word_after_it(captioners, monkeypatch) -> None:
    """And every other word at once: counted in steps of the decoder."""
    from captioner import captioner as module

    steps = []

    def counted(*args):
        for step in search(*args):
            steps.append(step[0])
            yield step

    search = module.stream
    monkeypatch.setattr(module, "stream", counted)
    english = captioners["en"]
    for photo in PHOTOS:
        steps.clear()
        *words, _ = [(item, len(steps)) for item in english.stream_pixels(english.preprocess(photo))]
        for number, (word, seen) in enumerate(words, 1):
            assert seen == number + (word.text in ARTICLES)


def test_faithfulness_reads_the_words_that_the_model_chose(captioners, monkeypatch) -> None:
    """The model does not know "an"."""
    monkeypatch.setattr(faithfulness, "check_memory", lambda captioner: None)  # too old to hide cells from
    read = []
    monkeypatch.setattr(faithfulness.Probe, "add", lambda probe, stepper, captions: read.append(captions))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["--faithfulness"], argparse.Namespace(server=None))
    for language in (None, "en"):
        tests = AttentionTests(AttentionTestRequest.read(args), [])
        tests.start(captioners[language])
        for photo in PHOTOS:
            tests.add(CaptionedImage(photo.name, (), ""), captioners[language].caption(photo))
        with pytest.raises(DataError, match="no caption to test"):
            tests.results()
    assert read[0] == read[1] and len(read[0]) == len(PHOTOS)


KNOWN = Vocabulary([*SPECIAL, "a", "an", "the", "orange", "man", "on", "women"])


def built(bundle: Path, *texts: str, **options) -> Caption:
    """What becomes of these hypotheses, best first."""
    english = dataclasses.replace(Bundle.load(bundle), language="en", vocabulary=KNOWN)
    ranked = [
        Hypothesis(
            tuple(KNOWN.encode(text)),
            (-1.0 - number,) * (len(text.split()) + 1),
            (np.full(16, 1 / 16, dtype=np.float32),) * len(text.split()),
        )
        for number, text in enumerate(texts)
    ]
    resolved = CaptionOptions(**options).resolve(english.decoding)
    return CaptionBuilder(english).caption(ranked, np.ones((4, 4), dtype=np.bool_), resolved)


def test_alternatives_that_become_equal_are_one(tiny_bundle: Path) -> None:
    caption = built(tiny_bundle, "a orange", "an orange", "an man", "a man", "the orange", alternatives=4)
    assert caption.text == "an orange"
    assert [other.text for other in caption.alternatives] == ["a man", "the orange"]
    assert [other.log_prob for other in caption.alternatives] == [-9.0, -15.0]


def test_a_word_to_include_stays(tiny_bundle: Path) -> None:
    assert built(tiny_bundle, "a orange on a orange", include=("a",)).text == "a orange on a orange"
    assert built(tiny_bundle, "a orange on a orange", include=("on",)).text == "an orange on an orange"
    assert built(tiny_bundle, "a women on a orange", include=("women",)).text == "a women on a orange"
    assert built(tiny_bundle, "a women on a orange", include=("on",)).text == "a woman on an orange"
