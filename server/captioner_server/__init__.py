"""The server, over gRPC and HTTP: `captioner serve`, or `run` and `CaptionServer` from your own program."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioner_server.main import run
    from captioner_server.options import ServerOptions
    from captioner_server.server import CaptionServer

__all__ = ["CaptionServer", "ServerOptions", "run"]

_MODULES = {"CaptionServer": "server", "ServerOptions": "options", "run": "main"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"captioner_server.{_MODULES[name]}"), name)
