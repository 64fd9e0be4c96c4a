"""A real server on a real port, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from captioner.protocol import PixelModel
from captioner_server.http.pages.gallery import Gallery
from captioner_server.options import ServerOptions
from captioner_server.server import CaptionServer
from support.patience import PATIENCE_S

T = TypeVar("T")


class RunningServer:
    """A server that other threads call; `address` is HOST:PORT."""

    def __init__(
        self, model: PixelModel | None, options: ServerOptions, gallery: Gallery | None = None
    ) -> None:
        self.model = model
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.server: CaptionServer = self.call(_make(options, gallery))
        self.address = f"127.0.0.1:{self.call(self.server.start())}"
        if model is not None:
            self.call(self.server.open({"default": model}))

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float = PATIENCE_S) -> T:
        """The result of a coroutine on the server's loop."""
        return self.start(work).result(timeout_s)

    def metric(self, name: str, /, **labels: str) -> float:
        """A sample of the server's metrics, 0 where there is none yet."""
        return self.server.metrics.registry.get_sample_value(f"captioner_{name}", labels) or 0.0

    def close(self) -> None:
        self.call(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


async def _make(options: ServerOptions, gallery: Gallery | None) -> CaptionServer:
    return CaptionServer(options, gallery)


@contextmanager
def serve(
    model: PixelModel | None, gallery: Gallery | None = None, **options: Any
) -> Iterator[RunningServer]:
    """Serve a model on a free port; without a model the server stays in its loading state."""
    patient = {"max_wait_s": PATIENCE_S, "grace_s": PATIENCE_S}
    chosen = ServerOptions(**{"port": 0, "lame_duck_s": 0.0, **patient, **options})
    running = RunningServer(model, chosen, gallery)
    try:
        yield running
    finally:
        running.close()


def make_image(seed: int, size: tuple[int, int] = (48, 40), format: str = "PNG") -> bytes:
    """An image file, different for every seed."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format)
    return buffer.getvalue()
