"""How captions are worded in outputs."""

import pytest

from captioner.errors import OptionsError
from captioner.folder.text import TextOptions
from captioner.results import Caption


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"capitalize": True}, "A photo of a dog"),
        ({"drop_openings": True}, "a dog"),
        ({"drop_openings": True, "sentence": True}, "A dog."),
        ({"prefix": "sks, ", "suffix": ", 4k"}, "sks, a photo of a dog, 4k"),
        ({"template": "{folder}/{stem}: {caption}"}, "dogs/1: a photo of a dog"),
    ],
)
def test_options_of_text_apply_in_their_order(options, expected) -> None:
    assert TextOptions(**options).apply("a photo of a dog", "x/dogs/1.jpg") == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a picture of a man and a woman in a boat", "Two people in a boat."),
        ("there is a girl with her dog", "A child with their dog."),
        ("two men watch a snowman", "Two people watch a snowman."),
        ("a dog .", "A dog."),
        ("a woman's hat on a policeman", "A person's hat on a police officer."),
        ("a man kissing her", "A person kissing them."),
        ("a girl looks at her in a park with her dog", "A child looks at them in a park with their dog."),
        ("a dog sits by him", "A dog sits by them."),
        ("two men and a woman", "Three people."),
        ("a women on a bench", "People on a bench."),
        ("a young women with an old men", "Young people with old people."),
        ("a few women on a bench", "A few people on a bench."),
        ("a herd of cows by a people", "A herd of cows by people."),
        ("a man and woman walking", "Two people walking."),
        (
            "ein mann sieht auf den see, man geht hin und her",
            "Ein mann sieht auf den see, man geht hin und her.",
        ),
        ("een man met zijn hond", "Een man met zijn hond."),
        ("en man og her hund", "En man og her hund."),
        ("en man på stranden", "En man på stranden."),
        ("her gün bir kedi", "Her gün bir kedi."),
        ("a man with a piñata at a café", "A person with a piñata at a café."),
        ("a man in la paz", "A person in la paz."),
        ("a bu\u017finessman in a park", "A bu\u017finessman in a park."),  # s in another case
    ],
)
def test_alt_text(caption, expected) -> None:
    assert TextOptions(style="alt").apply(caption, "x") == expected
    assert Caption(caption, -1.0).alt_text == expected


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("एक काला कुत्ता है", "एक काला कुत्ता है।"),  # ends with the sign of a vowel
        ("दो कुत्ते हैं।", "दो कुत्ते हैं।"),
        ("ছেলেটি মাঠে", "ছেলেটি মাঠে।"),
        ("கடற்கரையில் ஒரு நாய்", "கடற்கரையில் ஒரு நாய்."),
        ("เด็ก สอง คน เล่น น้ำ", "เด็ก สอง คน เล่น น้ำ"),  # has no full stops
        ("一 只 黑 狗", "一 只 黑 狗。"),
        ("黒い 犬 と ボール", "黒い 犬 と ボール。"),
        ("개 두 마리", "개 두 마리."),
        ("chó mực", "Chó mực."),
        ("a cafe\N{COMBINING ACUTE ACCENT}", "A cafe\N{COMBINING ACUTE ACCENT}."),
        ("kennel 5", "Kennel 5."),
        ("iki kız", "İki kız."),
        ("շունը վազում է", "Շունը վազում է։"),
        ("ውሻ ይሮጣል", "ውሻ ይሮጣል።"),
        ("ဆ်း", "ဆ်း။"),
        ("ឆ្កែ", "ឆ្កែ។"),
        ("ქალი და ძაღლი", "ქალი და ძაღლი."),
        ("", ""),
    ],
)
def test_sentences_end_as_in_their_script(caption, expected) -> None:
    assert TextOptions(sentence=True).apply(caption, "x") == expected
    assert TextOptions(style="alt").apply(caption, "x") == expected


def test_alt_text_is_short_and_ends_well() -> None:
    text = TextOptions(style="alt").apply("a dog and " * 40, "x")
    assert len(text) <= 125 and text.endswith(" a dog.")
    assert len(TextOptions(style="alt").apply("x" * 300, "x")) == 125
    with pytest.raises(OptionsError, match="--style"):
        TextOptions(style="loud")


@pytest.mark.parametrize(
    "template",
    [
        *("{text}", "{}", "{caption", "{caption:d}", "{caption!z}", "{caption:{name}}", "{caption[0]}"),
        *("", "a text", "{{caption}}"),
    ],
)
def test_templates_that_are_none(template) -> None:
    with pytest.raises(OptionsError, match="--template"):
        TextOptions(template=template)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("there is a man in a hat", "a man in a hat"),
        ("a close up of a plate of food", "a plate of food"),
        ("a black and white photo of two dogs", "two dogs"),
        ("a picture of", "a picture of"),
        ("a view of the sea", "the sea"),
        ("a man taking a photo of a dog", "a man taking a photo of a dog"),
    ],
)
def test_openings_are_dropped_and_nothing_else(text, expected) -> None:
    assert TextOptions(drop_openings=True).apply(text, "x") == expected
