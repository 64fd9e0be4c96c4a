"""The interactive page in a real browser: mouse, keyboard, touch, looks, safety."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.browser import DESK, PHONE, find_axe, open_page, overhang, take_screenshot, violations
from support.captions import HOSTILE_TEXTS, blob, lit_cell, make_caption
from support.patience import wait_until

from captioner.results import Caption
from captioner_client import render_html

# The brightest place of the canvas, as (x, y) from 0 to 1, and its opacity.
PEAK = """() => {
  const canvas = document.querySelector('.photo canvas');
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let best = 0, x = 0, y = 0, count = 0;
  for (let at = 0; at < data.length; at += 4) {
    const value = data[at + 3];
    if (value > best) { best = value; x = y = count = 0; }
    if (value !== best) continue;
    x += at / 4 % canvas.width + .5;
    y += Math.floor(at / 4 / canvas.width) + .5;
    count += 1;
  }
  return [x / count / canvas.width, y / count / canvas.height, best];
}"""


@pytest.fixture
def page_file(tmp_path, photo) -> Path:
    path = tmp_path / "page.html"
    path.write_text(render_html(photo, make_caption(sentinel=0.25)), encoding="utf-8")
    return path


def words(page):
    return page.locator(".word")


def pressed(page) -> list[str]:
    return page.locator('.word[aria-pressed="true"] bdi').all_text_contents()


def peak(page) -> tuple[float, float]:
    x, y, _ = page.evaluate(PEAK)
    return x, y


def test_hovering_a_word_shows_its_map(browser, page_file):
    with open_page(browser, page_file, reduced_motion="no-preference") as page:  # one map fades to the next
        for word, place in ((3, (0.96, 0.96)), (0, (0.04, 0.04))):
            words(page).nth(word).hover()
            wait_until(lambda place=place: peak(page) == pytest.approx(place, abs=0.05))
        assert "20%" in page.locator(".detail").text_content()
        assert "25% of its attention went to the sentence" in page.locator(".detail").text_content()


@pytest.mark.parametrize(("text", "language"), [("a red ball", "en"), ("ein roter Ball", "")])
def test_the_caption_carries_its_language(browser, tmp_path, photo, text, language):
    path = tmp_path / "page.html"
    path.write_text(render_html(photo, make_caption(text.split())), encoding="utf-8")
    with open_page(browser, path) as page:
        for place in ("title", "h1", ".photo img", ".word bdi"):
            assert page.locator(place).first.get_attribute("lang") == language, place


def test_leaving_the_words_shows_the_chosen_one_again(browser, page_file):
    with open_page(browser, page_file) as page:
        words(page).nth(3).click()
        words(page).nth(0).hover()
        page.mouse.move(5, 5)
        assert pressed(page) == ["place"]
        assert peak(page) == pytest.approx((0.96, 0.96), abs=0.05)


def test_the_keyboard_alone_reaches_everything(browser, page_file):
    with open_page(browser, page_file) as page:
        page.keyboard.press("Home")
        assert pressed(page) == ["a"]
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert pressed(page) == ["lit"]
        page.keyboard.press("ArrowLeft")
        assert pressed(page) == ["small"]
        page.keyboard.press("End")
        assert pressed(page) == ["place"]
        page.keyboard.press("Escape")
        assert pressed(page) == []
        assert page.evaluate(PEAK)[2] == 0

        reached = []
        page.evaluate("document.activeElement.blur()")
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.outerHTML"))
        for name in ("Switch between light and dark", "Photo.", 'class="word"', "Play", "Next word"):
            assert any(name in one for one in reached), name


def test_arrows_on_the_photo_name_the_words_that_looked_there(browser, page_file):
    with open_page(browser, page_file) as page:
        page.locator(".photo").focus()
        for key in ["ArrowUp"] * 8 + ["ArrowLeft"] * 8:
            page.keyboard.press(key)
        assert page.locator(".detail").text_content() == "The word that looked here: a"
        place = page.locator(".place").bounding_box()
        assert place == pytest.approx({**place, **box_of_cell(page, 0, 0)}, abs=4)


def box_of_cell(page, row: int, column: int) -> dict:
    photo = page.locator(".photo").bounding_box()
    return {"x": photo["x"] + photo["width"] * column / 14, "y": photo["y"] + photo["height"] * row / 14}


def test_hovering_the_photo_highlights_the_words_that_looked_there(browser, page_file):
    with open_page(browser, page_file) as page:
        frame = page.locator(".photo").bounding_box()
        page.mouse.move(frame["x"] + frame["width"] * 0.96, frame["y"] + frame["height"] * 0.96)
        heats = page.evaluate(
            "[...document.querySelectorAll('.word')].map((word) => +word.style.getPropertyValue('--heat'))"
        )
        assert heats[3] > 0.8
        assert max(heats[:2]) < 0.1
        assert "place" in page.locator(".detail").text_content()
        take_screenshot(page, "page-hover-photo")
        page.mouse.move(2, 2)
        assert page.locator(".place").is_hidden()


def test_touch(browser, page_file):
    with open_page(browser, page_file, **PHONE) as page:
        words(page).nth(0).tap()
        assert pressed(page) == ["a"]
        assert peak(page) == pytest.approx((0.04, 0.04), abs=0.05)
        frame = page.locator(".photo").bounding_box()
        page.touchscreen.tap(frame["x"] + frame["width"] * 0.96, frame["y"] + frame["height"] * 0.96)
        assert "place" in page.locator(".detail").text_content()


def test_playing_goes_along_the_words_and_stops(browser, page_file):
    with open_page(browser, page_file) as page:
        page.clock.install(time=0)
        page.clock.pause_at(3_600_000)  # otherwise it goes on while a busy machine waits
        page.keyboard.press("Home")
        page.locator(".play").click()
        assert page.locator(".play").get_attribute("aria-label") == "Pause"
        page.clock.run_for(1000)
        assert pressed(page) == ["small"]
        page.locator(".play").click()
        page.clock.run_for(3000)
        assert pressed(page) == ["small"]
        page.locator(".play").click()
        page.clock.run_for(5000)
        assert pressed(page) == ["place"]
        assert page.locator(".play").get_attribute("aria-label") == "Play"


def test_the_page_says_what_it_knows(browser, page_file):
    with open_page(browser, page_file) as page:
        text = page.locator("main").inner_text()
        assert "another <b>caption</b>" in text
        assert "50% as likely" in text
        assert "test@0123456789ab" in text
        assert page.locator(".photo img").get_attribute("alt") == "a small lit place"
        assert page.title() == "a small lit place"


def test_spotlight_darkens_what_was_not_looked_at(browser, page_file):
    with open_page(browser, page_file) as page:
        words(page).nth(0).click()
        page.locator("label", has_text="Spotlight").click()
        x, y, opacity = page.evaluate(PEAK)
        assert opacity > 150
        assert x > 0.5
        assert y > 0.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["phone", "desk"])
def test_looks_and_accessibility(browser, page_file, scheme, size):
    with open_page(browser, page_file, color_scheme=scheme, **(PHONE if size == "phone" else DESK)) as page:
        words(page).nth(2).click()
        take_screenshot(page, f"page-{size}-{scheme}")
        assert overhang(page) == 0
        assert violations(page, find_axe()) == []


def test_forced_colours_show_what_is_chosen(browser, page_file):
    """Systems with colours of their own take backgrounds away."""
    with open_page(browser, page_file, forced_colors="active") as page:
        words(page).nth(1).click()
        page.mouse.move(0, 0)
        take_screenshot(page, "page-forced-colours")

        def spread(element) -> float:
            with Image.open(BytesIO(element.screenshot())) as picture:
                return float(np.asarray(picture.convert("RGB")).std(axis=(0, 1)).max())

        assert spread(page.locator(".ramp")) > 20
        assert spread(page.locator('.word[aria-pressed="true"] .bar')) > 20
        ground = "element => getComputedStyle(element).backgroundColor"
        colours, spotlight = page.locator(".choice label").all()
        assert colours.evaluate(ground) != spotlight.evaluate(ground)


def test_the_theme_button_turns_the_colours(browser, page_file):
    with open_page(browser, page_file, color_scheme="light") as page:
        color = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(color)
        page.locator(".theme").click()
        assert page.evaluate(color) != light


def test_reduced_motion_changes_maps_at_once(browser, page_file):
    with open_page(browser, page_file, reduced_motion="reduce") as page:
        words(page).nth(3).click()
        words(page).nth(0).click()
        x, y, _ = page.evaluate(PEAK)
        assert (x, y) == pytest.approx((0.04, 0.04), abs=0.05)


def test_hostile_texts_stay_text(browser, tmp_path, photo):
    path = tmp_path / "page.html"
    name = "".join(HOSTILE_TEXTS)
    path.write_text(render_html(photo, make_caption(HOSTILE_TEXTS), name=name), encoding="utf-8")
    with open_page(browser, path, **PHONE) as page:
        shown = words(page).locator("bdi").all_text_contents()
        assert len(shown) == len(HOSTILE_TEXTS)
        assert all(text in shown for text in HOSTILE_TEXTS if text.isprintable())
        assert page.locator("script").count() == 2
        assert page.locator("img").count() == 1
        assert page.locator("header bdi").text_content().startswith("<script>alert(1)</script>\"'><img")
        assert overhang(page) == 0
        take_screenshot(page, "page-hostile")


def test_a_right_to_left_caption_runs_right_to_left(browser, tmp_path, photo):
    path = tmp_path / "page.html"
    path.write_text(render_html(photo, make_caption(("כלב", "רץ", "בשלג"))), encoding="utf-8")
    with open_page(browser, path) as page:
        first, second = (words(page).nth(at).bounding_box()["x"] for at in (0, 1))
        assert first > second
        page.keyboard.press("Home")
        page.keyboard.press("ArrowLeft")
        assert pressed(page) == ["רץ"]


@pytest.mark.parametrize("size", [(640, 160), (160, 640), (3000, 2), (2, 3000)])
def test_a_lit_cell_lands_on_its_pixels(browser, tmp_path, photo, size):
    path = tmp_path / "page.html"
    caption = make_caption(("cell",), [lit_cell(2, 11)])
    path.write_text(render_html(photo.resize(size), caption), encoding="utf-8")
    with open_page(browser, path) as page:
        x, y, _ = page.evaluate(PEAK)
        assert (x, y) == pytest.approx((11.5 / 14, 2.5 / 14), abs=0.01)
        frame, canvas = (page.locator(f".photo {one}").bounding_box() for one in ("img", "canvas"))
        assert canvas == pytest.approx(frame)
        assert min(frame["width"], frame["height"]) > 25
        if max(size) < 1000:
            assert frame["width"] / frame["height"] == pytest.approx(size[0] / size[1], rel=0.02)


def test_the_page_brings_its_font(browser, page_file):
    with open_page(browser, page_file) as page:
        page.evaluate("document.fonts.ready")
        assert page.evaluate("[...document.fonts].map((font) => [font.family, font.status])") == [
            ["Source Serif 4", "loaded"]
        ]


def test_a_page_is_small(photo):
    longest = make_caption([f"word{at}" for at in range(64)], [blob(30, 30, 9, (64, 64))] * 64)
    page = render_html(photo, longest)
    picture = page.partition("base64,")[2].partition('"')[0]
    assert len(page) - len(picture) < 200_000


def test_a_page_without_scripts_shows_the_caption(browser, page_file):
    with open_page(browser, page_file, java_script_enabled=False) as page:
        assert "a small lit place" in page.locator("noscript").inner_text()


def test_file_names_are_shown_without_their_folder(tmp_path, photo):
    path = tmp_path / "a <b>.png"
    photo.save(path)
    page = render_html(path, Caption("x", -1.0, make_caption(("x",)).words))
    assert "a &lt;b&gt;.png" in page
    assert str(tmp_path) not in page
