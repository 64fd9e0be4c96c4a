"""A model that letterboxes and looks at what is bright, made in seconds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from captioner.export.bundle import export_bundle
from support import make_tiny_bundle

MODEL = dataclasses.replace(make_tiny_bundle.OPTIONS.model, resize="letterbox")
OPTIONS = dataclasses.replace(make_tiny_bundle.OPTIONS, name="letterboxed", model=MODEL)


def make_checkpoint(path: Path) -> Path:
    """Knows a little of the tiny bundle's pictures, all of which are square; returns `path`."""
    torch.set_num_threads(1)
    pixels = make_tiny_bundle.pictures()
    model, vocabulary = make_tiny_bundle.learn(pixels, make_tiny_bundle.sentences(len(pixels)), steps=150)
    make_tiny_bundle.save(path, model, vocabulary, OPTIONS)
    return path


def make_bundle(folder: Path) -> Path:
    """Write the bundle into `folder`, which must not exist; returns it."""
    export_bundle(make_checkpoint(folder.with_suffix(".pt")), folder)
    return folder
