"""One browser with a camera and one server for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.browser import launch_browser
from support.models import FakeModel
from support.serving import RunningServer, serve

FAKE_CAMERA = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launch_browser(*FAKE_CAMERA) as started:
        yield started


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serve(FakeModel(), http_port=0, decode_workers=1) as running:
        yield running
