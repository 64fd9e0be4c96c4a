"""Captions the bytes of an image: decoding and batching, with all slow work off the event loop."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager

import numpy as np
from PIL import Image

from captioner.errors import CaptionerError, ImageTooLargeError
from captioner.images.formats import HEAD_BYTES, detect_format
from captioner.options import CaptionOptions
from captioner.protocol import PixelModel, Pixels
from captioner.results import Caption, Word
from captioner_server.captioning.answers import AnswerWatch
from captioner_server.captioning.batcher import Batcher
from captioner_server.captioning.compute import Computed
from captioner_server.captioning.decoders import Decoders
from captioner_server.captioning.search_limits import SearchLimits
from captioner_server.captioning.supervisor import Condition, Supervisor
from captioner_server.captioning.word_streams import WordStreams
from captioner_server.errors import BusyError, DeadlineError
from captioner_server.intake.images import AdmittedImages
from captioner_server.intake.ticket import Ticket
from captioner_server.observation.call import current_call
from captioner_server.observation.metrics import Metrics
from captioner_server.observation.tracing import begin_image, image_span
from captioner_server.options import ServerOptions

_STALLED_BATCHES = 4
_RETRY_AFTER_S = 1.0
_NO_ANSWERS = ("cancelled", "internal", BusyError.code, DeadlineError.code)


class HostedModel:
    """Captions images with one model, within the limits of the server."""

    def __init__(self, model: PixelModel, options: ServerOptions, metrics: Metrics) -> None:
        self.model = model
        self.search = SearchLimits(model, options)
        self.observe: Callable[[bytes, CaptionOptions, Caption], None] | None = None
        """Called with each image that has been captioned."""
        self._options = options
        self._metrics = metrics
        self._batcher = Batcher(model, options.batch_sizes, options.max_wait_s, metrics)
        preparation = dataclasses.replace(model.preparation, limits=options.image_limits)
        self._formats = preparation.limits.formats
        self._decoders = Decoders(preparation, options.decode_workers, options.max_decode_s)
        self._admitted = AdmittedImages(
            options.queue_size,
            options.max_batch_size,
            self._image_s,
            decoder_wait_s=self._decoders.expected_wait_s,
            decode_s=lambda: self._decoders.image_s,
            max_wait_s=options.max_wait_s,
            least_entitled=self._batcher.least_entitled,
        )
        self._words = WordStreams(model, options.stream_workers, metrics)
        self._answers = AnswerWatch()
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._worker = asyncio.create_task(self._batcher.run())

    def supervise(self, report: Callable[[Condition], Awaitable[None]]) -> Supervisor:
        """The supervisor of the model; `report` receives its condition when that changes."""
        pixels = np.full(self.model.preparation.shape, 128, dtype=np.uint8)

        async def attempt() -> None:
            ticket = Ticket(deadline_s=time.monotonic() + self._options.stuck_s)
            await self._batcher.submit(pixels, self.search.defaults, ticket)

        return Supervisor(
            self._batcher,
            attempt,
            report,
            self._stalled,
            failing_s=self._options.failing_s,
            stuck_s=self._options.stuck_s,
        )

    def close(self) -> None:
        """Stop without waiting for running threads."""
        if self._worker:
            self._worker.cancel()
        self._batcher.close()
        self._words.close()
        self._decoders.close()

    async def warm_up(self) -> None:
        """Run every code path and batch size once, so that the first calls are not slow."""
        loop = asyncio.get_running_loop()
        await self._decoders.warm_up()
        pixels = await self._decoders.load(_grey_png(), Ticket())
        defaults = self.search.resolve(CaptionOptions())
        for size in self._options.batch_sizes:
            batch = np.repeat(pixels[None], size, axis=0)
            started = time.monotonic()
            await loop.run_in_executor(None, self.model.caption_pixels, batch, defaults)
            self._batcher.learn(size, time.monotonic() - started)
        greedy = self.search.resolve(CaptionOptions(beam_size=1))
        async for _ in self._words.untimed(Ticket(), pixels, greedy):
            pass

    @property
    def most_images(self) -> int:
        """Most images in one call."""
        return self._options.queue_size

    @property
    def admitted(self) -> int:
        """Admitted images: accepted and not yet answered."""
        return self._admitted.inside

    @property
    def waiting(self) -> int:
        """Decoded images in the queue of the model."""
        return self._batcher.waiting

    @property
    def idle(self) -> bool:
        """Whether no image is admitted or waits for admission."""
        return self._admitted.idle

    @property
    def expected_wait_s(self) -> float:
        return self._admitted.backlog_s

    @property
    def decoder_restarts(self) -> int:
        return self._decoders.restarts

    def rejection(self, ticket: Ticket) -> CaptionerError | None:
        """The error that another interactive image would be rejected with now, if any."""
        return self._admitted.rejection(ticket)

    @contextmanager
    def enter(self, ticket: Ticket, options: CaptionOptions, images: int = 1) -> Iterator[None]:
        """Admit the images of an interactive call. Raises `BusyError` if there is no room or the deadline is
        too close; `options` are resolved."""
        ticket.images, ticket.cost = images, self.search.cost(options)
        with self._admitted.enter(ticket):
            yield

    def wait(self, ticket: Ticket) -> AbstractAsyncContextManager[None]:
        """Admit an image of a stream, as soon as there is room."""
        return self._admitted.wait(ticket)

    async def caption(self, ticket: Ticket, image: bytes, options: CaptionOptions) -> Caption:
        """The caption of an admitted image; `options` are resolved."""
        with self._counted(image):
            ticket.cost = self.search.cost(options)
            pixels = await self._decode(ticket, image)
            computed = await self._submit(ticket, pixels, options)
        if self.observe:
            self.observe(image, options, computed.caption)
        return computed.caption

    async def stream(
        self, ticket: Ticket, image: bytes, options: CaptionOptions
    ) -> AsyncGenerator[Word | Caption]:
        """The words of an admitted image as greedy search decodes them, then the caption of the requested
        search."""
        with self._counted(image):
            pixels = await self._decode(ticket, image)
            greedy = dataclasses.replace(options, beam_size=1, alternatives=0, include=())
            async with aclosing(self._words.timed(ticket, pixels, greedy)) as items:
                async for item in items:
                    if isinstance(item, Word) or greedy == options:
                        yield item
            if greedy != options:
                yield (await self._submit(ticket, pixels, options)).caption

    async def _submit(self, ticket: Ticket, pixels: Pixels, options: CaptionOptions) -> Computed:
        computed = await self._batcher.submit(pixels, options, ticket)
        call = current_call.get()
        call.add(computed.queue_s, computed.compute_s, computed.batch_size)
        self._metrics.count_share(call.token, computed.compute_s / computed.batch_size)
        return computed

    async def _decode(self, ticket: Ticket, image: bytes) -> Pixels:
        if len(image) > self._options.max_image_bytes:
            limit = self._options.max_image_bytes
            raise ImageTooLargeError(
                f"{len(image)} bytes are more than the limit of {limit} (max_image_bytes)"
            )
        detect_format(bytes(image[:HEAD_BYTES]), self._formats)  # what is no image needs no turn
        started = time.monotonic()
        most_s = None if ticket.bulk else self._options.max_wait_s
        try:
            with image_span("decode"):
                async with asyncio.timeout(most_s):
                    pixels = await self._decoders.load(image, ticket)
        except TimeoutError:
            self._metrics.dropped.labels("max_wait").inc()
            message = f"waited {most_s:g} s for the image to be decoded, the longest allowed (max_wait_s)"
            raise BusyError(message, _RETRY_AFTER_S) from None
        ticket.decoded()
        decode_s = time.monotonic() - started
        self._metrics.decode_seconds.observe(decode_s)
        current_call.get().seconds["decode"] += decode_s
        return pixels

    def _stalled(self) -> bool:
        """Whether images are in work and none has been answered for `stalled_s`, or for the time of several
        batches where the model is slow."""
        batch_s = self._options.max_batch_size * self._image_s()
        return self._answers.stalled(max(self._options.stalled_s, _STALLED_BATCHES * batch_s))

    def _image_s(self) -> float:
        """Time per image under load: that of decoding or of the model, whichever is slower."""
        return max(self._batcher.image_s, self._decoders.image_s)

    @contextmanager
    def _counted(self, image: bytes) -> Iterator[None]:
        call = current_call.get()
        call.images += 1
        call.image_bytes += len(image)
        self._answers.begin()
        trace = begin_image()
        outcome = "internal"
        try:
            yield
            outcome = "ok"
        except CaptionerError as error:
            outcome = error.code
            raise
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "cancelled"
            raise
        finally:
            self._answers.end(answered=outcome not in _NO_ANSWERS, withdrawn=outcome == "cancelled")
            call.failed += outcome != "ok"
            self._metrics.images.labels(outcome).inc()
            if trace:
                trace.end(outcome)


def _grey_png() -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (64, 64), 128).save(buffer, "PNG")
    return buffer.getvalue()
