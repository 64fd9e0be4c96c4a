"""Words of the vocabulary that name ImageNet's classes."""

import pytest
import torch

from captioner.errors import DataError
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.training.class_words import CLASSES, ClassWords

VOCABULARY = Vocabulary([*SPECIAL, "a", "snail", "dogs", "dog", "chihuahua", "the"])
CHIHUAHUA, SNAIL, GOLDFISH = 151, 113, 1


def test_words_and_plurals_name_their_classes() -> None:
    words = ClassWords.of(VOCABULARY, CLASSES)
    assert words.count == 4  # snail, dogs, dog, chihuahua
    named = {VOCABULARY.words[token]: int(position) for token, position in enumerate(words.column)}
    assert named["a"] == named["the"] == words.count
    assert words.membership[SNAIL].nonzero().flatten().tolist() == [named["snail"]]
    assert words.membership[CHIHUAHUA].sum() == 3
    assert words.membership[GOLDFISH].sum() == 0
    assert words.membership[:, named["dog"]].sum() > 100


@pytest.mark.parametrize(
    ("vocabulary", "classes", "message"),
    [(VOCABULARY, 10, "must be 0 or 1000"), (Vocabulary([*SPECIAL, "the"]), CLASSES, "no word")],
)
def test_what_cannot_be_scored_is_refused(vocabulary: Vocabulary, classes: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ClassWords.of(vocabulary, classes)


def test_the_rows_are_of_the_classes_in_torchvisions_order() -> None:
    from torchvision.models._meta import _IMAGENET_CATEGORIES as NAMES

    words = ClassWords.of(Vocabulary([*SPECIAL, "zebra", "pizza", "toilet"]), CLASSES)
    for word, name in (("zebra", "zebra"), ("pizza", "pizza")):
        position = words.column[[*SPECIAL, "zebra", "pizza", "toilet"].index(word)]
        assert words.membership[NAMES.index(name), position] == 1
    assert torch.equal(words.membership.sum(dim=0) >= 1, torch.ones(words.count, dtype=torch.bool))
