"""A gallery in a browser, for tests."""

from __future__ import annotations

from typing import Any

TEXTS = ("a black dog runs", "a white cat sleeps", "two dogs in the snow", "a café at night")


def captions_shown(page: Any) -> list[str]:
    return page.locator(".card .says").all_text_contents()


def states(page: Any) -> list[str]:
    return page.locator(".card .status").all_text_contents()
