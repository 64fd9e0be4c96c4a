"""The page of a gallery, and how it behaves with a handful and with thousands of photos."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from PIL import Image
from support.browser import (
    DESK,
    PHONE,
    Held,
    find_axe,
    new_page,
    open_page,
    overhang,
    take_screenshot,
    violations,
    wait_for,
)
from support.captions import HOSTILE_TEXTS, blob, lit_cell, make_caption
from support.gallery import TEXTS, captions_shown

from captioner.overlay.gallery import GalleryOptions, write_gallery
from captioner.results import Alternative, Caption


@pytest.fixture(scope="session")
def large_gallery(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("many")
    Image.new("RGB", (8, 6), "teal").save(root / "dot.png")
    records = [
        {"image": "dot.png", "caption": f"photo number {number} of many", "log_prob": -0.01 * (number % 700)}
        for number in range(5000)
    ]
    write_gallery(records, root / "out.html", root, GalleryOptions(link_photos=True))
    return root / "out.html"


def test_cards_show_photos_captions_and_failures(browser, gallery):
    with open_page(browser, gallery) as page:
        assert captions_shown(page) == [*TEXTS[:2], "the file is missing", *TEXTS[2:]]
        assert page.locator(".count").text_content() == "5 photos"
        wait_for(page, "[...document.images].filter((i) => i.src).every((image) => image.naturalWidth > 0)")
        assert page.locator(".card.failed .name").text_content() == "broken <i>.jpg"


@pytest.mark.parametrize(
    ("texts", "language"), [(("a dog", "a red ball"), "en"), (("ein Hund", "roter Ball auf Gras"), "")]
)
def test_captions_carry_their_language(browser, tmp_path, photo, texts, language):
    records = [make_caption(text.split()).to_dict(f"{number}.jpg") for number, text in enumerate(texts)]
    for record in records:
        photo.save(tmp_path / record["image"])
    write_gallery(
        [*records, {"image": "b.jpg", "error": {"message": "broken"}}], tmp_path / "g.html", tmp_path
    )
    with open_page(browser, tmp_path / "g.html", "#photo=0.jpg") as page:
        page.locator(".word").first.wait_for()
        page.keyboard.press("e")
        for place in (
            ".card:not(.failed) .says",
            ".word bdi",
            ".photo img",
            ".view-title",
            ".editor textarea",
        ):
            assert page.locator(place).first.get_attribute("lang") == language, place
        assert page.locator(".failed .says").get_attribute("lang") is None
        assert page.locator("html").get_attribute("lang") == "en"


@pytest.fixture(scope="module")
def colours(tmp_path_factory) -> Path:
    """A gallery of 200 photos, all different."""
    root = tmp_path_factory.mktemp("colours")
    for number in range(200):
        Image.new("RGB", (8, 6), (number, 255 - number, 80)).save(root / f"{number}.png")
    records = [{"image": f"{number}.png", "caption": f"number {number}"} for number in range(200)]
    write_gallery(records, root / "out.html", root, GalleryOptions())
    return root / "out.html"


def test_printing_waits_for_all_photos(browser, colours):
    with open_page(browser, colours) as page:
        drawn = page.locator(".card").count()
        assert drawn < 200
        page.evaluate("""window.print = () => {
            const images = [...document.querySelectorAll(".card img")];
            window.loaded = images.filter((image) => image.complete && image.naturalWidth).length;
        }""")
        page.keyboard.press("Control+p")
        wait_for(page, "window.loaded === 200")
        printed = page.pdf()
        assert printed.count(b"/Subtype /Image") == 200
        assert printed.count(b"/Type /Page\n") > 5  # they follow each other
        wait_for(page, f"document.querySelectorAll('.card').length === {drawn}")
        assert page.locator(".told").text_content() == ""


def test_an_open_photo_is_printed_alone(browser, colours):
    with open_page(browser, colours, "#photo=7.png") as page:
        page.locator(".view-title", has_text="number 7").wait_for(state="attached")
        page.wait_for_load_state("networkidle")
        loaded: list[str] = []
        page.on("request", lambda request: loaded.append(request.url))
        page.keyboard.press("Control+p")
        page.pdf()
        assert loaded == []


def test_what_a_print_lacks_is_in_the_next(browser, colours):
    page, site = new_page(browser), "http://localhost/"
    page.route(f"{site}**", lambda route: route.fulfill(path=colours.parent / route.request.url[len(site) :]))
    page.goto(f"{site}out.html")
    drawn = "[...document.querySelectorAll('.card img')].every((image) => image.complete)"
    page.locator(".card").first.wait_for()
    wait_for(page, drawn)
    held = Held(page, "**/thumbs/*")
    assert page.pdf().count(b"/Subtype /Image") < 200  # as by the browser's menu
    page.locator(".told", has_text="If photos are missing in the print, print again").wait_for()
    held.release()
    wait_for(page, drawn)
    assert page.pdf().count(b"/Subtype /Image") == 200
    page.context.close()


def test_a_click_opens_the_interactive_view(browser, gallery):
    with open_page(browser, gallery) as page:
        page.locator(".card").nth(1).click()
        page.locator(".word", has_text="cat").hover()
        assert (
            page.locator(".photo img").evaluate("(image) => image.decode().then(() => image.naturalWidth)")
            == 200
        )
        page.wait_for_url("**photo=1.jpg")  # the address follows a moment after the view
        take_screenshot(page, "gallery-view")
        page.keyboard.press("PageDown")
        assert page.locator(".problem").text_content() == "the file is missing"
        page.keyboard.press("PageDown")
        page.wait_for_selector(".view:not([hidden])")
        assert page.locator(".viewer-name").text_content() == "2.jpg"
        page.keyboard.press("Escape")
        assert page.locator(".viewer").is_hidden()
        page.wait_for_url(lambda url: "photo=" not in url)


def test_a_link_shows_what_its_sender_saw(browser, gallery):
    with open_page(browser, gallery, "#q=dog&sort=most&photo=2.jpg") as page:
        page.wait_for_selector(".word")
        assert page.locator(".viewer-name").text_content() == "2.jpg"
        page.locator(".close").click()
        assert sorted(captions_shown(page)) == [TEXTS[0], TEXTS[2]]
        page.evaluate("location.hash = '#sort=nonsense&show=%22&photo=nowhere'")
        wait_for(page, "document.querySelectorAll('.card').length === 5")


def test_going_back_closes_the_view(browser, gallery):
    with open_page(browser, gallery) as page:
        page.locator(".card").nth(0).click()
        page.wait_for_selector(".word")
        page.go_back()
        page.wait_for_selector(".viewer", state="hidden")


def test_closing_the_view_leaves_nothing_to_go_back_to(browser, gallery):
    with open_page(browser, gallery, "#sort=name") as page:
        page.locator(".query").fill("dog")
        entries = page.evaluate("history.length")
        for number in range(2):
            page.locator(".card").first.click()
            page.wait_for_selector(".word")
            page.keyboard.press("PageDown")
            page.keyboard.press("Escape")
            page.locator(".query").fill(f"dog {number}")  # at once
            page.wait_for_url(lambda url: "photo=" not in url)
        assert page.evaluate("history.length") == entries + 1  # the photo, where Forward goes
        assert page.url.endswith("#q=dog+1&sort=name")
        assert page.evaluate("history.state") is None
        page.go_forward()
        page.wait_for_selector(".viewer[open]")
        page.go_back()
        page.wait_for_selector(".viewer", state="hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["phone", "desk"])
def test_looks_and_accessibility(browser, gallery, scheme, size):
    with open_page(browser, gallery, color_scheme=scheme, **(PHONE if size == "phone" else DESK)) as page:
        take_screenshot(page, f"gallery-{size}-{scheme}")
        assert overhang(page) == 0
        assert violations(page, find_axe()) == []
        page.locator(".card").nth(0).click()
        page.wait_for_selector(".word")
        assert violations(page, find_axe()) == []
        page.keyboard.press("e")
        page.wait_for_selector(".editor", state="visible")
        assert violations(page, find_axe()) == []
        page.keyboard.press("Escape")
        page.keyboard.press("a")
        page.keyboard.press("PageUp")
        page.locator(".review-state", has_text="Approved").wait_for()
        assert violations(page, find_axe()) == []
        page.keyboard.press("Escape")
        if size == "phone":
            page.locator(".fold").click()
        page.locator(".show").select_option("open")
        take_screenshot(page, f"gallery-review-{size}-{scheme}")
        assert violations(page, find_axe()) == []


def test_the_buttons_of_a_review_stay_where_they_are(browser, gallery):
    """From photo to photo, or the mouse would have to follow them."""
    with open_page(browser, gallery) as page:
        page.locator(".card").first.click()
        page.wait_for_selector(".word")
        before = page.locator(".approve").bounding_box()
        page.keyboard.press("PageDown")
        page.keyboard.press("PageDown")
        page.wait_for_selector(".problem", state="visible")
        assert page.locator(".approve").bounding_box() == before


def test_on_a_small_phone_filters_and_actions_fold_beside_the_search(browser, gallery):
    with open_page(browser, gallery, viewport={"width": 320, "height": 640}) as page:
        assert page.locator(".cards").bounding_box()["y"] < 160
        assert page.locator(".query").is_visible() and page.locator(".show").is_hidden()
        page.get_by_role("button", name="Filters and actions", expanded=False).click()
        page.locator(".show").select_option("failed")
        page.locator(".fold.main").wait_for()  # a filter is on
        page.locator(".show").select_option("all")
        page.locator(".approve-all").click()
        page.get_by_role("button", name="Filters and actions", expanded=True).click()
        assert page.locator(".approve-all").is_hidden()
        assert page.locator(".told").is_visible()  # what was done
        assert "main" not in page.locator(".fold").get_attribute("class")


def test_fields_stay_within_their_dialog_on_a_small_phone(browser, gallery):
    with open_page(browser, gallery, viewport={"width": 320, "height": 640}) as page:
        page.locator(".fold").click()
        page.locator(".replace").click()
        buttons = page.locator(".replacer .dialog-buttons").bounding_box()
        for field in (".find-text", ".replace-text"):
            assert page.locator(field).bounding_box()["width"] <= buttons["width"]


def test_the_tools_leave_room_for_photos_in_a_low_window(browser, gallery):
    """As of a phone on its side, or at a large zoom."""
    with open_page(browser, gallery, viewport={"width": 740, "height": 360}) as page:
        page.locator(".card").first.focus()
        page.keyboard.press("End")
        assert page.locator(".bar-top").bounding_box()["height"] > 180
        card = page.locator(".card:focus").bounding_box()
        hidden = page.evaluate(
            "([x, y]) => !document.elementFromPoint(x, y).closest('.card')", [card["x"] + 9, 9]
        )
        assert not hidden


def test_at_a_large_zoom_nothing_covers_the_photo_and_its_number_is_whole(browser, gallery):
    """400% in a window of 1280 by 1024."""
    with open_page(browser, gallery, "#photo=0.jpg", viewport={"width": 320, "height": 256}) as page:
        page.wait_for_selector(".word")
        position = page.locator(".viewer .position")
        assert position.evaluate("(shown) => shown.scrollWidth <= shown.clientWidth")
        page.locator(".word").first.scroll_into_view_if_needed()
        covered = [".viewer header", ".review"]
        word = page.locator(".word").first.bounding_box()
        for part in (page.locator(name).bounding_box() for name in covered):
            assert part["y"] + part["height"] <= word["y"] or word["y"] + word["height"] <= part["y"]
        page.locator(".viewer").evaluate("(viewer) => viewer.scrollTo(0, 0)")
        photo, window = page.locator(".photo").bounding_box(), 256
        assert min(photo["y"] + photo["height"], window) - photo["y"] > window / 3
        assert page.locator(".review").bounding_box()["y"] >= photo["y"] + photo["height"]


def test_a_printed_gallery_has_all_photos_within_its_paper(browser, gallery):
    with open_page(browser, gallery, viewport={"width": 1600, "height": 300}) as page:
        page.emulate_media(media="print")
        right_edges = page.evaluate("""() => {
            dispatchEvent(new Event("beforeprint"));
            document.body.style.width = "700px"; // as the paper is narrower than the window
            return [...document.querySelectorAll(".card")].map((card) => card.getBoundingClientRect().right);
        }""")
        assert len(right_edges) == 5
        assert max(right_edges) <= 700
        assert page.locator(".tools").is_hidden()


def test_thousands_of_photos_stay_a_few_nodes(browser, large_gallery):
    with open_page(browser, large_gallery) as page:
        assert page.locator(".count").text_content() == f"{5000:,} photos"
        for _ in range(5):
            page.mouse.wheel(0, 20_000)
            page.evaluate("new Promise(requestAnimationFrame)")  # where the cards are drawn
            assert 0 < page.locator(".card").count() < 150
        page.locator(".card").first.focus()
        page.keyboard.press("End")
        assert (
            page.evaluate("document.activeElement.querySelector('.says').textContent")
            == "photo number 4999 of many"
        )
        assert page.locator(".card").count() < 150
        page.locator(".query").fill("number 4321")
        assert captions_shown(page) == ["photo number 4321 of many"]
        page.locator(".card").click()
        page.wait_for_selector(".view:not([hidden])")
        assert "No attention maps were kept" in page.locator(".detail").text_content()
        wait_for(page, "document.querySelector('.photo img').naturalWidth === 8")  # the original


def test_hostile_names_and_captions(browser, tmp_path, photo):
    records = []
    for number, text in enumerate(HOSTILE_TEXTS):
        name = f"{number} {text}"
        record = make_caption((text,)).to_dict(name)
        with suppress(OSError, ValueError):  # not a name that a file can have: the record fails
            photo.save(tmp_path / name, "JPEG")
        records += [record, {"image": text, "error": {"code": text, "message": text}}]
    page_path = tmp_path / "<img src=x onerror=alert(1)>.html"
    options = GalleryOptions(title="</title><script>alert(1)</script>", link_photos=True)
    write_gallery(records, page_path, tmp_path, options)
    with open_page(browser, page_path, "#photo=%3Cscript%3E&q=%3Cimg%20src=x%3E") as page:
        page.locator(".query").fill("")
        assert page.locator("h1").text_content() == "</title><script>alert(1)</script>"
        assert page.locator(".cards script").count() == 0
        count = page.locator(".card").count()
        assert count == len(records)
        for at in range(count):
            page.locator(".card").nth(at).click()
            page.wait_for_selector(".view:not([hidden]), .problem:not([hidden])")
            page.keyboard.press("Escape")


def test_odd_numbers_are_shown_all_the_same(browser, tmp_path, folder):
    record = json.loads(
        '{"image": "0.jpg", "caption": "x", "log_prob": NaN, '
        '"words": [{"text": "x", "log_prob": Infinity, "attention": [[0, 0], [0, 0]], "sentinel": NaN}]}'
    )
    write_gallery([record], tmp_path / "out.html", folder)
    with open_page(browser, tmp_path / "out.html", "#photo=0.jpg") as page:
        page.wait_for_selector(".word")


def test_a_page_without_its_folder_says_so(browser, tmp_path, gallery):
    alone = tmp_path / gallery.name
    alone.write_bytes(gallery.read_bytes())
    page = new_page(browser)
    page.goto(alone.resolve().as_uri())
    assert "my photos #1 100%.files is missing" in page.locator(".nothing").text_content()
    page.context.close()


def test_a_photo_opens_on_a_word_that_names_something(browser, tmp_path, photo):
    photo.save(tmp_path / "0.jpg")
    maps = [lit_cell(1, 1), blob(7, 7, 2.0)]
    write_gallery([make_caption(("a", "dog"), maps).to_dict("0.jpg")], tmp_path / "out.html", tmp_path)
    with open_page(browser, tmp_path / "out.html", "#photo=0.jpg") as page:
        page.wait_for_selector(".word")
        assert page.locator('.word[aria-pressed="true"] bdi').text_content() == "dog"


def test_other_captions_stand_in_the_order_of_their_numbers(browser, tmp_path, photo):
    photo.save(tmp_path / "0.jpg")
    others = (Alternative("a long and unlikely one", -9.0), Alternative("a likely one", -3.0))
    write_gallery([Caption("x", -1.0, (), others).to_dict("0.jpg")], tmp_path / "out.html", tmp_path)
    with open_page(browser, tmp_path / "out.html", "#photo=0.jpg") as page:
        page.wait_for_selector(".others li")
        shown = page.locator(".others .text").all_text_contents()
        assert shown == ["a likely one", "a long and unlikely one"]
