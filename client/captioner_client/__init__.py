"""The gRPC client of the captioner and the overlays that show where it looked.

The names below are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioner_client.overlay.animation import render_animation
    from captioner_client.overlay.page import render_html
    from captioner_client.overlay.render import render_overlay

__all__ = ["render_animation", "render_html", "render_overlay"]

_MODULES = {
    "render_animation": "overlay.animation",
    "render_html": "overlay.page",
    "render_overlay": "overlay.render",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"captioner_client.{_MODULES[name]}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
