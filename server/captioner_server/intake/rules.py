"""Rules that may reject a call, asked in order: small functions, each with the option that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from captioner.errors import CaptionerError
from captioner.printable import counted
from captioner_server.errors import BusyError, RequestError
from captioner_server.intake.ticket import Kind, Ticket

ALL = frozenset(Kind) - {Kind.PROBE}
"""All kinds of calls that a rule may reject."""
STREAMS = frozenset(kind for kind in Kind if kind.streams)
AT_ONCE = frozenset({Kind.IMAGE, Kind.WORDS})
"""Calls whose images are admitted at once or rejected; those of batch streams wait."""
_RETRY_AFTER_S = 0.2

Rejection = Callable[[Ticket], CaptionerError | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A reason to reject a ticket."""

    flag: str
    """The option of the server that it belongs to; "" if there is none."""
    kinds: frozenset[Kind]
    rejection: Rejection
    """The error that a call with the ticket is rejected with now, or None. It changes nothing."""
    again: bool = True
    """Whether it is asked again when the message has arrived."""


def first_rejection(rules: Iterable[Rule], ticket: Ticket) -> CaptionerError | None:
    """The error of the first rule that rejects the ticket; None if none does."""
    for rule in rules:
        if ticket.kind in rule.kinds and (rejection := rule.rejection(ticket)):
            return rejection
    return None


def token_calls(ticket: Ticket) -> BusyError | None:
    """`calls=N` of the token."""
    most = ticket.allowance.limits.calls
    if most is None or ticket.allowance.calls < most:
        return None
    return BusyError(f"the token allows {most} calls at once", _RETRY_AFTER_S)


def token_images(ticket: Ticket) -> CaptionerError | None:
    """`images=N` of the token."""
    allowance, most = ticket.allowance, ticket.allowance.limits.images
    if most is None:
        return None
    allowed = f"the token allows {counted(most, 'image')} in work"
    if ticket.images > most:
        return RequestError(f"{allowed}, not {ticket.images}", "inputs")
    if allowance.free_images < ticket.images:
        return BusyError(allowed, _RETRY_AFTER_S)
    return None


def token_rate(ticket: Ticket) -> BusyError | None:
    """`rate=N` of the token."""
    wait_s = ticket.allowance.wait_s(ticket.images)
    if wait_s <= 0:
        return None
    return BusyError(f"the token allows {ticket.allowance.limits.rate:g} images a second", wait_s)
