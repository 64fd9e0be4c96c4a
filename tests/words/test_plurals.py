"""English nouns in both numbers."""

from __future__ import annotations

import pytest

from captioner.words.plurals import is_plural, plurals, singulars

PAIRS = """
    ski:skis wolf:wolves church:churches stomach:stomachs roof:roofs knife:knives glove:gloves
    chef:chefs bus:buses glass:glasses gas:gases lens:lenses house:houses horse:horses nurse:nurses
    vase:vases octopus:octopuses walrus:walruses cactus:cacti box:boxes axe:axes brush:brushes
    headache:headaches baby:babies monkey:monkeys movie:movies tie:ties taxi:taxis menu:menus zoo:zoos
    shoe:shoes potato:potatoes photo:photos quiz:quizzes buzz:buzzes man:men policeman:policemen
    human:humans person:people grandchild:grandchildren foot:feet goose:geese mongoose:mongooses
    mouse:mice bookshelf:bookshelves housewife:housewives giraffe:giraffes prize:prizes
    mustache:mustaches
"""
INVARIANT = """
    sheep deer moose fish goldfish salmon aircraft series
"""
PLURAL_ONLY = """
    jeans scissors pants glasses goggles clothes cattle people
"""
SINGULAR = """
    christmas news tennis debris glass dress bus gas lens canvas atlas rhinoceros gymnastics specimen
    ibis man's grass triceratops ski wolf
"""


@pytest.mark.parametrize("pair", PAIRS.split())
def test_a_plural_and_its_singular(pair: str) -> None:
    one, several = pair.split(":")
    assert plurals(one)[0] == several
    assert one in singulars(several)
    assert singulars(one) == ()
    assert (is_plural(one), is_plural(several)) == (False, True)
    assert plurals(several)[0] == several


@pytest.mark.parametrize("noun", INVARIANT.split())
def test_some_plurals_are_their_singulars(noun: str) -> None:
    assert plurals(noun)[0] == noun
    assert not is_plural(noun)


@pytest.mark.parametrize("noun", PLURAL_ONLY.split())
def test_some_nouns_are_always_plurals(noun: str) -> None:
    assert plurals(noun)[0] == noun
    assert is_plural(noun)


@pytest.mark.parametrize("noun", SINGULAR.split())
def test_an_s_at_the_end_does_not_make_a_plural(noun: str) -> None:
    assert not is_plural(noun)
    assert singulars(noun) == ()


def test_some_nouns_have_several_plurals() -> None:
    assert plurals("person") == ("people", "persons")
    assert plurals("cactus") == ("cacti", "cactuses")
    assert singulars("axes") == ("axe", "axis")


def test_no_plural_is_made_up() -> None:
    known = ("wolf", "church", "stomach", "roof", "belief", "loch", "scissors", "german")
    made = {form for noun in known for form in plurals(noun)}
    assert made == {"wolves", "churches", "stomachs", "roofs", "beliefs", "lochs", "scissors", "germans"}
    assert singulars("knives") == ("knife",)
