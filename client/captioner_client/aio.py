"""The client for programs that use asyncio."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Literal, Self, cast, overload

import grpc

from captioner.errors import CaptionerError, ImageError, OptionsError
from captioner.images.sources import ImageInput, ImageOrError, is_single, name_image
from captioner.model.info import ModelInfo
from captioner.options import CaptionOptions, merge_options
from captioner.protobuf import model_from_proto, options_to_proto, word_from_proto
from captioner.protocol import Outcome, naming_its_image, only_captions
from captioner.results import Caption, Word
from captioner.v1 import captioner_pb2 as pb
from captioner_client.answers import caption_of, make_stub, parsed
from captioner_client.batch import Answered, Batch
from captioner_client.channel import check_process, open_channel, parse_addresses
from captioner_client.encoding import is_ready, prepare
from captioner_client.errors import DeadlineExceededError, ServerError, from_rpc_error, reading_answer
from captioner_client.options import ClientOptions, check_timeout
from captioner_client.propagation import trace_metadata
from captioner_client.threads import in_thread
from captioner_client.waiting import Waiting


class AsyncCaptionClient:
    """Captions from a server; results and image errors are those of a local `captioner.Captioner`.

    Every call raises an `ImageError` for an image that cannot be captioned, `OptionsError` for options that
    the server does not allow, and a `captioner_client.ServerError` when the server does not answer. For use
    on one event loop.
    """

    def __init__(self, addresses: str | Sequence[str], options: ClientOptions | None = None) -> None:
        """`addresses` is HOST:PORT, or several, as a sequence or separated by commas; calls take turns."""
        self._addresses = parse_addresses(addresses)
        self._servers = ", ".join(self._addresses)
        self._settings = options or ClientOptions()
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._closed = False
        token = self._settings.token
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls that are open are cancelled, and batches raise `ServerError`."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close(None)

    @overload
    async def caption(
        self,
        images: ImageInput,
        options: CaptionOptions | None = ...,
        *,
        timeout_s: float | None = ...,
        return_errors: Literal[False] = ...,
        **fields: Any,
    ) -> Caption: ...

    @overload
    async def caption(
        self,
        images: Iterable[ImageInput],
        options: CaptionOptions | None = ...,
        *,
        timeout_s: float | None = ...,
        return_errors: Literal[False] = ...,
        **fields: Any,
    ) -> list[Caption]: ...

    @overload
    async def caption(
        self,
        images: ImageInput,
        options: CaptionOptions | None = ...,
        *,
        timeout_s: float | None = ...,
        return_errors: bool,
        **fields: Any,
    ) -> Outcome: ...

    @overload
    async def caption(
        self,
        images: Iterable[ImageInput],
        options: CaptionOptions | None = ...,
        *,
        timeout_s: float | None = ...,
        return_errors: bool,
        **fields: Any,
    ) -> list[Outcome]: ...

    async def caption(
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
        options = merge_options(options, fields)
        if not is_single(images):
            found: list[Outcome] = []
            async with aclosing(self.caption_each(cast(Iterable[ImageInput], images), options)) as outcomes:
                async for outcome in outcomes:
                    if not isinstance(outcome, Caption | ImageError) and not return_errors:
                        raise outcome  # the others would fail too
                    found.append(outcome)
            return list(map(naming_its_image, found)) if return_errors else only_captions(found)
        try:
            image, payload = await self._prepare(images)
            request = pb.CaptionRequest(image=payload, options=_message(options), model=self._settings.model)
            response = await self._call("Caption", request, timeout_s)
            with reading_answer(self._servers):
                return caption_of(response, image)
        except CaptionerError as error:
            if isinstance(error, ImageError):
                name_image(error, images, says_so=True)
            if return_errors:
                return error
            raise

    async def stream(
        self,
        image: ImageInput,
        options: CaptionOptions | None = None,
        *,
        timeout_s: float | None = None,
        **fields: Any,
    ) -> AsyncGenerator[Word | Caption, None]:
        """Each word as it is decoded (greedy search), then the caption."""
        options = (merge_options(options, fields) or CaptionOptions()).for_streaming()
        image, payload = await self._prepare(image)
        request = pb.StreamCaptionRequest(
            image=payload, options=_message(options), model=self._settings.model
        )
        timeout_s = self._time_for(timeout_s)
        metadata = self._metadata + trace_metadata()
        waiting, begun = Waiting(self._settings, timeout_s), False
        while True:
            stub = await self._stub(waiting.left_s)
            call = stub.StreamCaption(request, timeout=waiting.left_s, metadata=metadata)
            try:
                async for event in call:
                    begun = True
                    with reading_answer(self._servers):
                        item = _read_event(event, image)
                    yield item
                    if isinstance(item, Caption):  # how the call ends is then of no interest
                        return
                raise ServerError(f"{self._servers}: the server ended the stream without a caption")
            except grpc.aio.AioRpcError as error:
                failure = from_rpc_error(error, self._servers, timeout_s)
            finally:
                call.cancel()
            if begun:  # words that were yielded cannot be taken back
                raise failure
            await waiting.after(failure)

    async def caption_batch(
        self,
        images: Iterable[ImageOrError] | AsyncIterable[ImageOrError],
        options: CaptionOptions | None = None,
    ) -> AsyncGenerator[Answered, None]:
        """The caption or the error of each image with its position in `images`, in the order of completion.

        `images` may be asynchronous, for example an async generator of downloads. It may be endless: it is
        read ahead by `batch_window` images only. When the server goes away, what it left unanswered is sent
        again, to another or to the same.
        """
        settings = self._settings
        if (limit := (await self.get_model()).max_image_bytes) > 0:  # else the server does not say
            limit = min(limit, settings.max_image_bytes)
            settings = dataclasses.replace(settings, max_image_bytes=limit)
        metadata = self._metadata + trace_metadata()
        stub = await self._stub(settings.timeout_s)
        batch = Batch(stub, metadata, images, _message(options), settings, self._servers)
        async with aclosing(batch.run()) as outcomes:
            async for outcome in outcomes:
                yield outcome

    async def caption_each(
        self,
        images: Iterable[ImageOrError] | AsyncIterable[ImageOrError],
        options: CaptionOptions | None = None,
        **fields: Any,
    ) -> AsyncGenerator[Outcome, None]:
        """The caption or the error of each image, in the order of `images`; otherwise as `caption_batch`."""
        early: dict[int, Outcome] = {}
        following = 0
        async with aclosing(self.caption_batch(images, merge_options(options, fields))) as outcomes:
            async for index, outcome in outcomes:
                early[index] = outcome
                while following in early:
                    yield early.pop(following)
                    following += 1

    async def get_model(self, *, timeout_s: float | None = None) -> ModelInfo:
        """The model that the server serves, and the server's limits."""
        request = pb.GetModelRequest(model=self._settings.model)
        response = await self._call("GetModel", request, timeout_s)
        with reading_answer(self._servers):
            return model_from_proto(parsed(response))

    async def _prepare(self, image: ImageInput) -> tuple[ImageInput, bytes]:
        try:
            if is_ready(image, self._settings):
                return prepare(image, self._settings)  # sooner than a thread starts
            return await in_thread(prepare, image, self._settings)
        except ImageError as error:
            raise name_image(error, image, says_so=True) from error.__cause__

    async def _call(self, method: str, request: Any, timeout_s: float | None) -> Any:
        timeout_s = self._time_for(timeout_s)
        waiting, metadata = Waiting(self._settings, timeout_s), self._metadata + trace_metadata()
        call = getattr(await self._stub(timeout_s), method)
        while True:
            try:
                return await call(request, timeout=waiting.left_s, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                failure = from_rpc_error(error, self._servers, timeout_s)
            await waiting.after(failure)

    def _time_for(self, timeout_s: float | None) -> float:
        """The time for a call that asks for `timeout_s`. Raises `DeadlineExceededError` if that has passed,
        and `OptionsError` for what is no time."""
        if timeout_s is None:
            return self._settings.timeout_s
        check_timeout(timeout_s)
        if timeout_s <= 0:
            raise DeadlineExceededError(f"no time is left to call {self._servers} (timeout_s)")
        return float(timeout_s)

    async def _stub(self, timeout_s: float) -> Any:
        """Looking up the names of servers counts in the time of the first call."""
        if self._closed:
            raise ServerError("the client is closed")
        check_process()
        self._loop = self._loop or asyncio.get_running_loop()
        if self._loop is not asyncio.get_running_loop():
            raise ServerError("this client has been used on another event loop: make one for each")
        if self._channel is None:  # made here, because it belongs to the running event loop
            try:
                async with asyncio.timeout(timeout_s), self._opening:
                    self._channel = self._channel or await open_channel(self._addresses, self._settings)
            except TimeoutError:
                late = f"no address of {self._servers} was found within {timeout_s:g} s"
                raise DeadlineExceededError(late) from None
            if self._closed:
                await self._channel.close(None)
                raise ServerError("the client is closed")
        return make_stub(self._channel)


def _read_event(event: pb.StreamCaptionResponse | None, image: ImageInput) -> Word | Caption:
    """A word of the caption of `image`, or the caption."""
    if event is not None and event.HasField("word"):
        return word_from_proto(event.word)
    return caption_of(event, image)


def _message(options: CaptionOptions | None) -> pb.CaptionOptions | None:
    try:
        return None if options is None else options_to_proto(options)
    except UnicodeEncodeError:
        raise OptionsError("words to include must be valid Unicode", "include") from None
