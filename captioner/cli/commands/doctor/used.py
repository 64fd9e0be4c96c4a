"""The machine, the model, and what its graphs run on."""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import captioner

if TYPE_CHECKING:
    from captioner.model.bundle import Bundle


def system() -> dict[str, str]:
    from captioner.cores import available_cores, machine_cores
    from captioner.memory import available_memory
    from captioner.model.graphs.precision import has_fast_int8

    cores, memory = available_cores(), available_memory()
    usable = "" if cores == machine_cores() else f" of {machine_cores()}"
    facts: dict[str, str] = {
        "captioner": f"{captioner.__version__} in {Path(captioner.__file__).parent}",
        "python": f"{platform.python_version()} in {sys.prefix}",
        "system": platform.platform(),
        "cores": f"{cores}{usable}, {'with' if has_fast_int8() else 'without'} fast INT8",
    }
    if memory is not None:
        facts["memory"] = f"{memory / 1e9:.1f} GB"
    return facts


def model(name: str | None) -> dict[str, str]:
    """Raises `BundleError`."""
    bundle, folder, why = _bundle(name)
    return {"model": bundle.identity, "folder": str(folder), "chosen by": why}


def runtime(name: str | None, device: str, precision: str) -> dict[str, str]:
    """Raises `CaptionerError` if the model cannot be loaded on that device."""
    from captioner.model.runtime import Runtime
    from captioner.trial import load_bundle

    used = Runtime(load_bundle(_bundle(name)[1]), device, precision=precision)
    return {
        "device": f"{used.device} ({used.provider}): {used.device_reason}",
        "precision": f"{used.precision}: {used.precision_reason}",
    }


def photos() -> dict[str, str]:
    """Which formats of photos are read."""
    from PIL import features

    from captioner.images.formats import ALL_FORMATS

    needs = {"WebP": features.check("webp"), "AVIF": features.check("avif"), "JPEG": features.check("jpg")}
    needs |= {"JPEG 2000": features.check("jpg_2000"), "HEIC": find_spec("pillow_heif") is not None}
    missing = [name for name in ALL_FORMATS if not needs.get(name, True)]
    facts = {"read": ", ".join(name for name in ALL_FORMATS if name not in missing)}
    return facts | {"not read": ", ".join(missing)} if missing else facts


def _bundle(name: str | None) -> tuple[Bundle, Path, str]:
    """The model, its folder, and why it is the one."""
    from captioner.model.bundle import DEFAULT, Bundle
    from captioner.model.installed import chosen, model_folder

    if name is not None:
        folder, why = model_folder(name), "--model"
    elif (choice := chosen()) is not None:
        folder, why = choice, "captioner model use"
    else:
        folder, why = DEFAULT, "nobody: it is the embedded one"
    return Bundle.load(folder), folder, why
