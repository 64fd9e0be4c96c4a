"""One photo, the camera, the token, looks and accessibility of the page at /."""

import json
import threading
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from support.browser import DESK, PHONE, find_axe, new_page, overhang, take_screenshot, violations, wait_for
from support.models import FakeModel
from support.page import CAT, COFFEE, open_at, say_of, small_png, wait_for_caption, words
from support.patience import PATIENCE_S
from support.serving import serve

from captioner.folder.text import TextOptions
from captioner.overlay.payload import make_payload
from captioner.overlay.scene import OverlayOptions, show_word


def test_a_photo_is_captioned_word_by_word_and_then_searched(browser, server):
    with open_at(browser, server) as page:
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        caption = say_of(server.model, CAT, alternatives=3)
        assert words(page) == [word.text for word in caption.words]
        assert page.locator(".others li .text").all_text_contents() == [
            other.text for other in caption.alternatives
        ]
        assert caption.text in page.locator(".status").text_content()
        page.locator(".word").nth(1).click()
        assert page.locator('.word[aria-pressed="true"] bdi').text_content() == caption.words[1].text
        page.keyboard.press("ArrowRight")
        assert page.locator('.word[aria-pressed="true"] bdi').text_content() == caption.words[2].text
        take_screenshot(page, "http-single")


def test_words_appear_while_others_are_decoded(browser):
    model = FakeModel()
    with serve(model, http_port=0, decode_workers=1) as server, open_at(browser, server) as page:
        read = threading.Semaphore(1)  # the model stops after its second word
        model.first_word_read = SimpleNamespace(wait=read.acquire)
        try:
            page.set_input_files(".files", CAT)
            page.locator(".word").nth(1).wait_for()
            assert page.locator(".downloads").is_hidden()
        finally:
            read.release(100)
        wait_for_caption(page)


def test_maps_are_computed_as_in_python(browser, server):
    with open_at(browser, server) as page:
        caption = say_of(server.model, CAT, attention_size=(7, 9), alternatives=2)
        shown = tuple(show_word(word, number) for number, word in enumerate(caption.words, 1))
        expected = make_payload(caption, shown, (640, 480), OverlayOptions())
        made = page.evaluate(
            "([caption, size]) => makePayload(caption, size, JSON.parse(settings.textContent))",
            [caption.to_dict(), {"width": 640, "height": 480}],
        )
        assert made.keys() == expected.keys()
        assert (made["grid"], made["colormap"]) == (expected["grid"], expected["colormap"])
        for ours, theirs in zip(made["words"], expected["words"], strict=True):
            assert ours["map"] == theirs["map"]
            for name in ("max", "floor", "peak"):
                assert ours[name] == pytest.approx(theirs[name], rel=1e-4)


def test_downloads(browser, server, tmp_path):
    with open_at(browser, server) as page:
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        files = {}
        for format in ("png", "webp", "html", "json"):
            with page.expect_download() as download:
                page.locator(f"[data-format={format}]").click()
            files[format] = tmp_path / download.value.suggested_filename
            download.value.save_as(files[format])
            assert files[format].name == f"cat.{format}"
    caption = say_of(server.model, CAT, alternatives=3)
    record = json.loads(files["json"].read_text())
    assert (record["image"], record["caption"]) == ("cat.jpg", caption.text)
    for format in ("png", "webp"):
        with Image.open(files[format]) as picture:
            assert picture.format == format.upper()
            assert np.asarray(picture.convert("L")).std() > 20
    opened = new_page(browser)
    opened.goto(files["html"].as_uri())
    assert words(opened) == [word.text for word in caption.words]
    assert opened.locator(".photo img").evaluate("image => image.naturalWidth") > 100


@pytest.mark.parametrize(("known", "language"), [(("red", "dog"), "en"), (("roter", "auf"), "")])
def test_captions_carry_their_language(browser, server, tmp_path, monkeypatch, known, language):
    monkeypatch.setattr("support.models.WORDS", known)
    with open_at(browser, server) as page:
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        with page.expect_download() as download:
            page.locator("[data-format=html]").click()
        download.value.save_as(tmp_path / "page.html")
        assert page.locator(".word bdi").first.get_attribute("lang") == language
    opened = new_page(browser)
    opened.goto((tmp_path / "page.html").as_uri())
    for place in ("title", "h1", ".word bdi"):
        assert opened.locator(place).first.get_attribute("lang") == language, place


def test_a_dropped_and_a_pasted_photo(browser, server):
    with open_at(browser, server) as page:
        for event in ("drop", "paste"):
            page.evaluate(
                """async ([event, data]) => {
                  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
                  const transfer = new DataTransfer();
                  transfer.items.add(new File([bytes], `${event}.png`, { type: "image/png" }));
                  const made = event === "drop"
                    ? new DragEvent(event, { dataTransfer: transfer, bubbles: true })
                    : new ClipboardEvent(event, { clipboardData: transfer, bubbles: true });
                  document.body.dispatchEvent(made);
                }""",
                [event, small_png()],
            )
            page.get_by_text(f"{event}.png: ").wait_for()


def test_a_lost_connection_keeps_the_words_and_can_be_tried_again(browser, server):
    event = 'event: word\ndata: {"text": "half", "log_prob": -1, "attention": [[1]]}\n\n'
    with open_at(browser, server) as page:
        page.route("**/v1/caption*", lambda route: route.fulfill(body=event))
        page.set_input_files(".files", CAT)
        page.get_by_text("cat.jpg: The connection to the server was lost.").wait_for()
        assert words(page) == ["half"]
        page.unroute("**/v1/caption*")
        page.locator(".again").click()
        wait_for_caption(page)
        assert len(words(page)) == 5


def test_a_busy_or_slow_server_is_waited_for(browser, server):
    busy = {"error": {"code": "BUSY", "message": "The server is busy."}}
    with open_at(browser, server, expected=("429",)) as page:
        page.clock.install()
        answers = [429]

        def answer(route: Any) -> None:
            if answers:
                route.fulfill(status=answers.pop(), json=busy, headers={"Retry-After": "7"})
            else:
                held.append(route)

        held: list[Any] = []
        page.route("**/v1/caption*", answer)
        page.set_input_files(".files", CAT)
        page.get_by_text("The server is busy; trying again in 7 s…").wait_for()
        while not held:
            page.clock.run_for(1000)
        page.clock.run_for(9000)
        page.get_by_text("No answer yet: the network or the server is slow. Still waiting…").wait_for()
        held.pop().continue_()
        wait_for_caption(page)


def test_photos_that_the_server_does_not_take_are_said(browser, tmp_path):
    (tmp_path / "large.tiff").write_bytes(bytes(3 * 2**20))
    with (
        serve(FakeModel(), http_port=0, decode_workers=1, max_image_bytes=2**21) as server,
        open_at(browser, server) as page,
    ):
        page.get_by_text("on cpu").wait_for()
        page.set_input_files(".files", tmp_path / "large.tiff")
        page.get_by_text("The file is too large: it has 3 MB, the server takes 2 MB").wait_for()
        assert page.locator(".again").is_hidden()
        page.route("**/v1/caption*", lambda route: route.fulfill(body="<html>Please log in</html>"))
        page.locator(".clear").click()
        page.set_input_files(".files", [CAT, COFFEE])
        page.get_by_text("0 of 2 photos captioned, 2 failed").wait_for()
        assert page.get_by_text("The answer is not one of this server.").count() == 2
        page.unroute("**/v1/caption*")
        page.locator(".again").click()
        page.locator(".status", has_text="2 of 2 photos captioned").wait_for()
        page.locator(".card.failed").first.wait_for(state="detached")


def test_a_photo_that_the_browser_cannot_show(browser, server, tmp_path):
    """TIFF here, HEIC of phones, RAW: the server sends the picture that it decoded."""
    Image.open(CAT).save(tmp_path / "cat.NEF", "TIFF")
    with open_at(browser, server) as page:
        page.set_input_files(".files", tmp_path / "cat.NEF")
        wait_for_caption(page)
        shown = "[...document.querySelectorAll('.photo img, .card img')].map((image) => image.naturalWidth)"
        assert page.evaluate(shown) == [1280]
        with page.expect_download() as download:
            page.get_by_role("button", name="PNG").click()
        assert download.value.suggested_filename == "cat.png"
        page.set_input_files(".files", [tmp_path / "cat.NEF", CAT])
        page.get_by_text("3 of 3 photos captioned").wait_for()
        wait_for(page, "[...document.querySelectorAll('.card img')].every((image) => image.naturalWidth)")
        assert page.locator(".card img").count() == 3


def test_a_photo_that_nobody_can_show(browser, server, tmp_path):
    Image.open(CAT).save(tmp_path / "cat.NEF", "TIFF")
    with open_at(browser, server, expected=("500",)) as page:
        page.route("**/v1/picture", lambda route: route.fulfill(status=500, json={}))
        page.set_input_files(".files", tmp_path / "cat.NEF")
        wait_for_caption(page)
        page.get_by_text("(this browser cannot show the photo)").wait_for()
        page.get_by_role("button", name="PNG").click()
        page.get_by_text("This browser cannot show the photo, and so cannot draw it").wait_for()
        with page.expect_download() as download:
            page.get_by_role("button", name="JSON").click()
        assert download.value.suggested_filename == "cat.json"


def test_transparent_photos_are_on_white_as_for_the_model(browser, server, tmp_path):
    Image.new("RGBA", (90, 60)).save(tmp_path / "nothing.png")
    pixel = """async (source) => {
        const canvas = document.createElement("canvas");
        canvas.getContext("2d").drawImage(await createImageBitmap(source), 0, 0);
        return [...canvas.getContext("2d").getImageData(5, 5, 1, 1).data];
    }"""
    white = [255, 255, 255, 255]
    with open_at(browser, server) as page:
        page.set_input_files(".files", [tmp_path / "nothing.png", CAT])
        page.get_by_text("2 of 2 photos captioned").wait_for()
        assert page.locator(".card img").first.evaluate(pixel) == white
        page.locator(".card").first.click()
        wait_for_caption(page)
        ground = "getComputedStyle(document.querySelector('.photo img')).backgroundColor"
        assert page.evaluate(ground) == "rgb(255, 255, 255)"


def test_a_photo_without_a_caption_has_nothing_to_play_or_copy(browser, server, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    with open_at(browser, server, expected=("400",)) as page:
        assert page.locator(".keys").is_hidden()  # there are no words yet
        page.set_input_files(".files", tmp_path / "broken.jpg")
        page.locator(".status.bad").wait_for()
        assert page.locator(".play").is_disabled()
        assert page.locator(".copy").is_disabled()
        assert page.locator(".photo img").is_hidden()
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        assert page.locator(".play").is_enabled()
        assert page.locator(".copy").is_enabled()
        assert page.locator(".photo img").is_visible()
        assert page.locator(".keys").is_visible()
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Keys").get_by_text("show the plain photo").wait_for()


def test_settings_change_how_photos_are_captioned(browser, server):
    with open_at(browser, server) as page:
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        page.get_by_role("button", name="Settings").click()
        take_screenshot(page, "http-settings")
        assert violations(page, find_axe()) == []
        page.locator(".beam").select_option("2")
        page.locator(".include").fill("red, blue")
        page.get_by_text("Alt text: a short sentence").click()
        page.get_by_role("button", name="For all, and caption again").click()
        page.locator(".said").wait_for()
        text = say_of(server.model, CAT).text
        assert page.locator(".said").text_content() == f"{text.capitalize()}."
        options = next(given for _, given in reversed(server.model.batches) if given)
        asked = options[0] if isinstance(options, list) else options
        assert (asked.beam_size, asked.include) == (2, ("red", "blue"))


def test_alt_text_is_worded_as_in_python(browser, server):
    captions = [
        "a photo of a man and a woman with her dog in a field",
        "there is a picture of a boy and a girl",
        "the fireman's helmet.",
        "two people and a person in front of " + "a very long wall and " * 8,
        "a view of",
        "a women and a few young men",
        "ein hund neben einem mann, hin und her",
        "एक काला कुत्ता है",
        "เด็ก สอง คน เล่น น้ำ",
        "黒い 犬 と ボール",
        "கடற்கரையில் ஒரு நாய்",
        "iki kız",
        "ქალი და ძაღლი",
        "ውሻ ይሮጣል",
        "en man på stranden",
    ]
    with open_at(browser, server) as page:
        worded = page.evaluate(
            "(captions) => captions.map(createAltText(JSON.parse(settings.textContent).altText))", captions
        )
    assert worded == [TextOptions(style="alt").apply(caption, "x.jpg") for caption in captions]


def test_an_example_is_captioned(browser, server):
    with open_at(browser, server) as page:
        page.get_by_role("button", name="A raccoon").click()
        page.get_by_text("raccoon.jpg: ").wait_for()
        assert page.locator(".example").first.is_hidden()


def test_beside_a_photo_others_are_added_by_a_menu(browser, server):
    with open_at(browser, server) as page:
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        assert page.locator(".pick").is_hidden()
        menu = page.locator(".add-menu")
        menu.locator("summary").click()
        take_screenshot(page, "http-adding")
        assert violations(page, find_axe()) == []
        page.keyboard.press("Escape")
        assert menu.get_by_text("Choose a folder").is_hidden()
        assert page.evaluate("document.activeElement.textContent") == "Add\N{NO-BREAK SPACE}photos"
        page.keyboard.press("Enter")
        with page.expect_file_chooser() as chooser:
            menu.get_by_text("Choose photos").click()
        chooser.value.set_files(COFFEE)
        page.get_by_text("coffee.jpg: ").wait_for()
        assert menu.get_by_text("Choose photos").is_hidden()
        page.evaluate("dispatchEvent(new DragEvent('dragover'))")
        assert page.evaluate("getComputedStyle(document.body, '::after').borderStyle") == "dashed"


def test_what_cannot_be_read_is_said(browser, server):
    drop = """(entry) => {
        const event = new DragEvent("drop", { bubbles: true });
        const lost = { isFile: true, file: (_, reject) => reject(new Error("gone")) };
        const items = entry ? [{ webkitGetAsEntry: () => lost }] : [];
        Object.defineProperty(event, "dataTransfer", { value: { items, files: [] } });
        document.body.dispatchEvent(event);
    }"""
    with open_at(browser, server) as page:
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        page.evaluate(drop, True)
        page.get_by_text("What was dropped cannot be read: gone").wait_for()
        page.evaluate(drop, False)
        page.get_by_text("There are no files in this.").wait_for()
        assert len(words(page)) == 5  # the caption from before is still there


def test_the_camera_live(browser, server):
    with open_at(browser, server) as page:
        page.locator(".camera").click()
        page.get_by_text("captions a second").wait_for()
        page.locator(".word").nth(4).wait_for()
        assert len(words(page)) == 5
        assert page.locator(".photo video").is_visible()
        take_screenshot(page, "http-camera")
        page.locator(".take").click()
        wait_for_caption(page)
        assert page.locator(".file-name").text_content() == "camera.jpg"
        assert page.evaluate("document.querySelector('.photo video').srcObject") is None


def test_the_page_asks_for_the_token(browser, tmp_path):
    (tmp_path / "token").write_text("s3cret")
    with (
        serve(FakeModel(), http_port=0, decode_workers=1, token_file=tmp_path / "token") as server,
        open_at(browser, server, expected=("401",)) as page,
    ):
        page.locator(".token-field").fill("wrong")
        page.keyboard.press("Enter")
        page.get_by_text("not one of this server").wait_for()
        page.keyboard.press("Escape")
        page.get_by_text("The server needs a token, and none was given.").wait_for()
        page.locator(".again").click()
        page.locator(".token-field").fill("s3cret")
        page.keyboard.press("Enter")
        page.get_by_text("on cpu").wait_for()
        page.set_input_files(".files", CAT)
        wait_for_caption(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["phone", "desk"])
def test_looks_and_accessibility(browser, server, scheme, size):
    with open_at(browser, server, color_scheme=scheme, **(PHONE if size == "phone" else DESK)) as page:
        for files, state in ((None, "empty"), (CAT, "single"), ([CAT, COFFEE], "gallery")):
            if files is not None:
                page.set_input_files(".files", files)
                if state == "gallery":
                    page.get_by_text("3 of 3 photos captioned").wait_for()
                else:
                    wait_for_caption(page)
            take_screenshot(page, f"http-{state}-{size}-{scheme}")
            assert overhang(page) == 0
            assert violations(page, find_axe()) == []


def test_wide_letters_in_a_narrow_window_overhang_nowhere(browser, server):
    """A zoom of 400%, with the spacing that readers with dyslexia use."""
    wide = "* { letter-spacing: 0.12em !important; word-spacing: 0.16em !important }"
    with open_at(browser, server, viewport={"width": 320, "height": 256}) as page:
        page.evaluate(
            "(css) => document.adoptedStyleSheets.push(new CSSStyleSheet()) && "
            "document.adoptedStyleSheets[0].replaceSync(css)",
            wide,
        )
        page.set_input_files(".files", [CAT, COFFEE])
        page.get_by_text("2 of 2 photos captioned").wait_for()
        assert overhang(page) == 0
        page.locator(".card").first.click()
        wait_for_caption(page)
        assert overhang(page) == 0


def test_the_keyboard_alone_reaches_everything(browser, server):
    with open_at(browser, server) as page:
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        page.evaluate("document.activeElement.blur()")
        reached = []
        for _ in range(32):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.outerHTML"))
            if reached[-1].startswith("<summary"):
                page.keyboard.press("Enter")
        for name in ("theme", "files", "folder", "camera", "Photo.", 'class="word', "Play", "png", "json"):
            assert any(name in one for one in reached), name


def test_the_description_is_accessible(browser, server):
    with open_at(browser, server) as page:
        page.goto(f"{server.server.http_url}/docs")
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        assert violations(page, find_axe()) == []


def test_the_page_lets_nothing_else_in(server):
    for path in ("/", "/page.js", "/page.css"):
        answer = httpx.get(f"{server.server.http_url}{path}", timeout=PATIENCE_S)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = httpx.get(
            f"{server.server.http_url}{path}",
            headers={"if-none-match": answer.headers["etag"]},
            timeout=PATIENCE_S,
        )
        assert again.status_code == 304
    assert "http://" not in httpx.get(f"{server.server.http_url}/", timeout=PATIENCE_S).text
