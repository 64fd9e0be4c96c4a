"""Bearer tokens by name, with their limits, reloaded when their file changes; wrong tokens are delayed."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path

from captioner_server.allowance import Allowance, Limits
from captioner_server.content import content_digest
from captioner_server.errors import BusyError, ServerStartError, UnauthenticatedError

log = logging.getLogger(__name__)

_RELOAD_S = 1.0
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 5.0
_FORGET_S = 60.0
_MOST_DELAYED = 256
_NAME = re.compile(r"[\w.@-]{1,64}")


class Tokens:
    """The authorised callers. A line of the file is `NAME TOKEN`, optionally with limits (`calls=8 images=32
    rate=10`); the only token of a file may have no name and is then called "token". Empty lines and lines
    that start with # are ignored."""

    def __init__(self, path: Path) -> None:
        """Raises `ServerStartError` for a file that cannot be read or holds no token."""
        self._path = path
        self._tokens = read_tokens(path)
        self._allowances: dict[str, Allowance] = {}
        self._digest = content_digest(path)
        self._checked_s = time.monotonic()
        self._failures: dict[str, tuple[int, float]] = {}  # by address: how many, and when the last was
        self._delayed = 0

    async def name_of(self, authorization: str, peer: str) -> str:
        """The name of the token in a header `Bearer TOKEN`.

        Raises `UnauthenticatedError`, with a growing delay for each failure from the same address."""
        self._reload()
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() == "bearer":
            given = token.strip().encode()
            # All tokens are compared, so that the time does not depend on which one is similar.
            names = [name for name, one in self._tokens.items() if hmac.compare_digest(given, one.secret)]
            if names:
                return names[0]
        await self._delay(address_of(peer), guessed=bool(authorization))
        raise UnauthenticatedError("the call carries no valid token (authorization: Bearer ...)")

    def allowance(self, name: str) -> Allowance:
        """The allowance of the token of that name; a new one when its limits change."""
        limits = self._tokens[name].limits if name in self._tokens else Limits()
        known = self._allowances.get(name)
        if known is None or known.limits != limits:
            self._allowances[name] = known = Allowance(limits)
        return known

    async def _delay(self, address: str, *, guessed: bool) -> None:
        if not guessed:
            return
        now = time.monotonic()
        self._failures = {
            known: failure for known, failure in self._failures.items() if now - failure[1] < _FORGET_S
        }
        count = self._failures.get(address, (0, now))[0] + 1
        self._failures[address] = count, now
        if self._delayed >= _MOST_DELAYED:
            raise BusyError("too many calls with wrong tokens", _LONGEST_DELAY_S)
        self._delayed += 1
        try:
            await asyncio.sleep(min(_FIRST_DELAY_S * 2 ** min(count - 1, 10), _LONGEST_DELAY_S))
        finally:
            self._delayed -= 1

    def _reload(self) -> None:
        """Read the tokens again if the file has changed. If that fails, the known tokens stay valid."""
        now = time.monotonic()
        if now - self._checked_s < _RELOAD_S:
            return
        self._checked_s = now
        if (digest := content_digest(self._path)) == self._digest:
            return
        self._digest = digest
        try:
            self._tokens = read_tokens(self._path)
            kept = self._allowances.keys() & self._tokens.keys()
            self._allowances = {name: self._allowances[name] for name in kept}
            log.info("tokens read again", extra={"fields": {"names": list(self._tokens)}})
        except ServerStartError as error:
            log.error("tokens not read again", extra={"fields": {"reason": str(error)}})


@dataclass(frozen=True, slots=True)
class Token:
    secret: bytes
    limits: Limits


def read_tokens(path: Path) -> dict[str, Token]:
    """Tokens by name. Raises `ServerStartError`."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise ServerStartError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ServerStartError(f"{path} is not a text file") from None
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        raise ServerStartError(f"{path} holds no token")
    if len(lines) == 1 and len(lines[0]) == 1:
        return {"token": Token(lines[0][0].encode(), Limits())}
    found: dict[str, Token] = {}
    for number, words in enumerate(lines, 1):
        if len(words) < 2 or not _NAME.fullmatch(words[0]) or words[0] in found:
            raise ServerStartError(f"{path}: entry {number} is not NAME TOKEN with a name of its own")
        try:
            found[words[0]] = Token(words[1].encode(), Limits.parse(words[2:]))
        except ValueError:
            what = "calls=N, images=N and rate=N, each above 0"
            raise ServerStartError(
                f"{path}: what follows the token in entry {number} is not {what}"
            ) from None
    return found


def address_of(peer: str) -> str:
    """The name that gRPC gives a peer, ipv4:ADDRESS:PORT, without the port."""
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer
