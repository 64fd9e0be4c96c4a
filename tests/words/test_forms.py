"""Forms, synonyms and kinds of words."""

import pytest

from captioner.words.forms import base, kinds


@pytest.mark.parametrize(
    "same",
    [
        "kid kids child children Child's youngsters",
        "ride rides riding rode",
        "run runs running ran jogs",
        "puppy puppies pup",
        "cookie cookies",
        "woman women ladies",
        "ski skis skiing",
        "beach beaches",
        "smile smiles smiling smiled",
        "bus buses",
        "bike bicycles",
        "snowman snowmen",
        "knife knives",
        "grey gray",
    ],
)
def test_words_that_mean_the_same(same: str) -> None:
    assert len({base(word) for word in same.split()}) == 1


@pytest.mark.parametrize(
    "different", ["cat car", "sea see", "string sting", "red read", "king kin", "bed bee", "thing think"]
)
def test_words_that_differ(different: str) -> None:
    assert len({base(word) for word in different.split()}) == 2


def test_kinds_of_a_thing_are_found_but_not_what_it_is_a_kind_of() -> None:
    assert base("girl") in kinds(base("kids"))
    assert base("dalmatian") in kinds(base("dogs"))
    assert base("dog") not in kinds(base("dalmatian"))
    assert kinds("nonsense") == frozenset()
