"""Words of the vocabulary that name ImageNet's classes."""

import pytest
import torch
from support.squares import CLASSIFYING as MODEL

from captioner.errors import DataError
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.decoder.bonus.names import FOLLOWERS
from captioner.training.names.class_words import ClassWords
from captioner.words.imagenet import CLASSES, class_words
from captioner.words.tokens import tokenize

VOCABULARY = Vocabulary([*SPECIAL, "a", "snail", "dogs", "dog", "chihuahua", "the"])
CHIHUAHUA, SNAIL, GOLDFISH, SHARK, GUINEA_PIG = 151, 113, 1, 2, 338


def test_words_and_plurals_name_their_classes() -> None:
    words = ClassWords.of(VOCABULARY, MODEL.bonus)
    assert words.count == 4  # snail, dogs, dog, chihuahua
    named = {VOCABULARY.words[token]: int(position) for token, position in enumerate(words.column)}
    assert named["a"] == named["the"] == words.count
    assert words.membership[SNAIL].nonzero().flatten().tolist() == [named["snail"]]
    assert words.membership[CHIHUAHUA].sum() == 3
    assert words.membership[GOLDFISH].sum() == 0
    assert words.membership[:, named["dog"]].sum() > 100


def test_words_of_one_class_come_first() -> None:
    words = ClassWords.of(VOCABULARY, MODEL.bonus)
    classes = words.membership.sum(dim=0)
    assert words.single == 2  # snail and chihuahua; many classes are dogs
    assert (classes[: words.single] == 1).all() and (classes[words.single :] > 1).all()


@pytest.mark.parametrize(
    ("vocabulary", "classes", "message"),
    [(VOCABULARY, 10, "must be 0 or 1000"), (Vocabulary([*SPECIAL, "the"]), CLASSES, "no word")],
)
def test_what_cannot_be_scored_is_refused(vocabulary: Vocabulary, classes: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ClassWords.of(vocabulary, BonusOptions(classes=classes))


def test_the_rows_are_of_the_classes_in_torchvisions_order() -> None:
    from torchvision.models._meta import _IMAGENET_CATEGORIES as NAMES

    words = ClassWords.of(Vocabulary([*SPECIAL, "zebra", "pizza", "toilet"]), MODEL.bonus)
    for word, name in (("zebra", "zebra"), ("pizza", "pizza")):
        position = words.column[[*SPECIAL, "zebra", "pizza", "toilet"].index(word)]
        assert words.membership[NAMES.index(name), position] == 1
    assert torch.equal(words.membership.sum(dim=0) >= 1, torch.ones(words.count, dtype=torch.bool))


def test_names_of_several_words_begin_and_go_on() -> None:
    words = Vocabulary([*SPECIAL, "guinea", "pig", "pigs", "sea", "lion", "a", "great", "white", "shark"])
    numbers = {word: number for number, word in enumerate(words.words)}
    found = ClassWords.of(words, MODEL.bonus)
    named = {word: int(found.column[number]) for word, number in numbers.items()}
    assert found.membership[GUINEA_PIG, named["guinea"]] == 1
    assert found.membership[GUINEA_PIG, named["pig"]] == 0  # it is no pig
    assert found.membership[SHARK, named["shark"]] == 1  # but this is a shark

    names = found.names(torch.zeros(len(words)))
    after = {
        word: {words.words[token] for token in names.following_token[number].tolist()} - {"<pad>"}
        for word, number in numbers.items()
    }
    assert after["guinea"] == {"pig"}
    assert after["sea"] == {"lion"}
    assert after["white"] == {"shark"}
    assert after["pig"] == after["a"] == set()
    assert names.membership[GUINEA_PIG, names.following[numbers["guinea"], 0]] == 1
    assert names.membership[:, -1].sum() == 0
    assert names.proposed[GUINEA_PIG] == numbers["guinea"]
    assert names.proposed[SHARK] == numbers["great"]
    assert names.proposed[0] == words.pad_id  # tench


def test_frequent_words_need_less_help() -> None:
    words = Vocabulary([*SPECIAL, "guinea", "pig", "snail"])
    counts = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 500.0, 300.0])
    names = ClassWords.of(words, MODEL.bonus).names(counts)
    assert names.following_gain[4] == 1 and names.following_gain[6] < 0.3
    assert names.proposed_gain[GUINEA_PIG] == 1 and names.proposed_gain[SNAIL] < 0.1


def test_all_pairs_of_the_file_have_a_place() -> None:
    tokens = sorted({token for names in class_words() for name in names for token in tokenize(name)})
    names = ClassWords.of(Vocabulary([*SPECIAL, *tokens]), MODEL.bonus).names(torch.zeros(len(tokens) + 4))
    assert names.following.shape[1] == FOLLOWERS
    assert (names.following != names.following.max()).sum(dim=1).max() == FOLLOWERS
