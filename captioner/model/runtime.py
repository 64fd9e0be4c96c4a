"""ONNX Runtime: devices, threads, sessions, and the exported decoder as a `Stepper`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from captioner.errors import BundleError, DeviceError, OptionsError, RuntimeMissingError
from captioner.model.bundle import Bundle
from captioner.model.search import Floats, Ints

HEADS = "attention_heads"
"""Decoder output with the maps of each head, in models with several heads."""
_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


class Runtime:
    """The two graphs of a bundle on a device. Safe to use from several threads."""

    def __init__(self, bundle: Bundle, device: str = "auto", threads: int | None = None) -> None:
        """`threads` compute one call; None leaves the number to ONNX Runtime.

        Raises `RuntimeMissingError` without onnxruntime, `DeviceError` if a CUDA device was requested and
        cannot be used, `BundleError` for graphs that cannot be loaded.
        """
        check_device(device)
        if threads is not None and threads < 1:
            raise OptionsError(f"threads must be at least 1, got {threads}", "threads")
        self._ort = _import_onnxruntime()
        self._options = self._ort.SessionOptions()
        self._options.log_severity_level = 4  # what goes wrong is told by our own errors
        if threads is not None:
            self._options.intra_op_num_threads = threads
        self._gpu = int(device.partition(":")[2] or 0)
        self.provider = self._choose_provider(bundle, device)
        # "auto" says what it took; a GPU that was chosen by number keeps it.
        self.device = "cpu" if self.provider == _CPU else "cuda" if device == "auto" else device
        self._encoder = self._session(bundle.encoder, self.provider)
        self._decoder = self._session(bundle.decoder, self.provider)
        self._encoder_outputs = [output.name for output in self._encoder.get_outputs()]
        self._decoder_outputs = [output.name for output in self._decoder.get_outputs()]
        shapes = {output.name: output.shape for output in self._decoder.get_outputs()}
        self.heads: int = shapes[HEADS][2] if HEADS in shapes else 1
        """Attention heads, each with a map per word."""
        self._check(bundle)

    def encode(self, pixels: npt.NDArray[np.uint8], mask: npt.NDArray[np.bool_] | None = None) -> OnnxStepper:
        """Encode a batch of images, uint8 (batch, size, size, 3), for `captioner.model.search` to decode. A
        model that letterboxes also needs `mask`, the cells that show the photo, bool (batch, rows *
        columns)."""
        binding = self._encoder.io_binding()
        binding.bind_cpu_input("pixels", pixels)
        if mask is not None:
            binding.bind_cpu_input("mask", mask)
        for name in self._encoder_outputs:
            binding.bind_output(name, *self._memory_place)
        self._encoder.run_with_iobinding(binding)
        outputs = dict(zip(self._encoder_outputs, binding.get_outputs(), strict=True))
        memory = {name: value for name, value in outputs.items() if name.startswith("memory.")}
        state = {name: value for name, value in outputs.items() if name.startswith("state.")}
        return OnnxStepper(self, len(pixels), memory, state)

    def step(
        self,
        tokens: Ints,
        parents: Ints,
        memory: Mapping[str, Any],
        state: Mapping[str, Any],
        head: int | None = None,
    ) -> tuple[Floats, Floats, dict[str, Any]]:
        """Run one step, with the maps of one head or the mean of all. Memory and state stay on the device;
        only tokens, log-probabilities and maps are copied."""
        maps = "attention" if head is None or self.heads == 1 else HEADS
        wanted = [name for name in self._decoder_outputs if name not in {"attention", HEADS} - {maps}]
        binding = self._decoder.io_binding()
        binding.bind_cpu_input("tokens", np.ascontiguousarray(tokens))
        binding.bind_cpu_input("parents", np.ascontiguousarray(parents))
        for name, value in {**memory, **state}.items():
            binding.bind_ortvalue_input(name, value)
        for name in wanted:
            binding.bind_output(name, *(self._memory_place if name.startswith("next.") else ("cpu", 0)))
        self._decoder.run_with_iobinding(binding)
        outputs = dict(zip(wanted, binding.get_outputs(), strict=True))
        log_probs, attention = outputs.pop("log_probs").numpy(), outputs.pop(maps).numpy()
        return (
            log_probs,
            attention[:, :, head] if maps == HEADS else attention,
            {name.replace("next.", "state.", 1): value for name, value in outputs.items()},
        )

    def place(self, value: npt.NDArray[Any]) -> Any:
        """An array in the memory of the device that computes."""
        return self._ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value), *self._memory_place)

    @property
    def _memory_place(self) -> tuple[str, int]:
        return ("cpu", 0) if self.provider == _CPU else ("cuda", self._gpu)

    def _choose_provider(self, bundle: Bundle, device: str) -> str:
        if device == "cpu":
            return _CPU
        reason = self._why_no_cuda(bundle)
        if reason is None:
            return _CUDA
        if device != "auto":
            raise DeviceError(f"{device.upper()} cannot be used: {reason}")
        return _CPU

    def _why_no_cuda(self, bundle: Bundle) -> str | None:
        if _CUDA not in self._ort.get_available_providers():
            return "this onnxruntime is built for the CPU; install 'captioner[gpu]' in its place"
        try:
            self._ort.preload_dlls()  # CUDA and cuDNN from the wheels that [gpu] brings
            # The list of available providers only says what was compiled in; a session says what works.
            used = self._session(bundle.decoder, _CUDA).get_providers()[0]
        except Exception as error:
            return str(error).splitlines()[0]
        return None if used == _CUDA else "no working GPU, driver or CUDA library was found"

    def _session(self, graph: bytes, provider: str) -> Any:
        try:
            settings: Any = (provider, {"device_id": str(self._gpu)}) if provider == _CUDA else provider
            return self._ort.InferenceSession(graph, self._options, providers=[settings])
        except Exception as error:  # onnxruntime's own exceptions share no public base
            if provider == _CUDA:
                raise
            raise BundleError(
                f"a graph of the bundle cannot be loaded: {str(error).splitlines()[0]}"
            ) from None

    def _check(self, bundle: Bundle) -> None:
        shows = {value.name: list(value.shape[1:]) for value in self._encoder.get_inputs()}
        rows, columns = bundle.grid
        takes = {"pixels": [bundle.image_size, bundle.image_size, 3]}
        fits = shows == (takes if bundle.letterbox is None else {**takes, "mask": [rows * columns]})
        has = set(self._encoder_outputs)
        wants = {value.name for value in self._decoder.get_inputs()} - {"tokens", "parents"}
        if not fits or not wants <= has or self._decoder_outputs[:2] != ["log_probs", "attention"]:
            raise BundleError("the graphs of the bundle do not keep the contract of format 1")
        log_probs, attention, *_ = self._decoder.get_outputs()
        if [log_probs.shape[-1], attention.shape[-1]] != [len(bundle.vocabulary), rows * columns]:
            raise BundleError("the graphs of the bundle do not fit its vocabulary and its grid")


class OnnxStepper:
    """The exported decoder with an encoded batch of images; a `captioner.model.search.Stepper`.

    The graph itself reorders the beams of its state, so `reorder` only records how.
    """

    def __init__(
        self,
        runtime: Runtime,
        images: int,
        memory: dict[str, Any],
        state: dict[str, Any],
        head: int | None = None,
    ) -> None:
        self._runtime, self._images, self._memory, self._state = runtime, images, memory, state
        self._head = head

    def with_head(self, head: int | None) -> OnnxStepper:
        """The same images with the maps of one head that the model has; None for the mean of all."""
        return OnnxStepper(self._runtime, self._images, self._memory, self._state, head)

    def start(self, beams: int) -> tuple[dict[str, Any], Ints]:
        return self._state, np.zeros((self._images, beams), dtype=np.int64)

    def step(self, tokens: Ints, state: tuple[dict[str, Any], Ints]) -> tuple[Floats, Floats, Any]:
        values, parents = state
        log_probs, attention, values = self._runtime.step(tokens, parents, self._memory, values, self._head)
        rows, beams = tokens.shape
        unmoved = np.broadcast_to(np.arange(beams, dtype=np.int64), (rows, beams))
        return log_probs, attention, (values, unmoved)

    def reorder(self, state: tuple[dict[str, Any], Ints], parents: Ints) -> tuple[dict[str, Any], Ints]:
        return state[0], parents

    @property
    def memory(self) -> dict[str, npt.NDArray[Any]]:
        """A copy of the encoded images, by the decoder's input names, each (images, …)."""
        return {name.removeprefix("memory."): value.numpy() for name, value in self._memory.items()}

    def with_memory(self, changes: Mapping[str, npt.NDArray[Any]]) -> OnnxStepper:
        """The same images with parts of their memory replaced, to test what the decoder does then. States
        of either stepper are interchangeable."""
        memory = dict(self._memory)
        for name, value in changes.items():
            memory[f"memory.{name}"] = self._runtime.place(value)
        return OnnxStepper(self._runtime, self._images, memory, self._state, self._head)


def check_device(device: str) -> None:
    """Raise `OptionsError` unless `device` is auto, cpu, cuda or cuda:N."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise OptionsError(f"device must be one of auto, cpu, cuda and cuda:N, got {device!r}", "device")


def _import_onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise RuntimeMissingError(
            "captioning needs ONNX Runtime: pip install 'captioner[cpu]', or 'captioner[gpu]' for CUDA"
        ) from None
    return onnxruntime
