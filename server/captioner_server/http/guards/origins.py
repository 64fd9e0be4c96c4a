"""Which pages may call: those of the server itself, of this machine, and of origins that are allowed."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from starlette.datastructures import Headers

from captioner.errors import clip
from captioner_server.errors import ForeignOriginError

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


def foreign_page(origin: str | None) -> ForeignOriginError:
    """The error for a page of this origin; None where the browser does not tell it."""
    if origin is None:
        return ForeignOriginError("the page of another site may not call this server (--http-cors)")
    if "://" not in origin or origin.startswith("file:"):  # "null": that of files, and of pages in a sandbox
        return ForeignOriginError(
            "a page without an origin, such as that of a file, may not call this server; one at "
            "http://localhost may, if captioner serve is started with --http-cors http://localhost:PORT"
        )
    return ForeignOriginError(
        f"the page of {clip(origin, 100)} may not call this server, unless captioner serve is started with "
        f"--http-cors {clip(origin, 100)}"
    )
