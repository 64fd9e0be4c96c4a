"""Working in a gallery: reviewing one caption and many, undoing, and taking the captions away."""

import csv
import json
import zipfile
from pathlib import Path

import pytest
from support.browser import new_page, open_page, wait_for
from support.gallery import TEXTS, captions_shown, states

from captioner.overlay.gallery import write_gallery
from captioner.results import Caption


def save(page, kind: str, folder: Path) -> Path:
    """The file that the download menu makes."""
    with page.expect_download() as download:
        page.locator(".save-menu summary").click()
        page.locator(f"[data-save={kind}]").click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def wait_for_photo(page, name: str) -> None:
    wait_for(page, f"document.querySelector('.viewer-name').textContent === {json.dumps(name)}")


def test_review_by_keyboard(browser, gallery, tmp_path):
    with open_page(browser, gallery, "#photo=0.jpg") as page:
        page.wait_for_selector(".word")
        page.keyboard.press("a")
        wait_for_photo(page, "1.jpg")
        page.keyboard.press("e")
        page.keyboard.type("a grey <b>cat</b>")
        page.keyboard.press("Enter")  # on to the photo that failed
        wait_for(page, "document.querySelector('.viewer-name').textContent.startsWith('broken')")
        assert page.locator(".approve").is_disabled()
        page.keyboard.press("PageDown")
        page.wait_for_selector(".view:not([hidden])")
        page.keyboard.press("r")
        page.keyboard.press("a")  # the last one
        assert page.locator(".review-state").text_content() == "Approved"
        page.keyboard.press("a")
        assert page.locator(".review-state").text_content() == ""
        page.keyboard.press("e")
        page.keyboard.press("Escape")
        assert page.locator(".editor").is_hidden() and page.locator(".viewer").is_visible()
        page.keyboard.press("Escape")
        assert states(page) == ["approved", "edited", "rejected"]
        assert "a grey <b>cat</b>" in captions_shown(page)
        corrections = save(page, "corrections", tmp_path)
        page.locator(".show").select_option("open")
        assert captions_shown(page) == [TEXTS[3]]
        page.reload()
        assert page.locator("[data-save=corrections]").is_enabled()
    assert [json.loads(line) for line in corrections.read_text().splitlines()] == [
        {"image": "0.jpg", "caption": TEXTS[0], "status": "approved"},
        {"image": "1.jpg", "caption": "a grey <b>cat</b>", "status": "edited"},
        {"image": "2.jpg", "caption": TEXTS[2], "status": "rejected"},
    ]


def test_the_view_says_which_photo_it_is_and_how_many_are_decided(browser, gallery):
    with open_page(browser, gallery, "#q=dog") as page:
        page.locator(".card").first.click()
        page.get_by_role("dialog", name="0.jpg 1 of 2").wait_for()
        assert page.locator(".review-count").text_content() == ""
        page.keyboard.press("a")
        page.get_by_role("dialog", name="2.jpg 2 of 2").wait_for()
        assert page.locator(".review-count").text_content() == "1 of 2 decided"
        page.keyboard.press("u")
        assert page.locator(".review-count").text_content() == ""
        page.keyboard.press("Escape")
        page.locator(".query").fill("snow")
        page.locator(".card").click()
        assert page.locator(".position").text_content() == ""  # the only one


def test_what_was_done_and_what_is_shown_now_is_heard_in_the_view(browser, gallery):
    with open_page(browser, gallery) as page:
        page.locator(".card").nth(1).click()
        heading = page.get_by_role("heading", name=TEXTS[1])
        heading.wait_for()
        heard = page.locator(".viewer [aria-live=polite].review-told")
        assert page.evaluate("document.activeElement.className").startswith("unseen view-title")
        page.keyboard.press("a")  # on to the photo that failed
        heard.get_by_text("Approved: 1.jpg").wait_for()
        heard.get_by_text("broken <i>.jpg, 3 of 5, the file is missing").wait_for()
        page.keyboard.press("PageDown")
        page.locator(".word").last.focus()
        page.keyboard.press("r")
        heard.get_by_text("Rejected: 2.jpg").wait_for()
        heard.get_by_text(f"3.jpg, 5 of 5, {TEXTS[3]}").wait_for()
        assert page.locator(":focus").text_content() == TEXTS[3]  # the word is gone
        page.keyboard.press("PageUp")
        page.locator(".approve").focus()
        page.keyboard.press("Enter")
        heard.get_by_text("Approved: 2.jpg").wait_for()
        assert page.locator(".approve:focus").count() == 1  # for the next one


def test_a_caption_is_one_line_without_control_characters(browser, gallery, tmp_path):
    with open_page(browser, gallery, "#photo=0.jpg") as page:
        page.wait_for_selector(".word")
        for text in ("\x1c\x85\x07 ", "a\x00b\x1c\n\x85c"):  # the first is none
            page.locator(".edit").click()
            page.locator(".editor textarea").fill(text)
            page.keyboard.press("Enter")
        wait_for_photo(page, "1.jpg")
        page.keyboard.press("Escape")
        assert captions_shown(page)[0] == "a b c"
        page.locator(".replace").click()
        page.locator(".find-text").fill("a b c")
        page.locator(".replace-text").fill("\x1c\x07")
        assert page.locator(".replacer [value=ok]").is_disabled()
        page.keyboard.press("Escape")
        corrections = save(page, "corrections", tmp_path)
    assert json.loads(corrections.read_text()) == {"image": "0.jpg", "caption": "a b c", "status": "edited"}


def test_the_last_action_is_undone_wherever_one_is(browser, gallery):
    with open_page(browser, gallery, "#photo=0.jpg") as page:
        page.wait_for_selector(".word")
        page.keyboard.press("a")
        wait_for_photo(page, "1.jpg")
        page.keyboard.press("u")
        wait_for_photo(page, "0.jpg")
        assert page.locator(".review-state").text_content() == ""
        page.locator(".reject").click()
        wait_for_photo(page, "1.jpg")
        page.keyboard.press("Escape")
        assert states(page) == ["rejected"]
        page.keyboard.press("Control+z")
        assert states(page) == []
        assert page.locator(".told").text_content() == "Undone: rejected (0.jpg)"
        assert page.locator(".actions .undo").is_disabled()


def test_a_photo_that_failed_shows_the_caption_that_was_written_for_it(browser, gallery):
    with open_page(browser, gallery, "#photo=broken+%3Ci%3E.jpg") as page:
        page.keyboard.press("e")
        page.locator(".editor textarea").fill("a dog that nobody can see")
        page.keyboard.press("Enter")
        wait_for_photo(page, "2.jpg")
        page.keyboard.press("PageUp")
        page.locator(".review-state", has_text="Edited").wait_for()
        assert "a dog that nobody can see" in page.locator(".viewer").inner_text()


def test_two_tabs_keep_the_decisions_of_both(browser, gallery):
    with open_page(browser, gallery) as page:
        other = page.context.new_page()
        other.goto(page.url)
        for tab, number in ((page, 0), (other, 3)):
            tab.locator(".card").nth(number).click()
            tab.keyboard.press("a")
            tab.keyboard.press("Escape")
        page.locator(".card .status").nth(1).wait_for()
        other.reload()
        other.locator(".card .status").nth(1).wait_for()
        for tab in (page, other):
            assert states(tab) == ["approved", "approved"]
        page.keyboard.press("u")
        other.locator(".card .status").nth(1).wait_for(state="detached")
        assert states(page) == states(other) == ["approved"]


KEEPS_NOTHING = "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no') } })"
IS_FULL = "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError') }"


@pytest.mark.parametrize("storage", [KEEPS_NOTHING, IS_FULL], ids=["keeps nothing", "is full"])
def test_a_browser_that_keeps_no_decisions_is_told_of_before_they_are_lost(browser, gallery, storage):
    page = new_page(browser)
    page.add_init_script(storage)
    page.goto(gallery.resolve().as_uri())
    page.locator(".card").first.click()
    page.wait_for_selector(".word")
    page.keyboard.press("a")
    page.get_by_role("alert").get_by_text("download the corrections before you leave").wait_for()
    page.keyboard.press("Escape")
    assert "does not keep decisions" in page.locator(".told").text_content()
    with page.expect_event("dialog") as asked:
        page.close(run_before_unload=True)
    assert asked.value.type == "beforeunload"
    asked.value.accept()
    page.context.close()


def test_a_photo_without_a_caption_has_a_heading(browser, photo, tmp_path):
    photo.save(tmp_path / "0.jpg")
    write_gallery([Caption("", -1.0).to_dict("0.jpg")], tmp_path / "out.html", tmp_path)
    with open_page(browser, tmp_path / "out.html", "#photo=0.jpg") as page:
        page.get_by_role("heading", name="0.jpg").wait_for()


def test_an_alternative_is_chosen_by_mouse_and_by_key(browser, gallery):
    with open_page(browser, gallery, "#photo=0.jpg") as page:
        page.wait_for_selector(".word")
        page.get_by_role("button", name="Use 2: a third").click()
        wait_for_photo(page, "1.jpg")
        page.wait_for_selector(".view:not([hidden])")
        page.keyboard.press("1")
        page.keyboard.press("Escape")
        assert captions_shown(page)[:2] == ["a third", "another <b>caption</b>"]
        page.locator(".card").first.click()
        page.wait_for_selector(".view:not([hidden])")
        assert page.locator(".said").text_content() == "a third"
        assert page.locator(".photo img").get_attribute("alt") == "a third"


def test_all_that_are_shown_are_approved_at_once(browser, gallery):
    with open_page(browser, gallery) as page:
        page.locator(".query").fill("dog")
        page.locator(".approve-all").click()
        assert page.locator(".told").text_content() == "Approved: 2 captions"
        page.locator(".query").fill("")
        page.locator(".show").select_option("approved")
        assert captions_shown(page) == [TEXTS[0], TEXTS[2]]
        page.locator(".actions .undo").click()
        page.locator(".show").select_option("open")
        assert captions_shown(page) == list(TEXTS)


def test_find_and_replace_over_all_captions(browser, gallery):
    with open_page(browser, gallery) as page:
        page.get_by_role("button", name="Find and replace").click()
        page.locator(".find-text").fill("a")
        assert page.locator(".replacer-count").text_content() == "3 captions change:"
        page.locator(".find-text").fill("DOG")  # whole words, in any case
        page.locator(".replace-text").fill("husky")
        assert page.locator(".replacer-count").text_content() == "1 caption changes:"
        assert page.locator(".replacer-samples").text_content() == "a black husky runs"
        page.keyboard.press("Enter")
        assert captions_shown(page)[0] == "a black husky runs"
        page.keyboard.press("u")
        assert captions_shown(page)[0] == TEXTS[0]


def test_words_are_replaced_whole_in_any_script(browser, photo, tmp_path):
    photo.save(tmp_path / "0.jpg")
    record = {"image": "0.jpg", "caption": "दो बसें और बस", "words": []}
    write_gallery([record], tmp_path / "out.html", tmp_path)
    with open_page(browser, tmp_path / "out.html") as page:
        page.get_by_role("button", name="Find and replace").click()
        page.locator(".find-text").fill("बस")
        page.locator(".replace-text").fill("गाड़ी")
        assert page.locator(".replacer-samples").text_content() == "दो बसें और गाड़ी"


def test_downloads(browser, tree, tmp_path):
    with open_page(browser, tree) as page:
        page.locator(".card").first.click()
        page.wait_for_selector(".word")
        page.keyboard.press("r")
        page.wait_for_selector(".view:not([hidden])")
        page.keyboard.press("e")
        page.keyboard.type('a "boat", é')
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        files = {kind: save(page, kind, tmp_path) for kind in ("csv", "txt", "zip")}
    said = ['a "boat", é', "a fish", "a boat"]
    with files["csv"].open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == ["sea/b.jpg", "sea/deep/b.jpg", "seaside/c,1.png"]
    assert [row["caption"] for row in rows] == said
    assert files["txt"].read_text(encoding="utf-8").splitlines() == said
    with zipfile.ZipFile(files["zip"]) as sidecars:
        assert sidecars.testzip() is None
        assert sidecars.namelist() == ["sea/b.txt", "sea/deep/b.txt", "seaside/c,1.txt"]
        assert sidecars.read("sea/b.txt").decode() == 'a "boat", é\n'


def test_a_table_has_no_formulas(browser, tree):
    photos = [{"file": name, "said": said} for name, said in (("=1.jpg", "=1"), ("x;=1.jpg", "a;=1;b\t-2"))]
    with open_page(browser, tree) as page:
        table = page.evaluate("makeTable", photos)
    assert table.split("\r\n") == ["image,caption", "./=1.jpg,'=1", '"x;=1.jpg","a;\'=1;b\t\'-2"', ""]


def test_the_sentence_is_copied_without_its_percentages(browser, gallery):
    with open_page(browser, gallery, "#photo=0.jpg") as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.wait_for_selector(".word")
        page.locator(".copy").click()
        page.get_by_text("Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == TEXTS[0]
        first, last = (page.locator(".word bdi").nth(at).bounding_box() for at in (1, 3))
        page.mouse.move(first["x"] + 1, first["y"] + first["height"] / 2)
        page.mouse.down()
        page.mouse.move(last["x"] + last["width"] - 1, last["y"] + last["height"] / 2)
        page.mouse.up()
        page.keyboard.press("Control+c")
        assert page.evaluate("navigator.clipboard.readText()") == "black dog runs"


def test_a_photo_has_one_confidence_and_says_what_it_is(browser, tree, gallery):
    with open_page(browser, tree, "#photo=a.jpg") as page:
        page.wait_for_selector(".word")
        assert "Confidence20%the chance that the caption is good" in page.locator(".numbers").text_content()
        assert page.locator(".numbers dt").all_text_contents() == ["Confidence", "Model"]
    with open_page(browser, gallery, "#photo=0.jpg") as page:
        page.wait_for_selector(".word")
        assert page.locator(".numbers dt").all_text_contents() == ["Likelihood of a word", "Model"]
