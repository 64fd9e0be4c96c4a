"""A small, fast image captioner that shows where it looked for every word.

The names below are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioner.captioner import Captioner
    from captioner.errors import (
        BundleError,
        CaptionerError,
        DataError,
        DeviceError,
        ImageError,
        ImageTooLargeError,
        ImageUnreadableError,
        NotAnImageError,
        OptionsError,
        RuntimeMissingError,
    )
    from captioner.folder.api import caption_folder
    from captioner.images.opening import ImageLimits
    from captioner.options import CaptionOptions
    from captioner.results import Alternative, Caption, Word

__version__ = "0.1.0"

__all__ = [
    "Alternative",
    "BundleError",
    "Caption",
    "CaptionOptions",
    "Captioner",
    "CaptionerError",
    "DataError",
    "DeviceError",
    "ImageError",
    "ImageLimits",
    "ImageTooLargeError",
    "ImageUnreadableError",
    "NotAnImageError",
    "OptionsError",
    "RuntimeMissingError",
    "Word",
    "__version__",
    "caption_folder",
]

_MODULES = {
    "Alternative": "results",
    "Caption": "results",
    "CaptionOptions": "options",
    "Captioner": "captioner",
    "ImageLimits": "images.opening",
    "Word": "results",
    "caption_folder": "folder.api",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"captioner.{_MODULES.get(name, 'errors')}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
