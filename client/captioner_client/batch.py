"""Sends many images over one CaptionBatch call, and over further calls if one breaks off."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
from contextlib import aclosing
from typing import Any

import grpc

from captioner.errors import ImageError
from captioner.images.sources import ImageInput, ImageOrError, name_image, own_frame
from captioner.protocol import Outcome
from captioner.v1 import captioner_pb2 as pb
from captioner_client.answers import caption_of, parsed
from captioner_client.encoding import encode_image, prepare
from captioner_client.errors import (
    DeadlineExceededError,
    ServerBusyError,
    ServerError,
    ServerUnavailableError,
    broken_off,
    from_batch_error,
    from_rpc_error,
    is_reset,
    reading_answer,
)
from captioner_client.options import ClientOptions
from captioner_client.threads import in_thread
from captioner_client.waiting import Waiting, backoff_s

Answered = tuple[int, Outcome]
"""The position of an image, and what became of it."""
Taken = tuple[int, ImageInput, bytes | ImageError]

_MOST_AHEAD = 1024
"""Most images from the oldest that is unanswered to the last that is taken: callers who want answers in the
order of the images keep those between."""
_BROKEN_WRITE = "Internal error from Core"
"""The message of gRPC, instead of a status, if the call ends during a write."""


class Batch:
    """Keeps at most `batch_window` images sent but not yet taken by the caller. If a call breaks off
    because its server goes away, unanswered images are sent again over the next."""

    def __init__(
        self,
        stub: Any,
        metadata: tuple[tuple[str, str], ...],
        images: Iterable[ImageOrError] | AsyncIterable[ImageOrError],
        options: pb.CaptionOptions | None,
        settings: ClientOptions,
        servers: str,
    ) -> None:
        """`settings.max_image_bytes` must be within the server's limit: a larger message ends the call.
        `servers` are the addresses, for errors."""
        self._stub, self._metadata = stub, metadata
        self._images = images if isinstance(images, AsyncIterable) else iter(images)
        self._positions = itertools.count()
        self._options, self._settings, self._servers = options, settings, servers
        self._window = asyncio.Semaphore(settings.batch_window)
        self._unanswered: dict[int, ImageInput] = {}
        self._answer_came = asyncio.Event()
        self._waiting = Waiting(settings, settings.timeout_s)
        self._taken: asyncio.Queue[Taken | BaseException | None] = asyncio.Queue(1)
        self._exhausted = False
        self._call: Any = None
        self._outcomes: asyncio.Queue[Answered | BaseException | None] = asyncio.Queue()

    async def run(self) -> AsyncGenerator[Answered, None]:
        """The outcome of each image with its position in `images`, in the order of completion.

        Raises a `ServerError` when no server answers any more, and what iterating over `images` raises.
        """
        taking = asyncio.create_task(self._take_all())
        try:
            async with aclosing(self._run()) as outcomes:
                async for outcome in outcomes:
                    yield outcome
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)

    async def _run(self) -> AsyncGenerator[Answered, None]:
        failures, waiting = 0, self._waiting
        while True:
            self._call = call = self._stub.CaptionBatch(metadata=self._metadata)
            tasks = [asyncio.create_task(self._feed(call)), asyncio.create_task(self._read(call))]
            try:
                while (outcome := await self._next()) is not None:
                    failures = 0
                    yield outcome
                    waiting.restart()
                    self._window.release()
                return
            except (ServerUnavailableError, ServerBusyError) as error:
                if not (failures or self._unanswered):
                    waiting.restart()  # the time has passed with slow images of the caller
                failures += 1
                if failures >= self._settings.max_attempts:
                    await waiting.after(error)
                    continue
                pause_s = error.retry_after_s or backoff_s(failures)
                if pause_s > waiting.left_s:
                    raise
                await asyncio.sleep(pause_s)
            finally:
                self._call = None
                call.cancel()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _is_complete(self) -> bool:
        """Whether every image is answered; how the call ends is then of no interest."""
        return self._exhausted and not self._unanswered

    async def _next(self) -> Answered | None:
        """The next outcome, None after the last. Raises what ended the call."""
        while True:
            try:
                async with asyncio.timeout(self._settings.timeout_s):
                    outcome = await self._outcomes.get()
            except TimeoutError:
                if self._is_complete:
                    return None
                if not self._unanswered:
                    continue  # slow images of the caller, not a slow server
                message = f"no answer from {self._servers} for {self._settings.timeout_s:g} s"
                raise DeadlineExceededError(message) from None
            if isinstance(outcome, ServerError) and self._is_complete:
                self._outcomes.put_nowait(None)  # after images that could not be read
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                return outcome

    async def _feed(self, call: Any) -> None:
        """Send images left unanswered by an earlier call, then the remaining ones."""
        try:
            for index, image in list(self._unanswered.items()):
                try:
                    payload = await in_thread(encode_image, image, self._settings)
                except ImageError as error:  # deleted or changed since it was first sent
                    self._end_waiting(index)
                    self._outcomes.put_nowait((index, error))
                else:
                    await self._send(call, index, payload)
            while not self._exhausted:
                taken = await self._taken.get()
                if isinstance(taken, BaseException):  # also a `CancelledError` of the caller's own tasks
                    self._outcomes.put_nowait(taken)
                    return
                if taken is None:
                    self._exhausted = True
                    break
                index, image, prepared = taken
                if isinstance(prepared, ImageError):
                    self._outcomes.put_nowait((index, prepared))
                else:
                    if not self._unanswered:
                        self._waiting.restart()
                    self._unanswered[index] = image
                    await self._send(call, index, prepared)
            await call.done_writing()
        except (grpc.RpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
            pass  # the call has ended; its reader knows why
        except Exception as error:
            self._outcomes.put_nowait(error)

    async def _send(self, call: Any, index: int, payload: bytes) -> None:
        await call.write(
            pb.CaptionBatchRequest(
                id=str(index), image=payload, options=self._options, model=self._settings.model
            )
        )

    async def _take_all(self) -> None:
        """Take and prepare the images, each once there is room for it: in one task, as asynchronous iterators
        may have timeouts or groups of tasks, which belong to one."""
        images = self._images
        try:
            if isinstance(images, AsyncIterable):
                async for image in images:
                    await self._keep(await in_thread(self._prepare, image))
            else:
                while taken := await in_thread(self._prepare_next, images):
                    await self._keep(taken)
            await self._taken.put(None)
        except BaseException as error:
            task = asyncio.current_task()
            if not (task and task.cancelling()):  # else nobody takes any more
                await self._taken.put(error)
            raise

    async def _keep(self, taken: Taken) -> None:
        await self._window.acquire()
        index = taken[0]
        while index - next(iter(self._unanswered), index) >= _MOST_AHEAD:
            self._answer_came.clear()
            await self._answer_came.wait()
        await self._taken.put(taken)

    def _prepare_next(self, images: Iterator[ImageOrError]) -> Taken | None:
        # In a thread: both the caller's iterator and the reading of files may be slow.
        for image in images:
            return self._prepare(image)
        return None

    def _prepare(self, image: ImageOrError) -> Taken:
        index, image = next(self._positions), own_frame(image)
        try:
            return index, *prepare(image, self._settings)
        except ImageError as error:
            return index, b"", name_image(error, image)

    def _end_waiting(self, index: int) -> ImageInput:
        self._answer_came.set()
        return self._unanswered.pop(index)

    def _answered(self, received: pb.CaptionBatchResponse | None) -> Answered:
        """Raises `ServerError` for the answer to an image that was not sent, or that was answered before."""
        with reading_answer(self._servers):
            answer = parsed(received)
            index = int(answer.id)
            if index not in self._unanswered:
                raise ValueError(f"it is for image {index}, which awaits none")
        image = self._end_waiting(index)
        if answer.HasField("error"):
            error = from_batch_error(answer.error, self._servers)
            return index, name_image(error, image) if isinstance(error, ImageError) else error
        try:
            with reading_answer(self._servers):
                return index, caption_of(answer, image)
        except ServerError as error:
            return index, error

    async def _read(self, call: Any) -> None:
        """Forward the answers, and finally how the call ended: None if normally."""
        try:
            while (answer := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
                self._outcomes.put_nowait(self._answered(answer))
            early = ServerUnavailableError(f"{self._servers}: the server ended the batch too early")
            self._outcomes.put_nowait(None if self._is_complete else early)
        except grpc.aio.AioRpcError as error:
            if error.details() == _BROKEN_WRITE:
                ended = ServerUnavailableError(f"{self._servers}: the server ended the call")
                self._outcomes.put_nowait(ended)
            elif is_reset(error):  # also for one that a proxy finds too large: it may count all of its images
                self._outcomes.put_nowait(broken_off(error, self._servers))
            else:
                self._outcomes.put_nowait(from_rpc_error(error, self._servers, self._settings.timeout_s))
        except asyncio.CancelledError:
            if self._call is call:  # else this batch has ended the call itself
                self._outcomes.put_nowait(ServerError("the client was closed before the answer came"))
            raise
        except Exception as error:
            self._outcomes.put_nowait(error)
