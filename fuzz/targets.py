"""What is fuzzed: each target takes bytes, and lets nothing but the errors of its promise out."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

from captioner.errors import CaptionerError, DataError, ImageError
from captioner.images.limits import ImageLimits
from captioner.images.opening import load_pixels
from captioner.model.bundle import MANIFEST, Bundle
from captioner.model.graphs.check import GraphError, check_graph
from captioner.references import read_references
from captioner_server.inference import grpc_predict_v2_pb2
from captioner_server.rpc.inference_servicer import _images, _options, _outputs
from captioner_server.rpc.wire import lenient

LIMITS = ImageLimits(max_pixels=1_000_000, max_memory=16 * 2**20)
_FOLDER = Path(tempfile.mkdtemp(prefix="captioner-fuzz-"))


def images(data: bytes) -> None:
    """Opening an image: an array, or an `ImageError` in one line."""
    try:
        assert load_pixels(data, 32, LIMITS).shape == (32, 32, 3)
    except ImageError as error:
        assert "\n" not in str(error)


def inference(data: bytes) -> None:
    """A request of the Open Inference Protocol: images and options, or a `CaptionerError`."""
    received = lenient(grpc_predict_v2_pb2.ModelInferRequest.FromString)(data)
    with contextlib.suppress(CaptionerError):
        request = received.checked()
        _options(request)
        _outputs(request)
        found, shape = _images(request, 16)
        assert len(found) <= 16 and len(shape) <= 8


def graphs(data: bytes) -> None:
    """The check of a graph: passed, or a `GraphError`."""
    with contextlib.suppress(GraphError):
        check_graph(data)


def bundles(data: bytes) -> None:
    """A folder with this bundle.json: a `CaptionerError` in one line, as there are no other files."""
    (_FOLDER / MANIFEST).write_bytes(data)
    try:
        Bundle.load(_FOLDER)
    except CaptionerError as error:
        assert "\n" not in str(error)


def captions(data: bytes) -> None:
    """A file of captions in any of its formats: captions, or a `DataError` in one line."""
    for suffix in (".jsonl", ".json", ".txt", ".csv"):
        path = _FOLDER / f"captions{suffix}"
        path.write_bytes(data)
        try:
            read_references(path)
        except DataError as error:
            assert "\n" not in str(error)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (images, inference, graphs, bundles, captions)
}
