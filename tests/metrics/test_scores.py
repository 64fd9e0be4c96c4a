"""BLEU, METEOR, ROUGE-L and CIDEr-D against pycocoevalcap's numbers, stored and, where it is, computed."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captioner.metrics import Meteor, evaluate_captions, tokenize
from captioner.metrics.bleu import bleu, bleu_statistics
from captioner.metrics.captions import read_captions, references_by_image
from captioner.metrics.cider import CiderD, CorpusCider, DocumentFrequencies
from captioner.metrics.meteor import meteor_score
from captioner.metrics.rouge import rouge_l
from captioner.references import read_references

DATA = Path(__file__).parents[1] / "data/metrics"
EXPECTED = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
IMAGES = read_references(DATA / "references.json")
REFERENCES = references_by_image(IMAGES)
CAPTIONS = read_captions(DATA / "captions.jsonl", IMAGES)
SAID = [tokenize(CAPTIONS[key]) for key in REFERENCES]
TRUTH = [[tokenize(text) for text in texts] for texts in REFERENCES.values()]

needs_pycocoevalcap = pytest.mark.skipif(
    importlib.util.find_spec("pycocoevalcap") is None, reason="pycocoevalcap is not installed"
)
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java")
needs_nltk = pytest.mark.skipif(importlib.util.find_spec("nltk") is None, reason="nltk is not installed")


def expected(metric: str) -> np.ndarray:
    return np.array([EXPECTED["images"][key][metric] for key in REFERENCES])


def test_corpus_scores_are_those_of_pycocoevalcap() -> None:
    values = evaluate_captions(CAPTIONS, REFERENCES, meteor=False).values
    assert {name: pytest.approx(value, abs=1e-9) for name, value in values.items()} == {
        name: value for name, value in EXPECTED["scores"].items() if name != "meteor"
    }


def test_scores_of_images_are_those_of_pycocoevalcap() -> None:
    statistics = np.stack(list(map(bleu_statistics, SAID, TRUTH)))
    np.testing.assert_allclose(bleu(statistics)[:, 3], expected("bleu_4"), atol=1e-9)
    np.testing.assert_allclose(list(map(rouge_l, SAID, TRUTH)), expected("rouge_l"), atol=1e-9)
    cider = CorpusCider(TRUTH).scores(range(len(SAID)), SAID)
    np.testing.assert_allclose(cider, expected("cider"), atol=1e-9)


@needs_pycocoevalcap
@needs_nltk
def test_meteor_with_its_data_is_meteor() -> None:
    meteor = Meteor.load()
    statistics = meteor.statistics(SAID, TRUTH)
    assert meteor.key == "meteor"
    np.testing.assert_allclose(meteor_score(statistics), expected("meteor"), atol=1e-9)
    assert meteor_score(statistics.sum(axis=0)) == pytest.approx(EXPECTED["scores"]["meteor"], abs=1e-9)


def test_meteor_without_its_data_says_so_and_matches_less() -> None:
    exact = Meteor()
    stemmed = Meteor(stemmer=lambda word: word.removesuffix("s").removesuffix("ing"))
    assert (exact.key, stemmed.key) == ("meteor_exact", "meteor_exact_stem")
    scores = [
        float(meteor_score(variant.statistics(SAID, TRUTH).sum(axis=0))) for variant in (exact, stemmed)
    ]
    assert 0.25 < scores[0] < scores[1] < EXPECTED["scores"]["meteor"]


@needs_pycocoevalcap
@needs_java
def test_what_is_stored_is_what_pycocoevalcap_gives() -> None:
    computed = compute_expected(meteor=False)  # which takes its time
    assert computed["tokens"] == EXPECTED["tokens"]
    for name, score in computed["scores"].items():
        assert score == pytest.approx(EXPECTED["scores"][name], abs=1e-9)


@needs_nltk
def test_bleu_is_that_of_nltk() -> None:
    from nltk.translate.bleu_score import corpus_bleu

    ours = bleu(np.sum(list(map(bleu_statistics, SAID, TRUTH)), axis=0))
    for n in range(1, 5):
        assert ours[n - 1] == pytest.approx(corpus_bleu(TRUTH, SAID, weights=[1 / n] * n), abs=1e-6)


WORDS = st.lists(
    st.sampled_from(["a", "the", "dog", "cat", "runs", "on", "in", "grass", "snow", "red"]),
    min_size=1,
    max_size=12,
)
PAIRS = st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=4)), min_size=2, max_size=6)


@settings(max_examples=50)
@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_images_and_references_does_not_matter(
    pairs: list[tuple[list[str], list[list[str]]]], shuffler: random.Random
) -> None:
    shuffled = [(said, shuffler.sample(truth, len(truth))) for said, truth in pairs]
    shuffler.shuffle(shuffled)
    scores = []
    for said, truth in (zip(*pairs, strict=True), zip(*shuffled, strict=True)):
        scores.append(
            [
                *bleu(np.sum(list(map(bleu_statistics, said, truth)), axis=0)),
                np.mean(list(map(rouge_l, said, truth))),
                CorpusCider(truth).scores(range(len(said)), said).mean(),
                # Of each image: where two references suit as well, a corpus sums the words of the first.
                meteor_score(Meteor().statistics(said, truth)).mean(),
            ]
        )
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-9)


@settings(max_examples=50)
@given(PAIRS)
def test_scores_stay_within_their_bounds(pairs: list[tuple[list[str], list[list[str]]]]) -> None:
    for said, truth in pairs:
        statistics = Meteor().statistics([said], [truth])
        assert 0 <= rouge_l(said, truth) <= 1 + 1e-9
        assert 0 <= bleu(bleu_statistics(said, truth)).min() <= 1 + 1e-9
        assert 0 <= meteor_score(statistics).item() <= 1 + 1e-9
    said, truth = zip(*pairs, strict=True)
    assert (CorpusCider(truth).scores(range(len(said)), said) >= 0).all()
    assert (CorpusCider(truth).scores(range(len(said)), said) <= 10 + 1e-9).all()


@given(WORDS)
def test_a_caption_that_is_its_reference_is_perfect(words: list[str]) -> None:
    assert rouge_l(words, [words]) == pytest.approx(1)
    assert bleu(bleu_statistics(words, [words]))[0] == pytest.approx(1)
    assert meteor_score(Meteor().statistics([words], [[words]])).item() == pytest.approx(1)
    cider = CiderD(DocumentFrequencies({}, documents=100))
    lengths = min(len(words), 4)  # n-grams longer than the caption match nothing
    assert cider.score(words, cider.reference_vectors([words])) == pytest.approx(10 * lengths / 4)


def test_a_caption_of_no_words_scores_nothing() -> None:
    scores = evaluate_captions({"a": "", "b": "."}, {"a": ["a dog"], "b": ["a cat"]}, meteor=Meteor())
    assert max(scores.values.values()) == 0


def test_words_that_only_the_candidate_has_lower_cider() -> None:
    frequencies = DocumentFrequencies.of(TRUTH)
    cider = CiderD(frequencies)
    vectors = cider.reference_vectors(TRUTH[0])
    assert cider.score([*SAID[0], "zebra"], vectors) < cider.score(SAID[0], vectors)


def test_repeating_a_word_gains_no_cider() -> None:
    cider = CorpusCider(TRUTH)
    assert cider.scores([0, 0], [["snow"] * 12, SAID[0]]).argmax() == 1


def test_typicality_is_the_mean_over_all_images() -> None:
    # Of sentences of one length without repeated words, which no clipping or length penalty touches.
    corpus = [["a red bird sings"], ["a red car stops", "one red car stops"], ["the dog is big"]]
    cider = CorpusCider([[text.split() for text in texts] for texts in corpus])
    said = [text.split() for text in ("a red bird stops", "the dog is big", "nobody was ever here")]
    means = np.mean([cider.scores([image] * len(said), said) for image in range(len(corpus))], axis=0)
    np.testing.assert_allclose(cider.typicality(said), means, atol=1e-9)
    assert means[0] > means[2] == 0


def compute_expected(*, meteor: bool = True) -> dict[str, Any]:
    """What expected.json holds, by pycocoevalcap."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor as JavaMeteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    def tokenize_theirs(texts: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        return PTBTokenizer().tokenize({key: [{"caption": text} for text in texts[key]] for key in texts})

    tokens = {
        text: tokenized for text, [tokenized] in tokenize_theirs({t: [t] for t in EXPECTED["tokens"]}).items()
    }
    said = tokenize_theirs({key: [CAPTIONS[key]] for key in REFERENCES})
    truth = tokenize_theirs(REFERENCES)
    corpus, images = Bleu(4).compute_score(truth, said, verbose=0)
    results = {f"bleu_{n + 1}": (corpus[n], images[n]) for n in range(4)}
    results["rouge_l"] = Rouge().compute_score(truth, said)
    results["cider"] = Cider().compute_score(truth, said)
    if meteor:
        results["meteor"] = JavaMeteor().compute_score(truth, said)
    return {
        "scores": {name: float(score) for name, (score, _) in results.items()},
        "images": {
            key: {name: float(per_image[row]) for name, (_, per_image) in results.items()}
            for row, key in enumerate(REFERENCES)
        },
        "tokens": tokens,
    }


if __name__ == "__main__":
    (DATA / "expected.json").write_text(
        json.dumps(compute_expected(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
