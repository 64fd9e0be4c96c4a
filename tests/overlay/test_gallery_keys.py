"""The keys of a gallery."""

from support.browser import find_axe, open_page, take_screenshot, violations, wait_for
from support.gallery import TEXTS, captions_shown


def press(page, key: str, **more: object) -> None:
    """A key as browsers tell of it, with properties that `page.keyboard` cannot give it."""
    page.evaluate(
        """(properties) => document.activeElement.dispatchEvent(
            new KeyboardEvent("keydown", { bubbles: true, cancelable: true, ...properties }))""",
        {"key": key, **more},
    )


def test_the_keyboard_alone(browser, gallery):
    with open_page(browser, gallery) as page:
        page.keyboard.press("/")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.wait_for_selector(".word")
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert page.locator('.word[aria-pressed="true"] bdi').text_content() == "white"
        page.keyboard.press("Escape")
        page.wait_for_url(lambda url: "photo=" not in url)
        wait_for(page, "document.activeElement.querySelector('.says') !== null")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        wait_for(
            page, "(text) => document.activeElement.querySelector('.says').textContent === text", arg=TEXTS[2]
        )
        assert page.evaluate("document.activeElement.querySelector('.says').textContent") == TEXTS[2]


def test_a_question_mark_lists_the_keys(browser, gallery):
    with open_page(browser, gallery) as page:
        keys = page.get_by_role("dialog", name="Keys")
        page.keyboard.press("/")
        page.keyboard.press("?")
        assert page.locator(".query").input_value() == "?"
        page.locator(".query").fill("")
        page.locator(".card").first.click()
        page.wait_for_selector(".word")
        page.keyboard.press("?")
        keys.get_by_text("approve the caption").wait_for()
        take_screenshot(page, "gallery-keys")
        assert violations(page, find_axe()) == []
        page.keyboard.press("a")  # is not for the photo below
        page.keyboard.press("Escape")
        keys.wait_for(state="hidden")
        assert page.locator(".review-state").text_content() == ""
        page.keyboard.press("Escape")
        page.locator(".viewer").wait_for(state="hidden")
        page.locator(".bar-top").get_by_role("button", name="Keys").click()
        keys.get_by_role("button", name="Close").click()
        keys.wait_for(state="hidden")


def test_a_key_pressed_before_a_photo_is_read_chooses_nothing_of_the_photo_before(browser, gallery):
    with open_page(browser, gallery, "#photo=0.jpg") as page:
        page.wait_for_selector(".word")
        page.evaluate(
            """for (const key of ["PageDown", "1"])
                document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }))"""
        )
        page.wait_for_selector(".view:not([hidden])")
        assert page.locator(".viewer-name").text_content() == "1.jpg"
        page.keyboard.press("Escape")
        assert captions_shown(page)[:2] == list(TEXTS[:2])


def test_keys_of_single_characters_are_switched_off_in_their_list(browser, gallery):
    with open_page(browser, gallery, "#photo=0.jpg") as page:
        page.wait_for_selector(".word")
        approve, use = page.locator(".approve"), page.locator(".choose").first
        assert (approve.inner_text().split(), use.get_attribute("aria-keyshortcuts")) == (
            ["Approve", "A"],
            "1",
        )
        page.keyboard.press("?")
        page.get_by_role("checkbox", name="Use keys of a single letter").uncheck()
        take_screenshot(page, "gallery-keys-off")
        page.keyboard.press("Escape")
        for _ in range(2):
            for key in "are1u?":
                page.keyboard.press(key)
            assert page.locator(".viewer-name").text_content() == "0.jpg"
            assert page.locator(".editor").is_hidden() and page.locator(".key-list").is_hidden()
            assert (approve.inner_text().strip(), use.inner_text().strip()) == ("Approve", "Use")
            assert page.locator(".viewer [aria-keyshortcuts]").count() == 0
            page.reload()  # it is remembered
            page.wait_for_selector(".word")
        page.locator(".reject").click()
        wait_for(page, "document.querySelector('.viewer-name').textContent === '1.jpg'")
        page.keyboard.press("Control+z")
        wait_for(page, "document.querySelector('.viewer-name').textContent === '0.jpg'")
        page.locator(".viewer").get_by_role("button", name="Keys").click()
        page.get_by_role("checkbox", name="Use keys of a single letter").check()
        page.keyboard.press("Escape")
        page.keyboard.press("a")
        wait_for(page, "document.querySelector('.viewer-name').textContent === '1.jpg'")


def test_keys_mean_something_only_when_pressed_alone_once_and_not_to_write(browser, gallery):
    with open_page(browser, gallery, "#photo=0.jpg") as page:
        page.wait_for_selector(".word")
        for held in ("altKey", "ctrlKey", "metaKey", "shiftKey", "repeat", "isComposing"):
            for key in "ARU":
                press(page, key if held == "shiftKey" else key.lower(), **{held: True})
        press(page, "a", keyCode=229)
        page.locator(".edit").click()
        page.locator(".editor textarea").fill("")
        page.keyboard.type("are u 1 / ?")
        assert page.locator(".editor textarea").input_value() == "are u 1 / ?"
        page.keyboard.press("Escape")
        assert page.locator(".viewer-name").text_content() == "0.jpg"
        assert page.locator(".review-state").text_content() == ""
        page.locator("[value=spotlight]").check()  # which leaves the focus there
        page.keyboard.press("a")
        wait_for(page, "document.querySelector('.viewer-name').textContent === '1.jpg'")


def test_letters_are_composed_in_peace(browser, gallery):
    """Enter, Escape and arrows choose letters then."""
    with open_page(browser, gallery) as page:
        protocol = page.context.new_cdp_session(page)
        composed = {"text": "くろい", "selectionStart": 3, "selectionEnd": 3}
        page.locator(".query").focus()
        for key in ("ArrowDown", "Enter"):
            protocol.send("Input.imeSetComposition", composed)
            page.keyboard.press(key)
            assert page.locator(".query:focus").count() == 1 and page.locator(".viewer").is_hidden()
        page.locator(".query").fill("")
        page.locator(".card").first.click()
        page.wait_for_selector(".word")
        page.keyboard.press("e")
        for key in ("Escape", "Enter"):
            protocol.send("Input.imeSetComposition", composed)
            page.keyboard.press(key)
            assert page.locator(".editor textarea:focus").count() == 1
