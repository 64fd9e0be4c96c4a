"""Files that are made at the start, and sent to whoever asks."""

from __future__ import annotations

import asyncio
import hashlib

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from captioner_server.errors import BusyError
from captioner_server.http.errors import error_response

_PIECE_BYTES = 2**16
"""Sent at once. Of a file that is not read, no more than a few pieces wait in memory."""
MOST_AT_ONCE = 256
"""Files that are sent at once, over all connections."""
_RETRY_AFTER_S = 1.0
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}


class StaticFile:
    """An ASGI application that answers with a file, or that the caller has it already."""

    sending = 0
    """Files that are being sent now, to callers that may read them slowly."""

    def __init__(self, content: bytes, kind: str, headers: dict[str, str], *, patience_s: float) -> None:
        """A caller may read nothing for `patience_s`."""
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        headers = {**_HEADERS, **headers, "ETag": tag}
        self._tag, self._patience_s = tag, patience_s
        self._pieces = [
            content[start : start + _PIECE_BYTES] for start in range(0, len(content), _PIECE_BYTES)
        ]
        whole = Response(media_type=kind, headers={**headers, "Content-Length": str(len(content))})
        self._start = {"type": "http.response.start", "status": 200, "headers": whole.raw_headers}
        self._unchanged = Response(status_code=304, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if Headers(scope=scope).get("if-none-match") == self._tag:
            await self._unchanged(scope, receive, send)
            return
        if StaticFile.sending >= MOST_AT_ONCE:
            await error_response(BusyError("too many files are being sent", _RETRY_AFTER_S))(
                scope, receive, send
            )
            return
        StaticFile.sending += 1
        try:
            await self._send(send)
        finally:
            StaticFile.sending -= 1

    async def _send(self, send: Send) -> None:
        async with asyncio.timeout(self._patience_s):
            await send(self._start)
        for number, piece in enumerate(self._pieces, start=1):
            more = number < len(self._pieces)
            async with asyncio.timeout(self._patience_s):
                await send({"type": "http.response.body", "body": piece, "more_body": more})
