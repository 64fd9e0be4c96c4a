"""Devices and threads: what is asked for is what is used, or the reason is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from captioner import DeviceError, OptionsError, RuntimeMissingError
from captioner.captioner import Captioner
from captioner.model.bundle import Bundle
from captioner.model.runtime import Runtime

HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path) -> Bundle:
    return Bundle.load(tiny_bundle)


def test_the_cpu_is_used_if_asked_for(bundle: Bundle) -> None:
    runtime = Runtime(bundle, "cpu", threads=1)
    assert (runtime.device, runtime.provider) == ("cpu", "CPUExecutionProvider")


@pytest.mark.parametrize("device", ["gpu", "CPU", "cuda:", "cpu:0", "", f"cuda:{'1' * 5000}"])
def test_a_device_that_is_none(bundle: Bundle, device: str) -> None:
    with pytest.raises(OptionsError, match="device must be one of auto, cpu, cuda"):
        Runtime(bundle, device)


@pytest.mark.parametrize("threads", [0, -1, 10_000])
def test_a_number_of_threads_that_is_out_of_range(bundle: Bundle, threads: int) -> None:
    with pytest.raises(OptionsError, match="threads must be from 1 to"):
        Runtime(bundle, "cpu", threads)


@pytest.mark.parametrize(
    ("version", "key", "value"),
    [
        ("1.25.1", "session.intra_op.allow_spinning", "0"),
        ("1.26.0", "session.intra_op.spin_duration_us", "50"),
        ("1.32+local", "session.intra_op.spin_duration_us", "50"),
        ("unknown", "session.intra_op.allow_spinning", "0"),
        ("1.40.0.dev20270101", "session.intra_op.spin_duration_us", "50"),
    ],
)
def test_threads_spin_only_where_the_time_can_be_limited(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, version: str, key: str, value: str
) -> None:
    runtime = Runtime(bundle, "cpu", threads=2)
    monkeypatch.setattr(onnxruntime, "__version__", version)
    assert runtime._session_options().get_session_config_entry(key) == value


@pytest.mark.skipif(HAS_CUDA, reason="this onnxruntime has CUDA")
def test_cuda_is_refused_by_a_runtime_without_it(bundle: Bundle) -> None:
    with pytest.raises(DeviceError, match=r"CUDA cannot be used.*\.\[gpu\]"):
        Runtime(bundle, "cuda")


def test_cuda_that_was_only_compiled_in_is_no_cuda(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without a GPU the list of providers names CUDA, and sessions fall back in silence."""
    listed = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None, raising=False)
    sessions = onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime,
        "InferenceSession",
        lambda graph, options, providers: sessions(graph, options, providers=["CPUExecutionProvider"]),
    )
    with pytest.raises(DeviceError, match="no working GPU"):
        Runtime(bundle, "cuda")
    assert Runtime(bundle, "auto").device == "cpu"


def test_cuda_that_breaks_says_why(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("libcudnn.so.9 is not there\nand more lines")

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "preload_dlls", broken, raising=False)
    with pytest.raises(DeviceError, match=r"CUDA cannot be used: libcudnn.so.9 is not there$"):
        Runtime(bundle, "cuda")


def test_a_missing_runtime_names_the_extras(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(RuntimeMissingError, match=r"\.\[cpu\].*\.\[gpu\]"):
        Runtime(bundle, "cpu")


def test_a_runtime_that_cannot_be_loaded_says_why(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reason = "libonnxruntime.so: failed to map segment from shared object"
    (tmp_path / "onnxruntime.py").write_text(f"raise ImportError({reason!r})")
    monkeypatch.delitem(sys.modules, "onnxruntime")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeMissingError, match=f"ONNX Runtime cannot be loaded: {reason}"):
        Runtime(bundle, "cpu")


def test_importing_loads_neither_torch_nor_a_runtime() -> None:
    code = """
import sys
import captioner, captioner_client
from captioner import Captioner, CaptionOptions, Caption
heavy = {"torch", "torchvision", "onnxruntime", "onnx", "matplotlib", "nltk"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_a_step_continues_the_beams_it_is_told(bundle: Bundle) -> None:
    """Beams put in order by the graph are those put in order beforehand."""
    runtime = Runtime(bundle, "cpu", threads=1)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)
    stepper = runtime.encode(pixels)
    tokens = np.array([[4, 5, 6], [7, 8, 9]])
    _, _, state = stepper.step(tokens, stepper.start(3))
    parents = np.array([[2, 0, 0], [1, 1, 2]])
    again = np.array([[10, 11, 12], [13, 14, 15]])
    log_probs, attention, _ = stepper.step(again, stepper.reorder(state, parents))
    for image in range(2):
        alone = runtime.encode(pixels[image : image + 1])
        for beam in range(3):
            first = tokens[image, parents[image, beam]]
            _, _, one = alone.step(np.array([[first]]), alone.start(1))
            expected, looked, _ = alone.step(again[image : image + 1, beam : beam + 1], one)
            np.testing.assert_allclose(log_probs[image, beam], expected[0, 0], atol=1e-4)
            np.testing.assert_allclose(attention[image, beam], looked[0, 0], atol=1e-5)


def test_the_number_of_threads_does_not_show(tiny_bundle: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    one, two = (Captioner.load(tiny_bundle, device="cpu", threads=n).caption_pixels(pixels) for n in (1, 2))
    assert [caption.text for caption in one] == [caption.text for caption in two]


def test_a_large_batch_that_is_encoded_in_parts_is_whole(bundle: Bundle) -> None:
    runtime = Runtime(bundle, "cpu", threads=1)
    pixels = np.random.default_rng(2).integers(0, 256, (9, 64, 64, 3), dtype=np.uint8)
    together = runtime.encode(pixels).memory
    for image in range(len(pixels)):
        for name, alone in runtime.encode(pixels[image : image + 1]).memory.items():
            np.testing.assert_allclose(together[name][image], alone[0], atol=1e-4)
