"""Captions against labels."""

import json
from pathlib import Path

import pytest

from captioner.cli.main import main
from captioner.metrics.naming import has_phrase, score_naming

WORDS = {
    "1": ("giant panda", "panda", "bear"),
    "2": ("wolf", "animal"),
    "3": ("tabby", "cat", "animal"),
    "4": ("strawberry", "fruit"),
}


def test_words_phrases_and_plurals_count() -> None:
    captions = {"1": "two Giant Pandas eat", "2": "a pack of wolves", "3": "a cat", "4": "a bowl of berries"}
    scores = score_naming(captions, WORDS)
    assert (scores.photos, scores.named, scores.exactly) == (4, 0.75, 0.5)
    assert scores.by_chance == 0.0


@pytest.mark.parametrize(
    ("caption", "phrase", "has"),
    [
        ("a great white shark swims", "great white shark", True),
        ("two wolves howl", "wolf", True),
        ("three women talk", "woman", True),
        ("a dog runs", "dogs", True),
        ("strawberries in a bowl", "strawberry", True),
        ("three knives", "knife", True),
        ("two buses", "bus", True),
        ("a bus", "bu", False),
        ("three knives", "knif", False),
        ("a white shark", "great white shark", False),
        ("a doghouse", "dog", False),
        ("", "dog", False),
    ],
)
def test_a_caption_has_a_phrase(caption: str, phrase: str, has: bool) -> None:
    assert has_phrase(caption.split(), phrase.split()) is has


def test_long_labels_count() -> None:
    scores = score_naming({"1": "an old english sheep dog"}, {"1": ("Old English sheep dog",)})
    assert scores.named == scores.exactly == 1.0


def test_a_list_of_frequent_nouns_scores_nothing() -> None:
    nouns = "a bear and an animal and a fruit"
    scores = score_naming(dict.fromkeys(WORDS, nouns), WORDS)
    assert scores.named == 1.0
    assert scores.score == pytest.approx(0.0)


def test_a_photo_without_a_caption_is_wrong() -> None:
    assert score_naming({}, WORDS).named == 0.0


def test_the_command_scores_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = [{"filename": f"{key}.jpg", "split": "val", "words": words} for key, words in WORDS.items()]
    (tmp_path / "labels.json").write_text(json.dumps({"images": images}))
    (tmp_path / "captions.jsonl").write_text(
        json.dumps({"image": "x/3.jpg", "caption": "a tabby cat"}) + "\n"
    )
    command = ["score", str(tmp_path / "captions.jsonl"), str(tmp_path / "labels.json"), "--labels"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["images"], found["named"], found["exactly"]) == (4, 25.0, 25.0)
    assert main([*command, "--compare", str(tmp_path / "captions.jsonl")]) == 2
