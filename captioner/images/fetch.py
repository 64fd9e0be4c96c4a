"""Fetches images over HTTP, within limits and from public addresses only."""

from __future__ import annotations

import http.client
import ipaddress
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote, urljoin, urlsplit

from captioner.errors import ImageError, ImageUnreadableError, reason_of
from captioner.images.limits import too_many_bytes

TIMEOUT_S = 20.0
"""Longest time for one image, redirects included."""
MAX_REDIRECTS = 5
_CHUNK = 2**16
_REDIRECTS = (301, 302, 303, 307, 308)
_URL_CHARACTERS = "/?:@!$&'()*+,;=~%[]"


def fetch(url: str, max_bytes: int, timeout_s: float = TIMEOUT_S) -> bytes:
    """The content of an http or https URL, as `Fetch.run` returns it."""
    return Fetch(url, max_bytes, timeout_s).run()


class Fetch:
    """Fetches a URL once, until another thread stops it.

    Every address on the way, redirects included, must be public, so that nobody who writes a list of URLs
    can reach services of this machine or its network. The address that was checked is the one connected
    to."""

    def __init__(self, url: str, max_bytes: int, timeout_s: float = TIMEOUT_S) -> None:
        self._url, self._max_bytes, self._timeout_s = url, max_bytes, timeout_s
        self._ends_s = math.inf
        self._connection: _Connection | None = None
        self._stopped = False
        self.started = False

    def run(self) -> bytes:
        """The content. Raises `ImageUnreadableError` or `ImageTooLargeError`."""
        self.started, self._ends_s = True, time.monotonic() + self._timeout_s
        url = self._url
        try:
            for _ in range(MAX_REDIRECTS + 1):
                content, url = self._get(url)
                if content is not None:
                    return content
        except ImageError:
            raise
        except (OSError, ValueError, http.client.HTTPException) as error:
            self._left_s()
            reason = reason_of(error) or type(error).__name__
            raise ImageUnreadableError(f"cannot be fetched: {reason}") from error
        raise ImageUnreadableError(f"cannot be fetched: more than {MAX_REDIRECTS} redirects")

    def stop(self) -> None:
        """Let `run` end soon with an error, in another thread; it waits only for a name to be resolved."""
        self._stopped = True
        if self._connection is not None:
            self._connection.shut()

    def _left_s(self) -> float:
        left = self._ends_s - time.monotonic()
        if left <= 0 or self._stopped:
            raise ImageUnreadableError("cannot be fetched: it takes too long")
        return left

    def _get(self, url: str) -> tuple[bytes | None, str]:
        """The content, or None and the URL that it is redirected to."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ImageUnreadableError("cannot be fetched: only http and https URLs are")
        try:
            parts.hostname.encode("idna")  # as looking it up does
        except UnicodeError:
            reason = "its host is not a name that a host can have"
            raise ImageUnreadableError(f"cannot be fetched: {reason}") from None
        port = parts.port or (443 if parts.scheme == "https" else 80)
        connection = _Connection(parts.hostname, port, self._left_s, tls=parts.scheme == "https")
        self._connection = connection
        # A socket's own timeout begins anew with every byte.
        watchdog = threading.Timer(self._left_s(), connection.shut)
        watchdog.start()
        try:
            # As browsers do: characters outside ASCII and spaces are escaped, what is escaped already stays.
            target = quote(
                f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}", safe=_URL_CHARACTERS
            )
            connection.request("GET", target, headers={"User-Agent": "captioner", "Accept": "image/*"})
            response = connection.getresponse()
            if response.status in _REDIRECTS and (place := response.getheader("Location")):
                return None, urljoin(url, place)
            if response.status != 200:
                raise ImageUnreadableError(f"cannot be fetched: the server answers {response.status}")
            content = bytearray()
            while chunk := response.read1(_CHUNK):
                content += chunk
                if len(content) > self._max_bytes:
                    raise too_many_bytes(self._max_bytes)
            self._left_s()  # what the watchdog has cut is not the whole
            if response.length:  # `read1` does not say it
                raise ImageUnreadableError("cannot be fetched: the connection ended before the whole arrived")
            return bytes(content), url
        finally:
            watchdog.cancel()
            connection.close()


class _Connection(http.client.HTTPConnection):
    """Connects to an address that was checked, whatever the name means a moment later."""

    def __init__(self, host: str, port: int, left_s: Callable[[], float], *, tls: bool) -> None:
        """`left_s` returns the seconds that are left, or raises."""
        super().__init__(host, port)
        self._left_s = left_s
        self._open: socket.socket | None = None  # `sock` is None while an answer without a length is read
        self.default_port = 443 if tls else 80
        self._tls = ssl.create_default_context() if tls else None

    def connect(self) -> None:
        failures = []
        for address in _public_addresses(self.host, self.port):
            try:
                self.sock = self._connected(address)
                break
            except OSError as error:
                failures.append(error)
        else:
            raise failures[0]  # the system names first what it can reach
        if self._tls is not None:
            secure = self._tls.wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.sock = self._open = secure
            self._left_s()  # the watchdog may have found nothing to shut
            secure.do_handshake()
        self._left_s()

    def _connected(self, address: str) -> socket.socket:
        """A connected socket, which can be shut while it connects."""
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            self._open = made
            made.settimeout(self._left_s())
            made.connect((address, self.port))
        except BaseException:
            made.close()
            raise
        return made

    def shut(self) -> None:
        """End what is being read or written, in another thread."""
        if self._open is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._open, socket.SHUT_RDWR)  # an SSLSocket's own forgets its state


def _public_addresses(host: str, port: int) -> list[str]:
    """Its addresses, in the order in which the system would try them."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    for address in addresses:
        if not _is_public(address):
            raise ImageUnreadableError(f"cannot be fetched: {host} is not a public address")
    return addresses


_GLOBAL = ipaddress.ip_network("2000::/3")
"""The IPv6 addresses that may be public."""
_SPECIAL = tuple(map(ipaddress.ip_network, ("3fff::/20", "192.0.0.0/24", "168.63.129.16/32")))
"""Not public, which not every version of Python knows. At the last, machines of Azure get their settings."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def _is_public(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        behind = _ipv4_behind(found)
        if behind is None:
            return found in _GLOBAL and _is_global(found)
        found = behind
    return _is_global(found)


def _is_global(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    special = any(address in network for network in _SPECIAL)
    return address.is_global and not address.is_multicast and not special


def _ipv4_behind(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that packets to an IPv6 address go to in the end; None if it is none of these."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour
