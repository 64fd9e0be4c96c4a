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
from captioner_client import CaptionClient, ClientOptions, ServerUnavailableError
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
