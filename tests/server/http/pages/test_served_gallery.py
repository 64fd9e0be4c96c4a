"""A gallery on a server, which keeps the decisions."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from support.browser import new_page
from support.captions import make_caption
from support.gallery import TEXTS, states
from support.models import FakeModel
from support.patience import wait_until
from support.serving import serve

from captioner.folder.corrections import CorrectionsFile
from captioner.overlay.gallery import GalleryOptions, write_gallery
from captioner_server.http.pages.gallery import DECISIONS, GALLERY_PATH, Gallery


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[tuple[str, Path]]:
    """The address of the gallery, and the file of its decisions."""
    root = tmp_path_factory.mktemp("served")
    for number in range(len(TEXTS)):
        Image.new("RGB", (30, 20), (60 * number, 90, 120)).save(root / f"{number}.jpg")
    records = [make_caption(text.split()).to_dict(f"{number}.jpg") for number, text in enumerate(TEXTS)]
    page = write_gallery(records, root / "gallery.html", root, GalleryOptions(saves_to=DECISIONS)).page
    gallery = Gallery(page, CorrectionsFile(root / "corrections.jsonl"))
    with serve(FakeModel(), gallery, http_port=0, decode_workers=1) as running:
        yield f"{running.server.http_url}{GALLERY_PATH}", gallery.decisions.path


def kept(file: Path) -> dict[str, str]:
    """The status of each photo that was decided about."""
    lines = map(json.loads, file.read_text().splitlines())
    return {line["image"]: line["status"] for line in lines}


def test_what_a_server_keeps_and_what_it_does_not_is_said(browser, served):
    address, file = served
    file.unlink(missing_ok=True)
    page, gone = new_page(browser), False
    page.route("**/*", lambda route: route.abort() if gone else route.continue_())
    page.clock.install()
    page.goto(address)
    with page.expect_response(lambda response: response.request.method == "POST") as answered:
        page.locator(".approve-all").click()
    assert answered.value.ok
    assert len(kept(file)) == 4
    page.evaluate("new Promise(requestAnimationFrame)")
    assert page.locator(".told").text_content() == "Approved: 4 captions"

    page.locator(".card").first.click()
    page.wait_for_selector(".word")
    gone = True
    page.keyboard.press("r")
    warning = page.locator(".viewer").get_by_role("alert")
    warning.get_by_text("Not saved: the server cannot be reached.").wait_for()
    page.locator(".problem").get_by_text("The server cannot be reached.").wait_for()
    gone = False
    page.keyboard.press("a")
    warning.wait_for(state="hidden")

    for event in ("online", "visibilitychange"):
        gone = True
        page.keyboard.press("u")
        warning.wait_for()
        gone = False
        page.evaluate(f"document.dispatchEvent(new Event('{event}', {{ bubbles: true }}))")
        warning.wait_for(state="hidden")
    gone = True
    page.keyboard.press("u")
    warning.wait_for()
    gone = False
    page.clock.run_for(60_000)  # without anybody
    warning.wait_for(state="hidden")
    assert kept(file) == {}
    page.context.close()


def test_a_tab_shows_what_was_decided_elsewhere_when_its_reader_comes_back(browser, served):
    address, file = served
    other = {"image": "3.jpg", "caption": "a photo of somebody else", "status": "edited"}
    file.write_text(f"{json.dumps(other)}\n")
    first, second = (new_page(browser) for _ in range(2))  # of two browsers
    for tab, number in ((first, 0), (second, 1)):
        tab.goto(address)
        tab.locator(".card").nth(number).click()
        tab.wait_for_selector(".word")
        tab.keyboard.press("a")
        tab.keyboard.press("Escape")
    wait_until(lambda: len(kept(file)) == 3)
    first.evaluate("dispatchEvent(new Event('focus'))")
    first.locator(".card .status").nth(2).wait_for()
    assert states(first) == ["approved", "approved", "edited"]
    assert first.locator(".told").text_content() == "Changed elsewhere: 1.jpg"
    first.keyboard.press("u")
    wait_until(lambda: len(kept(file)) == 2)
    second.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    second.locator(".card .status").nth(2).wait_for(state="detached")
    assert states(second) == ["approved", "edited"]
    for tab in (first, second):
        tab.context.close()
