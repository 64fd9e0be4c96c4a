"""The page at / in real browsers: a photo, a gallery, the camera, the token, looks and accessibility."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from support.browser import (
    DESK,
    PHONE,
    find_axe,
    launch_browser,
    launch_firefox,
    new_page,
    take_screenshot,
    violations,
)
from support.engines import FakeEngine
from support.patience import PATIENCE_S
from support.serving import RunningServer, make_image, serve

from captioner.options import CaptionOptions
from captioner.overlay.payload import make_payload
from captioner.overlay.scene import OverlayOptions, show_word
from captioner.results import Caption

FAKE_CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
PHOTOS = Path(__file__).parents[2] / "examples"
CAT, COFFEE = PHOTOS / "cat.jpg", PHOTOS / "coffee.jpg"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launch_browser(*FAKE_CAMERA) as started:
        yield started


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serve(FakeEngine(), http_port=0, decode_workers=1) as running:
        yield running


@contextmanager
def open_at(browser: Any, server: RunningServer, *, expected: tuple[str, ...] = (), **context: Any):
    """The page; leaving it checks that nothing went wrong, and that nothing was asked of anybody else."""
    url = server.server.http_url
    assert url
    page = new_page(browser, **context)
    page.context.grant_permissions(["camera"], origin=url)
    troubles: list[str] = []
    page.on("console", lambda message: message.type == "error" and troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on(
        "request",
        lambda request: (
            request.url.startswith((url, "data:", f"blob:{url}")) or troubles.append(f"left: {request.url}")
        ),
    )
    page.goto(url)
    yield page
    page.context.close()
    unexpected = [one for one in troubles if not any(part in one for part in expected)]
    assert unexpected == []


def say_of(engine: FakeEngine, photo: Path, **options: Any) -> Caption:
    return engine.describe(engine.preprocess(photo.read_bytes()), CaptionOptions(**options))


def wait_for_caption(page: Any) -> None:
    page.locator(".downloads").wait_for(state="visible")


def words(page: Any) -> list[str]:
    return page.locator(".word bdi").all_text_contents()


def test_a_photo_is_captioned_word_by_word_and_then_searched(browser, server):
    with open_at(browser, server) as page:
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        caption = say_of(server.engine, CAT, alternatives=3)
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
    engine = FakeEngine()
    with serve(engine, http_port=0, decode_workers=1) as server, open_at(browser, server) as page:
        engine.image_s = 0.4
        page.set_input_files(".files", CAT)
        page.locator(".word").nth(1).wait_for()
        assert page.locator(".downloads").is_hidden()
        engine.image_s = 0
        wait_for_caption(page)


def test_maps_are_computed_as_in_python(browser, server):
    with open_at(browser, server) as page:
        caption = say_of(server.engine, CAT, attention_size=(7, 9), alternatives=2)
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
    caption = say_of(server.engine, CAT, alternatives=3)
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
                [event, _small_png()],
            )
            page.get_by_text(f"{event}.png: ").wait_for()


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


def wait_out(page: Any) -> None:
    """Let the page's pauses pass until it offers to try again."""
    while page.locator(".again").is_hidden():
        page.clock.run_for(2000)
        page.wait_for_timeout(20)


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
        serve(FakeEngine(), http_port=0, decode_workers=1, max_image_bytes=2**21) as server,
        open_at(browser, server) as page,
    ):
        page.get_by_text("on cpu").wait_for()
        page.set_input_files(".files", tmp_path / "large.tiff")
        page.get_by_text("The file is too large: it has 3 MB, the server takes 2 MB").wait_for()
        assert page.locator(".again").is_hidden()
        page.route("**/v1/caption*", lambda route: route.fulfill(body="<html>Please log in</html>"))
        page.set_input_files(".files", [CAT, COFFEE])
        page.get_by_text("0 of 2 photos captioned, 2 failed").wait_for()
        assert page.get_by_text("The answer is not one of this server.").count() == 2
        page.unroute("**/v1/caption*")
        page.locator(".again").click()
        page.locator(".status", has_text="2 of 2 photos captioned").wait_for()
        page.locator(".card.failed").first.wait_for(state="detached")


def test_a_photo_that_the_browser_cannot_show(browser, server, tmp_path):
    """TIFF here, HEIC of phones, RAW: the caption is there, and what cannot be drawn is said in words."""
    Image.open(CAT).save(tmp_path / "cat.NEF", "TIFF")
    with open_at(browser, server) as page:
        page.set_input_files(".files", tmp_path / "cat.NEF")
        wait_for_caption(page)
        page.get_by_text("(this browser cannot show the photo)").wait_for()
        page.get_by_role("button", name="PNG").click()
        page.get_by_text("This browser cannot show the photo, and so cannot draw it").wait_for()
        with page.expect_download() as download:
            page.get_by_role("button", name="JSON").click()
        assert download.value.suggested_filename == "cat.json"


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
        serve(FakeEngine(), http_port=0, decode_workers=1, token_file=tmp_path / "token") as server,
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
                    page.get_by_text("2 of 2 photos captioned").wait_for()
                else:
                    wait_for_caption(page)
            take_screenshot(page, f"http-{state}-{size}-{scheme}")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert violations(page, find_axe()) == []


def test_the_keyboard_alone_reaches_everything(browser, server):
    with open_at(browser, server) as page:
        page.set_input_files(".files", CAT)
        wait_for_caption(page)
        page.evaluate("document.activeElement.blur()")
        reached = []
        for _ in range(20):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("document.activeElement.outerHTML"))
        for name in ("theme", "files", "folder", "camera", "Photo.", 'class="word', "Play", "png", "json"):
            assert any(name in one for one in reached), name


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


def test_in_firefox(server):
    with launch_firefox(server.server.http_url) as firefox:
        firefox.send_keys(".files", str(CAT))
        firefox.wait_for("!document.querySelector('.downloads').hidden")
        caption = say_of(server.engine, CAT, alternatives=3)
        shown = firefox.run("[...document.querySelectorAll('.word bdi')].map((word) => word.textContent)")
        assert shown == [word.text for word in caption.words]
        painted = "document.querySelector('.photo canvas').getContext('2d').getImageData(0, 0, 20, 20).data"
        assert firefox.run(f"[...{painted}].length") == 1600
        firefox.run("document.querySelector('.camera').click()")
        firefox.wait_for("/captions a second/.test(document.querySelector('.rate').textContent)")
        assert firefox.run("document.querySelectorAll('.word').length") == 5
        assert firefox.run("document.querySelector('.status').textContent") == ""


def test_photos_dropped_in_firefox_become_a_gallery(server):
    photos = json.dumps([[f"{number}.png", _small_png()] for number in range(3)])
    with launch_firefox(server.server.http_url) as firefox:
        firefox.run(
            f"""(() => {{ const photos = {photos};"""
            """
                const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
                const transfer = new DataTransfer();
                for (const [name, data] of photos)
                    transfer.items.add(new File([bytes(data)], name, {type: "image/png"}));
                document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true}));
            })()"""
        )
        firefox.wait_for("document.body.textContent.includes('3 of 3 photos captioned')")
        assert firefox.run("document.querySelectorAll('.card').length") == 3


def test_a_folder_dropped_in_firefox_becomes_a_gallery(server, tmp_path):
    """Entries in Firefox have paths and readers of their own."""
    inside = tmp_path / "holiday" / "day two"
    inside.mkdir(parents=True)
    for number in range(3):
        (inside / f"{number}.png").write_bytes(make_image(number))
    (inside / "notes.txt").write_text("no photo")
    with launch_firefox(server.server.http_url) as firefox:
        firefox.drop(inside.parent)
        firefox.wait_for(
            "document.body.textContent.includes('3 of 3 photos captioned, 1 other file left out')"
        )
        names = firefox.run("[...document.querySelectorAll('.card .name')].map((name) => name.textContent)")
        assert names == [f"holiday/day two/{number}.png" for number in range(3)]
        firefox.send_keys(".files", str(CAT))
        firefox.wait_for("document.querySelector('dialog.replacing').open")
        firefox.run("document.querySelector('dialog.replacing [value=replace]').click()")
        firefox.wait_for("!document.querySelector('.downloads').hidden")


def _small_png() -> str:
    return base64.b64encode(make_image(7)).decode()
