"""The client and its servers: deadlines, waiting, retries, several servers, tokens and TLS."""

import asyncio
import dataclasses
import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import grpc
import pytest
from support.models import FakeModel
from support.patience import PATIENCE_S, free_port, wait_until
from support.serving import RunningServer, make_image, serve

from captioner.errors import (
    CaptionerError,
    ImageTooLargeError,
    ImageUnreadableError,
    OptionsError,
)
from captioner.results import Caption
from captioner_client import (
    AsyncCaptionClient,
    AuthenticationError,
    CaptionClient,
    ClientOptions,
    DeadlineExceededError,
    ServerBusyError,
    ServerError,
    ServerUnavailableError,
)
from captioner_client.channel import make_target, parse_addresses
from captioner_client.errors import broken_off


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


def test_where_nothing_is_said_the_address_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            CaptionClient(address, ClientOptions(timeout_s=0.3)) as client,
            pytest.raises(DeadlineExceededError, match=f"no answer from {address} within 0.3 s"),
        ):
            client.get_model()


def test_what_listens_but_speaks_something_else_is_asked_about() -> None:
    options = ClientOptions(max_attempts=1, wait_s=0)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as web, ThreadPoolExecutor() as threads:
        threads.submit(web.serve_forever)
        try:
            with (
                CaptionClient(f"127.0.0.1:{web.server_port}", options) as client,
                pytest.raises(ServerUnavailableError, match=r"\(is this its gRPC port\?\)"),
            ):
                client.get_model()
        finally:
            web.shutdown()
    with serve(FakeModel()) as server:
        encrypted = dataclasses.replace(options, tls=True)
        with (
            CaptionClient(server.address, encrypted) as client,
            pytest.raises(ServerUnavailableError, match=r"does it use TLS\?\)"),
        ):
            client.get_model()


def refuse(listening: socket.socket) -> None:
    """Answer every call on a connection with the HTTP status 413, as a proxy does whose limit it exceeds."""
    connection, _ = listening.accept()
    with suppress(OSError), connection, connection.makefile("rb") as stream:
        stream.read(24)  # the preface of HTTP/2
        connection.sendall(b"\0\0\0\4\0\0\0\0\0")  # settings
        while len(head := stream.read(9)) == 9:
            stream.read(int.from_bytes(head[:3]))
            if head[3] == 1:  # headers: they, and the stream, end with `:status: 413`
                connection.sendall(b"\0\0\5\1\5" + head[5:] + b"\x08\x03413")


def test_a_proxy_that_takes_no_large_requests_is_told_from_a_server_that_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # gRPC closes the connection later than its client.
        threading.Thread(target=refuse, args=(listening,), daemon=True).start()
        with CaptionClient(f"127.0.0.1:{listening.getsockname()[1]}") as client:
            with pytest.raises(ImageTooLargeError, match="a proxy"):
                client.caption(make_image(1))
            with pytest.raises(ImageTooLargeError, match="a proxy"):
                list(client.stream(make_image(1)))


def test_a_batch_that_a_proxy_breaks_off_says_why() -> None:
    """It is sent again: the limit may be for all its images."""
    said = "Received http2 header with status: 413"
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNKNOWN, grpc.aio.Metadata(), grpc.aio.Metadata(), said)
    assert f"broken off: {said} (a proxy" in str(broken_off(error, "captions.example:50051"))


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


def test_a_token_is_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    with serve(FakeModel(), token_file=tmp_path / "token") as server:
        with CaptionClient(server.address, ClientOptions(token="secret")) as client:
            assert client.caption([make_image(1)])
        with CaptionClient(server.address) as client, pytest.raises(AuthenticationError):
            client.caption(make_image(1))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_encrypts_and_checks_the_certificate(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    with serve(FakeModel(), tls_certificate=certificate, tls_key=key) as server:
        port = server.address.split(":")[1]
        trusting = ClientOptions(root_certificates=certificate)
        for addresses in (f"localhost:{port}", [f"localhost:{port}", f"localhost:{port}"]):
            with CaptionClient(addresses, trusting) as client:
                assert client.caption(make_image(1)).text
        with (
            CaptionClient(f"localhost:{port}", ClientOptions(tls=True)) as client,
            pytest.raises(ServerUnavailableError),
        ):
            client.caption(make_image(1))


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"-----BEGIN DH PARAMETERS-----"])
def test_files_without_a_certificate_or_key_are_refused_at_once(tmp_path: Path, content: bytes) -> None:
    for what in ("certificate", "key"):
        (tmp_path / what).write_bytes(f"-----BEGIN {what.upper()}-----".encode())
    (tmp_path / "wrong").write_bytes(content)
    own = {"certificate": tmp_path / "certificate", "key": tmp_path / "key"}
    for name, what in (("root_certificates", "certificate"), ("certificate", "certificate"), ("key", "key")):
        options = ClientOptions(**{**own, name: tmp_path / "wrong"})
        with (
            CaptionClient("localhost:1", options) as client,
            pytest.raises(OptionsError, match=f"wrong has no {what} in PEM"),
        ):
            client.caption(make_image(1))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"token": token} for token in ("", "abc\n", "a\nb", "alice secret", "é", b"abc")),
        {"max_attempts": 1.5},
        {"batch_window": True},
        {"timeout_s": "5"},
        {"timeout_s": None},
        {"root_certificates": 5},
    ],
)
def test_options_of_a_wrong_kind_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionsError) as caught:
        ClientOptions(**wrong)
    assert caught.value.field in wrong


def test_files_may_be_named_by_texts() -> None:
    options = ClientOptions(root_certificates="missing.pem", wait_s=0)
    with (
        CaptionClient("localhost:1", options) as client,
        pytest.raises(OptionsError, match=r"missing\.pem: No"),
    ):
        client.get_model()


@pytest.mark.parametrize(
    "addresses",
    [
        *("", "host", "host:", ":1", "host:0", "host:x", "host:²", [], ["a:1", ""]),
        *("http://localhost:50051", "a b:1", "localhost:1:2", "host/path:1", "unix:/tmp/a,b:1"),
        *(f"{'a' * 64}:1", "a..b:50051", ".:1", f"{'é' * 60}:1", ["a:1", "a..b:1"]),
    ],
)
def test_what_is_no_address_is_a_mistake(addresses: object) -> None:
    for kind in (CaptionClient, AsyncCaptionClient):
        with pytest.raises(OptionsError):
            kind(addresses)


@pytest.mark.parametrize(
    ("addresses", "target"),
    [
        (["example.org:50051"], "dns:///example.org:50051"),
        (["[::1]:7"], "dns:///[::1]:7"),
        (["[fe80::1%eth0.1]:7"], "dns:///[fe80::1%eth0.1]:7"),
        (["caption_server-1.lan:7"], "dns:///caption_server-1.lan:7"),
        (["unix:/tmp/socket"], "unix:/tmp/socket"),
        (["127.0.0.1:1", "127.0.0.2:2"], "ipv4:127.0.0.1:1,127.0.0.2:2"),
    ],
)
def test_addresses_become_targets(addresses: list[str], target: str) -> None:
    assert make_target(parse_addresses(addresses)) == target
