"""Closes gRPC connections that receive much that belongs to no call.

gRPC reads lists of headers, settings and pings before the server sees a call, on a few threads for all
connections. Whoever sends megabytes of them keeps these threads busy, and the calls of others wait. The
kernel knows how many bytes a connection has received, and the server knows how many belong to calls.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

_CALL_BYTES = 128 * 1024
"""What a call may receive beside the messages that are read: headers, and what is buffered of a message."""
_FREE_BYTES, _FREE_BYTES_S = 512 * 1024, 128 * 1024
"""What a connection may receive beside calls: at once, and each second."""
_OVERHEAD = 1.1
"""Of frames and of TLS."""
_INTERVAL_S, _LARGEST_SHARE = 0.02, 0.01
"""Time between two looks at the connections, and the largest share of a core that looking may take."""
_DESCRIPTORS = Path("/proc/self/fd")
_INFO_BYTES = 256
_RECEIVED, _RECEIVED_AT = struct.Struct("=Q"), 128
"""tcpi_bytes_received in struct tcp_info (linux/tcp.h)."""


class Traffic:
    """What one call may receive."""

    def __init__(self, expected: defaultdict[int, float], largest: int) -> None:
        self._expected, self._largest = expected, largest
        self._port = 0

    @contextmanager
    def of(self, peer: str) -> Iterator[None]:
        """The call is that of `peer`, as gRPC names it. Until the context ends, a message may be arriving."""
        self._port = _port_of(peer)
        self._expected[self._port] += _CALL_BYTES + self._largest
        try:
            yield
        finally:
            self._expected[self._port] -= self._largest

    def add(self, size: int) -> None:
        """A message of the call has arrived."""
        self._expected[self._port] += size


class Floods:
    """Watches the connections of a port, on a thread. Does nothing where the system is not Linux.

    Connections are known by the port of the caller. If two have the same one, or one after the other, all
    their calls count for each, and the limit is less strict."""

    def __init__(self, largest: int) -> None:
        """`largest` message of a call, in bytes."""
        self.closed = 0
        """Connections that were closed."""
        self._largest, self._port = largest, 0
        self._expected: defaultdict[int, float] = defaultdict(float)  # bytes by the caller's port
        self._since_s: dict[int, float] = {}
        self._stopped = threading.Event()

    def start(self, port: int) -> None:
        """Watch the connections to a port."""
        self._port = port
        if hasattr(socket, "TCP_INFO") and _DESCRIPTORS.is_dir():
            threading.Thread(target=self._run, name="floods", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def traffic(self) -> Traffic:
        """Of a new call."""
        return Traffic(self._expected, self._largest)

    def _run(self) -> None:
        took_s = 0.0
        while not self._stopped.wait(max(_INTERVAL_S, took_s / _LARGEST_SHARE)):
            started = time.thread_time()
            self._look(time.monotonic())
            took_s = time.thread_time() - started

    def _look(self, now_s: float) -> None:
        """Close the connections that have received too much."""
        seen = set()
        for connection in _connections(self._port):
            with suppress(OSError):  # it has just ended
                address, port = connection.getpeername()[:2]
                seen.add(port)
                since_s = self._since_s.setdefault(port, now_s)
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
                [received] = _RECEIVED.unpack_from(info, _RECEIVED_AT)
                free = _FREE_BYTES + _FREE_BYTES_S * (now_s - since_s)
                if received > free + _OVERHEAD * self._expected[port]:
                    connection.shutdown(socket.SHUT_RDWR)
                    self.closed += 1
                    fields = {"peer": f"{address}:{port}", "bytes": received}
                    log.warning("closed a flooded connection", extra={"fields": fields})
        for port in self._since_s.keys() - seen:
            del self._since_s[port]


def _port_of(peer: str) -> int:
    """Of "ipv4:127.0.0.1:1234"; 0 for a caller without a port."""
    port = peer.rpartition(":")[2]
    return int(port) if port.isdigit() else 0


def _connections(port: int) -> Iterator[socket.socket]:
    """The process's TCP connections to a port of its own; each is valid until the next. They are duplicates,
    as gRPC may close a descriptor at any time, and another file may get its number."""
    for descriptor in _DESCRIPTORS.iterdir():
        with suppress(OSError):  # it has been closed
            if not str(descriptor.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(descriptor.name))) as connection:
                tcp = connection.family in (socket.AF_INET, socket.AF_INET6)
                if tcp and connection.type == socket.SOCK_STREAM and connection.getsockname()[1] == port:
                    yield connection
