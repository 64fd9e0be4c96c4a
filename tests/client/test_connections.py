"""The client and its servers: deadlines, waiting, retries, closing, several servers."""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from support.models import FakeModel
from support.patience import PATIENCE_S, free_port, wait_until
from support.serving import RunningServer, make_image, serve

from captioner.errors import CaptionerError, ImageUnreadableError
from captioner.results import Caption
from captioner_client import (
    AsyncCaptionClient,
    CaptionClient,
    ClientOptions,
    DeadlineExceededError,
    ServerBusyError,
    ServerError,
    ServerUnavailableError,
)
from captioner_client.errors import from_rpc_error
from captioner_client.waiting import Waiting


def test_deadlines_are_kept() -> None:
    model = FakeModel()
    with serve(model) as server, CaptionClient(server.address, ClientOptions(timeout_s=0.2)) as client:
        assert client.get_model(timeout_s=PATIENCE_S)
        model.hold.clear()
        late = f"no answer from {server.address} (within|for) 0.2 s"
        with pytest.raises(DeadlineExceededError, match=late):
            client.caption(make_image(1))
        with pytest.raises(DeadlineExceededError, match=late):
            list(client.stream(make_image(1)))
        with pytest.raises(DeadlineExceededError, match=late):
            client.caption([make_image(1)])
        model.hold.set()


def test_without_a_server_it_says_so_in_time() -> None:
    for call in (
        lambda c: c.get_model(),
        lambda c: c.caption([b""]),
        lambda c: c.caption(make_image(1)),
    ):
        with (
            CaptionClient("127.0.0.1:1", ClientOptions(max_attempts=2, wait_s=0)) as client,
            pytest.raises(ServerUnavailableError) as caught,
        ):
            call(client)
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith("no server answers at 127.0.0.1:1: ")


@pytest.mark.skipif(not socket.has_ipv6, reason="IPv6")
def test_an_address_of_ipv6_is_readable() -> None:
    with (
        CaptionClient("[::1]:1", ClientOptions(max_attempts=2, wait_s=0)) as client,
        pytest.raises(ServerUnavailableError, match=r"no server answers at \[::1\]:1: ipv6:\[::1\]:1: "),
    ):
        client.get_model()


def test_where_nothing_is_said_the_address_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            CaptionClient(address, ClientOptions(timeout_s=0.3)) as client,
            pytest.raises(DeadlineExceededError, match=f"no answer from {address} within 0.3 s"),
        ):
            client.get_model()


def test_looking_up_a_name_counts_in_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    found = threading.Event()

    def look_up(*_: object, **__: object) -> list[object]:
        found.wait(PATIENCE_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with CaptionClient("a.example:1", ClientOptions(timeout_s=0.2)) as client:
        for call in (client.get_model, lambda: client.caption(make_image(1)), lambda: client.caption([b""])):
            with pytest.raises(DeadlineExceededError, match=r"no address of a\.example:1 was found"):
                call()
        found.set()


def test_a_busy_server_is_asked_again_and_then_given_up() -> None:
    model = FakeModel()
    with serve(model, queue_size=1) as server:
        model.hold.clear()
        with CaptionClient(server.address) as first, CaptionClient(server.address) as client:
            held = threading.Thread(target=first.caption, args=(make_image(1),))
            held.start()
            wait_until(lambda: server.metric("admitted_images"))
            with (
                CaptionClient(server.address, ClientOptions(max_attempts=1)) as hasty,
                pytest.raises(ServerBusyError) as caught,
            ):
                hasty.caption(make_image(2))
            assert caught.value.retry_after_s is not None
            assert str(caught.value).startswith(f"{server.address}: ")
            assert caught.value.request_id
            with ThreadPoolExecutor(1) as pool:
                answer = pool.submit(client.caption, make_image(3))
                wait_until(lambda: refusals(server, "RESOURCE_EXHAUSTED") >= 2)
                model.hold.set()
                assert answer.result(PATIENCE_S).text
            held.join()


def refusals(server: RunningServer, code: str) -> float:
    return server.metric("calls_total", method="/captioner.v1.CaptionService/Caption", code=code)


def test_a_server_that_is_starting_is_waited_for() -> None:
    model = FakeModel()
    model.hold.clear()
    with serve(None) as server, CaptionClient(server.address) as client, ThreadPoolExecutor(1) as pool:
        opened = server.start(server.server.open({"default": model}))
        wait_until(lambda: model.batches)  # it warms up
        answer = pool.submit(client.caption, make_image(1))
        wait_until(lambda: refusals(server, "UNAVAILABLE"))
        model.hold.set()
        assert answer.result(PATIENCE_S).text
        opened.result(PATIENCE_S)


def test_a_server_that_is_not_there_yet_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    calls = (
        lambda: client.caption(make_image(1)).text,
        lambda: client.caption([make_image(1)])[0].text,
        lambda: list(client.stream(make_image(1)))[-1].text,
    )
    for call in calls:
        caplog.clear()
        options = ClientOptions(timeout_s=PATIENCE_S, max_attempts=2)
        with CaptionClient(f"127.0.0.1:{port}", options) as client, ThreadPoolExecutor(1) as pool:
            answer = pool.submit(call)
            wait_until(lambda: caplog.messages)
            assert f"no server answers at 127.0.0.1:{port}: " in caplog.text
            assert f"waiting for it, at most {PATIENCE_S:g} s" in caplog.text
            with serve(FakeModel(), port=port):
                assert answer.result(PATIENCE_S)


def test_a_wait_that_was_in_vain_says_what_for() -> None:
    for options in (ClientOptions(timeout_s=3, max_attempts=2), ClientOptions(wait_s=0.6, max_attempts=2)):
        with (
            CaptionClient("127.0.0.1:1", options) as client,
            pytest.raises(ServerUnavailableError, match=r"no server answers at 127\.0\.0\.1:1"),
        ):
            client.caption(make_image(1))


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.get_model(),
        lambda client: client.caption(make_image(1)),
        lambda client: client.caption([make_image(1)]),
        lambda client: list(client.stream(make_image(1))),
    ],
)
def test_closing_ends_the_calls_of_other_threads(
    call: Callable[[CaptionClient], object], caplog: pytest.LogCaptureFixture
) -> None:
    client = CaptionClient("127.0.0.1:1", ClientOptions(timeout_s=PATIENCE_S, max_attempts=2))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(call, client)
        wait_until(lambda: "waiting for it" in caplog.text)
        client.close()
        with pytest.raises(ServerError, match="the client was closed"):
            answer.result(PATIENCE_S)
    with pytest.raises(ServerError, match="the client is closed"):
        call(client)


def test_an_address_where_nothing_listens_hides_no_other_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("captioner_client.waiting._PAUSE_S", 0.0)
    refused = "UNKNOWN: ipv6:%5B::1%5D:5: Failed to connect to remote host: Connection refused"
    ours_refused = "UNKNOWN: ipv4:127.0.0.1:5: Failed to connect to remote host: Connection refused"
    telling = "INTERNAL: ipv4:127.0.0.1:5: Failed parsing HTTP/2 (Expected SETTINGS frame)"

    async def outcome(*reasons: str) -> None:
        waiting = Waiting(ClientOptions(), 60)
        for reason in reasons:
            failed = grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE,
                grpc.aio.Metadata(),
                grpc.aio.Metadata(),
                f"connections to all backends failing; last error: {reason}",
            )
            await waiting.after(from_rpc_error(failed, "localhost:5", 60))
        await waiting.after(DeadlineExceededError("late"))

    for reasons, said in (
        ((refused, telling, refused), "Failed parsing"),
        ((telling, refused, refused), "Failed parsing"),
        ((refused, ours_refused, refused), r"\[::1\]:5: Failed to connect"),
        ((telling, refused, ours_refused), "127.0.0.1:5: Failed to connect"),  # it has gone meanwhile
    ):
        caplog.clear()
        with pytest.raises(ServerUnavailableError, match=said):
            asyncio.run(outcome(*reasons))
        assert ("Failed parsing" in caplog.text) == (telling in reasons)


def test_the_error_of_an_address_that_listens_is_told_in_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            with suppress(OSError):
                while True:
                    with listener.accept()[0] as made:
                        made.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                        made.recv(100)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        options = ClientOptions(max_attempts=2, wait_s=4, health_check=False)
        with (
            CaptionClient(f"127.0.0.1:{port},127.0.0.2:{port}", options) as client,
            pytest.raises(ServerUnavailableError, match="is this its gRPC port"),
        ):
            client.get_model()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE_S)


def test_closing_ends_calls_that_a_server_works_on() -> None:
    model = FakeModel()
    with serve(model) as server, ThreadPoolExecutor(2) as pool:
        client = CaptionClient(server.address)
        model.hold.clear()
        answers = [pool.submit(client.caption, image) for image in (make_image(1), [make_image(2)])]
        wait_until(lambda: server.metric("admitted_images") == 2)
        client.close()
        for answer in answers:
            with pytest.raises(ServerError, match="the client was closed"):
                answer.result(PATIENCE_S)
        wait_until(lambda: not server.metric("in_flight_calls"))
        model.hold.set()


def test_closing_an_asynchronous_client_ends_its_batches() -> None:
    model = FakeModel()

    async def close_early(server: RunningServer) -> None:
        client = AsyncCaptionClient(server.address)
        call = asyncio.create_task(client.caption([make_image(1)] * 3))
        await asyncio.to_thread(wait_until, lambda: server.metric("admitted_images") > 0)
        await client.close()
        with pytest.raises(ServerError, match="the client was closed"):
            async with asyncio.timeout(PATIENCE_S):
                await call
        with pytest.raises(ServerError, match="the client is closed"):
            await client.caption(make_image(1))

    with serve(model) as server:
        model.hold.clear()
        asyncio.run(close_early(server))
        model.hold.set()


@pytest.mark.parametrize("method", ["caption_batch", "caption_each"])
def test_ctrl_c_reaches_whoever_iterates(method: str) -> None:
    model = FakeModel()

    def interrupt() -> None:
        wait_until(lambda: model.batches)
        os.kill(os.getpid(), signal.SIGINT)

    # A shell starts what runs in the background with Ctrl-C ignored, and Python leaves that so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with serve(model) as server, CaptionClient(server.address) as client:
        model.hold.clear()
        model.batches.clear()
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                list(getattr(client, method)([make_image(1)] * 50))
        finally:
            signal.signal(signal.SIGINT, before)
            model.hold.set()  # else the server's thread would keep pytest from ending
        interrupter.join()
        assert client.caption(make_image(1)).text


def test_generators_may_outlive_their_client(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    with serve(FakeModel()) as server:
        with CaptionClient(server.address) as client:
            generators = [client.stream(make_image(1)), client.caption_batch([make_image(1)] * 3)]
            for generator in generators:
                assert next(generator)
        wait_until(lambda: not server.metric("in_flight_calls"))
    del generator, generators
    gc.collect()
    assert not ignored


def test_calls_take_turns_over_several_servers() -> None:
    with serve(FakeModel()) as one, serve(FakeModel()) as two:
        with CaptionClient([one.address, two.address]) as client:

            def captioned() -> list[float]:
                return [server.metric("images_total", outcome="ok") for server in (one, two)]

            wait_until(lambda: client.caption(make_image(0)) and all(captioned()), "both are connected")
            before = captioned()
            for number in range(10):
                client.caption(make_image(number))
        for count, earlier in zip(captioned(), before, strict=True):
            assert count - earlier >= 3


def test_a_batch_outlives_the_server_that_it_went_to() -> None:
    images = [make_image(number) for number in range(120)]
    model = FakeModel(image_s=0.004)
    with serve(model) as one, serve(model) as two:
        with CaptionClient(f"{one.address}, {two.address}") as client:
            found: dict[int, Caption | CaptionerError] = {}
            for index, outcome in client.caption_batch(images):
                assert index not in found
                found[index] = outcome
                if len(found) == 30:
                    [serving] = [server for server in (one, two) if server.server.state.open_calls]
                    drained = serving.start(serving.server.drain())
        assert drained.result(PATIENCE_S)
        for server in (one, two):
            assert server.metric("images_total", outcome="ok") > 10
    for number, image in enumerate(images):
        assert found[number] == model.describe(model.preprocess(image))


def test_an_image_that_is_gone_when_it_is_sent_again_fails_alone(tmp_path: Path) -> None:
    photos = [tmp_path / f"{number}.jpg" for number in range(120)]
    for number, photo in enumerate(photos):
        photo.write_bytes(make_image(number))
    model = FakeModel(image_s=0.004)
    with (
        serve(model) as one,
        serve(model) as two,
        CaptionClient(f"{one.address}, {two.address}") as client,
    ):
        outcomes = []
        for outcome in client.caption_each(photos):
            outcomes.append(outcome)
            if len(outcomes) == 10:
                for photo in photos:
                    photo.unlink()
                [serving] = [server for server in (one, two) if server.server.state.open_calls]
                serving.start(serving.server.drain())
    assert len(outcomes) == len(photos)
    kinds = {type(outcome) for outcome in outcomes}
    assert kinds == {Caption, ImageUnreadableError} and all(isinstance(o, Caption) for o in outcomes[:10])
