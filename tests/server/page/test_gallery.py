"""Several photos become a gallery."""

import json
from pathlib import Path

from support.browser import find_axe, take_screenshot, violations
from support.page import CAT, COFFEE, open_at, say_of, wait_for_caption, wait_out, words


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
        coffee = say_of(server.engine, COFFEE, alternatives=3)
        assert words(page) == [word.text for word in coffee.words]
        page.keyboard.press("PageUp")
        page.locator(".status.bad").wait_for()
        page.keyboard.press("PageUp")
        page.locator(".word").first.wait_for()
        assert page.locator(".file-name").text_content() == "cat.jpg"
        page.locator(".back").click()
        assert page.locator(".card").count() == 1
        with page.expect_download() as download:
            page.locator(".captions-file").click()
        lines = Path(download.value.path()).read_text().splitlines()
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
        assert words(page) == [word.text for word in say_of(server.engine, CAT).words]


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


def test_a_gallery_that_was_not_downloaded_is_not_replaced_unasked(browser, server):
    with open_at(browser, server) as page:
        question = page.get_by_role("dialog", name="Replace the photos on this page?")
        page.set_input_files(".files", [CAT, COFFEE])
        page.get_by_text("2 of 2 photos captioned").wait_for()
        page.set_input_files(".files", CAT)
        page.get_by_text("2 captions have not been downloaded.").wait_for()
        assert page.evaluate("document.activeElement.value") == "keep"
        take_screenshot(page, "http-replacing")
        assert violations(page, find_axe()) == []
        page.keyboard.press("Escape")
        question.wait_for(state="hidden")
        assert page.locator(".card").count() == 2

        page.locator(".camera").click()
        question.wait_for()
        page.keyboard.press("Enter")
        question.wait_for(state="hidden")
        assert page.locator(".card").count() == 2

        page.set_input_files(".files", [COFFEE, CAT, COFFEE])
        with page.expect_download() as download:
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
        lines = Path(download.value.path()).read_text().splitlines()
        assert [json.loads(line)["image"] for line in lines] == ["cat.jpg", "coffee.jpg"]
        page.get_by_text("3 of 3 photos captioned").wait_for()

        with page.expect_download():
            page.locator(".captions-file").click()
        page.set_input_files(".files", CAT)  # nothing would be lost
        wait_for_caption(page)
        assert question.is_hidden()


def test_leaving_a_gallery_that_was_not_downloaded_asks(browser, server):
    with open_at(browser, server) as page:
        page.set_input_files(".files", [CAT, COFFEE])
        page.get_by_text("2 of 2 photos captioned").wait_for()
        page.locator(".query").click()  # browsers ask only for pages that were touched
        asked = []
        page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
        page.reload()
        assert asked == ["beforeunload"]
