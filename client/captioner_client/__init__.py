"""The gRPC client of the captioner, and the overlays, which need no model.

    from captioner_client import CaptionClient, render_overlay

    with CaptionClient("localhost:50051") as client:
        caption = client.caption("photo.jpg")  # the same methods as captioner.Captioner
    render_overlay("photo.jpg", caption).save("overlay.png")

`AsyncCaptionClient` has the methods for asyncio. Errors are those of `captioner`, and `ServerError`.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# gRPC's handlers of forks start threads in the forked process that read from the connections of its parent,
# and crash it. A forked process gets a `ServerError` instead, or connects first itself.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if TYPE_CHECKING:
    from captioner.model.info import ModelInfo
    from captioner.overlay.animation import render_animation
    from captioner.overlay.page import render_html
    from captioner.overlay.render import render_overlay
    from captioner_client.aio import AsyncCaptionClient
    from captioner_client.client import CaptionClient
    from captioner_client.errors import (
        AuthenticationError,
        DeadlineExceededError,
        ServerBusyError,
        ServerError,
        ServerUnavailableError,
    )
    from captioner_client.options import ClientOptions

__all__ = [
    "AsyncCaptionClient",
    "AuthenticationError",
    "CaptionClient",
    "ClientOptions",
    "DeadlineExceededError",
    "ModelInfo",
    "ServerBusyError",
    "ServerError",
    "ServerUnavailableError",
    "render_animation",
    "render_html",
    "render_overlay",
]

_MODULES = {
    "AsyncCaptionClient": "captioner_client.aio",
    "AuthenticationError": "captioner_client.errors",
    "CaptionClient": "captioner_client.client",
    "ClientOptions": "captioner_client.options",
    "DeadlineExceededError": "captioner_client.errors",
    "ModelInfo": "captioner.model.info",
    "ServerBusyError": "captioner_client.errors",
    "ServerError": "captioner_client.errors",
    "ServerUnavailableError": "captioner_client.errors",
    "render_animation": "captioner.overlay.animation",
    "render_html": "captioner.overlay.page",
    "render_overlay": "captioner.overlay.render",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name])
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
