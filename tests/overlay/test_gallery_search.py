"""Finding photos in a gallery: the search, the filters and the order."""

import re
from importlib import resources

import numpy as np
import pytest
from PIL import Image
from support.browser import find_axe, open_page, violations
from support.captions import make_caption
from support.gallery import TEXTS, captions_shown

from captioner.overlay.gallery import write_gallery
from captioner.results import Caption
from captioner.retrieval import CaptionIndex, CaptionText
from captioner.words.forms import base

SEARCH = """([captions, query]) => {
    const search = createSearch(JSON.parse(forms.textContent));
    const photos = captions.map((text, number) => ({ name: "", number, error: null, text }));
    for (const photo of photos) search.index(photo, photo.text);
    const marked = photos.flatMap((photo) => search.mark(photo.text, query, photos));
    return [
        search.find(photos, query).photos.map((photo) => photo.number),
        marked.filter((node) => node.tagName).map((node) => node.textContent),
        search.keywords(photos).map(([, word]) => word),
    ];
}"""
"""For captions and a query: the numbers of the captions found, the words marked, and the keywords."""


def test_search_as_you_type(browser, gallery):
    with open_page(browser, gallery) as page:
        page.keyboard.press("/")
        page.keyboard.type("dog")
        assert captions_shown(page) == [TEXTS[0], TEXTS[2]]
        assert page.locator(".count").text_content() == "2 of 5"
        assert page.locator("mark").all_text_contents() == ["dog", "dogs"]
        page.keyboard.type(" SNOW")
        assert captions_shown(page) == [TEXTS[2]]
        page.locator(".query").fill("cafe")  # without the accent
        assert captions_shown(page) == [TEXTS[3]]
        page.locator(".query").fill("zebra")
        assert page.locator(".nothing").is_visible()


def test_sort_and_filter(browser, gallery, records):
    least_first = sorted((one for one in records if "caption" in one), key=confidence)
    with open_page(browser, gallery) as page:
        page.locator(".order").select_option("least")
        assert captions_shown(page)[:4] == [one["caption"] for one in least_first]
        page.locator(".order").select_option("most")
        assert captions_shown(page)[:4] == [one["caption"] for one in reversed(least_first)]
        page.locator(".show").select_option("failed")
        assert captions_shown(page) == ["the file is missing"]


def confidence(record: dict) -> float:
    return record["log_prob"] / (len(record["caption"].split()) + 1)


def test_enter_opens_the_first_photo_found(browser, gallery):
    with open_page(browser, gallery) as page:
        page.keyboard.press("/")
        page.keyboard.type("snow")
        page.keyboard.press("Enter")
        page.wait_for_selector(".word")
        assert page.locator(".viewer-name").text_content() == "2.jpg"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_was_found_can_be_read(browser, gallery, scheme):
    with open_page(browser, gallery, "#q=broken+dog+jpg", color_scheme=scheme) as page:
        page.locator(".name mark").first.wait_for()
        assert violations(page, find_axe()) == []


def test_a_word_is_found_at_the_start_of_words(browser, tmp_path, photo):
    texts = ("two hotdogs", "two dogs", "狗在公园里", "$5 (sale)")
    for number in range(len(texts)):
        photo.save(tmp_path / f"{number}.jpg")
    records = [Caption(text, -1.0).to_dict(f"{number}.jpg") for number, text in enumerate(texts)]
    write_gallery(records, tmp_path / "out.html", tmp_path)
    with open_page(browser, tmp_path / "out.html") as page:
        for query, found in (("dog", [1]), ("hot", [0]), ("公园", [2]), ("$5 (", [3]), ("2.JPG", [2])):
            page.locator(".query").fill(query)
            assert captions_shown(page) == [texts[number] for number in found]
            assert page.locator("mark").count() >= 1


def test_queries_with_words_left_out_and_phrases(browser, gallery):
    with open_page(browser, gallery) as page:
        for query, found in (
            ("dog -snow", [0]),
            ("-dog", [1, 3]),
            ('"a white"', [1]),
            ('"white a"', []),
            ("the dogs", [0, 2]),  # "the" names nothing
            ("cat -", [1]),
            ("running", [0]),  # forms, synonyms, kinds
            ("puppies", []),
            ("kitty", [1]),
            ("animals", [0, 1, 2]),
        ):
            page.locator(".query").fill(query)
            shown = [TEXTS.index(text) for text in captions_shown(page) if text in TEXTS]
            assert shown == found, query
        page.locator(".query").fill("white snow")
        assert captions_shown(page) == [TEXTS[1], TEXTS[2]]
        assert page.locator(".count").text_content() == "No photo has all of these words; 2 of 5 have some"


def test_words_have_the_same_forms_as_in_python(browser, gallery):
    words = [word for name in ("coco.py", "english.py") for word in re.findall("[a-z]{2,}", read_words(name))]
    with open_page(browser, gallery) as page:
        bases = page.evaluate(
            "(words) => words.map(createSearch(JSON.parse(forms.textContent)).baseOf)",
            words,
        )
    assert bases == [base(word) for word in words]


def test_compounds_are_found_as_in_python(browser, gallery):
    captions = ("a hot dog on a plate", "two hot dogs", "a teddy bear and a dog", "a bear", "hot coffee")
    index = CaptionIndex(CaptionText(str(number), text) for number, text in enumerate(captions))
    with open_page(browser, gallery) as page:
        for query, marks in (
            ("dog", ["dog"]),
            ("bear", ["bear"]),
            ("hot dog", ["hot dog", "hot dogs"]),
            ("hotdogs", ["hot dog", "hot dogs"]),
            ("teddy", ["teddy bear"]),
        ):
            found, marked, _ = page.evaluate(SEARCH, [captions, query])
            assert marked == marks, query
            assert found == sorted(int(one.photo.image) for one in index.find(query)), query
        assert page.evaluate(SEARCH, [captions[:2], "dog"])[:2] == [[], []]  # nor by its letters
        assert page.evaluate(SEARCH, [captions, '"dog"'])[0] == [0, 2]


def test_words_of_any_language_are_found_marked_and_listed_as_they_are_written(browser, gallery):
    captions = (
        "ein Mädchen läuft",
        "एक काला कुत्ता",
        "एक लड़की की गेंद",
        "เด็ก สอง คน",
        "ガラスの上",
        "kırmızı ışık",
        "فَتاةٌ",
        "一 只 黑 狗",
        "कोना",
        "می\N{ZERO WIDTH NON-JOINER}رود",
        "كتـــاب",
        "Straße đỏ",
        "L’homme",
        "em bé",
    )
    with open_page(browser, gallery) as page:
        for query, found, marks in (
            ("madchen", [0], ["Mädchen"]),
            ("कुत्ता", [1], ["कुत्ता"]),
            ("का", [1], ["का"]),  # nothing of लड़की, which has other vowels
            ("की", [2], ["की"]),
            ("เด็ก", [3], ["เด็ก"]),
            ("ガラス", [4], ["ガラス"]),
            ("カラス", [], []),
            ("黑狗", [7], ["黑 狗"]),
            ('"只 黑"', [7], ["只 黑"]),
            ("فتاة", [6], ["فَتاةٌ"]),
            ('"को"', [], []),  # the beginning of कोना
            ("kirmizi", [5], ["kırmızı"]),
            ("كتاب", [10], ["كتـــاب"]),
            ("strasse", [11], ["Straße"]),
            ("đỏ straße", [11], ["Straße", "đỏ"]),
            ("homme", [12], ["L’homme"]),
            ("bé gái", [13], ["bé"]),
            ("می\N{ZERO WIDTH NON-JOINER}رود", [9], ["می\N{ZERO WIDTH NON-JOINER}رود"]),
        ):
            assert page.evaluate(SEARCH, [captions, query])[:2] == [found, marks], query
        keywords = page.evaluate(SEARCH, [captions, ""])[2]
    assert {"mädchen", "läuft", "कुत्ता", "लड़की", "เด็ก", "ガラスの上", "kırmızı", "فَتاةٌ"} <= {*keywords}
    assert "می\N{ZERO WIDTH NON-JOINER}رود" in keywords


def read_words(name: str) -> str:
    return (resources.files("captioner.words") / name).read_text(encoding="utf-8")


def test_filters(browser, tree):
    def shown() -> list[str]:
        return page.locator(".card .name").all_text_contents()

    with open_page(browser, tree) as page:
        page.locator(".folder").select_option("sea")
        assert shown() == ["sea/b.jpg", "sea/deep/b.jpg"]
        page.locator(".keyword").select_option("fish")
        assert shown() == ["sea/deep/b.jpg"]
        page.reload()  # the address has the filters
        page.locator(".card").first.wait_for()
        assert shown() == ["sea/deep/b.jpg"]
        page.locator(".folder").select_option("")
        page.locator(".keyword").select_option("")
        page.locator(".sureness").select_option("0.25-0.5")
        assert shown() == ["sea/b.jpg"]


def test_photos_that_look_alike_are_shown_together(browser, tmp_path, photo):
    y, x = np.mgrid[0:90, 0:120]
    other = Image.fromarray((128 + 100 * np.sin(x * y / 900)).astype(np.uint8))
    pictures = (photo, other, photo.resize((90, 60)), other, photo.rotate(180))
    names = [f"{letter}.jpg" for letter in "abcde"]
    for name, picture in zip(names, pictures, strict=True):
        picture.convert("RGB").save(tmp_path / name)
    write_gallery([make_caption().to_dict(name) for name in names], tmp_path / "out.html", tmp_path)
    with open_page(browser, tmp_path / "out.html") as page:
        page.locator(".show").select_option("alike")
        assert page.locator(".card .name").all_text_contents() == ["a.jpg", "c.jpg", "b.jpg", "d.jpg"]
