"""What answers in the place of a server: proxies, and what speaks another protocol."""

import dataclasses
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import grpc
import pytest
from support.models import FakeModel
from support.serving import make_image, serve

from captioner.errors import ImageTooLargeError
from captioner_client import (
    AuthenticationError,
    CaptionClient,
    ClientOptions,
    ServerError,
    ServerUnavailableError,
)
from captioner_client.errors import broken_off


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


def refuse(listening: socket.socket, status: int = 413) -> None:
    """Answer every call on a connection with an HTTP status, as a proxy does: 413 for one that exceeds its
    limit."""
    connection, _ = listening.accept()
    with suppress(OSError), connection, connection.makefile("rb") as stream:
        stream.read(24)  # the preface of HTTP/2
        connection.sendall(b"\0\0\0\4\0\0\0\0\0")  # settings
        while len(head := stream.read(9)) == 9:
            stream.read(int.from_bytes(head[:3]))
            if head[3] == 1:  # headers: they, and the stream, end with `:status`
                connection.sendall(b"\0\0\5\1\5" + head[5:] + b"\x08\x03%d" % status)


def test_a_proxy_that_takes_no_large_requests_is_told_from_a_server_that_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        # gRPC closes the connection later than its client.
        threading.Thread(target=refuse, args=(listening,), daemon=True).start()
        with CaptionClient(f"127.0.0.1:{listening.getsockname()[1]}") as client:
            with pytest.raises(ImageTooLargeError, match="a proxy"):
                client.caption(make_image(1))
            with pytest.raises(ImageTooLargeError, match="a proxy"):
                list(client.stream(make_image(1)))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (301, ServerError),
        (400, ServerError),
        (401, AuthenticationError),
        (404, ServerError),
        (408, ServerUnavailableError),
        (429, ServerUnavailableError),
        (500, ServerUnavailableError),
        (502, ServerUnavailableError),
    ],
)
def test_what_a_proxy_answers_itself_is_said_to_be_that(
    status: int, kind: type[ServerError], caplog: pytest.LogCaptureFixture
) -> None:
    """And where it would always answer that, it is not asked again."""
    options = ClientOptions(max_attempts=2, wait_s=1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=refuse, args=(listening, status), daemon=True).start()
        with (
            CaptionClient(f"127.0.0.1:{listening.getsockname()[1]}", options) as client,
            pytest.raises(ServerError, match=rf"{status} \(.*a proxy before the server") as caught,
        ):
            client.caption(make_image(1))
    assert type(caught.value) is kind
    assert ("waiting for it" in caplog.text) == (kind is ServerUnavailableError)


def test_a_batch_that_a_proxy_breaks_off_says_why() -> None:
    """It is sent again: the limit may be for all its images."""
    said = "Received http2 header with status: 413"
    error = grpc.aio.AioRpcError(grpc.StatusCode.UNKNOWN, grpc.aio.Metadata(), grpc.aio.Metadata(), said)
    assert f"broken off: {said} (a proxy" in str(broken_off(error, "captions.example:50051"))
