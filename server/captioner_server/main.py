"""Runs a server as a process: load the models, serve, and stop on a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Sequence

from captioner_server.captioning.model_source import ModelSource
from captioner_server.captioning.supervisor import EXIT_STATUS
from captioner_server.http.pages.gallery import Gallery
from captioner_server.observation.log_writer import LogWriter
from captioner_server.options import ServerOptions
from captioner_server.process.address_space import tell_low_address_space
from captioner_server.process.core_dumps import leave_no_core_dump
from captioner_server.process.file_limit import raise_file_limit, say_once_without_files
from captioner_server.process.heap import bound_heap
from captioner_server.reload import Reloader
from captioner_server.server import CaptionServer

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(
    sources: Sequence[ModelSource],
    options: ServerOptions,
    writer: LogWriter | None = None,
    ready: Callable[[str], None] | None = None,
    gallery: Gallery | None = None,
    signals: Collection[int] = SIGNALS,
    at_end: Callable[[], None] = lambda: None,
) -> int:
    """Serve models until one of `signals`; returns the exit status. SIGHUP, if it is none of them, loads the
    models again.

    The first signal drains: 0 if all work in flight was finished within the grace period, else 1. A second
    signal ends the process at once with 128 + its number; a model that fails permanently ends it with
    `EXIT_STATUS`. Raises a `CaptionerError` if the server cannot start. `writer` is that of `logs.set_up`;
    `ready` is called with the HTTP URL once the server captions images. A `gallery` is served over HTTP.
    `at_end` is called before this returns or the process ends, and no signal interrupts it.
    """
    raise_file_limit(options)
    tell_low_address_space()
    if writer is not None:
        writer.drain(0.5)  # gRPC may end the process before the next line is written
    leave_no_core_dump()
    bound_heap()
    return asyncio.run(_run(sources, options, writer, ready, gallery, signals, at_end))


async def _run(
    sources: Sequence[ModelSource],
    options: ServerOptions,
    writer: LogWriter | None,
    ready: Callable[[str], None] | None,
    gallery: Gallery | None,
    signals: Collection[int],
    at_end: Callable[[], None],
) -> int:
    def end(status: int) -> None:
        at_end()
        if writer is not None:
            writer.drain(0.5)
        os._exit(status)  # model threads may go on computing for a long time

    loop = asyncio.get_running_loop()
    say_once_without_files(loop)
    signalled, hung_up = _handle_signals(loop, signals, end)  # from the start: SIGHUP would end the process
    server = CaptionServer(options, gallery)
    if writer is not None:
        server.metrics.log_lines_dropped.set_function(lambda: writer.dropped)
    port = await server.start()
    _log_addresses(server, options, port)
    # Before the models are loaded, as it records the state of their files.
    reloader = Reloader(sources, server.models, server.metrics)
    opening = asyncio.create_task(_open(server, sources, options))
    stopping = asyncio.create_task(signalled.wait())
    try:
        await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if opening.done():
            opening.result()  # raises what went wrong
            if ready and server.http_url:
                ready(server.http_url)
        reloads = _reloads(reloader, hung_up, options.watch_s) if opening.done() else []
        failing = asyncio.create_task(server.failed())
        await asyncio.wait({failing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if failing.done() and not signalled.is_set():
            _log("ended", reason=failing.result())
            end(EXIT_STATUS)
        failing.cancel()
        for task in reloads:
            task.cancel()
        times = {"lame_duck_s": options.lame_duck_s, "grace_s": options.grace_s}
        _log("draining", open_calls=server.state.open_calls, **times)
        finished = await server.drain()
        _log("stopped", finished=finished)
        return 0 if finished else 1
    except Exception:
        await server.stop()
        raise
    finally:
        at_end()


def _handle_signals(
    loop: asyncio.AbstractEventLoop, signals: Collection[int], end: Callable[[int], None]
) -> tuple[asyncio.Event, asyncio.Event]:
    """The events of the first of `signals`, and of SIGHUP. A second of `signals` calls `end` with the exit
    status."""
    signalled, hung_up = asyncio.Event(), asyncio.Event()

    def on_signal(number: int) -> None:
        if signalled.is_set():
            _log("ended", signal=number)
            end(128 + number)
        signalled.set()

    loop.add_signal_handler(signal.SIGHUP, hung_up.set)
    for number in signals:
        loop.add_signal_handler(number, on_signal, number)
    # The program that starts this one may have blocked them.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP, *signals})
    return signalled, hung_up


def _log_addresses(server: CaptionServer, options: ServerOptions, port: int) -> None:
    tokens = server.door.tokens
    _log(
        "listening",
        address=options.address if options.host.startswith("unix:") else f"{options.host}:{port}",
        tls=options.tls_certificate is not None,
        tokens=0 if tokens is None else len(tokens),
    )
    if server.http_url:
        _log("http", url=server.http_url)
    if server.metrics_url:
        _log("metrics", url=server.metrics_url)


async def _open(server: CaptionServer, sources: Sequence[ModelSource], options: ServerOptions) -> None:
    started = time.monotonic()
    models = {source.name: await asyncio.to_thread(source.load) for source in sources}
    loaded = time.monotonic()
    await server.open(models)
    for name, model in models.items():
        _log(
            "serving",
            name=name,
            model=model.model,
            device=model.device,
            provider=model.provider,
            precision=model.precision,
            batch_sizes=options.batch_sizes,
            load_s=round(loaded - started, 2),
            warm_up_s=round(time.monotonic() - loaded, 2),
        )


def _reloads(reloader: Reloader, hung_up: asyncio.Event, watch_s: float) -> list[asyncio.Task[None]]:
    """The tasks that reload models: on SIGHUP, and when files change."""

    async def reload_on_signal() -> None:
        while True:
            await hung_up.wait()
            hung_up.clear()
            await reloader.reload()

    tasks = [asyncio.create_task(reload_on_signal())]
    if watch_s:
        tasks.append(asyncio.create_task(reloader.watch(watch_s)))
    return tasks


def _log(event: str, **fields: object) -> None:
    log.info(event, extra={"fields": fields})
