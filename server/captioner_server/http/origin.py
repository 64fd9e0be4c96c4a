"""Rejects calls that pages of other sites make from a visitor's browser (cross-site request forgery).

Such a page cannot read the answer, but could make a server on the visitor's own machine work for it. If its
host name is changed to mean the visitor's machine (DNS rebinding), it could even read the answer.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from starlette.datastructures import Headers

from captioner_server.http.cors import foreign as foreign_page

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True, slots=True)
class Origins:
    """The pages that may call: the server's own, and those of other sites that it allows."""

    allowed: frozenset[str]
    """Origins of other sites; "*" for all."""
    local: bool
    """Whether only this machine can reach the server: then the server has no other names than localhost."""

    def check(self, headers: Headers) -> None:
        """Raise `ForeignOriginError` for a call of a page that may not. Other programs than browsers send
        none of these headers."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if {"*", origin} & self.allowed:
            return
        if site is not None:  # browsers send it to HTTPS and to localhost, where names cannot be rebound
            foreign = site in ("cross-site", "same-site")
        elif origin is not None:
            host = headers.get("host", "")
            foreign = not _is_at(origin, host) or (self.local and not is_local_name(host))
        else:
            foreign = False
        if foreign:
            raise foreign_page(origin)


def _is_at(origin: str, host: str) -> bool:
    """Whether the page comes from the host and port that it calls. The scheme may differ: a proxy may serve
    HTTPS."""
    scheme, _, place = origin.lower().partition("://")
    port = _DEFAULT_PORTS.get(scheme, "")
    return place != "" and place.removesuffix(port) == host.lower().removesuffix(port)


def is_local_name(host: str) -> bool:
    """Whether no name server chooses what the host in a Host header means."""
    name = re.sub(r":\d*$", "", host.lower()).strip("[]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
