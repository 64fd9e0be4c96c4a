"""A real Chromium that opens pages from disk and tells of everything that goes wrong in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.patience import PATIENCE_S, wait_until

SCREENSHOTS = Path(__file__).parents[1] / "screenshots"
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
DESK = {"viewport": {"width": 1600, "height": 1000}}


def new_page(browser: Any, **context: Any) -> Any:
    """A page in a context of its own, without motion unless asked: what a test looks at stands still."""
    opened = browser.new_context(**{**DESK, "reduced_motion": "reduce", **context})
    opened.set_default_timeout(1000 * PATIENCE_S)
    return opened.new_page()


@contextmanager
def launch_browser(*arguments: str) -> Iterator[Any]:
    """Debian's Chromium by Playwright; skips the test, with the reason, where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("there is no Chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=[*_ARGUMENTS, *arguments], timeout=1000 * PATIENCE_S
        )
        yield browser
        browser.close()


class Firefox:
    """A page in Firefox, by Mozilla's own Marionette: Playwright needs a Firefox of its own."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def run(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        return self._driver.execute_script(f"return {expression};", sandbox=None)

    def wait_for(self, expression: str) -> None:
        wait_until(lambda: self.run(expression), f"in Firefox: {expression}")

    def drop(self, folder: Path) -> None:
        """Drop a folder of this machine on the page. Scripts cannot make such a drop: the folder comes from
        what a file field makes of one; its entries are Firefox's own."""
        script = """
            const field = window.document.createElement("input");
            field.type = "file";
            field.className = "dropped";
            field.hidden = true;
            window.document.body.append(field);
            field.mozSetDndFilesAndDirectories([new window.Directory(arguments[0])]);
        """
        self._driver.execute_script(script, script_args=[str(folder)], sandbox="system")
        self.run(
            """(() => {
                const entries = [...document.querySelector(".dropped").webkitEntries];
                const items = entries.map((entry) => ({ webkitGetAsEntry: () => entry }));
                const event = new DragEvent("drop", { bubbles: true });
                Object.defineProperty(event, "dataTransfer", { value: { items, files: [] } });
                document.body.dispatchEvent(event);
            })()"""
        )

    def send_keys(self, selector: str, text: str) -> None:
        """Type into an element; for a field of files, the path of one."""
        self._driver.find_element("css selector", selector).send_keys(text)


@contextmanager
def launch_firefox(url: str) -> Iterator[Firefox]:
    """Debian's Firefox with a camera of its own making, at a page; skips the test where there is none."""
    marionette = pytest.importorskip("marionette_driver.marionette", reason="marionette-driver is missing")
    executable = os.environ.get("FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
    if executable is None:
        pytest.skip("there is no Firefox")
    prefs = {
        "media.navigator.streams.fake": True,
        "media.navigator.permission.disabled": True,
        "dom.filesystem.pathcheck.disabled": True,  # the path of a drop comes from a test
        "security.sandbox.content.level": 0,
    }
    driver = marionette.Marionette(bin=executable, headless=True, prefs=prefs, startup_timeout=3 * PATIENCE_S)
    try:
        driver.start_session()
        driver.navigate(url)
        yield Firefox(driver)
    finally:
        driver.cleanup()


@contextmanager
def open_page(browser: Any, path: Path, fragment: str = "", **context: Any) -> Iterator[Any]:
    """A page from disk; leaving it checks that nothing was logged as an error, nothing was requested but
    files beside the page, and no dialog of a script that broke out came up."""
    page = new_page(browser, **context)
    troubles: list[str] = []
    page.on("console", lambda message: message.type == "error" and troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("requestfailed", lambda request: troubles.append(f"failed: {request.url}"))
    folder = path.resolve().parent.as_uri() + "/"
    page.on(
        "request",
        lambda request: (
            request.url.startswith((folder, "data:")) or troubles.append(f"left the page: {request.url}")
        ),
    )
    page.goto(path.resolve().as_uri() + fragment)
    yield page
    page.context.close()
    if troubles:
        pytest.fail("; ".join(troubles))


def wait_for(page: Any, expression: str, arg: Any = None) -> None:
    """Wait until an expression of JavaScript is true. Playwright's `wait_for_function` evaluates it within
    the page, which its Content-Security-Policy prevents from the second time on."""
    wait_until(lambda: page.evaluate(expression, arg), expression)


class Held:
    """Requests of a page that wait until they are released."""

    def __init__(self, page: Any, pattern: str) -> None:
        self.routes: list[Any] | None = []
        page.route(pattern, self._hold)

    def _hold(self, route: Any) -> None:
        route.fallback() if self.routes is None else self.routes.append(route)

    def release(self) -> None:
        routes, self.routes = self.routes, None
        for route in routes or ():
            route.fallback()


def overhang(page: Any) -> int:
    """How many CSS pixels of the page are beside the window. On a phone, `innerWidth` grows with the page."""
    width: int = page.evaluate("document.documentElement.scrollWidth")
    return max(0, width - page.viewport_size["width"])


def take_screenshot(page: Any, name: str) -> None:
    """Keep a picture in tests/screenshots for people to look at."""
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def find_axe() -> str:
    """The source of axe-core; skips the test where npm has not brought it."""
    root = Path(__file__).parents[2]
    path = Path(os.environ.get("AXE_CORE") or root / "node_modules/axe-core/axe.min.js")
    if not path.is_file():
        pytest.skip("axe-core is not installed: npm install axe-core, or set AXE_CORE to axe.min.js")
    return path.read_text(encoding="utf-8")


def violations(page: Any, axe: str) -> list[str]:
    """What axe-core finds wrong with the page as it stands."""
    # Evaluated by the debugger, to which the page's own policy does not apply.
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
