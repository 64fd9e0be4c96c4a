"""Addresses from which wrong tokens come: how long each is delayed, and when it may guess again."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from urllib.parse import unquote

from captioner_server.errors import RetryableError, UnauthenticatedError

_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 5.0
_MOST_GUESSES = 4
"""Most different wrong tokens from one address within the delay."""
_MOST_KNOWN = 8
"""Wrong tokens of one address that are remembered."""


class TooManyGuessesError(RetryableError, UnauthenticatedError):
    """So many wrong tokens came from the address that further ones are not compared for a while."""


@dataclass(slots=True)
class Guesser:
    """An address from which wrong tokens have come."""

    failures: int = 0
    last_s: float = 0.0
    ends: deque[float] = field(default_factory=deque)
    """When the delays of its latest guesses end, in order."""
    known: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    """Digests of its latest guesses."""

    def blocked_s(self, now: float) -> float:
        """Time until it may guess again; 0 if it may now."""
        while self.ends and self.ends[0] <= now:
            self.ends.popleft()
        return self.ends[0] - now if len(self.ends) >= _MOST_GUESSES else 0.0

    def fail(self, guess: bytes, now: float) -> float:
        """Count a failure; returns its delay."""
        self.failures += 1
        self.last_s = now
        delay_s = min(_FIRST_DELAY_S * 2 ** min(self.failures - 1, 10), _LONGEST_DELAY_S)
        if guess not in self.known:
            self.ends.append(now + delay_s)
            self.known[guess] = None
            if len(self.known) > _MOST_KNOWN:
                self.known.popitem(last=False)
        return delay_s


def address_of(peer: str) -> str:
    """The address in the name that gRPC gives a peer, as ipv4:ADDRESS:PORT. Of an IPv6 address only the
    first 64 bits count, as one machine has all others."""
    if not peer.startswith(("ipv4:", "ipv6:")):
        return peer
    host = unquote(peer[5:].rpartition(":")[0]).strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:  # of a socket for both protocols
        return str(address.ipv4_mapped)
    return f"{ipaddress.IPv6Address(int(address) >> 64 << 64)}/64"
