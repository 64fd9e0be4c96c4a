"""A run follows the size of its data."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from support import squares

from captioner.errors import DataError
from captioner.export.bundle import export_bundle
from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.model import ModelOptions
from captioner.options import CaptionOptions
from captioner.training.config.train_options import AUTO, SourceOptions, StageOptions, TrainOptions
from captioner.training.data.examples import Example, load_examples
from captioner.training.loop.plan import described, in_another_language, leaked, planned, unlearnt, warnings
from captioner.training.loop.trainer import Trainer
from captioner.training.objectives.bag_of_words import BagOfWords, BagOfWordsOptions
from captioner.training.objectives.self_critical import SelfCriticalOptions
from captioner.training.weights import checkpoint
from captioner.training.weights.start import Start

SHORT, FREE = CaptionOptions(max_words=8), CaptionOptions()

DATA = squares.options().data
OPEN = TrainOptions(name="a", data=DATA, stages=(StageOptions(name="s"),))


@pytest.fixture
def examples(data: Path) -> list[Example]:
    """24 images with 5 captions each."""
    return load_examples(DATA, data, "train")


def with_captions(example: Example, *captions: str) -> Example:
    return dataclasses.replace(example, image=dataclasses.replace(example.image, captions=captions))


def test_the_data_are_described_before_a_run(examples: list[Example]) -> None:
    options = dataclasses.replace(OPEN, search=SHORT)
    assert described(options, examples, examples[:6]) == ["24 photos to train on, 6 to validate on"]
    [_, none] = described(options, examples, [])
    assert "val_fraction = 0.1 in [[data]] takes a tenth" in none
    by_share = tuple(dataclasses.replace(source, val_fraction=0.01) for source in DATA)
    [_, none] = described(dataclasses.replace(options, data=by_share), examples, [])
    assert none.startswith("val_fraction, which chooses by file name, chose none of 24 photos")
    [_, few] = described(options, examples, examples[:1])
    assert few.startswith("1 photo to validate on")


def test_captions_that_are_too_long_or_have_no_words_are_counted(examples: list[Example]) -> None:
    options = dataclasses.replace(OPEN, search=SHORT)
    long, empty = with_captions(examples[0], "a " * 9, "a " * 8), with_captions(examples[1], "?!")
    [_, cut, wordless] = described(options, [long, empty], examples[:6])
    assert cut.startswith(
        "1 of 3 captions have more than 8 words and are cut ([search] max_words, at most 64)"
    )
    assert wordless == "1 of 3 captions have no words (letters or digits)"
    with pytest.raises(DataError, match="1 of 1 captions have no words"):
        described(options, [empty], [])


def test_captions_of_which_the_start_knows_few_words_are_told(
    data: Path, cache: Path, tmp_path: Path, examples: list[Example]
) -> None:
    english = Vocabulary.build(["a red square in hand"], 1)
    german = with_captions(examples[0], "ein rotes Quadrat in der Hand", "ein Quadrat")
    told = in_another_language([german], english)
    assert told and told.startswith("75% of the words in the captions are new") and "leave start out" in told
    for said in (("a blue square in a hand",), (), ("?!",)):
        assert in_another_language([with_captions(german, *said)], english) is None
    assert in_another_language([dataclasses.replace(german, retained=True)], english) is None

    shutil.copytree(data, tmp_path / "root")
    squares.trainer(squares.options((squares.stage(epochs=1),)), tmp_path / "first", data, cache).run()
    (tmp_path / "first" / "best.pt").rename(tmp_path / "root" / "start.pt")
    lines = [{"image": f"{number:02}.png", "caption": "ein rotes Quadrat"} for number in range(30)]
    table = tmp_path / "root" / "german.jsonl"
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for captions, count in (("german.jsonl", 1), (DATA[0].captions, 0)):
        source = dataclasses.replace(DATA[0], captions=captions, val_fraction=0.3)
        options = squares.options(start="start.pt", model=ModelOptions(), data=(source,))
        trainer = squares.trainer(options, tmp_path / f"run{count}", tmp_path / "root", cache)
        assert isinstance(trainer.progress, squares.Silent)
        assert sum("are new to the model" in note for note in trainer.progress.notes) == count


def test_a_vocabulary_without_words_is_refused(data: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no word of the captions occurs 999 times: lower min_count"):
        squares.trainer(squares.options(min_count=999), tmp_path / "run", data, cache)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"data": (SourceOptions(name="a", captions="table.csv", images=("images",)),)}, "no column caption"),
        ({"data": (dataclasses.replace(DATA[0], train="dev"),)}, "no split 'dev'"),
        ({"damaged_share": 0.0}, "1 of 30 photos are missing"),
        ({"damaged_share": 0.0, "start": ""}, "1 of 30 photos are missing"),
    ],
)
def test_what_is_wrong_with_the_data_is_said_before_a_model_is_read_or_made(
    data: Path, cache: Path, tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    """The start is not there, and without one the vocabulary has no word."""
    shutil.copytree(data, tmp_path / "data")
    (tmp_path / "data" / "images" / "11.png").unlink()
    (tmp_path / "data" / "table.csv").write_text("photo;said\n00.png;a square\n")
    options = squares.options(**{"start": "nothing", "model": ModelOptions(), "min_count": 999, **changes})
    with pytest.raises(DataError, match=expected):
        squares.trainer(options, tmp_path / "run", tmp_path / "data", cache)


def test_large_data_get_large_batches(examples: list[Example]) -> None:
    options = planned(OPEN, examples * 2000)
    [stage] = options.stages
    assert (stage.batch_captions, stage.epochs, stage.warmup_steps) == (160, 8, 200)
    assert (options.ema_decay, options.min_count, stage.learning_rate) == (0.999, 5, 1e-3)
    assert list(stage.objectives) == ["cross_entropy", "doubly_stochastic", "hard_attention"]
    assert warnings(options, examples * 2000) == []
    checklist = dataclasses.replace(OPEN, model=ModelOptions(bonus=BonusOptions(checklist_weight=1.0)))
    assert list(planned(checklist, examples).stages[0].objectives)[-1] == "bag_of_words"


def test_small_data_get_small_batches_and_many_epochs(examples: list[Example]) -> None:
    few = examples[:12]
    options = planned(OPEN, few)
    [stage] = options.stages
    assert (stage.batch_captions, stage.epochs, stage.warmup_steps) == (8, 40, 32)
    assert (options.ema_decay, options.min_count, stage.learning_rate) == (0.9688, 1, 1e-3)
    assert warnings(options, few) == []


def test_a_handful_of_captions_is_taught_in_few_epochs(examples: list[Example]) -> None:
    start = dataclasses.replace(OPEN, start="default")
    stages = [planned(start, examples[:count]).stages[0] for count in (1, 4, 12)]
    assert [(stage.batch_captions, stage.epochs) for stage in stages] == [(8, 15), (8, 15), (8, 8)]
    labelled = [
        dataclasses.replace(one, image=dataclasses.replace(one.image, captions=(), words=("a",)))
        for one in examples
    ]
    [stage] = planned(start, labelled).stages
    assert stage.label_words_only and stage.epochs == 40  # nothing but the new words changes


def test_a_trained_model_is_taught_gently(examples: list[Example]) -> None:
    """Steps as large as those that train a model make one that was rewarded forget what it had learnt."""
    start = dataclasses.replace(OPEN, start="default")
    single = [
        dataclasses.replace(one, image=dataclasses.replace(one.image, captions=("a",))) for one in examples
    ]
    rates = [planned(start, single[:8] * times).stages[0].learning_rate for times in (1, 4, 100)]
    assert rates == [2e-4, 1e-4, 3e-5]
    assert list(planned(start, single).stages[0].objectives) == ["cross_entropy", "hard_attention"]


def test_a_checklist_learns_to_detect_new_words(examples: list[Example]) -> None:
    """It reads the embeddings of words, so it would detect new ones wherever they are likely."""
    start = dataclasses.replace(
        OPEN, start="default", model=ModelOptions(bonus=BonusOptions(checklist_weight=1.0))
    )
    labelled = [
        dataclasses.replace(one, image=dataclasses.replace(one.image, captions=(), words=("a",)))
        for one in examples
    ]
    [stage] = planned(start, labelled).stages
    assert stage.label_words_only and list(stage.objectives) == ["label_likelihood", "bag_of_words"]


def test_what_is_given_is_kept(examples: list[Example]) -> None:
    stage = StageOptions(name="s", epochs=3, batch_captions=160, warmup_steps=200, learning_rate=0.1)
    options = dataclasses.replace(OPEN, stages=(stage,), ema_decay=0.999, min_count=7)
    found = planned(options, examples)
    assert (found.min_count, found.ema_decay) == (7, 0.999)
    assert dataclasses.replace(found.stages[0], objectives={}) == stage


def test_what_will_not_learn_is_said(data: Path, cache: Path, tmp_path: Path) -> None:
    """The few steps of a small run with the warm-up and the average of a large one."""
    stage = squares.stage(epochs=2, batch_captions=160, warmup_steps=200, learning_rate=1e-5)
    trainer = squares.trainer(squares.options((stage,), ema_decay=0.999), tmp_path, data, cache)
    trainer.run()
    assert isinstance(trainer.progress, squares.Silent)
    _, first, second, *_, last = trainer.progress.notes
    assert first.startswith("stage words: 200 of about 2 steps are warm-up, so it will hardly learn")
    assert "about 2 steps are too few for an average of the weights with ema_decay 0.999" in second
    assert last.startswith("stage words: the loss hardly fell, from 2.8")


def test_photos_that_are_learnt_and_validated_on_are_counted(examples: list[Example]) -> None:
    """Whatever their names."""
    train, val = examples[:12], examples[12:]
    assert leaked(train, val) is None
    text = leaked(train, [*val, *train[:2]])
    assert text is not None
    assert text.startswith(f"2 of 14 photos to validate on (as {train[0].image.name}) are")
    kept = [dataclasses.replace(example, retained=True) for example in train]
    assert leaked(kept, [*val, *train[:2]]) is None


def test_the_steps_of_a_reward_follow_its_samples(data: Path, cache: Path, tmp_path: Path) -> None:
    """24 images with 5 captions each make 30 steps, their 240 samples 60."""
    reward = SelfCriticalOptions(samples=10)
    stage = squares.stage(epochs=10, batch_captions=40, objectives={"self_critical": reward})
    trainer = squares.trainer(squares.options((stage,), ema_decay=0.98), tmp_path, data, cache)
    assert stage.epochs * len(trainer.losses.batches(0)) == 60
    assert warnings(trainer.options, trainer.train_examples) == []
    slow = dataclasses.replace(trainer.options, ema_decay=0.99)
    assert "about 60 steps are too few for an average" in warnings(slow, trainer.train_examples)[0]
    nothing = StageOptions(name="s", objectives={"self_critical": SelfCriticalOptions(min_references=9)})
    planned(dataclasses.replace(OPEN, stages=(nothing,)), trainer.train_examples)  # refused later, in words


def test_what_is_left_open_is_not_warned_of(examples: list[Example]) -> None:
    for batch in (1000, 60, 40):  # one step, two and three
        stage = StageOptions(name="s", epochs=1, batch_captions=batch)
        options = planned(dataclasses.replace(OPEN, stages=(stage,)), examples)
        assert warnings(options, examples) == []


def test_a_reward_is_no_loss_that_falls() -> None:
    rewarded = StageOptions(name="s", objectives={"self_critical": 1.0})  # type: ignore[dict-item]
    assert unlearnt(rewarded, [0.1, 0.2]) is None
    assert unlearnt(StageOptions(name="s"), [0.1, 0.2]) is not None


@pytest.mark.parametrize("changes", [{"epochs": 0}, {"learning_rate": -2.0}, {"warmup_steps": -3}])
def test_only_one_number_means_open(changes: dict[str, float]) -> None:
    with pytest.raises(DataError, match="must be at least"):
        StageOptions(name="s", **changes)  # type: ignore[arg-type]
    assert StageOptions(name="s").epochs == AUTO


@pytest.mark.parametrize("name", ["learning_rate", "final_learning_rate", "encoder_learning_rate"])
@pytest.mark.parametrize("value", [2.0, math.inf, math.nan, -0.1])
def test_learning_rates_are_bounded(name: str, value: float) -> None:
    with pytest.raises(DataError, match=f"{name} must be "):
        StageOptions(name="s", **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1.0, math.inf])
def test_gradients_are_clipped_to_a_number(value: float) -> None:
    with pytest.raises(DataError, match=r"gradient_norm must be (at least 0|finite)"):
        StageOptions(name="s", gradient_norm=value)


def test_few_captions_teach(data: Path, cache: Path, tmp_path: Path) -> None:
    """A trained model learns the words of a few photos with one caption each, and says them of others."""
    source = dataclasses.replace(DATA[0], repeat=4)
    squares.trainer(
        squares.options((squares.stage(epochs=4),), data=(source,)), tmp_path / "first", data, cache
    ).run()
    root = tmp_path / "root"
    root.mkdir()
    (root / "images").symlink_to(data / "images")
    (root / "start.pt").symlink_to(tmp_path / "first" / "best.pt")
    lines = [
        {"image": f"{number:02}.png", "caption": "a ruby tile" if number % 3 == 0 else "a square"}
        for number in range(30)
    ]
    (root / "few.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = dataclasses.replace(DATA[0], captions="few.jsonl", val_fraction=0.3)
    stage = StageOptions(
        name="s", tuned_segments=3, learning_rate=1e-3, encoder_learning_rate=1e-3, epochs=20
    )
    options = TrainOptions(name="few", data=(source,), stages=(stage,), start="start.pt", search=SHORT)
    trainer = squares.trainer(options, tmp_path / "run", root, cache)
    history = trainer.run()
    assert set(trainer.vocabulary.words) - set(Start.read("start.pt", root).vocabulary.words) == {
        "ruby",
        "tile",
    }
    assert max(record["val"]["squares"]["cider"] for record in history) > 150
    assert (tmp_path / "run" / "best.pt").exists()


def taught_the_same(data: Path, cache: Path, tmp_path: Path, **stage: Any) -> Trainer:
    """A run that teaches a trained model one caption for all photos."""
    squares.trainer(squares.options((squares.stage(epochs=1),)), tmp_path / "first", data, cache).run()
    root = tmp_path / "root"
    root.mkdir()
    (root / "images").symlink_to(data / "images")
    (root / "start.pt").symlink_to(tmp_path / "first" / "best.pt")
    lines = [{"image": f"{number:02}.png", "caption": "a ruby tile"} for number in range(30)]
    (root / "alike.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = dataclasses.replace(DATA[0], captions="alike.jsonl", val_fraction=0.3)
    values = {"name": "s", "tuned_segments": 3, "learning_rate": 1e-3, "encoder_learning_rate": 1e-3}
    stages = (StageOptions(epochs=3, **(values | stage)),)
    options = TrainOptions(name="alike", data=(source,), stages=stages, start="start.pt", search=SHORT)
    return squares.trainer(options, tmp_path / "run", root, cache)


def test_a_taught_word_counts_even_if_every_caption_has_it(data: Path, cache: Path, tmp_path: Path) -> None:
    """Or it has no weight for the detector of words, and what the start detects in its place wins."""
    trainer = taught_the_same(data, cache, tmp_path, objectives={"bag_of_words": BagOfWordsOptions()})
    [detector] = trainer.losses.values()
    assert isinstance(detector, BagOfWords)
    weights = dict(zip(trainer.vocabulary.words, detector.word_weights.tolist(), strict=True))
    assert (weights["ruby"], weights["tile"], weights["a"]) == (1, 1, 0)


def test_the_last_of_equal_epochs_is_kept(data: Path, cache: Path, tmp_path: Path) -> None:
    """CIDEr is 0 for captions that are all alike: people who teach one thing write the same of each photo."""
    trainer = taught_the_same(data, cache, tmp_path)
    history = trainer.run()
    assert [record["val"]["squares"]["cider"] for record in history] == [0, 0, 0]
    assert checkpoint.load(tmp_path / "run" / "best.pt")["history"] == history[:2]  # saved in the third
    assert isinstance(trainer.progress, squares.Silent)
    assert trainer.progress.notes[-1].startswith("all captions for validation are the same")


def test_a_taught_model_searches_as_its_start_does(data: Path, cache: Path, tmp_path: Path) -> None:
    stages = (squares.stage(epochs=1),)
    first = squares.options(
        stages,
        search=CaptionOptions(beam_size=2, length_normalization=0.7, max_words=8, no_repeat_ngram=2),
    )
    squares.trainer(first, tmp_path / "first", data, cache).run()
    export_bundle(tmp_path / "first" / "best.pt", tmp_path / "bundle")
    for start in ("first/best.pt", "bundle"):
        open_ = squares.options(stages, start=str(tmp_path / start), model=ModelOptions(), search=FREE)
        options = squares.trainer(open_, tmp_path / "second", data, cache).options
        assert options.search == first.search
        given = dataclasses.replace(open_, search=CaptionOptions(beam_size=1))
        options = squares.trainer(given, tmp_path / "third", data, cache).options
        assert options.search == dataclasses.replace(first.search, beam_size=1)
