"""Other names of the same thing cost something once one has been said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from support import squares

from captioner.errors import DataError
from captioner.export.bundle import export_bundle
from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.decoder.bonus.checklist import RELATED
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.references import CaptionedImage
from captioner.references.files import ImageFiles
from captioner.training.data.examples import Example
from captioner.training.names.related import related_names
from captioner.training.weights.start import Start
from captioner.words.imagenet import class_words


def photo(words: Sequence[str] = (), captions: Sequence[str] = (), retained: bool = False) -> Example:
    image = CaptionedImage("photo.png", tuple(captions), "train", words=tuple(words))
    return Example(image, "source", 1, ImageFiles([]), retained)


def found(
    word: str, known: str, classes: Sequence[Sequence[str]] = (), examples: Sequence[Example] = ()
) -> list[str]:
    vocabulary = Vocabulary.build([known], 1)
    table = related_names(classes, examples, vocabulary)
    assert table.shape == (len(vocabulary), RELATED)
    words = [vocabulary.words[other] for other in table[vocabulary.encode(word)[0]].tolist() if other]
    assert len(set(words)) == len(words)
    return words


def test_names_of_a_class_are_related() -> None:
    known = "starfish sea star kitten cat cats tabby lynx lorikeet"
    assert set(found("cat", known, class_words())) == {"cats", "tabby", "lynx"}
    assert set(found("lynx", known, class_words())) == {"cat", "cats"}
    assert found("lorikeet", known, class_words()) == []


def test_a_name_of_several_words_has_been_said_once_its_last_has() -> None:
    names = ["sea star", "starfish"]
    assert found("star", "sea star starfish", [names]) == ["starfish"]
    assert found("sea", "sea star starfish", [names]) == []
    assert found("starfish", "sea star starfish", [names]) == []


def test_words_of_labelled_photos_are_related() -> None:
    """Photos with the same words count once."""
    labelled = [photo(["cat", "animal"]), *[photo(["cat", "pet"])] * 3, photo(["kitten", "cat", "animal"])]
    known = "animal cat kitten pet"
    assert found("kitten", known, examples=labelled) == ["animal", "cat"]
    assert found("cat", known, examples=labelled) == ["animal", "kitten", "pet"]


def test_those_in_common_with_most_classes_are_kept() -> None:
    others = [f"thing{number:02}" for number in range(RELATED + 2)]
    classes = [["dog", *others], ["dog", others[-1]], ["dog", others[-1]], ["dog", others[-2]]]
    kept = found("dog", " ".join(["dog", *others]), classes)
    assert kept == [others[-1], others[-2], *others[: RELATED - 2]]


def test_what_people_say_together_is_not_related() -> None:
    classes = [["laptop", "computer", "notebook"]]
    together = photo(captions=["a laptop computer"] * 3)
    apart = photo(captions=["a laptop"] * 100)
    known = "laptop computer notebook"

    def others(*examples: Example) -> list[str]:
        return found("laptop", known, classes, examples)

    assert others() == ["computer", "notebook"]
    assert others(together, apart) == ["notebook"]
    assert found("computer", known, classes, [together, apart]) == ["notebook"]
    # Not if it is rare, or the model's own captions have it.
    assert others(photo(captions=["a laptop computer"] * 2)) == ["computer", "notebook"]
    assert others(together, apart, apart) == ["computer", "notebook"]
    assert found("computer", known, classes, [together, apart, apart]) == ["notebook"]
    assert others(photo(captions=together.image.captions, retained=True)) == ["computer", "notebook"]


def test_a_run_adds_them_to_a_trained_model_and_a_later_run_keeps_them(
    data: Path, cache: Path, tmp_path: Path
) -> None:
    added = BonusOptions(checklist_weight=0.2, related_cost=3.0)
    trainer = squares.adding(added, tmp_path, data, cache)
    model = trainer.model
    assert not model.related.any()  # no photo has labels, and there are no classes
    red, green = trainer.vocabulary.encode("red green")
    model.related[red, 0] = green
    trainer.run()
    export_bundle(tmp_path / "more" / "best.pt", tmp_path / "bundle")  # compares the graphs with the network
    for place in ("bundle", "more/best.pt"):
        start = Start.read(place, tmp_path)
        again = CaptionModel(start.model, len(start.vocabulary))
        start.give(again, start.vocabulary)
        assert again.options.bonus.related_cost == 3
        assert torch.equal(again.related, model.related)
    other = ModelOptions(bonus=BonusOptions(checklist_weight=0.2, related_cost=1.0))
    with pytest.raises(DataError, match="does not match the model to start from"):
        start.architecture(other)
