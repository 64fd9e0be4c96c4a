"""Rejects calls that pages of other sites make from a visitor's browser (cross-site request forgery).

Such a page cannot read the answer, but could make a server on the visitor's own machine work for it.
"""

from __future__ import annotations

from collections.abc import Set

from starlette.datastructures import Headers

from captioner_server.errors import ForeignOriginError


def parse_origins(http_cors: str | None) -> frozenset[str]:
    """The origins in the option `http_cors`."""
    return frozenset(origin.strip() for origin in (http_cors or "").split(",") if origin.strip())


def check_origin(headers: Headers, allowed: Set[str]) -> None:
    """Raise `ForeignOriginError` if a browser says that the page of another site calls, and its origin is not
    among those that are `allowed` ("*" for all). Browsers send `Sec-Fetch-Site` to HTTPS and to localhost."""
    foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
    if foreign and not {"*", headers.get("origin")} & allowed:
        raise ForeignOriginError("the page of another site may not call this server (http_cors)")
