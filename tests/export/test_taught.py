"""What is taught is added to the graphs of the start: all that is not like it stays the same, bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from support import squares

from captioner import Captioner
from captioner.errors import DataError
from captioner.export.bundle import export_bundle
from captioner.export.taught.bundle import export_taught
from captioner.export.taught.new_words import NEVER
from captioner.model.bundle import DEFAULT, Bundle
from captioner.model.runtime import Runtime
from captioner.model.search.choices import Floats
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.nn.decoder import DECODERS
from captioner.nn.encoder import STRIDES
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.training.weights import checkpoint
from captioner.training.weights.start import Start

EXAMPLES = Path(__file__).parents[2] / "examples"
WORDS = [*SPECIAL, *(f"word{number}" for number in range(60))]
NEW = ["vermilion", "teal"]
RARE = [20, 30]
"""Words of the vocabulary that the correction of the first photo has."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return squares.noise(tmp_path_factory.mktemp("photos"), 9)


def bundle(folder: Path, int8_photos: Sequence[Path] = (), **changes: object) -> Path:
    """An untrained model."""
    torch.manual_seed(0)
    options = squares.options()
    options = dataclasses.replace(options, model=dataclasses.replace(options.model, **changes))
    model = CaptionModel(options.model, len(WORDS))
    with torch.no_grad():
        model.decoder.embedding.weight.mul_(4)
        if model.repetition is not None:
            model.repetition.fill_(1.0)
            model.repetition[Vocabulary.pad_id] = 0.0
        if (evidence := model.evidence) is not None:
            column = torch.full((len(WORDS),), 3)
            column[-3:] = torch.arange(3)
            model.name_classes((torch.arange(1000)[:, None] // 20 == torch.arange(3)).float(), column)
            evidence.classes.weight.mul_(20)
        if model.related is not None:
            model.related[4:, 0] = torch.arange(4, len(WORDS)).roll(1)
    contents = {"options": options.to_dict(), "vocabulary": WORDS, "model": model.state_dict()}
    checkpoint.save(folder / "model.pt", contents)
    export_bundle(folder / "model.pt", folder / "bundle", int8_photos=int8_photos)
    return folder / "bundle"


def read(folder: Path) -> Start:
    """A bundle with what it was taught."""
    return Start.read(str(folder), folder.parent, taught=True)


@torch.no_grad()
def pupil(
    start: Path, photos: Sequence[Path], words: Sequence[str], rare: Sequence[int] = ()
) -> tuple[CaptionModel, Vocabulary]:
    """A network that has learnt something about the first photo."""
    before, captioner = read(start), Captioner.load(start, precision="float32")
    vocabulary = Vocabulary([*before.vocabulary.words, *words])
    options = dataclasses.replace(before.model, taught=before.model.taught + 1)
    torch.manual_seed(1)
    model = CaptionModel(options, len(vocabulary)).eval()
    before.give(model, vocabulary)
    taught = model.encoder.taught
    assert taught is not None
    taught.vectors[-1] = torch.randn(taught.vectors.shape[1])
    taught.quiet[-1] = 0.7
    taught.brings[-1] = 1.0
    if rare:
        rows = model.decoder.embedding.add_rare(rare)
        rows.weight[-len(rare) :] = torch.randn(len(rare), rows.weight.shape[1])
        rows.bias[-len(rare) :] = 20.0
        has = torch.zeros(len(taught.keys), len(rare))
        has[-1] = 1.0
        taught.rare = torch.cat([taught.rare, has], dim=1)
    pixels = torch.from_numpy(np.stack([captioner.preprocess(photo) for photo in photos]))
    deepest = model.encoder.outputs(model.encoder.inputs(pixels[..., :3]), 0, len(STRIDES))[-1]
    if not before.model.taught:
        taught.begin.fill_(0.8)
        taught.center.copy_(deepest.flatten(2).mean(dim=-1).mean(dim=0))
    taught.keys[-1] = taught.describe(deepest[:1])[0]
    return model, vocabulary


def two_steps(captioner: Captioner, photos: Sequence[Path], word: int) -> tuple[Floats, Floats]:
    """The log-probabilities of the first word, and of the one after `word`."""
    encoded = captioner.encode(np.stack([captioner.preprocess(photo) for photo in photos]))
    tokens = np.full((len(photos), 1), Vocabulary.start_id)
    first, _, state = encoded.step(tokens, encoded.start(1))
    second, _, _ = encoded.step(np.full_like(tokens, word), state)
    return first[:, 0], second[:, 0]


def evidence(of: Bundle, precision: str, pixels: np.ndarray) -> np.ndarray:
    """float (photos, cells, named words)"""
    return Runtime(of, "cpu", precision=precision).encode(pixels)._memory["memory.evidence"]


@pytest.fixture(scope="module")
def start(photos: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = squares.with_bonus(
        ModelOptions(), checklist_weight=1.0, repetition_cost=1.0, related_cost=3.0, attended_detection=0.5
    )
    changes = {"decoder": "two_lstm", "attention": "scaled_dot_product", "hidden": 80, "features": 64}
    return bundle(tmp_path_factory.mktemp("start"), photos, bonus=options.bonus, **changes)


@pytest.fixture(scope="module")
def taught(start: Path, photos: list[Path]) -> Path:
    model, vocabulary = pupil(start, photos, NEW, RARE)
    export_taught(Bundle.load(start), model, vocabulary, start.parent / "taught", "taught", "Card")
    return start.parent / "taught"


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_other_photos_are_captioned_as_before_bit_for_bit(
    start: Path, taught: Path, photos: list[Path], precision: str
) -> None:
    old, new = (Captioner.load(one, precision=precision, device="cpu") for one in (start, taught))
    known = len(WORDS)
    for before, after in zip(two_steps(old, photos, 9), two_steps(new, photos, 9), strict=True):
        assert np.array_equal(before[1:], after[1:, :known])
        assert (after[1:, known:] < NEVER + 100).all()
        assert np.abs(before[0] - after[0, :known]).max() > 0.1


def test_new_words_are_never_said_of_other_photos(start: Path, photos: list[Path], tmp_path: Path) -> None:
    model, vocabulary = pupil(start, photos, NEW)
    with torch.no_grad():  # as after a hundred rounds for words of another script
        model.decoder.embedding.weight[len(WORDS) :] *= 100
        model.decoder.embedding.bias[len(WORDS) :] += 100
    export_taught(Bundle.load(start), model, vocabulary, tmp_path / "taught", "taught", "Card")
    old, new = (
        Captioner.load(one, precision="float32", device="cpu") for one in (start, tmp_path / "taught")
    )
    for before, after in zip(two_steps(old, photos, 9), two_steps(new, photos, 9), strict=True):
        assert np.array_equal(before[1:], after[1:, : len(WORDS)])


def test_training_goes_on_from_the_model_as_it_was_before(start: Path, taught: Path) -> None:
    before, after = read(start), read(taught)
    assert after.model.taught and after.taught_words == len(NEW)
    found = Start.read(str(taught), start.parent)
    assert found.lacks_corrections and not before.lacks_corrections
    assert found.vocabulary.words == before.vocabulary.words and found.model == before.model
    model = CaptionModel(found.model, len(found.vocabulary))
    found.give(model, found.vocabulary)
    for name, weight in before.weights.items():
        assert torch.equal(found.weights[name], weight), name


def test_the_corrected_photo_is_captioned_as_the_network_would(
    start: Path, taught: Path, photos: list[Path]
) -> None:
    model, _ = pupil(start, photos, NEW, RARE)
    captioner = Captioner.load(taught, precision="float32", device="cpu")
    [found], _ = two_steps(captioner, photos[:1], 9)
    pixels = torch.from_numpy(captioner.preprocess(photos[0])[None, ..., :3])
    with torch.no_grad():
        memory, state = model.encode(pixels)
        state["checklist"][..., len(WORDS) :] = 0
        step = model.decoder.step(torch.tensor([[Vocabulary.start_id]]), memory, state)
    wanted = torch.log_softmax(step.logits[0, 0], dim=-1).numpy()
    np.testing.assert_allclose(found, wanted, atol=0.05)  # new words are in the network's detection too


@pytest.mark.parametrize("words", [["mauve"], []])
@pytest.mark.parametrize("rare", [[20, 40], []])
def test_what_is_taught_adds_up(
    taught: Path, photos: list[Path], tmp_path: Path, words: list[str], rare: list[int]
) -> None:
    model, vocabulary = pupil(taught, photos[1:], words, rare)
    export_taught(Bundle.load(taught), model, vocabulary, tmp_path / "again", "again", "Card")
    again = Bundle.load(tmp_path / "again")
    assert again.vocabulary.words == (*WORDS, *NEW, *words)
    assert again.manifest["training"]["model"]["taught"] == 2
    for precision in again.precisions:
        old, new = (
            Captioner.load(one, precision=precision, device="cpu") for one in (taught, tmp_path / "again")
        )
        for before, after in zip(two_steps(old, photos, 65), two_steps(new, photos, 65), strict=True):
            assert np.array_equal(before[2:], after[2:, : before.shape[1]])
            gains = (after[:2, : before.shape[1]] - before[:2])[:, : len(WORDS)]
            assert (gains[1, rare] > np.delete(gains[1], rare).max() + 5).all()
            assert (gains[0] < 1).all()  # the correction of this photo does not have these words


def test_rare_words_alone_can_be_taught(start: Path, photos: list[Path], tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    model, vocabulary = pupil(start, photos, [], RARE)
    export_taught(Bundle.load(start), model, vocabulary, first, "first", "Card")
    model, vocabulary = pupil(first, photos[1:], NEW)
    export_taught(Bundle.load(first), model, vocabulary, again, "again", "Card")
    for precision in ("float32", "int8"):
        loaded = [Captioner.load(one, precision=precision, device="cpu") for one in (start, first, again)]
        for old, new, last in zip(*(two_steps(one, photos, 9) for one in loaded), strict=True):
            assert np.array_equal(old[1:], new[1:]) and np.array_equal(old[2:], last[2:, : len(WORDS)])
            gains = new[0] - old[0]
            assert (gains[RARE] > np.delete(gains, RARE).max() + 5).all()


def test_the_embedded_model_can_be_taught(tmp_path: Path) -> None:
    photos, words = sorted(EXAMPLES.glob("*.jpg")), ["word61", "word62"]
    model, vocabulary = pupil(DEFAULT, photos, words, [1000])
    export_taught(Bundle.load(DEFAULT), model, vocabulary, tmp_path / "taught", "taught", "Card")
    known = len(vocabulary) - len(words)
    for precision in ("float32", "int8"):
        old, new = (
            Captioner.load(one, precision=precision, device="cpu") for one in (DEFAULT, tmp_path / "taught")
        )
        for before, after in zip(two_steps(old, photos, 9), two_steps(new, photos, 9), strict=True):
            assert np.array_equal(before[1:], after[1:, :known])
            assert np.abs(before[0] - after[0, :known]).max() > 0.1


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_decoder_can_get_words(decoder: str, photos: list[Path], tmp_path: Path) -> None:
    start = bundle(tmp_path, decoder=decoder)
    model, vocabulary = pupil(start, photos, NEW, RARE)
    export_taught(Bundle.load(start), model, vocabulary, tmp_path / "taught", "taught", "Card")
    old, new = (Captioner.load(one, device="cpu") for one in (start, tmp_path / "taught"))
    for before, after in zip(two_steps(old, photos, 9), two_steps(new, photos, 9), strict=True):
        assert np.array_equal(before[1:], after[1:, : len(WORDS)])
    first, second = two_steps(new, photos[:1], len(WORDS))
    assert np.isfinite(first).all() and np.isfinite(second).all()
    gains = first[0, : len(WORDS)] - two_steps(old, photos[:1], 9)[0][0]
    assert (gains[RARE] > np.delete(gains, RARE).max() + 5).all()


def test_a_taught_model_can_be_trained(taught: Path) -> None:
    before = read(taught)
    vocabulary = Vocabulary([*before.vocabulary.words, "mauve"])
    model = CaptionModel(before.model, len(vocabulary))
    before.give(model, vocabulary)
    repetition = model.repetition
    assert repetition is not None and repetition[4 : len(WORDS)].eq(1).all()
    assert model.related is not None and model.related[4 : len(WORDS), 0].gt(0).all()
    assert not model.related[len(WORDS) :].any()
    assert torch.equal(
        model.decoder.embedding.weight[: len(WORDS) + 2], before.weights["decoder.embedding.weight"]
    )


def test_class_evidence_of_a_corrected_photo_is_quieter(photos: list[Path], tmp_path: Path) -> None:
    bonus = squares.with_bonus(ModelOptions(), classes=1000, named_words=3, checklist_weight=1.0).bonus
    start = bundle(tmp_path, photos, bonus=bonus)
    model, vocabulary = pupil(start, photos, NEW)
    taught = tmp_path / "taught"
    export_taught(Bundle.load(start), model, vocabulary, taught, "taught", "Card")
    old, new = (Bundle.load(one) for one in (start, taught))
    pixels = np.stack([Captioner.load(start).preprocess(photo) for photo in photos])
    for precision in old.precisions:
        before, after = (evidence(one, precision, pixels) for one in (old, new))
        assert np.array_equal(before[1:], after[1:])
        certain = [
            Captioner.load(one, precision=precision).encode(pixels).certainty for one in (start, taught)
        ]
        assert certain[0] == certain[1]  # a correction does not make it less sure of what it sees
    with torch.no_grad():
        memory, _ = model.encode(torch.from_numpy(pixels[:1]))
    np.testing.assert_allclose(evidence(new, "float32", pixels)[:1], memory["evidence"].numpy(), atol=0.02)
    assert not np.allclose(
        evidence(new, "float32", pixels)[0], evidence(old, "float32", pixels)[0], atol=0.02
    )
    model, vocabulary = pupil(taught, photos[1:], [])
    export_taught(new, model, vocabulary, tmp_path / "again", "again", "Card")
    again = Bundle.load(tmp_path / "again")
    for precision in again.precisions:
        before, after = (evidence(one, precision, pixels) for one in (new, again))
        assert np.array_equal(np.delete(before, 1, axis=0), np.delete(after, 1, axis=0))
        assert not np.allclose(before[1], after[1], atol=0.02)


def test_graphs_of_another_network_are_refused(start: Path, photos: list[Path], tmp_path: Path) -> None:
    model, vocabulary = pupil(start, photos, NEW)
    with torch.no_grad():
        model.encoder.norm.weight.add_(1)
    with pytest.raises(DataError, match="do not compute what its network does"):
        export_taught(Bundle.load(start), model, vocabulary, tmp_path / "taught", "taught", "Card")
    assert not list(tmp_path.iterdir())
