"""Genders that captions confuse."""

from __future__ import annotations

from captioner.metrics.gender import Gender, gender


def count(caption: str, *references: str) -> Gender:
    return gender([caption.split()], [[reference.split() for reference in references]])


def test_a_man_said_of_a_woman_is_counted() -> None:
    found = count("a man on a bike", "a woman rides", "a girl on a bicycle", "a person rides")
    assert (found.women, found.women_as_men, found.women_named) == (1, 1, 1)
    assert found.to_dict() == {"women_called_men": 100.0, "men_called_women": 0.0}


def test_a_woman_said_of_a_man_is_counted() -> None:
    found = count("two women and a girl", "a boy runs", "a man in red")
    assert (found.men, found.men_as_women, found.men_named) == (1, 1, 1)


def test_a_person_is_no_guess() -> None:
    found = count("a person on a bike", "a woman rides", "a girl on a bicycle")
    assert (found.women, found.women_as_men, found.women_named) == (1, 0, 0)
    assert found.to_dict()["women_called_men"] == 0


def test_photos_of_both_or_of_a_gender_that_few_references_name_do_not_count() -> None:
    both = count("a man", "a woman and a man")
    doubtful = count("a man", "a woman", "a rider", "somebody rides")
    assert both == doubtful == Gender(0, 0, 0, 0, 0, 0)
