"""What the answers of OpenAI's calls are made of: ids, and server-sent events."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from captioner.readable_json import dump_json


def new_id(prefix: str) -> str:
    return f"{prefix}{random.getrandbits(96):024x}"


def events(records: Sequence[dict[str, Any]], *, named: bool = False, end: bytes = b"") -> Response:
    """Server-sent events, each named by its type or not."""
    content = b"".join(
        (b"event: %s\n" % record["type"].encode() if named else b"")
        + b"data: %s\n\n" % dump_json(record, separators=(",", ":")).encode()
        for record in records
    )
    return Response(content + end, media_type="text/event-stream")
