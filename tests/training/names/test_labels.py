"""Learning from photos with words and no captions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support import squares

from captioner.errors import DataError
from captioner.model.search import search
from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.nn.stepper import TorchStepper
from captioner.references import read_classes, read_label_file
from captioner.training.config.train_options import SourceOptions, StageOptions, TrainOptions
from captioner.training.data.batches import LABELS
from captioner.training.data.examples import load_examples
from captioner.training.loop.losses import forward
from captioner.training.names.completion import with_phrase
from captioner.training.names.label_words import build_vocabulary, draw, related_words
from captioner.training.objectives.cross_entropy import cross_entropy
from captioner.training.objectives.label_likelihood import FEWEST, continuations
from captioner.training.weights import checkpoint
from captioner.training.weights.start import Start
from captioner.words.nouns import with_article

CAPTIONED = dataclasses.replace(squares.options().data[0], repeat=4)
PURPLE = (200, 40, 200)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The squares with captions, and beside them squares of a colour that no caption names, with words."""
    folder = tmp_path_factory.mktemp("labelled")
    squares.write(folder)
    (folder / "new" / "train" / "plum_tile").mkdir(parents=True)
    entries = []
    for number in range(12):
        picture = np.array(squares.draw("red", squares.SIDES[number % 2], 200 + number))
        picture[(picture == squares.COLORS["red"]).all(axis=-1)] = PURPLE
        name = f"train/plum_tile/{number:03}.png"
        Image.fromarray(picture).save(folder / "new" / name)
        split = "train" if number < 10 else "val"
        entries.append({"filename": name, "split": split, "words": ["plum", "square", "quadrangle"]})
    (folder / "labels.json").write_text(json.dumps({"images": entries}))
    return folder


def source(**changes: object) -> SourceOptions:
    values = {"name": "new", "images": ("new",), "labels": "labels.json", "val": "", "repeat": 20}
    return SourceOptions(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("snail", "a snail"),
        ("owl", "an owl"),
        ("giant panda", "a giant panda"),
        ("unicorn", "a unicorn"),
        ("umbrella", "an umbrella"),
        ("hourglass", "an hourglass"),
        ("jeans", "jeans"),
        ("running shoes", "running shoes"),
        ("bus", "a bus"),
        ("octopus", "an octopus"),
        ("iris", "an iris"),
        ("glass", "a glass"),
        ("people", "people"),
        ("ufo", "a ufo"),
        ("ewe", "a ewe"),
        ("mp3 player", "an mp3 player"),
        ("uninhabited island", "an uninhabited island"),
    ],
)
def test_a_caption_begins_with_the_right_article(word: str, text: str) -> None:
    assert with_article(word) == text


def test_the_most_exact_word_is_drawn_most_often() -> None:
    random = np.random.default_rng(0)
    drawn = [draw(["a", "b", "c"], random) for _ in range(2000)]
    assert [round(drawn.count(word) / 2000, 1) for word in "abc"] == [0.7, 0.2, 0.1]
    assert draw(["a"], random) == "a"


def test_the_words_of_labels_enter_the_vocabulary_however_rare(labelled: Path) -> None:
    examples = load_examples([CAPTIONED, source()], labelled, "train")
    vocabulary = build_vocabulary(examples, 1000)
    assert vocabulary.words[4:] == ("a", "plum")
    assert {"plum", "square", "red"} < set(build_vocabulary(examples, 1).words)
    assert "quadrangle" not in build_vocabulary(examples, 1).words
    assert set(related_words(examples)["plum"]) == {"square", "quadrangle"}


def test_the_words_of_classes_enter_the_vocabulary_with_what_they_are_related_to(labelled: Path) -> None:
    examples = load_examples([CAPTIONED], labelled, "train")
    classes = [["red fox", "fox", "animal"], ["tench", "fish"]]
    assert build_vocabulary(examples, 1000, classes).words[4:] == ("red", "fox", "animal", "tench", "fish")
    related = related_words(examples, classes)
    assert (related["red"], related["fox"], related["tench"]) == (
        ["fox", "animal"],
        ["fox", "animal"],
        ["fish"],
    )


def test_names_are_continued_as_captions_continue_related_words(labelled: Path) -> None:
    examples = load_examples([CAPTIONED, source()], labelled, "train")
    vocabulary = build_vocabulary(examples, 1)
    index = next(i for i, example in enumerate(examples) if example.image.words)
    words = {1: ["plum", "square"], 2: ["plum"]}
    captions = [caption for example in examples for caption in example.image.captions]
    after = [
        caption.split()[caption.split().index("square") + 1] for caption in captions if " square " in caption
    ]
    shares, rows = continuations(examples, words, vocabulary)
    assert index and len(after) >= FEWEST
    [square] = vocabulary.encode(after[0])
    assert shares[rows[1], square] == pytest.approx(after.count(after[0]) / len(after))
    assert torch.equal(shares[rows[2]], shares[rows[1]])  # plum has no captions: the mean of the others
    assert continuations(examples[index:], words, vocabulary)[1] == {}


@pytest.mark.parametrize(
    ("found", "word", "caption"),
    [
        ("a panda sits on a rock", "giant panda", "a giant panda sits on a rock"),
        ("two people with a owl", "owl", "two people with an owl"),
        ("the owl", "owl", "the owl"),
        ("a jeans on a chair", "jeans", "jeans on a chair"),
        ("a giant panda", "giant panda", "a giant panda"),
        ("owl on a tree", "owl", "an owl on a tree"),
    ],
)
def test_a_found_caption_gets_the_whole_phrase_and_its_article(found: str, word: str, caption: str) -> None:
    vocabulary = Vocabulary.build([found, word, caption, "a an"], 1)
    *modifiers, head = vocabulary.encode(word)
    tokens = with_phrase(vocabulary.encode(found), modifiers, head, with_article(word), vocabulary)
    assert " ".join(vocabulary.decode(tokens)) == caption


def test_folders_named_by_class(labelled: Path) -> None:
    images = read_classes([labelled / "new"])
    assert len(images) == 12
    assert {(image.words, image.split, image.captions) for image in images} == {(("plum tile",), "train", ())}
    with pytest.raises(DataError, match="no folders of images that are named by class"):
        read_classes([labelled / "images"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("{}", 'no list "images"'),
        ('{"images": []}', "no images"),
        ('{"images": [{"filename": "a.jpg"}]}', "needs a filename and a list of words"),
        ('{"images": [{"filename": "a.jpg", "words": []}]}', "needs a filename and a list of words"),
        ('{"images": [{"filename": "a.jpg", "words": [""]}]}', "needs a filename and a list of words"),
        ('{"images": [{"filename": "a.jpg", "words": ["!"]}]}', "needs a filename and a list of words"),
        (
            '{"images": [{"filename": "a", "words": ["b"]}, {"filename": "a", "words": ["b"]}]}',
            "a occurs twice",
        ),
    ],
)
def test_wrong_labels_are_rejected(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "labels.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_label_file(tmp_path / "labels.json")


def test_a_source_has_captions_or_labels_or_classes() -> None:
    with pytest.raises(DataError, match="give one of captions, labels and classes"):
        source(captions="captions.json")
    with pytest.raises(DataError, match="give one of captions, labels and classes"):
        source(labels="")


def test_a_word_that_no_caption_has_is_learnt(labelled: Path, cache: Path, tmp_path: Path) -> None:
    """A trained model is taught a new word from labels alone, and keeps its other words."""
    first = squares.options((squares.stage(epochs=12),), data=(CAPTIONED,))
    squares.trainer(first, tmp_path / "first", labelled, cache).run()
    (tmp_path / "root").mkdir()
    for name in ("captions.json", "images", "labels.json", "new"):
        (tmp_path / "root" / name).symlink_to(labelled / name)
    (tmp_path / "root" / "start.pt").symlink_to(tmp_path / "first" / "best.pt")
    stage = squares.stage(epochs=8, objectives={"cross_entropy": 1.0, "label_likelihood": 1.0})
    options = squares.options(
        (stage,), start="start.pt", model=ModelOptions(), data=(CAPTIONED, source()), min_count=1000
    )
    trainer = squares.trainer(options, tmp_path / "run", tmp_path / "root", cache)
    batches = [batch for batch in trainer.losses.batches(0) if batch.kind == LABELS]
    learnt = [trainer.vocabulary.decode(row) for b in batches for row in b.captions.flatten(0, 1).tolist()]
    assert learnt and all(words.count("plum") == 1 for words in learnt)
    assert sum("square" in words for words in learnt) < len(learnt) / 2  # the new word takes its place
    history = trainer.run()
    assert set(history[-1]["losses"]) == {"cross_entropy", "label_likelihood"}
    model, vocabulary, *_ = checkpoint.load_model(tmp_path / "run" / "last.pt")

    @torch.inference_mode()
    def caption_of(picture: np.ndarray) -> list[str]:
        memory, state = model.encode(torch.from_numpy(picture)[None])
        [[best, *_]] = search(TorchStepper(model.decoder, memory, state), 1, trainer.options.search)
        return vocabulary.decode(best.tokens)

    unseen = np.array(squares.draw("red", "left", 400))
    assert "square" in (said := caption_of(unseen)) and "plum" not in said
    unseen[(unseen == squares.COLORS["red"]).all(axis=-1)] = PURPLE
    assert "plum" in caption_of(unseen)


def test_a_partial_caption_has_no_end(labelled: Path, cache: Path, tmp_path: Path) -> None:
    stage = squares.stage(epochs=1, objectives={"label_likelihood": 1.0})
    options = squares.options((stage,), data=(source(),))
    trainer = squares.trainer(options, tmp_path, labelled, cache)
    batches = trainer.losses.batches(0)
    assert {batch.kind for batch in batches} == {LABELS}
    assert not any((batch.captions == Vocabulary.end_id).any() for batch in batches)
    words = {tuple(row) for batch in batches for row in batch.captions.flatten(0, 1).tolist()}
    # The padding has room for the word behind the name.
    assert words == {(Vocabulary.start_id, *trainer.vocabulary.encode("a plum"), Vocabulary.pad_id)}


def test_new_words_begin_as_what_they_are_related_to(tmp_path: Path) -> None:
    words = Vocabulary(["<pad>", "<start>", "<end>", "<unk>", "dog", "animal", "car"])
    options = squares.options().model
    torch.manual_seed(0)
    start = Start(words, options, dict(CaptionModel(options, len(words)).state_dict()))
    more = start.extended(Vocabulary([*words.words[:4], "snail", "spoon"]))
    model = CaptionModel(options, len(more))
    start.give(model, more, {"snail": ["animal", "gastropod"]})
    embedding = model.decoder.embedding.weight
    near = torch.nn.functional.cosine_similarity(embedding[7], embedding[4:7], dim=1)
    assert near[1] > 0.95 and near[1] > near[[0, 2]].max()
    near = torch.nn.functional.cosine_similarity(embedding[8], embedding[4:7], dim=1)
    assert near[1] > 0.9  # no relatives: what other new words are related to


def test_labels_without_images_to_learn_are_refused(data: Path, cache: Path, tmp_path: Path) -> None:
    stage = squares.stage(objectives={"cross_entropy": 1.0, "label_likelihood": 1.0})
    with pytest.raises(DataError, match="stage words: there are no images for label_likelihood to learn"):
        squares.trainer(squares.options((stage,)), tmp_path, data, cache)


def test_labels_are_options_of_a_file() -> None:
    values = {
        "name": "a",
        "data": [{"name": "a", "labels": "labels.json", "images": ["a"]}],
        "stages": [{"name": "s", "objectives": {"label_likelihood": 1}}],
    }
    assert TrainOptions.from_dict(values).data[0].labels == "labels.json"


def test_labelled_photos_validate_by_what_is_named(labelled: Path, cache: Path, tmp_path: Path) -> None:
    """Two of the twelve photos are for validation, beside the captioned ones."""
    stage = squares.stage(epochs=1, objectives={"cross_entropy": 1.0, "label_likelihood": 1.0})
    options = squares.options((stage,), data=(CAPTIONED, source(val="val")))
    trainer = squares.trainer(options, tmp_path / "both", labelled, cache)
    [record] = trainer.run()
    assert set(record["val"]["new"]) == {"named", "exactly", "length"} and "cider" in record["val"]["squares"]
    assert "new named %" in trainer.progress.notes[-1]  # type: ignore[attr-defined]
    stage = squares.stage(epochs=1, objectives={"label_likelihood": 1.0})
    alone = squares.options((stage,), data=(source(val="val"),))
    [record] = squares.trainer(alone, tmp_path / "alone", labelled, cache).run()
    assert record["val"]["new"]["named"] == 100  # the only words there are
    assert (tmp_path / "alone" / "best.pt").exists()


def with_start(labelled: Path, cache: Path, tmp_path: Path) -> Path:
    """A folder with the labelled photos and start.pt, a model that knows only the captions."""
    first = squares.options((squares.stage(epochs=1),), data=(CAPTIONED,))
    squares.trainer(first, tmp_path / "first", labelled, cache).run()
    root = tmp_path / "root"
    root.mkdir()
    for name in ("images", "labels.json", "new"):
        (root / name).symlink_to(labelled / name)
    (root / "start.pt").symlink_to(tmp_path / "first" / "last.pt")
    return root


def test_labels_alone_change_nothing_but_the_embeddings_of_their_words(
    labelled: Path, cache: Path, tmp_path: Path
) -> None:
    root = with_start(labelled, cache, tmp_path)
    options = TrainOptions(
        name="words",
        start="start.pt",
        weights="random",
        stages=(StageOptions(name="words", epochs=2),),
        data=(source(),),
    )
    trainer = squares.trainer(options, tmp_path / "run", root, cache)
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    assert trainer.current.label_words_only
    assert set(trainer.current.objectives) == {"label_likelihood"}
    trainer.run()
    changed = {n for n, value in trainer.model.named_parameters() if not torch.equal(value, before[n])}
    assert changed == {"decoder.embedding.weight", "decoder.embedding.bias"}
    rows = (trainer.model.decoder.embedding.weight != before["decoder.embedding.weight"]).any(dim=1)
    assert rows.nonzero().flatten().tolist() == trainer.vocabulary.encode("plum")


def test_new_words_are_learnt_with_the_bonus_that_a_search_will_give_them(
    labelled: Path, cache: Path, tmp_path: Path
) -> None:
    """Without it, a search would say a new word again in place of what it does not detect as surely."""
    root = with_start(labelled, cache, tmp_path)
    options = TrainOptions(
        name="words",
        start="start.pt",
        model=ModelOptions(bonus=BonusOptions(checklist_weight=1.0)),
        weights="random",
        stages=(StageOptions(name="words", epochs=1),),
        data=(source(),),
    )
    trainer = squares.trainer(options, tmp_path / "run", root, cache)
    assert set(trainer.current.objectives) == {"label_likelihood", "bag_of_words"}
    trainer.model.eval()
    step = forward(trainer.losses.run, trainer.features, trainer.losses.batches(0)[0])
    learnt = trainer.losses["label_likelihood"]
    with_bonus = step.model.decoder.as_searched(step.logits, step.tokens, step.memory, step.state)
    assert not torch.equal(with_bonus, step.logits)
    expected = cross_entropy(with_bonus, step.targets, learnt.options.label_smoothing)
    torch.testing.assert_close(learnt.loss(step), expected)


def test_only_the_words_of_labels_can_be_trained_where_there_are_labels(
    labelled: Path, cache: Path, tmp_path: Path
) -> None:
    options = squares.options((squares.stage(label_words_only=True),), data=(CAPTIONED,))
    with pytest.raises(DataError, match="label_words_only needs photos with labels"):
        squares.trainer(options, tmp_path, labelled, cache)
