"""The client for programs that do not use asyncio: the asynchronous one, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Sequence
from typing import Any, Literal, Self, TypeVar, overload

from captioner.errors import CaptionerError
from captioner.images.opening import ImageInput
from captioner.options import CaptionOptions
from captioner.results import Caption, Word
from captioner_client.aio import AsyncCaptionClient
from captioner_client.batch import Outcome
from captioner_client.convert import ModelInfo
from captioner_client.settings import ClientOptions

T = TypeVar("T")
_END: Any = object()


class CaptionClient:
    """Captions from a server; results and errors as with `AsyncCaptionClient`. Thread-safe."""

    def __init__(self, addresses: str | Sequence[str], options: ClientOptions | None = None) -> None:
        """`addresses` is HOST:PORT, or several, as a sequence or separated by commas; calls take turns."""
        self._client = AsyncCaptionClient(addresses, options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="captioner-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; calls that are open are cancelled."""
        if self._loop.is_closed():
            return
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def caption(
        self, image: ImageInput, options: CaptionOptions | None = None, *, timeout_s: float | None = None
    ) -> Caption:
        """The caption of one image."""
        return self._run(self._client.caption(image, options, timeout_s=timeout_s))

    def stream(
        self, image: ImageInput, options: CaptionOptions | None = None, *, timeout_s: float | None = None
    ) -> Generator[Word | Caption, None, None]:
        """Each word as it is decoded (greedy search), last the caption."""
        return self._iterate(self._client.stream(image, options, timeout_s=timeout_s))

    def caption_batch(
        self, images: Iterable[ImageInput], options: CaptionOptions | None = None
    ) -> Generator[Outcome, None, None]:
        """The caption or the error of each image with its position in `images`, in the order of completion.

        `images` may be endless: it is read ahead by `batch_window` images only, on another thread. When
        the server goes away, what it left unanswered is sent again, to another or to the same.
        """
        return self._iterate(self._client.caption_batch(images, options))

    @overload
    def caption_many(
        self,
        images: Iterable[ImageInput],
        options: CaptionOptions | None = ...,
        *,
        return_errors: Literal[False] = ...,
    ) -> list[Caption]: ...

    @overload
    def caption_many(
        self, images: Iterable[ImageInput], options: CaptionOptions | None = ..., *, return_errors: bool
    ) -> list[Caption | CaptionerError]: ...

    def caption_many(
        self,
        images: Iterable[ImageInput],
        options: CaptionOptions | None = None,
        *,
        return_errors: bool = False,
    ) -> list[Any]:
        """The captions of all images, in their order, as `Captioner.caption` gives them.

        With `return_errors` an error stands in the place of an image that failed; else the first of them, in
        the order of the images, is raised.
        """
        return self._run(self._client.caption_many(images, options, return_errors=return_errors))

    def get_model(self, *, timeout_s: float | None = None) -> ModelInfo:
        """The model that the server serves, and the server's limits."""
        return self._run(self._client.get_model(timeout_s=timeout_s))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C too ends the call
            future.cancel()
            raise

    def _iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        async def step() -> T:
            return await anext(items, _END)

        try:
            while (item := self._run(step())) is not _END:
                yield item
        finally:
            self._run(items.aclose())
