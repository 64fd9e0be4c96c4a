"""Captions a folder through servers: one bounded stream of images to each, with the retries of the client."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from captioner.cli.output import say
from captioner.errors import ImageError, OptionsError, OutputError
from captioner.folder.engine import Loader, Turn
from captioner.folder.items import Done, Item, Loaded
from captioner.model.info import ModelInfo
from captioner.options import CaptionOptions
from captioner.protocol import Outcome
from captioner.results import Caption
from captioner_client import CaptionClient, ClientOptions
from captioner_client.errors import DeadlineExceededError, ServerError, ServerUnavailableError

_Message = Done | BaseException


class ServerEngine:
    """Captions with servers that all serve the same model. Use as a context.

    A stream whose server goes away continues with another; only if no server answers does the run end, and it
    can be resumed later.
    """

    settings: Mapping[str, bool | str] = {}

    def __init__(self, addresses: str, options: ClientOptions) -> None:
        """`addresses` are HOST:PORT, separated by commas. Servers that do not answer now may do so later;
        raises `OptionsError` if none answers."""
        self._window = options.batch_window
        self._streams = len(addresses.split(","))
        infos = _models(addresses, options)
        models = sorted({info.model for info in infos})
        if len(models) > 1:
            raise OptionsError(f"--server: the servers have different models: {', '.join(models)}", "server")
        self.model = models[0]
        self.grid = None if infos[0].grid_varies else infos[0].grid
        self.calibration = infos[0].calibration
        self._client = CaptionClient(addresses, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def run(
        self, items: Iterator[Item], loader: Loader, options: CaptionOptions, stop: threading.Event
    ) -> Iterator[Sequence[Done]]:
        todo: queue.SimpleQueue[tuple[Item, Turn] | None] = queue.SimpleQueue()
        done: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        for _ in range(self._streams):
            arguments = (todo, done, loader, options)
            threading.Thread(target=self._stream, args=arguments, daemon=True).start()
        under_way, more = 0, True
        try:
            while more or under_way:
                while more and under_way < self._window * self._streams:
                    item = None if stop.is_set() else next(items, None)
                    if item is None:
                        more = False
                    else:
                        todo.put((item, loader.order(item)))
                        under_way += 1
                if under_way:
                    part = _take(done)
                    under_way -= len(part)
                    yield part
        finally:
            for _ in range(self._streams):
                todo.put(None)

    def _stream(
        self,
        todo: queue.SimpleQueue[tuple[Item, Turn] | None],
        done: queue.SimpleQueue[_Message],
        loader: Loader,
        options: CaptionOptions,
    ) -> None:
        sent: dict[int, Loaded] = {}

        def read() -> Iterator[bytes]:
            count = 0
            while (work := todo.get()) is not None:
                loaded = loader.load(work[0], bytes, work[1])
                if isinstance(loaded.payload, bytes):
                    payload = loaded.payload
                    sent[count] = dataclasses.replace(loaded, payload=None)
                    count += 1
                    yield payload
                else:
                    done.put(Done(loaded, loaded.payload))

        try:
            for index, outcome in self._client.caption_batch(read(), options):
                done.put(self._make_done(sent.pop(index), outcome))
        except BaseException as error:
            done.put(error)

    def _make_done(self, loaded: Loaded, outcome: Outcome) -> Done:
        if isinstance(outcome, Caption):
            if outcome.model != self.model:
                raise OutputError(f"a server has another model now, {outcome.model}, not {self.model}")
            return Done(loaded, outcome.of(None))
        if not isinstance(outcome, ImageError):
            raise outcome  # not the image's fault: it must not be noted as a failure
        return Done(loaded, outcome)


def _models(addresses: str, options: ClientOptions) -> list[ModelInfo]:
    """The models of the servers that answer. Waits until one does; raises `OptionsError` if none does."""
    infos, away = _ask(addresses, options)
    if not infos:
        try:
            with CaptionClient(addresses, options) as any_of_them:
                any_of_them.get_model()
        except (ServerUnavailableError, DeadlineExceededError) as error:
            raise OptionsError(f"--server: {error}", "server") from None
        infos, away = _ask(addresses, options)
        if not infos:
            raise OptionsError(f"--server: {away[0]}", "server")
    for reason in away:
        say(f"{reason}; continuing with the others")
    return infos


def _ask(addresses: str, options: ClientOptions) -> tuple[list[ModelInfo], list[ServerError]]:
    """The models of the servers that answer now, and the errors of the others."""
    infos: list[ModelInfo] = []
    away: list[ServerError] = []
    for address in addresses.split(","):
        with CaptionClient(address, dataclasses.replace(options, wait_s=0)) as one:
            try:
                infos.append(one.get_model())
            except (ServerUnavailableError, DeadlineExceededError) as error:
                away.append(error)
    return infos, away


def _take(done: queue.SimpleQueue[_Message]) -> list[Done]:
    """All outcomes received so far, at least one. Raises the error that ended a stream."""
    messages = [done.get()]
    while not done.empty():
        messages.append(done.get())
    for message in messages:
        if isinstance(message, ServerError):
            raise OutputError(f"{message}; the same command resumes") from message
        if isinstance(message, BaseException):
            raise message
    return [message for message in messages if isinstance(message, Done)]
