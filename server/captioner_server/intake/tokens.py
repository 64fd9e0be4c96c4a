"""Bearer tokens by name, with their limits, reloaded when their file changes; wrong tokens are delayed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from captioner.errors import reason_of
from captioner.files.rights import is_open_to_all
from captioner_server.errors import ServerStartError, UnauthenticatedError
from captioner_server.intake.allowance import Allowance, Limits
from captioner_server.intake.guessers import Guesser, TooManyGuessesError, address_of
from captioner_server.watched_file import read_file, read_whole

log = logging.getLogger(__name__)

_RELOAD_S = 1.0
_FORGET_S = 60.0
_MOST_ADDRESSES = _MOST_CONNECTIONS = 4096
_PIPE_S = 10.0
"""Longest time for a command to write the tokens, as in `--token-file <(command)`."""
_MOST_DELAYED = 256
"""Most calls that wait for their delay to end, each with a buffered message."""
_NAME = re.compile(r"[\w.@-]{1,64}")


class Tokens:
    """The authorised callers. A line of the file is `NAME TOKEN`, optionally with limits (`calls=8 images=32
    rate=10`); the only token of a file may have no name and is then called "token". Empty lines and lines
    that start with # are ignored.

    An address can find out about few guesses within the delay, however many calls it makes or cancels:
    beyond that, right and wrong tokens get the same answer, without being compared. Callers behind the same
    proxy share this limit, hence two exceptions that give a guesser nothing: a wrong token that is repeated,
    as by a client with an old one, counts once; and a connection keeps the token that it was last accepted
    with, until it presents a wrong one. All callers of a Unix socket have the same address: there, tokens
    are always compared."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """The tokens may also come from a pipe, once. Raises `ServerStartError` for a file that cannot be
        read or holds no token."""
        self._path, self._clock = path, clock
        try:
            content = read_whole(path, _PIPE_S)
        except OSError as error:
            raise ServerStartError(f"cannot read {path}: {reason_of(error)}") from error
        self._tokens = parse_tokens(content, path)
        self._content = content if path.is_file() else None
        """What the file was last seen to hold; None if it cannot be read."""
        self.unusable = False
        """Whether the file has been replaced by one that cannot be used, so that earlier tokens are valid."""
        if is_open_to_all(path):
            log.warning(
                "every user of this machine may read the token file: chmod o-r",
                extra={"fields": {"file": str(path)}},
            )
        self._allowances: dict[str, Allowance] = {}
        self._checked_s = clock()
        self._guessers: OrderedDict[str, Guesser] = OrderedDict()  # by address, the latest last
        self._accepted: OrderedDict[str, str] = OrderedDict()  # names by connection, the latest last
        self._delayed = 0

    def __len__(self) -> int:
        return len(self._tokens)

    async def name_of(self, authorization: str, peer: str) -> str:
        """The name of the token in a header `Bearer TOKEN`.

        Raises `UnauthenticatedError`, with a growing delay for each failure from the same address, and at
        once if there are too many."""
        self.reload()
        scheme, _, token = authorization.strip().partition(" ")
        given = token.strip().encode() if scheme.lower() == "bearer" else b""
        wait_s = self._blocked_s(peer) if authorization else 0.0
        if name := self._kept(peer, given) if wait_s else self._compared(given):
            self._accepted[peer] = name
            self._accepted.move_to_end(peer)
            if len(self._accepted) > _MOST_CONNECTIONS:
                self._accepted.popitem(last=False)
            return name
        if authorization:
            self._accepted.pop(peer, None)
        if wait_s:
            raise TooManyGuessesError(
                f"too many invalid tokens came from this address; try again in {wait_s:.1f} s", wait_s
            )
        if authorization:
            await self._delay(address_of(peer), authorization)
        raise UnauthenticatedError("the call carries no valid token (authorization: Bearer ...)")

    def allowance(self, name: str) -> Allowance:
        """The allowance of the token of that name, which follows changes of its limits."""
        if name not in self._allowances:
            self._allowances[name] = Allowance(
                self._tokens[name].limits if name in self._tokens else Limits()
            )
        return self._allowances[name]

    def _compared(self, given: bytes) -> str | None:
        # All tokens are compared, so that the time does not depend on which one is similar.
        names = [name for name, one in self._tokens.items() if hmac.compare_digest(given, one.secret)]
        return names[0] if names else None

    def _kept(self, peer: str, given: bytes) -> str | None:
        """The name that the connection was last accepted with, if this is its token."""
        token = self._tokens.get(name := self._accepted.get(peer, ""))
        return name if token and hmac.compare_digest(given, token.secret) else None

    def _blocked_s(self, peer: str) -> float:
        """Time until tokens of this address are compared again; 0 if they are now."""
        if peer.startswith("unix:"):  # any process of this machine could lock out the others
            return 0.0
        guesser = self._guessers.get(address_of(peer)) if self._guessers else None
        return guesser.blocked_s(self._clock()) if guesser else 0.0

    async def _delay(self, address: str, guess: str) -> None:
        now = self._clock()
        guesser = self._guessers.get(address)
        if guesser is None or now - guesser.last_s >= _FORGET_S:
            self._guessers[address] = guesser = Guesser()
        self._guessers.move_to_end(address)
        if len(self._guessers) > _MOST_ADDRESSES:
            self._guessers.popitem(last=False)
        delay_s = guesser.fail(hashlib.sha256(guess.encode()).digest(), now)
        if self._delayed >= _MOST_DELAYED:
            return  # The guess counts until its delay ends, whether or not the call waits or is cancelled.
        self._delayed += 1
        try:
            await asyncio.sleep(delay_s)
        finally:
            self._delayed -= 1

    def reload(self) -> None:
        """Read the tokens again if the file has changed. If that fails, also because it is empty now, the
        known tokens stay valid."""
        now = self._clock()
        if now - self._checked_s < _RELOAD_S:
            return
        self._checked_s = now
        if (content := read_file(self._path)) == self._content:
            return
        self._content = content
        try:
            if content is None:
                raise ServerStartError(f"{self._path} is not there, not a regular file, or cannot be read")
            self._replace(parse_tokens(content, self._path))
        except ServerStartError as error:
            self.unusable = True
            log.error(
                "tokens not read again: those read before stay valid",
                extra={"fields": {"reason": str(error)}},
            )

    def _replace(self, tokens: dict[str, Token]) -> None:
        before, self._tokens, self.unusable = self._tokens, tokens, False
        self._guessers.clear()  # what was a wrong token may be a right one now
        for name, allowance in list(self._allowances.items()):
            if name in before and name in tokens and tokens[name].secret == before[name].secret:
                allowance.change(tokens[name].limits)
            else:
                allowance.revoked = True
                del self._allowances[name]
        log.info("tokens read again", extra={"fields": {"names": list(tokens)}})


@dataclass(frozen=True, slots=True)
class Token:
    """The token of a caller, and what the caller may use at once."""

    secret: bytes
    limits: Limits


def parse_tokens(content: bytes, path: Path) -> dict[str, Token]:
    """Tokens by name. Raises `ServerStartError`, which names the file."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ServerStartError(f"{path} is not a text file") from None
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        raise ServerStartError(f"{path} holds no token")
    if len(lines) == 1 and len(lines[0]) == 1:
        return {"token": Token(lines[0][0].encode(), Limits())}
    found: dict[str, Token] = {}
    owners: dict[bytes, str] = {}
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
        if (owner := owners.setdefault(found[words[0]].secret, words[0])) != words[0]:
            raise ServerStartError(f"{path}: {owner} and {words[0]} have the same token")
    return found
