"""A gallery of photos, and the decisions about their captions, which are kept in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from captioner.readable_json import dump_json
from captioner_server.errors import RequestError
from captioner_server.http.endpoint import Operation, read_nothing
from captioner_server.http.off_loop import off_loop
from captioner_server.http.pages.static_file import StaticFile
from captioner_server.http.request.body import read_body
from captioner_server.intake.ticket import Kind, Ticket

GALLERY_PATH = "/gallery/"
DECISIONS = "decisions"
"""Where decisions are read from and sent to, relative to `GALLERY_PATH`."""
_MOST_BYTES = 2**25
_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}

Change = Mapping[str, Any]
"""{"image", "caption", "status"}; the status is None for a decision that is taken back."""


class Decisions(Protocol):
    """Where decisions are kept."""

    def list(self) -> Sequence[Change]:
        """All of them."""

    def change(self, changes: Sequence[Change]) -> None:
        """Keep these. Raises `CaptionerError`s."""


@dataclass(frozen=True, slots=True)
class Gallery:
    """A gallery that `write_gallery` wrote, with `saves_to=DECISIONS`."""

    page: Path
    decisions: Decisions

    def operations(self) -> list[Operation[Any]]:
        """The calls that read and keep decisions."""
        path = GALLERY_PATH + DECISIONS
        return [
            Operation(f"GET {path}", Kind.QUERY, read_nothing, len, self._list),
            Operation(f"POST {path}", Kind.QUERY, _read_changes, len, self._change),
        ]

    def routes(self, patience_s: float) -> list[BaseRoute]:
        """The page and its files. A caller may read nothing of the page for `patience_s`."""
        content = self.page.read_bytes()
        page = StaticFile(content, "text/html", _HEADERS, patience_s=patience_s)
        files = self.page.with_suffix(".files")
        return [
            Route(GALLERY_PATH, page, methods=["GET"]),
            Mount(GALLERY_PATH + files.name, StaticFiles(directory=files)),
        ]

    async def _list(self, nothing: str, ticket: Ticket) -> Response:
        decisions = await off_loop(lambda: dump_json(self.decisions.list()))
        return Response(decisions, media_type="application/json")

    async def _change(self, changes: Sequence[Change], ticket: Ticket) -> Response:
        await off_loop(self.decisions.change, changes)
        return JSONResponse({"kept": len(changes)})


async def _read_changes(request: Request) -> list[Change]:
    try:
        changes = json.loads(await read_body(request, _MOST_BYTES, _MOST_BYTES))
    except (ValueError, RecursionError):
        changes = None
    if not isinstance(changes, list) or not all(map(_is_change, changes)):
        raise RequestError("the body is not a JSON list of decisions", "body")
    return changes


def _is_change(change: Any) -> bool:
    if not isinstance(change, dict) or not isinstance(change.get("image"), str):
        return False
    status = change.get("status")
    return status is None or (isinstance(status, str) and isinstance(change.get("caption"), str))
