#!/usr/bin/env python3
"""Draws the pictures of the README with the embedded model: the overlay, the page, the gallery.

Needs playwright and Chromium. Look at the captions before committing: that of the overlay must be right.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from captioner import Captioner
from captioner_client import render_overlay

DOCS = Path(__file__).parent
EXAMPLES = DOCS.parent / "examples"
OPENING = EXAMPLES / "jockey.jpg"
SHOWN_IN_PAGE = EXAMPLES / "raccoon.jpg"
WINDOW = {"width": 1200, "height": 860}


def main() -> None:
    caption = Captioner.load().caption(OPENING)
    print(f"overlay: {caption}")
    save(render_overlay(OPENING, caption, width=1400), "overlay.webp")
    with sync_playwright() as playwright:
        executable = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        with serve() as url:
            page = browser.new_page(viewport=WINDOW)
            page.goto(url)
            page.set_input_files(".files", SHOWN_IN_PAGE)
            page.locator(".downloads").wait_for(state="visible")
            shoot(page, "page.webp")
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "gallery.html"
            subprocess.run(
                [sys.executable, "-m", "captioner", "gallery", EXAMPLES, "-o", target, "-q"], check=True
            )
            page = browser.new_page(viewport=WINDOW)
            page.goto(target.as_uri())
            page.locator(".card img").first.wait_for()
            shoot(page, "gallery.webp")


def save(picture: Image.Image, name: str) -> None:
    picture.convert("RGB").save(DOCS / name, quality=82, method=6)
    print(f"{name}: {(DOCS / name).stat().st_size // 1000} kB")


def shoot(page: Any, name: str) -> None:
    page.wait_for_timeout(1000)  # fades, and photos further down
    save(Image.open(io.BytesIO(page.screenshot())), name)


@contextmanager
def serve() -> Iterator[str]:
    """The address of a server with the embedded model."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "captioner", "serve", "--port", "0", "--http-port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"{url}/readyz", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.2)
            yield url
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
