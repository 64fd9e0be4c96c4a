"""Calls that never end, written frame by frame: what no gRPC client would send."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable


class Stalling:
    """Calls whose message is announced and sent but for its last byte, over HTTP/2 as it is on the wire."""

    def __init__(
        self, address: str, path: str, length: int = 0, *, reads: bool = True, source: str = "127.0.0.1"
    ) -> None:
        """Without `reads`, the server may send no byte of an answer: the window of each call is 0. `source`
        is the address of the caller."""
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)), 20, (source, 0))
        self._path, self._length, self._stream = path, length, -1
        settings = b"" if reads else struct.pack(">HI", 4, 0)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, settings))

    def settle(self, times: int) -> None:
        """Send a frame of settings so many times, each to be acknowledged."""
        self.socket.sendall(_frame(4, 0, 0, struct.pack(">HI", 3, 100)) * times)

    def ping(self, times: int) -> None:
        """Send a ping so many times, each to be answered."""
        self.socket.sendall(_frame(6, 0, 0, bytes(8)) * times)

    def continue_headers(self, times: int) -> None:
        """Begin a list of headers and continue it by 14 KiB so many times."""
        header = b"\x00" + _text("x-header") + _text("y" * 100)
        self.socket.sendall(_frame(1, 0, 1, header))
        for _ in range(times):
            self.socket.sendall(_frame(9, 0, 1, header * 130))

    def repeat_header(self, frames: int, times: int) -> None:
        """Begin a call with one header so many times in each of so many frames. Only the first is spelled
        out; each further one is a byte on the wire (HPACK)."""
        self._stream += 2
        first = b"\x40" + _text("x-header") + _text("y" * 100)
        self.socket.sendall(_frame(1, 0, self._stream, self._head() + first))
        for number in range(1, frames + 1):
            self.socket.sendall(_frame(9, 4 if number == frames else 0, self._stream, b"\xbe" * times))

    def call(self, sent: int) -> None:
        """Begin a call and send so many bytes of its message."""
        self._begin()
        self._send(struct.pack(">BI", 0, self._length) + bytes(sent))

    def announce(self, times: int) -> None:
        """Begin a call and send the first byte of its message so many times."""
        for _ in range(times):
            self._begin()
            self._send(b"\0")

    def trickle(self, message: bytes, pieces: int, pause_s: float) -> None:
        """Begin a call and send its message in so many pieces."""
        self._begin()
        data = struct.pack(">BI", 0, len(message)) + message
        size = -(-len(data) // pieces)
        for start in range(0, len(data), size):
            self._send(data[start : start + size])
            time.sleep(pause_s)

    def ask(self, message: bytes, *more: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Begin a call and send its messages; the call may send others."""
        self._begin(*headers)
        for one in (message, *more):
            self._send(struct.pack(">BI", 0, len(one)) + one)

    def send_compressed(self, message: bytes) -> None:
        """Begin a call and send its message, which gzip has compressed."""
        self._begin(("grpc-encoding", "gzip"))
        self._send(struct.pack(">BI", 1, len(message)) + message)

    def wait_for_answer(self) -> bytes:
        """Read until a call has ended; returns its data. Raises `OSError` if the connection ends first."""
        kind = flags = 0
        data = b""
        while not (kind == 3 or (kind in (0, 1) and flags & 1)):
            header = self._read(9)
            kind, flags = header[3], header[4]
            payload = self._read(int.from_bytes(header[:3], "big"))
            data += payload if kind == 0 else b""
        return data

    def _read(self, count: int) -> bytes:
        data = self.socket.recv(count, socket.MSG_WAITALL)
        if len(data) < count:
            raise ConnectionError("the connection has ended")
        return data

    def reset(self, times: int, sent: int | None = None) -> None:
        """Begin a call and cancel it so many times, after `sent` bytes of its message."""
        for _ in range(times):
            self._begin()
            if sent is not None:
                self._send(struct.pack(">BI", 0, 2 * sent) + bytes(sent))
            self.socket.sendall(_frame(3, 0, self._stream, struct.pack(">I", 8)))

    def _begin(self, *more: tuple[str, str]) -> None:
        self._stream += 2
        self.socket.sendall(_frame(1, 4, self._stream, self._head(*more)))

    def _head(self, *more: tuple[str, str]) -> bytes:
        return b"".join(
            b"\x00" + _text(name) + _text(value)
            for name, value in (
                (":method", "POST"),
                (":scheme", "http"),
                (":path", self._path),
                (":authority", "x"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                *more,
            )
        )

    def _send(self, data: bytes) -> None:
        for start in range(0, len(data), 16_384):
            self.socket.sendall(_frame(0, 0, self._stream, data[start : start + 16_384]))


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _text(value: str) -> bytes:
    return bytes([len(value)]) + value.encode(errors="surrogateescape")
