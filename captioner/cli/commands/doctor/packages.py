"""What is installed, by the records of the packages alone: nothing is imported."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass

from captioner.cli.commands.doctor.conflicts import conflicts
from captioner.cli.commands.doctor.section import Problem
from captioner.errors import how_to_install

_PURPOSES = {
    "audit": "a bill of materials, and known vulnerabilities",
    "completion": "captioner --print-completion",
    "cpu": "captioning and serving on a CPU",
    "dev": "working on captioner",
    "gpu": "captioning and serving on an NVIDIA GPU, in place of cpu",
    "mcp": "captioner mcp",
    "metrics": "METEOR with synonyms and paraphrases",
    "parquet": "captioner batch -o captions.parquet",
    "photos": "HEIC, the format of iPhones",
    "ray": "captioner batch --engine ray",
    "serve": "captioner serve",
    "traces": "captioner serve --trace-endpoint",
    "train": "training and export",
}
_NOT_FOR_CAPTIONS = ("audit", "dev")
"""Extras whose packages keep nothing from working."""
_EXTRA = re.compile(r"""extra == ["']([^"']+)["']""")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LEAST = re.compile(r">=\s*([0-9.]+)")


@dataclass(frozen=True, slots=True)
class _Requirement:
    name: str
    least: str
    """The lowest version that will do; empty if any does."""
    extra: str | None

    @property
    def version(self) -> str | None:
        """That is installed; None if there is none."""
        try:
            return importlib.metadata.version(self.name)
        except (importlib.metadata.PackageNotFoundError, KeyError):  # KeyError: a record without a version
            return None

    @property
    def wanting(self) -> str | None:
        """What is missing of it; None if it is there."""
        version = self.version
        if version is None:
            return self.name
        old = bool(self.least) and _numbers(version) < _numbers(self.least)
        return f"{self.name}>={self.least} (there is {version})" if old else None


def installed() -> dict[str, str]:
    """The version of each package that captioner or one of its extras asks for, where there is one."""
    versions = {one.name: one.version for one in _requirements()}
    found = {name: version for name, version in sorted(versions.items()) if version}
    if _in_one_folder("onnxruntime", "onnxruntime-gpu"):
        advice = "they overwrite each other's files: uninstall both, then install one"
        found["onnxruntime and onnxruntime-gpu"] = Problem(advice)
    used = dict.fromkeys(one.name for one in _requirements() if one.extra not in _NOT_FOR_CAPTIONS)
    for pair, advice in conflicts(used).items():
        found[" and ".join(pair)] = Problem(advice)
    return found or {"captioner": "runs without having been installed, so its extras are not known"}


def extras() -> dict[str, str]:
    """For each extra whether it is complete, or what it would add and what that is for."""
    wanting: dict[str, list[str]] = {}
    for one in _requirements():
        if one.extra is not None:
            wanting.setdefault(one.extra, []).extend(filter(None, [one.wanting]))
    return {extra: _state(extra, missing) for extra, missing in sorted(wanting.items())}


def _state(extra: str, missing: list[str]) -> str:
    purpose = f" ({_PURPOSES[extra]})" if extra in _PURPOSES else ""
    if not missing:
        return f"complete{purpose}"
    return f"would add {', '.join(missing)}{purpose}: {how_to_install(extra)}"


def _requirements() -> list[_Requirement]:
    """None where captioner runs without having been installed."""
    try:
        texts = importlib.metadata.requires("captioner") or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    found = []
    for text in texts:
        name, least, extra = _NAME.match(text), _LEAST.search(text), _EXTRA.search(text)
        if name:
            found.append(_Requirement(name[0], least[1] if least else "", extra[1] if extra else None))
    return found


def _in_one_folder(*names: str) -> bool:
    """Whether all these packages are installed, and in the same place."""
    try:
        places = {str(importlib.metadata.distribution(name).locate_file("")) for name in names}
    except importlib.metadata.PackageNotFoundError:
        return False
    return len(places) == 1


def _numbers(version: str) -> tuple[int, ...]:
    """Such as (1, 32, 0) of "1.32.0rc1"."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
