"""A server with HTTP on a real port, called by httpx and by bare sockets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from captioner.options import CaptionOptions
from captioner_server.http.dialects.answer.facts import Facts
from support.models import FakeModel
from support.patience import PATIENCE_S
from support.serving import RunningServer, make_image, serve

IMAGE = make_image(1)
OCTETS = {"content-type": "application/octet-stream"}
JSON = {"content-type": "application/json"}


@contextmanager
def serve_http(model: FakeModel | None, **options: Any) -> Iterator[tuple[RunningServer, httpx.Client]]:
    with serve(model, **{"http_port": 0, "decode_workers": 1, **options}) as server:
        url = server.server.http_url
        assert url
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            yield server, client


def expected(server: RunningServer, **options: Any) -> dict[str, Any]:
    """What the model says of IMAGE, as JSON."""
    pixels = server.model.preprocess(IMAGE)
    return server.model.describe(pixels, CaptionOptions(**{"attention": False, **options})).to_dict()


def keywords(server: RunningServer) -> list[str]:
    """The keywords of IMAGE."""
    caption = server.model.describe(server.model.preprocess(IMAGE), CaptionOptions(attention=False))
    return [keyword.text for keyword in Facts.of(caption).keywords]


def read_events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """(kind, data) of server-sent events."""
    events = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        events.append((fields["event"], json.loads(fields["data"])))
    return events


async def post_later(server: RunningServer, path: str = "/v1/caption") -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.server.http_url, timeout=PATIENCE_S) as client:
        return await client.post(path, content=IMAGE, headers=OCTETS)


def connect(server: RunningServer) -> socket.socket:
    url = httpx.URL(server.server.http_url)
    return socket.create_connection((url.host, url.port), timeout=PATIENCE_S)
