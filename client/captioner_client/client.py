"""The client for programs that do not use asyncio: the asynchronous one, on a thread of its own."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Literal, Self, TypeVar, overload

from captioner.errors import needing_threads
from captioner.images.sources import ImageInput, ImageOrError
from captioner.model.info import ModelInfo
from captioner.options import CaptionOptions
from captioner.protocol import ModelDescription, Outcome
from captioner.results import Caption, Word
from captioner_client.aio import AsyncCaptionClient
from captioner_client.batch import Answered
from captioner_client.channel import check_process
from captioner_client.errors import ServerError
from captioner_client.options import ClientOptions

T = TypeVar("T")
_END: Any = object()


class _Loop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="captioner-client", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def end(self, client: AsyncCaptionClient, *, wait: bool) -> None:
        """End all calls, so that no thread waits for a loop that has stopped; then close `client` and end the
        thread of this loop. `wait` waits for that."""
        if self.process != os.getpid():  # the thread and the connections are those of the other process
            return
        self.start(self._end(client))
        if wait:
            self._thread.join()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _end(self, client: AsyncCaptionClient) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            await client.close()
        finally:  # or `end` would wait for ever
            self._loop.stop()


class CaptionClient(ModelDescription):
    """Captions from a server: an `ImageCaptioner`, as the local `captioner.Captioner` is. Thread-safe.

    Results and errors are those of `AsyncCaptionClient`. The description of the model (`model`, `grid`, ...)
    is requested from the server on first use.
    """

    def __init__(self, addresses: str | Sequence[str], options: ClientOptions | None = None) -> None:
        """`addresses` is HOST:PORT, or several, as a sequence or separated by commas; calls take turns."""
        self._given = addresses, options
        self._client = AsyncCaptionClient(addresses, options)
        self._info: ModelInfo | None = None
        self._lock = threading.RLock()  # the garbage collector may end a generator while it is held
        self._closed = False
        self._started: _Loop | None = None
        self._dropped: Any = None  # a `weakref.finalize`, which takes no parameters at run time

    def __reduce__(self) -> tuple[type[CaptionClient], tuple[Any, ...]]:
        """A pickled client connects anew, for instance in a process that is started by spawn."""
        return type(self), self._given

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Later calls, and those open in other threads, raise a `ServerError`."""
        if self._is_forked:  # no lock, which a thread of the other process may hold
            self._closed = True
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._started is not None:
            self._dropped.detach()
            self._started.end(self._client, wait=True)

    @property
    def _is_forked(self) -> bool:
        """Whether the loop runs in another process, from which this one was forked."""
        return self._started is not None and self._started.process != os.getpid()

    @property
    def info(self) -> ModelInfo:
        """The first answer of `get_model`; call that for the current model."""
        if self._info is None:
            self._info = self.get_model()
        return self._info

    @overload
    def caption(
        self,
        images: ImageInput,
        options: CaptionOptions | None = ...,
        *,
        timeout_s: float | None = ...,
        return_errors: Literal[False] = ...,
        **fields: Any,
    ) -> Caption: ...

    @overload
    def caption(
        self,
        images: Iterable[ImageInput],
        options: CaptionOptions | None = ...,
        *,
        timeout_s: float | None = ...,
        return_errors: Literal[False] = ...,
        **fields: Any,
    ) -> list[Caption]: ...

    @overload
    def caption(
        self,
        images: ImageInput,
        options: CaptionOptions | None = ...,
        *,
        timeout_s: float | None = ...,
        return_errors: bool,
        **fields: Any,
    ) -> Outcome: ...

    @overload
    def caption(
        self,
        images: Iterable[ImageInput],
        options: CaptionOptions | None = ...,
        *,
        timeout_s: float | None = ...,
        return_errors: bool,
        **fields: Any,
    ) -> list[Outcome]: ...

    def caption(
        self,
        images: ImageInput | Iterable[ImageInput],
        options: CaptionOptions | None = None,
        *,
        timeout_s: float | None = None,
        return_errors: bool = False,
        **fields: Any,
    ) -> Any:
        """Caption one image, or any iterable of images over one stream.

        One image gives one `Caption`, an iterable a list of them in its order. Single options can be given
        as keywords: `caption("dog.jpg", beam_size=5)`. `timeout_s` is the longest wait for the answer of one
        image; for several see `ClientOptions.timeout_s`. With `return_errors`, errors take the places of the
        captions of failed images; otherwise the first of them, in the order of the images, is raised when all
        are done, and its `outcomes` have the captions of the others.
        For several images, an error of the server itself is always raised, and finished captions are lost:
        `caption_batch` and `caption_each` yield each as it comes.
        """
        call: Any = self._client.caption
        return self._run(call(images, options, timeout_s=timeout_s, return_errors=return_errors, **fields))

    def caption_each(
        self, images: Iterable[ImageOrError], options: CaptionOptions | None = None, **fields: Any
    ) -> Generator[Outcome, None, None]:
        """The caption or the error of each image, in the order of `images`; otherwise as `caption_batch`."""
        return self._iterate(self._client.caption_each(iter(images), options, **fields))

    def stream(
        self,
        image: ImageInput,
        options: CaptionOptions | None = None,
        *,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> Generator[Word | Caption, None, None]:
        """Each word as it is decoded (greedy search), then the caption."""
        return self._iterate(self._client.stream(image, options, timeout_s=timeout_s, **fields))

    def caption_batch(
        self, images: Iterable[ImageOrError], options: CaptionOptions | None = None
    ) -> Generator[Answered, None, None]:
        """The caption or the error of each image with its position in `images`, in the order of completion.

        `images` may be endless: it is read ahead by `batch_window` images only, on another thread. When
        the server goes away, what it left unanswered is sent again, to another or to the same.
        """
        return self._iterate(self._client.caption_batch(iter(images), options))

    def get_model(self, *, timeout_s: float | None = None) -> ModelInfo:
        """The model that the server serves, and the server's limits."""
        return self._run(self._client.get_model(timeout_s=timeout_s))

    @needing_threads()
    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            check_process()  # before the lock, which a thread of the other process may hold
            with self._lock:  # what starts before `close` is a task that `close` ends
                if self._closed:
                    raise ServerError("the client is closed")
                if self._started is None:
                    self._started = _Loop()
                    # Programs that close no client have no more threads and files than they have clients.
                    self._dropped = weakref.finalize(self, self._started.end, self._client, wait=False)
                    self._dropped.atexit = False
                future = self._started.start(work)
        except ServerError:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            if not self._closed:
                raise
            raise ServerError("the client was closed before the answer came") from None
        except BaseException:  # Ctrl-C too ends the call
            future.cancel()
            raise

    def _iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        running: asyncio.Task[Any] | None = None

        async def step() -> T:
            nonlocal running
            running = asyncio.current_task()
            return await anext(items, _END)

        async def end() -> None:
            if running is not None:
                running.cancel()  # Ctrl-C may have come while it waited
                await asyncio.gather(running, return_exceptions=True)
            await items.aclose()

        try:
            while (item := self._run(step())) is not _END:
                yield item
        finally:
            # Else there is nothing to end here, or no thread that could.
            if not (self._closed or self._is_forked or sys.is_finalizing()):
                self._run(end())
