"""Several photos become a gallery."""

import json
from pathlib import Path

from PIL import Image
from support.browser import Held, find_axe, take_screenshot, violations
from support.page import CAT, COFFEE, open_at, say_of, wait_for_caption, wait_out, words


def save(page, kind: str) -> str:
    """The file that the download menu makes."""
    page.locator(".save-menu summary").click()
    with page.expect_download() as download:
        page.locator(f"[data-save={kind}]").click()
    return Path(download.value.path()).read_text()


def test_many_photos_become_a_gallery(browser, server, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    with open_at(browser, server, expected=("400",)) as page:
        page.set_input_files(".files", [CAT, tmp_path / "broken.jpg", COFFEE])
        page.get_by_text("2 of 3 photos captioned, 1 failed").wait_for()
        assert page.locator(".card .name").all_text_contents() == ["cat.jpg", "broken.jpg", "coffee.jpg"]
        assert "not an image" in page.locator(".card.failed .says").text_content().lower()
        take_screenshot(page, "http-gallery")
        page.locator(".query").fill("coffee")
        page.locator(".card").click()
        coffee = say_of(server.model, COFFEE, alternatives=3)
        page.locator(".word").first.wait_for()
        assert words(page) == [word.text for word in coffee.words]
        page.keyboard.press("PageUp")
        page.locator(".status.bad").wait_for()
        page.keyboard.press("PageUp")
        page.locator(".word").first.wait_for()
        assert page.locator(".file-name").text_content() == "cat.jpg"
        page.locator(".back").click()
        assert page.locator(".card").count() == 1
        lines = save(page, "jsonl").splitlines()
        assert [json.loads(line)["image"] for line in lines] == ["cat.jpg", "broken.jpg", "coffee.jpg"]
        assert json.loads(lines[1])["error"]["code"] == "not_an_image"


def test_a_dropped_folder_becomes_a_gallery(browser, server, tmp_path):
    """A real folder, dropped as the system drops it: photos below it are found, anything else is left out."""
    inside = tmp_path / "holiday" / "day two"
    inside.mkdir(parents=True)
    (inside.parent / "1.jpg").write_bytes(CAT.read_bytes())
    (inside / "2 ü.jpg").write_bytes(COFFEE.read_bytes())
    (inside / "broken.jpg").write_bytes(b"no photo")
    (inside / "notes.txt").write_text("no photo")
    (inside / "empty").mkdir()
    with open_at(browser, server, expected=("400",)) as page:
        protocol = page.context.new_cdp_session(page)
        data = {"items": [], "files": [str(inside.parent)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            event = {"type": kind, "x": 400, "y": 300, "data": data}
            protocol.send("Input.dispatchDragEvent", event)
        page.get_by_text("2 of 3 photos captioned, 1 failed").wait_for()
        assert page.locator(".card").count() == 3
        shown = page.locator(".gallery").text_content()
        assert "notes.txt" not in shown
        page.locator(".card").nth(0).click()
        wait_for_caption(page)
        assert words(page) == [word.text for word in say_of(server.model, CAT).words]


def test_a_gallery_goes_on_when_the_server_is_back(browser, server):
    with open_at(browser, server, expected=("Failed to load",)) as page:
        page.clock.install()
        page.route("**/v1/caption*", lambda route: route.abort())
        page.set_input_files(".files", [CAT, COFFEE])
        wait_out(page)
        shown = page.locator(".status").text_content()
        assert shown == "The server cannot be reached. 0 of 2 photos captioned"
        assert page.locator(".card.failed").count() == 0
        page.unroute("**/v1/caption*")
        page.locator(".again").press("Enter")
        page.get_by_text("2 of 2 photos captioned").wait_for()
        assert page.locator(".again").is_hidden()
        assert page.evaluate("document.activeElement.className") == "status"


def test_photos_join_those_on_the_page_until_they_are_removed(browser, server):
    with open_at(browser, server) as page:
        question = page.get_by_role("dialog", name="Remove the photos from this page?")
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        page.set_input_files(".files", [COFFEE, CAT])
        page.get_by_text("3 of 3 photos captioned").wait_for()
        names = ["cat.jpg", "coffee.jpg", "cat (2).jpg"]
        assert page.locator(".card .name").all_text_contents() == names
        page.set_input_files(".files", COFFEE)  # one more is shown at once
        page.get_by_text("coffee (2).jpg: ").wait_for()
        page.locator(".clear").click()
        page.get_by_text("4 captions have not been downloaded.").wait_for()
        assert page.evaluate("document.activeElement.value") == "keep"
        take_screenshot(page, "http-removing")
        assert violations(page, find_axe()) == []
        page.keyboard.press("Escape")
        question.wait_for(state="hidden")
        page.locator(".back").click()
        page.locator(".gallery").wait_for()
        assert page.locator(".card").count() == 4

        page.locator(".clear").click()
        with page.expect_download() as download:
            page.get_by_role("button", name="Download and remove").click()
        lines = Path(download.value.path()).read_text().splitlines()
        assert [line.split(",")[0] for line in lines] == ["image", *names, "coffee (2).jpg"]
        page.locator(".example").first.wait_for()
        assert page.locator(".card").count() == 0 and page.locator(".clear").is_hidden()


def test_captions_are_edited_approved_and_undone_on_the_page(browser, server):
    with open_at(browser, server) as page:
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        page.keyboard.press("2")
        assert page.locator(".said").text_content() == "other 1"
        assert page.locator(".review-state").text_content() == "Edited"
        page.keyboard.press("u")
        assert page.locator(".said").is_hidden()
        page.keyboard.press("e")
        page.keyboard.type("my own cat")
        page.keyboard.press("Enter")
        page.set_input_files(".files", COFFEE)
        page.get_by_text("coffee.jpg: ").wait_for()
        page.keyboard.press("a")
        page.locator(".back").click()
        assert page.locator(".card .status").all_text_contents() == ["edited", "approved"]
        corrections = [json.loads(line) for line in save(page, "corrections").splitlines()]
        assert corrections[0] == {"image": "cat.jpg", "caption": "my own cat", "status": "edited"}
        assert corrections[1]["status"] == "approved"
        page.get_by_role("button", name="Find and replace").click()
        page.locator(".find-text").fill("cat")
        page.locator(".replace-text").fill("tiger")
        page.keyboard.press("Enter")
        page.locator(".card", has_text="my own tiger").click()
        with page.expect_download() as download:
            page.locator("[data-format=json]").click()
        record = json.loads(Path(download.value.path()).read_text())
        assert record["caption"] == "my own tiger" and "words" not in record


def press_at_once(page, *keys: str) -> None:
    """Before the page does anything that it does later."""
    page.evaluate(
        """(keys) => keys.forEach((key) =>
            document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })))""",
        keys,
    )


def test_keys_that_are_pressed_at_once_are_for_one_photo_after_the_other(browser, server):
    with open_at(browser, server) as page:
        page.set_input_files(".files", [CAT, COFFEE])
        page.get_by_text("2 of 2 photos captioned").wait_for()
        page.locator(".card").first.click()
        wait_for_caption(page)
        press_at_once(page, "a", "a")
        assert page.locator(".file-name").text_content() == "coffee.jpg"
        press_at_once(page, "u")
        assert page.locator(".review-state").text_content() == ""
        press_at_once(page, "PageUp", "r", "u", "u")
        assert page.locator(".file-name").text_content() == "cat.jpg"
        assert page.locator(".review-state").text_content() == ""
        press_at_once(page, "a", "2")
        assert page.locator(".position").text_content() == "2 of 2"
        assert page.locator(".review-count").text_content() == "2 of 2 decided"
        page.locator(".back").click()
        assert page.locator(".card .status").all_text_contents() == ["approved", "edited"]
        page.go_back()
        page.locator(".single").wait_for()
        assert page.locator(".file-name").text_content() == "coffee.jpg"


def test_what_was_done_is_heard_though_the_page_moves_on(browser, server):
    with open_at(browser, server) as page:
        page.set_input_files(".files", [CAT, COFFEE])
        page.get_by_text("2 of 2 photos captioned").wait_for()
        page.locator(".card").first.press("Enter")
        wait_for_caption(page)
        assert page.locator(":focus").text_content() == say_of(server.model, CAT).text
        page.keyboard.press("r")
        page.locator(".review-done", has_text="Rejected: cat.jpg").wait_for()
        now = f"coffee.jpg, 2 of 2, {say_of(server.model, COFFEE).text}"
        assert page.locator(".review-now").text_content() == now
        page.locator(".back").click()
        page.locator(".card").first.click()
        assert page.locator(".review-done").text_content() == ""


def test_a_photo_that_waits_shows_nothing_of_the_one_before(browser, server, tmp_path):
    Image.open(CAT).save(tmp_path / "cat.NEF", "TIFF")  # of which the server makes a picture first
    with open_at(browser, server) as page:
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        held = Held(page, "**/v1/*")
        page.set_input_files(".files", tmp_path / "cat.NEF")
        page.get_by_text("Captioning cat.NEF").wait_for()
        assert words(page) == []
        page.set_input_files(".files", [COFFEE, COFFEE])
        page.locator(".card").first.click()
        wait_for_caption(page)
        press_at_once(page, "PageDown", "PageDown", "1")
        assert page.locator(".file-name").text_content() == "coffee.jpg"
        assert page.locator(".review-state").text_content() == "" and words(page) == []
        held.release()
        wait_for_caption(page)
        coffee = say_of(server.model, COFFEE, alternatives=3)
        assert words(page) == [word.text for word in coffee.words]


def test_a_photo_that_comes_before_the_page_knows_the_model_has_alternatives_too(browser, server):
    with open_at(browser, server) as page:
        held = Held(page, "**/v1/model")
        page.reload()
        page.set_input_files(".files", CAT)
        page.get_by_text("Captioning cat.jpg").wait_for()
        held.release()
        wait_for_caption(page)
        assert page.locator(".others li").count() == 3


def test_leaving_a_gallery_that_was_not_downloaded_asks(browser, server):
    with open_at(browser, server) as page:
        page.set_input_files(".files", [CAT, COFFEE])
        page.get_by_text("2 of 2 photos captioned").wait_for()
        page.locator(".query").click()  # browsers ask only for pages that were touched
        asked = []
        page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
        page.reload()
        assert asked == ["beforeunload"]
