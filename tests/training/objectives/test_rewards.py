"""Rewards of sampled captions."""

from pathlib import Path

import numpy as np
import pytest
import torch

from captioner.errors import DataError
from captioner.model.vocabulary import END
from captioner.references import CaptionedImage
from captioner.references.files import ImageFiles
from captioner.training.data.examples import Example
from captioner.training.objectives.rewards import REWARDS
from captioner.training.objectives.rewards.base import RewardData, WeightedRewards
from captioner.training.objectives.rewards.naming import Naming
from captioner.training.objectives.rewards.processes import ParallelRewards, on_many_cores
from captioner.training.objectives.rewards.shared_words import shared_words
from captioner.training.objectives.self_critical import SelfCriticalOptions

SENTENCE = "a small {} sitting on the green grass"


def example(**values: object) -> Example:
    image = {"name": "1.jpg", "captions": (), "split": "train"} | values
    return Example(CaptionedImage(**image), "photos", 2, ImageFiles([Path()]))  # type: ignore[arg-type]


def naming(caption: str, ended: bool = True) -> float:
    reward = Naming(RewardData([example(words=("giant panda", "panda", "bear"))]))
    return float(reward.scores([0], [[*caption.split(), *[END] * ended]])[0])


def test_the_exact_word_pays_most() -> None:
    exact, right, wrong = (naming(SENTENCE.format(word)) for word in ("giant panda", "bear", "dog"))
    assert exact == pytest.approx(Naming.EXACT)
    assert right == pytest.approx(Naming.RIGHT)
    assert wrong == pytest.approx(0.0)
    assert naming(SENTENCE.format("group of bears")) == pytest.approx(right)


def test_a_plural_pays_as_the_score_counts_it() -> None:
    reward = Naming(RewardData([example(words=("wolf", "animal"))]))
    [score] = reward.scores([0], [[*SENTENCE.format("pack of wolves").split(), END]])
    assert score == pytest.approx(Naming.EXACT)


@pytest.mark.parametrize(
    "caption", ["a panda", "a panda panda panda sitting on green grass", "a panda and the"]
)
def test_what_is_no_sentence_pays_less(caption: str) -> None:
    assert naming(caption) < naming(SENTENCE.format("panda"))


def test_names_beside_each_other_pay_less_unless_a_label_has_them_so() -> None:
    examples = [example(words=("seal", "animal")), example(words=("sea lion",)), example(words=("dolphin",))]
    reward = Naming(RewardData(examples))
    said = (SENTENCE.format(word).split() for word in ("seal", "seal dolphin"))
    plain, doubled = reward.scores([0, 0], [[*words, END] for words in said])
    assert plain - doubled == pytest.approx(Naming.UNSEEN_PAIR + Naming.WRONG)


def test_guessing_several_times_pays_less() -> None:
    crab, octopus = example(words=("crab", "animal")), example(words=("octopus",))
    reward = Naming(RewardData([crab, octopus]))
    said = ("crab near a large rock", "crab near a wild animal", "crab near a large octopus")
    one, again, wrong = reward.scores([0] * 3, [[*SENTENCE.format(text).split(), END] for text in said])
    assert one - again == pytest.approx(Naming.RIGHT_AGAIN)
    assert one - wrong == pytest.approx(Naming.WRONG)


def test_what_captions_often_say_may_stand_in_the_background() -> None:
    beach = ("a crab on the beach",) * Naming.FREQUENT
    examples = [example(words=("crab",)), example(words=("beach",)), example(captions=beach)]
    said = [*SENTENCE.format("crab on a beach").split(), END]
    [known], [guessed] = (Naming(RewardData(part)).scores([0], [said]) for part in (examples, examples[:2]))
    assert known - guessed == pytest.approx(Naming.WRONG)


def test_a_caption_without_an_end_pays_less() -> None:
    assert naming(SENTENCE.format("panda"), ended=False) < naming(SENTENCE.format("panda"))


def test_kinds_of_photos_without_a_weight_are_left_out() -> None:
    plain, named = SelfCriticalOptions(), SelfCriticalOptions(rewards={"cider": 0, "naming": 1})
    assert plain.rewards == {"cider": 1.0}
    assert (plain.sampled(3, labelled=True), named.sampled(3, labelled=True)) == (5, 5)
    assert (plain.sampled(0, labelled=True), named.sampled(3, labelled=False)) == (0, 0)


@pytest.mark.parametrize(
    "rewards", [{"cidre": 1.0}, {"words": -1.0}, {"words": float("nan")}, {"words": "x"}]
)
def test_impossible_weights_are_refused(rewards: dict[str, float]) -> None:
    with pytest.raises(DataError, match=r"rewards\.(cidre: unknown reward|words: must be at least 0)"):
        SelfCriticalOptions(rewards=rewards)


def test_objects_that_are_not_there_cost() -> None:
    examples = [
        example(captions=("a dog on a couch", "a brown dog"), objects=("dog", "couch")),
        example(captions=("a red bus",)),
    ]
    said = [["a", "dog", END], ["a", "cat", "and", "a", "pizza", END], ["a", "cat", END]]
    reward = REWARDS["objects"](RewardData(examples))
    np.testing.assert_array_equal(reward.scores([0, 0, 1], said), [0.0, -2.0, 0.0])


def test_shared_words_are_those_of_the_closest_caption() -> None:
    references = [["a", "dog", "on", "a", "couch", END], ["two", "red", "buses", END]]
    assert shared_words(["a", "couch", "on", "a", "dog", END], references) == pytest.approx(1.0)
    assert shared_words(["a", "cat"], references[1:]) == 0.0
    missing, added = (["dog", "on", "a", "couch"], ["a", "dog", "on", "a", "couch", "a"])
    assert shared_words(added, references) > shared_words(missing, references)  # recall counts more
    content, function = (["dog", "couch"], ["a", "on"])
    assert shared_words(content, references) > shared_words(function, references)


def test_rewards_are_added_up() -> None:
    data = RewardData(
        [example(captions=("a dog on a couch", "a brown dog")), example(captions=("a red bus",))]
    )
    said = [["a", "dog", END], ["a", "red", "bus", END]]
    cider, words = REWARDS["cider"](data), REWARDS["words"](data)
    total = WeightedRewards([(1.0, cider), (2.0, words)]).scores([0, 1], said)
    np.testing.assert_allclose(total, cider.scores([0, 1], said) + 2 * words.scores([0, 1], said))
    np.testing.assert_allclose(
        words.scores([0, 1], said), [shared_words(said[0], [["a", "brown", "dog"]]), 1.0]
    )


def test_processes_score_as_one_does() -> None:
    examples = [example(name=f"{n}.jpg", captions=(f"a dog runs {n}", "a cat sits")) for n in range(9)]
    rewards = WeightedRewards([(2.0, REWARDS["cider"](RewardData(examples)))])
    images = [n % 9 for n in range(100)]
    said = [["a", "dog", "runs", str(n % 5), END] for n in range(100)]
    found = ParallelRewards(rewards, 2).scores(images, said)
    assert np.array_equal(found, rewards.scores(images, said)) and found.std() > 0
    assert on_many_cores(rewards, torch.device("cpu")) is rewards
