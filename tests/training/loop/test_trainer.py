"""Training from one end to the other, on squares that a tiny network learns to name."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support import squares
from support.squares import trainer

from captioner.errors import DataError
from captioner.training.config.train_options import SourceOptions, TrainOptions
from captioner.training.data.batches import PHOTOS
from captioner.training.data.examples import load_examples
from captioner.training.loop.plan import planned
from captioner.training.loop.report import position_in_words
from captioner.training.loop.run_folder import RunFolder
from captioner.training.weights import checkpoint


def same_weights(one: Path, two: Path) -> None:
    ours, theirs = (checkpoint.load(folder / "last.pt") for folder in (one, two))
    assert ours["position"] == theirs["position"]
    for part in ("model", "ema"):
        assert ours[part].keys() == theirs[part].keys()
        for name, value in ours[part].items():
            assert torch.equal(value, theirs[part][name]), name


@pytest.fixture(scope="module")
def uninterrupted(data: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two stages; the folder of it."""
    folder = tmp_path_factory.mktemp("run")
    trainer(squares.options(squares.TWO_STAGES), folder, data, cache).run()
    return folder


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names are Unicode")
def test_names_need_not_be_utf_8(data: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for photo in sorted((data / "images").iterdir()):
        copy = tmp_path / "photos" / os.fsdecode(b"lat\xe9 " + os.fsencode(photo.name))
        shutil.copy(photo, copy)
        copy.with_suffix(".txt").write_text("a square")
    source = SourceOptions(name="squares", captions="photos", images=("photos",), val_fraction=0.3)
    options = squares.options((squares.stage(epochs=1),), data=(source,), crops=1)
    trainer(options, tmp_path / "run", tmp_path, tmp_path / "cache").run()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_squares_are_learnt(data: Path, cache: Path, tmp_path: Path, precision: str) -> None:
    source = dataclasses.replace(squares.options().data[0], repeat=4)
    options = squares.options((squares.stage(epochs=10),), data=(source,), precision=precision)
    history = trainer(options, tmp_path, data, cache).run()
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    assert history[-1]["val"]["squares"]["cider"] > 1.5 * max(10, history[0]["val"]["squares"]["cider"])
    model, vocabulary, *_ = checkpoint.load_model(tmp_path / "best.pt")
    # What is best is told by its scores, and the captions of unseen squares are right.
    assert checkpoint.load(tmp_path / "best.pt")["scores"]["squares"]["cider"] == max(
        record["val"]["squares"]["cider"] for record in history
    )
    right = 0
    for number, color in enumerate(squares.COLORS):
        pixels = torch.from_numpy(np.array(squares.draw(color, "left", 100 + number)))[None]
        memory, state = model.encode(pixels)
        tokens = torch.tensor([[[vocabulary.start_id, *vocabulary.encode("a")]]])
        logits, _ = model.decoder(tokens, memory, state)
        colors = vocabulary.encode(" ".join(squares.COLORS))
        right += colors[int(logits[0, 0, -1, colors].argmax())] == vocabulary.encode(color)[0]
    assert right == 3


def test_what_a_run_leaves(uninterrupted: Path) -> None:
    names = sorted(path.name for path in uninterrupted.iterdir())
    assert names == ["best.pt", "curves.png", "last.pt", "log.jsonl"]
    records = [json.loads(line) for line in (uninterrupted / "log.jsonl").read_text().splitlines()]
    assert [(r["stage"], r["epoch"]) for r in records] == [("words", 1), ("sight", 1), ("sight", 2)]
    assert all(r["loss"] > 0 and "cider" in r["val"]["squares"] for r in records)
    assert checkpoint.load(uninterrupted / "last.pt")["position"] == [1, 2, 0]


def test_options_are_saved_with_the_weights(uninterrupted: Path, data: Path) -> None:
    options = squares.options(squares.TWO_STAGES)
    options = planned(options, load_examples(options.data, data, "train"))
    for name in ("best.pt", "last.pt"):
        saved = checkpoint.load(uninterrupted / name)
        assert TrainOptions.from_dict(saved["options"]) == options


def test_a_run_again_is_the_same(uninterrupted: Path, data: Path, cache: Path, tmp_path: Path) -> None:
    trainer(squares.options(squares.TWO_STAGES), tmp_path, data, cache).run()
    same_weights(uninterrupted, tmp_path)


KILLED = """
import os, signal, sys
from contextlib import contextmanager
from pathlib import Path
import torch
from support import squares
from support.squares import trainer
from captioner.training.loop.trainer import Trainer

torch.set_num_threads(1)

class Deadly(squares.Silent):
    @contextmanager
    def task(self, what, total, done):
        def tell(now, remark):
            if what.startswith("sight 2") and now == total // 2:
                os.kill(os.getpid(), signal.SIGKILL)
        yield tell

data, cache, folder = map(Path, sys.argv[1:])
options = squares.options(squares.TWO_STAGES)
Trainer(options, folder, data, cache, torch.device("cpu"), Deadly(), checkpoint_every_s=0.0).run()
"""


def test_a_killed_run_goes_on_to_the_same_weights(uninterrupted, data, cache, tmp_path) -> None:
    """Killed with signal 9 in mid-epoch, then resumed in another process: equal to the last bit."""
    tests = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, data, cache, tmp_path],
        env={**os.environ, "PYTHONPATH": str(tests)},
        timeout=560,
    )
    assert done.returncode == -signal.SIGKILL
    stage, epoch, batch = checkpoint.load(tmp_path / "last.pt")["position"]
    assert (stage, epoch) == (1, 1) and batch > 0
    trainer(squares.options(squares.TWO_STAGES), tmp_path, data, cache).run()
    same_weights(uninterrupted, tmp_path)


@pytest.mark.parametrize(
    ("position", "said"),
    [
        ([0, 1, 3], "one 2 of 2"),
        ([0, 2, 0], "two 1 of 6"),  # saved after an epoch, before the next stage began
        ([1, 5, 0], "two 6 of 6"),
        ([1, 6, 0], "which has ended"),
        ([2, 0, 0], "which has ended"),
    ],
)
def test_where_a_run_goes_on_in_words(position: list[int], said: str) -> None:
    stages = (squares.stage(name="one", epochs=2), squares.stage(name="two", epochs=3, runs=2))
    assert position_in_words(squares.options(stages), {"position": position}) == said


def test_a_stage_of_several_runs_goes_on_with_their_mean(data: Path, cache: Path, tmp_path: Path) -> None:
    """Where one batch is an epoch and nothing is left to chance, all runs are the same, and so is their mean:
    they do begin with the same weights."""
    stage = squares.stage(epochs=2, batch_captions=1000, mirror=False)
    model = dataclasses.replace(squares.options().model, dropout=0.0)
    for runs in (1, 3):
        options = squares.options((dataclasses.replace(stage, runs=runs),), model=model)
        history = trainer(options, tmp_path / str(runs), data, cache).run()
    assert [record.get("mean_of", record.get("epoch")) for record in history] == [1, 2, 3, 4, 5, 6, 3]
    assert history[-1]["val"]["squares"]["cider"] == pytest.approx(history[1]["val"]["squares"]["cider"])
    one, mean = (checkpoint.load(tmp_path / name / "last.pt")["ema"] for name in ("1", "3"))
    for name, value in one.items():
        torch.testing.assert_close(mean[name], value, atol=1e-3, rtol=1e-3)


def test_what_a_mean_is_of(data: Path, cache: Path, tmp_path: Path) -> None:
    """The stage after it goes on from the mean, and a run that was stopped in between ends the same."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    runs = squares.stage(name="sight", epochs=1, runs=3, learning_rate=3e-3)
    still = squares.stage(epochs=1, learning_rate=0.0, encoder_learning_rate=0.0)
    options = squares.options((runs, still))
    trainer(options, whole, data, cache).run()
    for _ in range(2):
        trainer(options, parts, data, cache)._run_epoch()
    soup = checkpoint.load(parts / "last.pt")["soup"]
    assert soup["runs"] == 2
    trainer(options, parts, data, cache)._run_epoch()
    saved = checkpoint.load(parts / "last.pt")
    for name, total in saved["soup"]["total"].items():
        torch.testing.assert_close(saved["ema"][name], total / 3)
        assert not torch.equal(total - soup["total"][name], soup["total"][name] / 2), name
    trainer(options, parts, data, cache).run()
    same_weights(whole, parts)
    learnt_no_more = checkpoint.load(whole / "last.pt")["ema"]
    for name, value in saved["ema"].items():
        torch.testing.assert_close(learnt_no_more[name], value, atol=1e-6, rtol=1e-5)


def test_a_finished_run_is_not_run_again(uninterrupted: Path, data: Path, cache: Path) -> None:
    before = (uninterrupted / "last.pt").read_bytes()
    history = trainer(squares.options(squares.TWO_STAGES), uninterrupted, data, cache).run()
    assert len(history) == 3
    assert (uninterrupted / "last.pt").read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        *(
            {name: None}
            for name in ("options", "vocabulary", "model", "history", "ema", "optimizer", "random")
        ),
        {"position": [-1, 0, 0]},
        {"position": "abc"},
        {"model": [1, 2]},
        {"ema": None, "objectives": 3},
    ],
)
def test_a_damaged_state_is_not_resumed_from(
    uninterrupted: Path, data: Path, cache: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    contents = {**checkpoint.load(uninterrupted / "last.pt"), **change}
    (tmp_path / "run").mkdir()
    kept = {name: value for name, value in contents.items() if value is not None}
    checkpoint.save(tmp_path / "run" / "last.pt", kept)
    with pytest.raises(DataError, match=r"last\.pt cannot be resumed from: "):
        trainer(squares.options(squares.TWO_STAGES), tmp_path / "run", data, cache)


def test_a_gradient_norm_of_0_clips_nothing(data: Path, cache: Path, tmp_path: Path) -> None:
    weights = []
    for norm in (0.0, 1e9):
        run = trainer(
            squares.options((squares.stage(epochs=1, gradient_norm=norm),)), tmp_path / str(norm), data, cache
        )
        run.run()
        weights.append(run.model.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_folder_of_another_run_is_refused(
    uninterrupted: Path, data: Path, cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        DataError, match=r"other options \(seed was 1, now 2\): choose .*best\.pt\" goes on from"
    ):
        trainer(squares.options(squares.TWO_STAGES, seed=2), uninterrupted, data, cache)
    other = tmp_path / "data"
    path = squares.write(other)
    path.write_text(path.read_text().replace("a square that is", "there is a"))
    with pytest.raises(DataError, match="holds a run on other photos or captions"):
        trainer(squares.options(squares.TWO_STAGES), uninterrupted, other, cache)
    changed = tmp_path / "changed"
    squares.write(changed)
    first, second = sorted((changed / "images").iterdir())[:2]
    first.write_bytes(second.read_bytes())
    with pytest.raises(DataError, match="holds a run on other photos or captions"):
        trainer(squares.options(squares.TWO_STAGES), uninterrupted, changed, cache)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "last.pt").write_bytes((uninterrupted / "best.pt").read_bytes())
    with pytest.raises(DataError, match="cannot be resumed from"):
        trainer(squares.options(squares.TWO_STAGES), tmp_path / "run", data, cache)


def test_a_start_that_is_recommended_exists_and_is_found_from_the_folder_of_the_data(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder(Path("run"))
    checkpoint.save(folder.state, {"options": squares.options().to_dict(), "position": [], "objectives": []})
    with pytest.raises(DataError, match=f'start = "{tmp_path / "run" / "last.pt"}" goes on'):
        folder.last(squares.options(seed=2), [], [], torch.device("cpu"))


def test_other_photos_are_refused_before_features_are_computed(
    uninterrupted: Path, data: Path, tmp_path: Path
) -> None:
    more, cache = tmp_path / "more", tmp_path / "cache"
    path = squares.write(more)
    squares.draw("red", "left", 99).save(more / "images" / "99.png")
    images = json.loads(path.read_text())["images"]
    images.append({**images[0], "filename": "99.png"})
    path.write_text(json.dumps({"images": images}))
    with pytest.raises(DataError, match="holds a run on other photos or captions"):
        trainer(squares.options(squares.TWO_STAGES), uninterrupted, more, cache)
    assert not cache.exists()


def test_a_run_goes_on_without_its_damaged_photos(cache: Path, tmp_path: Path) -> None:
    path = squares.write(tmp_path)
    damaged = tmp_path / "images" / "29.png"  # whose words are not learnt
    damaged.write_bytes(damaged.read_bytes()[:50])
    options = squares.options(damaged_share=0.1)
    history = trainer(options, tmp_path / "run", tmp_path, cache).run()
    assert trainer(options, tmp_path / "run", tmp_path, cache).run() == history
    images = json.loads(path.read_text())["images"]
    path.write_text(json.dumps({"images": [one for one in images if one["filename"] != damaged.name]}))
    damaged.unlink()
    assert trainer(options, tmp_path / "run", tmp_path, cache).run() == history


def test_a_stage_ends_when_its_time_is_over(data: Path, cache: Path, tmp_path: Path) -> None:
    stages = (squares.stage(epochs=5000, seconds=0.5), squares.stage(name="last", epochs=1))
    progress = squares.Silent()
    run = trainer(squares.options(stages), tmp_path, data, cache, progress=progress)
    history = run.run()
    assert history[-1]["stage"] == "last"
    limited = [record for record in history if record["stage"] == "words"]
    assert limited[-1]["epoch"] < 5000
    # It does not spend its time on the validation of every epoch.
    assert [("val" in record) for record in limited] == [False] * (len(limited) - 1) + [True]
    assert any("words: its 0.5 s are over after" in note for note in progress.notes)
    assert trainer(squares.options(stages), tmp_path, data, cache).run() == history


def test_a_resumed_stage_has_the_rest_of_its_time(data: Path, cache: Path, tmp_path: Path) -> None:
    options = squares.options((squares.stage(epochs=2, seconds=3600.0),))
    trainer(options, tmp_path, data, cache).run()
    saved = checkpoint.load(tmp_path / "last.pt")
    # As if the first epoch had taken the hour.
    checkpoint.save(tmp_path / "last.pt", saved | {"position": [0, 1, 0], "spent_s": 3600.0})
    progress = squares.Silent()
    trainer(options, tmp_path, data, cache, progress=progress).run()
    assert any("its 3600 s are over after 1.0 of 2 epochs" in note for note in progress.notes)


@pytest.fixture
def any_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("captioner.training.config.train_options.HIGHEST_RATE", math.inf)


@pytest.mark.usefixtures("any_rate")
def test_a_loss_that_explodes_stops_the_run(data: Path, cache: Path, tmp_path: Path) -> None:
    options = squares.options((squares.stage(learning_rate=1e30, gradient_norm=1e30, warmup_steps=0),))
    with pytest.raises(DataError, match=r"the loss is (nan|inf) at batch .*: try a smaller learning_rate"):
        trainer(options, tmp_path, data, cache).run()


@pytest.mark.usefixtures("any_rate")
def test_a_model_that_captions_nothing_stops_the_run(data: Path, cache: Path, tmp_path: Path) -> None:
    options = squares.options((squares.stage(epochs=1, learning_rate=1e5, warmup_steps=0),), ema_decay=0.0)
    with pytest.raises(DataError, match="the model captions no validation image: try a smaller"):
        trainer(options, tmp_path, data, cache).run()


def test_a_stage_that_would_train_nothing_is_refused(data: Path, cache: Path, tmp_path: Path) -> None:
    options = squares.options((squares.stage(objectives={"hard_attention": {}}),))  # the attention is another
    with pytest.raises(DataError, match="stage words: hard_attention would train nothing of this model"):
        trainer(options, tmp_path, data, cache).run()


def test_without_an_average_the_last_weights_count(data: Path, cache: Path, tmp_path: Path) -> None:
    options = squares.options((squares.stage(epochs=1),), ema_decay=0.0)
    trainer(options, tmp_path, data, cache).run()
    best, last = (checkpoint.load_model(tmp_path / name)[0].state_dict() for name in ("best.pt", "last.pt"))
    for name, value in last.items():
        assert torch.equal(best[name], value.half().float()), name


def test_a_stage_without_any_image_is_refused(data: Path, cache: Path, tmp_path: Path) -> None:
    options = squares.options((squares.stage(objectives={"self_critical": {"min_references": 6}}),))
    with pytest.raises(DataError, match="stage words: no image has 6 captions"):
        trainer(options, tmp_path, data, cache)


@pytest.mark.parametrize(("checklist_weight", "rise"), [(0.0, 1.2), (0.2, 1.1)])
def test_self_critical_training_raises_the_reward(
    checklist_weight: float, rise: float, data: Path, cache: Path, tmp_path: Path
) -> None:
    model = squares.with_bonus(squares.options().model, checklist_weight=checklist_weight)
    options = squares.options(
        (
            squares.stage(epochs=2),
            squares.stage(
                name="reward",
                objectives={"self_critical": {"samples": 6}},
                epochs=6,
                learning_rate=3e-3,
                batch_captions=30,
            ),
        ),
        model=model,
    )
    started = trainer(options, tmp_path, data, cache)
    rewards: list[float] = []
    begin = started._prepared_stage

    def listen():
        losses, optimizer = begin()
        if "self_critical" in losses:
            reward = losses["self_critical"].rewards[PHOTOS]
            score = reward.scores

            def scores(rows, said):
                found = score(rows, said)
                rewards.append(float(np.mean(found)))
                return found

            reward.scores = scores
        return losses, optimizer

    started._prepared_stage = listen  # type: ignore[method-assign]
    started.run()
    quarter = len(rewards) // 4
    assert np.mean(rewards[-quarter:]) > rise * np.mean(rewards[:quarter])


def test_what_an_lstm_is_shown_learns_to_say_the_words(data: Path, cache: Path, tmp_path: Path) -> None:
    source = dataclasses.replace(squares.options().data[0], repeat=4)
    options = squares.options(
        (squares.stage(epochs=4, objectives={"cross_entropy": 1.0, "bag_of_words": 1.0}),), data=(source,)
    )
    trainer(options, tmp_path, data, cache).run()
    model, vocabulary, *_ = checkpoint.load_model(tmp_path / "best.pt")
    colors = vocabulary.encode(" ".join(squares.COLORS))
    pixels = np.stack([np.asarray(squares.draw(color, "left", 99)) for color in squares.COLORS])
    with torch.inference_mode():
        memory, _ = model.encode(torch.from_numpy(pixels))
        detected = model.decoder.detect(memory)[:, colors]
    assert detected.argmax(dim=1).tolist() == [0, 1, 2]


def test_detection_needs_a_decoder_that_hears_of_the_whole_image(
    data: Path, cache: Path, tmp_path: Path
) -> None:
    model = dataclasses.replace(squares.options().model, decoder="up_down")
    options = squares.options(
        (squares.stage(objectives={"cross_entropy": 1.0, "bag_of_words": 1.0}),), model=model
    )
    with pytest.raises(DataError, match="stage words: bag_of_words needs the decoder lstm or two_lstm"):
        trainer(options, tmp_path, data, cache)


def test_validation_says_how_likely_the_references_are(data: Path, cache: Path, tmp_path: Path) -> None:
    run = trainer(squares.options((squares.stage(epochs=1),), ema_decay=0.0), tmp_path, data, cache)
    perplexity = run.run()[-1]["val"]["squares"]["perplexity"]
    model, vocabulary, *_ = checkpoint.load_model(tmp_path / "last.pt")
    # Each caption by itself, without any padding.
    log_probs = []
    for example in run.val_examples:
        pixels = torch.from_numpy(np.array(Image.open(data / "images" / example.image.name)))[None]
        for caption in example.image.captions:
            words = [vocabulary.start_id, *vocabulary.encode(caption), vocabulary.end_id]
            logits, _ = model.decoder(torch.tensor([[words[:-1]]]), *model.encode(pixels))
            log_probs += torch.log_softmax(logits[0, 0], dim=-1)[range(len(words) - 1), words[1:]].tolist()
    assert perplexity == pytest.approx(float(np.exp(-np.mean(log_probs))), rel=1e-2)
    assert 1 < perplexity < len(vocabulary)
