"""A small, fast image captioner that shows where it looked for every word.

    from captioner import Captioner, caption_folder

    model = Captioner.load()                   # the embedded model
    caption = model.caption("photo.jpg")       # or bytes, a file, a Pillow image, an array, or a list of them
    print(caption, caption.confidence, caption.words[0].attention)
    results = caption_folder("photos", "captions.jsonl")

`Captioner` captions in this process, `captioner_client.CaptionClient` on a server, with the same methods
(`ImageCaptioner`). `CaptionOptions` are how to search; a `Caption` is what is found. What can go wrong is a
`CaptionerError`. `captioner_client.render_overlay` draws the maps.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioner.captioner import Captioner
    from captioner.errors import (
        BundleError,
        CaptionerError,
        DataError,
        DecodingInterruptedError,
        DeviceError,
        ImageError,
        ImageTooLargeError,
        ImageUnreadableError,
        LowConfidenceError,
        ModelOutputError,
        NotAnImageError,
        OptionsError,
        OutputError,
        RuntimeMissingError,
    )
    from captioner.folder.api import caption_folder, iter_folder
    from captioner.folder.items import FolderResult
    from captioner.folder.sources.selection import Selection
    from captioner.folder.text import TextOptions
    from captioner.images.keywords import read_keywords
    from captioner.images.limits import ImageLimits
    from captioner.images.sources import ImageInput
    from captioner.keyword_options import KeywordOptions
    from captioner.model.bundle import Bundle
    from captioner.model.calibration import Calibration
    from captioner.model.info import ModelInfo
    from captioner.options import CaptionOptions
    from captioner.protocol import ImageCaptioner
    from captioner.results import Alternative, Caption, Word

__version__ = "0.1.0"

# ONNX Runtime 1.29 and later report their use to Microsoft. They read this when they are imported, which
# other libraries do too. Child processes inherit it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

_MODULES = {
    "Alternative": "results",
    "Bundle": "model.bundle",
    "BundleError": "errors",
    "Calibration": "model.calibration",
    "Caption": "results",
    "CaptionOptions": "options",
    "Captioner": "captioner",
    "CaptionerError": "errors",
    "DataError": "errors",
    "DecodingInterruptedError": "errors",
    "DeviceError": "errors",
    "FolderResult": "folder.items",
    "ImageCaptioner": "protocol",
    "ImageError": "errors",
    "ImageInput": "images.sources",
    "ImageLimits": "images.limits",
    "ImageTooLargeError": "errors",
    "ImageUnreadableError": "errors",
    "KeywordOptions": "keyword_options",
    "LowConfidenceError": "errors",
    "ModelInfo": "model.info",
    "ModelOutputError": "errors",
    "NotAnImageError": "errors",
    "OptionsError": "errors",
    "OutputError": "errors",
    "RuntimeMissingError": "errors",
    "Selection": "folder.sources.selection",
    "TextOptions": "folder.text",
    "Word": "results",
    "caption_folder": "folder.api",
    "iter_folder": "folder.api",
    "read_keywords": "images.keywords",
}
"""Where each public name is defined. It is loaded on first use, so that importing the package costs next to
nothing."""

__all__ = [
    "Alternative",
    "Bundle",
    "BundleError",
    "Calibration",
    "Caption",
    "CaptionOptions",
    "Captioner",
    "CaptionerError",
    "DataError",
    "DecodingInterruptedError",
    "DeviceError",
    "FolderResult",
    "ImageCaptioner",
    "ImageError",
    "ImageInput",
    "ImageLimits",
    "ImageTooLargeError",
    "ImageUnreadableError",
    "KeywordOptions",
    "LowConfidenceError",
    "ModelInfo",
    "ModelOutputError",
    "NotAnImageError",
    "OptionsError",
    "OutputError",
    "RuntimeMissingError",
    "Selection",
    "TextOptions",
    "Word",
    "__version__",
    "caption_folder",
    "iter_folder",
    "read_keywords",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"captioner.{_MODULES[name]}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
