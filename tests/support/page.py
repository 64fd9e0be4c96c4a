"""The page in a browser, for tests."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from captioner.options import CaptionOptions
from captioner.results import Caption
from support.browser import new_page
from support.models import FakeModel
from support.serving import RunningServer, make_image

PHOTOS = Path(__file__).parents[2] / "examples"
CAT, COFFEE = PHOTOS / "cat.jpg", PHOTOS / "coffee.jpg"


@contextmanager
def open_at(
    browser: Any, server: RunningServer, *, expected: tuple[str, ...] = (), **context: Any
) -> Iterator[Any]:
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


def say_of(model: FakeModel, photo: Path, **options: Any) -> Caption:
    return model.describe(model.preprocess(photo.read_bytes()), CaptionOptions(**options))


def wait_for_caption(page: Any) -> None:
    page.locator(".downloads").wait_for(state="visible")


def words(page: Any) -> list[str]:
    return page.locator(".word bdi").all_text_contents()


def wait_out(page: Any) -> None:
    """Let the page's pauses pass until it offers to try again."""
    while page.locator(".again").is_hidden():
        page.clock.run_for(2000)
        page.wait_for_timeout(20)


def small_png() -> str:
    return base64.b64encode(make_image(7)).decode()
