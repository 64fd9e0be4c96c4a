"""ONNX Runtime: devices, threads, sessions, and the exported decoder as a `Stepper`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from captioner.errors import BundleError, DeviceError, OptionsError, RuntimeMissingError
from captioner.model.bundle import DECODER, ENCODER, FORMAT, Bundle
from captioner.model.choices import Choices, Floats, Ints, Question, choose_among
from captioner.model.graph import Graph
from captioner.model.graph_cache import GRAPH, WEIGHTS, GraphCache
from captioner.model.precision import FLOAT32, INT8, check_precision, has_fast_int8
from captioner.model.stages import count_step

MOST_LANES = 4
HEADS = "attention_heads"
"""The decoder output that a model with several heads has beside `attention`."""
_MEAN = -1
"""In the place of a head: the mean of all."""
_FIRST = ["log_probs", "attention"]
_ANSWER = ("top_log_probs", "top_tokens", "asked_log_probs")
"""Outputs of a decoder that finds the best continuations itself."""
_WEIGHTS_IN_MEMORY = "add_external_initializers_from_files_in_memory"
_EXTERNAL = "session.optimized_model_external_initializers_"
_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


class Runtime:
    """The two graphs of a bundle on a device. Safe to use from several threads."""

    def __init__(
        self,
        bundle: Bundle,
        device: str = "auto",
        threads: int | None = None,
        precision: str = "auto",
        lanes: int | None = 1,
        cache: GraphCache | None = None,
    ) -> None:
        """`threads` compute (None: one per core), shared by `lanes` calls at the same time (None: a number
        that suits many images). `cache` holds optimised graphs of earlier starts.

        Raises `RuntimeMissingError` without onnxruntime, `DeviceError` if a CUDA device was requested and
        cannot be used, `BundleError` for graphs that cannot be loaded.
        """
        check_device(device)
        check_precision(precision)
        if threads is not None and threads < 1:
            raise OptionsError(f"threads must be at least 1, got {threads}", "threads")
        if lanes is not None and lanes < 1:
            raise OptionsError(f"lanes must be at least 1, got {lanes}", "lanes")
        self._ort = _import_onnxruntime()
        self._threads = threads
        self._gpu = int(device.partition(":")[2] or 0)
        self.provider = self._choose_provider(bundle, device)
        # "auto" says what it took; a GPU that was chosen by number keeps it.
        self.device = "cpu" if self.provider == _CPU else "cuda" if device == "auto" else device
        cores = threads or available_cores()
        self.lanes = lanes or (default_lanes(cores) if self.provider == _CPU else 1)
        """Calls that are best made at the same time."""
        self._threads = threads if self.lanes == 1 else max(1, cores // self.lanes)
        self.precision = self._choose_precision(bundle, precision)
        """What is computed in: float32 or int8."""
        self._cache = cache or GraphCache(None)
        encoder, decoder = bundle.encoder, bundle.decoder
        if self.precision == INT8 and bundle.int8 is not None:
            encoder, decoder = bundle.int8
        self._encoder = self._graph(bundle, encoder, {ENCODER: bundle.encoder})
        self._decoder = self._graph(bundle, decoder, {DECODER: bundle.decoder})
        self._next = [name for name in self._decoder.outputs if name.startswith("next.")]
        self._chooses = "top_tokens" in self._decoder.outputs
        self._vocabulary = len(bundle.vocabulary)
        self.heads: int = self._decoder.outputs[HEADS][2] if HEADS in self._decoder.outputs else 1
        """Maps that a word has."""
        self._check(bundle)

    def encode(self, pixels: npt.NDArray[np.uint8], mask: npt.NDArray[np.bool_] | None = None) -> OnnxStepper:
        """Encode a batch of images, uint8 (batch, size, size, 3), for `captioner.model.search` to decode. A
        model that letterboxes also needs `mask`, the cells that show the photo, bool (batch, rows *
        columns)."""
        feeds: dict[str, Any] = {"pixels": pixels} if mask is None else {"pixels": pixels, "mask": mask}
        _, outputs = self._encoder.run(feeds, (), list(self._encoder.outputs))
        memory = {name: value for name, value in outputs.items() if name.startswith("memory.")}
        state = {name: value for name, value in outputs.items() if name.startswith("state.")}
        return OnnxStepper(self, len(pixels), memory, state)

    def step(
        self,
        tokens: Ints,
        parents: Ints,
        memory: Mapping[str, Any],
        state: Mapping[str, Any],
        heads: Ints | None = None,
    ) -> tuple[Floats, Floats, dict[str, Any]]:
        """One step, with the maps of the head that `heads`, (images,), names for each image, or the mean of
        all heads where it is negative or not given. Memory and state stay on the device; only tokens,
        log-probabilities and maps travel."""
        feeds = self.feeds(tokens, parents, memory, state)
        fetched, maps, state = self._step(("log_probs",), feeds, heads)
        return fetched["log_probs"], maps, state

    def choose(
        self,
        tokens: Ints,
        parents: Ints,
        memory: Mapping[str, Any],
        state: Mapping[str, Any],
        question: Question,
        heads: Ints | None = None,
    ) -> tuple[Choices, Floats, dict[str, Any]]:
        """One step as `step` has it, of whose log-probabilities only the answer to `question` travels."""
        if not self._chooses:  # a bundle from before graphs did
            log_probs, maps, state = self.step(tokens, parents, memory, state, heads)
            return choose_among(log_probs, question), maps, state
        fetched, maps, state = self._step(
            _ANSWER, self.feeds(tokens, parents, memory, state, question), heads
        )
        return Choices(*(fetched[name] for name in _ANSWER)), maps, state

    def feeds(
        self,
        tokens: Ints,
        parents: Ints,
        memory: Mapping[str, Any],
        state: Mapping[str, Any],
        question: Question | None = None,
    ) -> dict[str, Any]:
        """What the graph of the decoder reads."""
        feeds = {"tokens": tokens, "parents": parents, **memory, **state}
        if self._chooses:
            if question is None:
                zeros = np.zeros((*tokens.shape, 1), dtype=np.int64)
                question = Question(1, zeros, zeros[0, 0])
            feeds["count"] = np.array([min(question.wanted, self._vocabulary)])
            feeds["forbidden"], feeds["asked"] = question.forbidden, question.asked
        return feeds

    def _step(
        self, wanted: tuple[str, ...], feeds: Mapping[str, Any], heads: Ints | None
    ) -> tuple[dict[str, Any], Floats, dict[str, Any]]:
        if heads is None or self.heads == 1:
            fetched, kept = self._decoder.run(feeds, (*wanted, "attention"), self._next)
            return fetched, fetched["attention"], _as_state(kept)
        maps = [name for name, needed in (("attention", heads < 0), (HEADS, heads >= 0)) if needed.any()]
        fetched, kept = self._decoder.run(feeds, (*wanted, *maps), self._next)
        if HEADS in fetched:
            attention = fetched[HEADS][np.arange(len(heads)), :, heads]
            if "attention" in fetched:
                attention = np.where(heads[:, None, None] < 0, fetched["attention"], attention)
        else:
            attention = fetched["attention"]
        return fetched, attention, _as_state(kept)

    def place(self, value: npt.NDArray[Any]) -> Any:
        """An array in the memory of the device that computes."""
        value = np.ascontiguousarray(value)
        if self.provider == _CPU:
            return value
        return self._ort.OrtValue.ortvalue_from_numpy(value, *self._memory_place)

    def _graph(self, bundle: Bundle, content: bytes, files: Mapping[str, bytes]) -> Graph:
        """A graph on the device; those in INT8 have their weights in `files`."""
        weights = None if self.precision == FLOAT32 else files
        if self.provider == _CPU:
            made_from = f"{bundle.digest} {' '.join(files)} {self.precision} {self._ort.__version__}"
            session = self._cache.session(
                made_from, lambda place: self._session(content, _CPU, weights, place), self._load
            )
        else:
            session = self._session(content, self.provider)
        return Graph(session, self._memory_place)

    def _load(self, optimized: Path) -> Any:
        options = self._session_options()
        options.graph_optimization_level = self._ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return self._ort.InferenceSession(str(optimized), options, providers=[_CPU])

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

    def _choose_precision(self, bundle: Bundle, wanted: str) -> str:
        can = {
            "the bundle holds no INT8 graphs": bundle.int8 is not None,
            "INT8 graphs run on the CPU": self.provider == _CPU,
            "INT8 graphs need ONNX Runtime 1.20": hasattr(self._ort.SessionOptions, _WEIGHTS_IN_MEMORY),
        }
        if wanted == INT8:
            for reason, fulfilled in can.items():
                if not fulfilled:
                    raise OptionsError(f"precision int8 cannot be used: {reason}", "precision")
            return INT8
        return INT8 if wanted == "auto" and all(can.values()) and has_fast_int8() else FLOAT32

    def _session(
        self,
        graph: bytes,
        provider: str,
        weights: Mapping[str, bytes] | None = None,
        save_to: Path | None = None,
    ) -> Any:
        options = self._session_options(weights)
        if save_to is not None:
            options.optimized_model_filepath = str(save_to / GRAPH)
            options.add_session_config_entry(_EXTERNAL + "file_name", WEIGHTS)
            options.add_session_config_entry(_EXTERNAL + "min_size_in_bytes", "1024")
        try:
            settings: Any = (provider, {"device_id": str(self._gpu)}) if provider == _CUDA else provider
            return self._ort.InferenceSession(graph, options, providers=[settings])
        except Exception as error:  # onnxruntime's own exceptions share no public base
            if provider == _CUDA:
                raise
            raise BundleError(
                f"a graph of the bundle cannot be loaded: {str(error).splitlines()[0]}"
            ) from None

    def _session_options(self, weights: Mapping[str, bytes] | None = None) -> Any:
        """Fresh ones for each graph: `weights` are files that one graph refers to."""
        options = self._ort.SessionOptions()
        options.log_severity_level = 4  # our own errors report failures
        # Each graph has threads of its own: those that wait must leave the cores to those that compute.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if self._threads is not None:
            options.intra_op_num_threads = self._threads
        if weights:
            contents = list(weights.values())
            getattr(options, _WEIGHTS_IN_MEMORY)(list(weights), contents, [len(value) for value in contents])
        return options

    def _check(self, bundle: Bundle) -> None:
        shows = {name: list(shape[1:]) for name, shape in self._encoder.inputs.items()}
        rows, columns = bundle.grid
        takes = {"pixels": [bundle.image_size, bundle.image_size, 3]}
        fits = shows == (takes if bundle.letterbox is None else {**takes, "mask": [rows * columns]})
        asks = {"tokens", "parents"} | ({"count", "forbidden", "asked"} if self._chooses else set())
        wants = set(self._decoder.inputs) - asks
        outputs = self._decoder.outputs
        answers = set(_ANSWER) <= set(outputs) if self._chooses else True
        if not fits or not wants <= set(self._encoder.outputs) or list(outputs)[:2] != _FIRST or not answers:
            raise BundleError(f"the graphs of the bundle do not keep the contract of format {FORMAT}")
        if [outputs[name][-1] for name in _FIRST] != [len(bundle.vocabulary), rows * columns]:
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
        heads: Ints | None = None,
    ) -> None:
        self._runtime, self._images, self._memory, self._state = runtime, images, memory, state
        self._heads = heads

    def with_heads(self, heads: Sequence[int | None]) -> OnnxStepper:
        """The same images with the maps of one head each that the model has; None for the mean of all."""
        places = np.array([_MEAN if head is None else head for head in heads])
        return OnnxStepper(self._runtime, self._images, self._memory, self._state, places)

    def start(self, beams: int) -> tuple[dict[str, Any], Ints]:
        return self._state, np.zeros((self._images, beams), dtype=np.int64)

    def choose(
        self, tokens: Ints, state: tuple[dict[str, Any], Ints], question: Question
    ) -> tuple[Choices, Floats, Any]:
        count_step()
        values, parents = state
        choices, attention, values = self._runtime.choose(
            tokens, parents, self._memory, values, question, self._heads
        )
        return choices, attention, (values, _unmoved(tokens))

    def step(self, tokens: Ints, state: tuple[dict[str, Any], Ints]) -> tuple[Floats, Floats, Any]:
        """Read the last tokens, (images, beams): the log-probabilities of all next ones (images, beams,
        vocabulary), the attention (images, beams, cells), and the new state."""
        values, parents = state
        log_probs, attention, values = self._runtime.step(tokens, parents, self._memory, values, self._heads)
        return log_probs, attention, (values, _unmoved(tokens))

    def feeds(self, tokens: Ints, state: tuple[dict[str, Any], Ints]) -> dict[str, Any]:
        """What the graph of the decoder reads to `step`."""
        values, parents = state
        return self._runtime.feeds(tokens, parents, self._memory, values)

    def reorder(self, state: tuple[dict[str, Any], Ints], parents: Ints) -> tuple[dict[str, Any], Ints]:
        return state[0], parents

    def keep(
        self, state: tuple[dict[str, Any], Ints], images: Ints
    ) -> tuple[OnnxStepper, tuple[dict[str, Any], Ints]] | None:
        if self._runtime.provider != _CPU:
            return None  # a GPU hardly notices a smaller batch, and the memory would have to be copied
        values, parents = state
        kept = {name: value[images] for name, value in values.items()}
        return self.select(images), (kept, parents[images])

    def select(self, images: Ints) -> OnnxStepper:
        memory, state = (
            {name: self._runtime.place(_fetch(value)[images]) for name, value in part.items()}
            for part in (self._memory, self._state)
        )
        heads = None if self._heads is None else self._heads[images]
        return OnnxStepper(self._runtime, len(images), memory, state, heads)

    @property
    def memory(self) -> dict[str, npt.NDArray[Any]]:
        """A copy of the encoded images, by the decoder's input names, each (images, …)."""
        return {name.removeprefix("memory."): _fetch(value).copy() for name, value in self._memory.items()}

    def with_memory(self, changes: Mapping[str, npt.NDArray[Any]]) -> OnnxStepper:
        """The same images with parts of their memory replaced, to test what the decoder does then. States
        of either stepper are interchangeable."""
        memory = dict(self._memory)
        for name, value in changes.items():
            memory[f"memory.{name}"] = self._runtime.place(value)
        return OnnxStepper(self._runtime, self._images, memory, self._state, self._heads)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_lanes(cores: int) -> int:
    """How many batches at once keep that many cores busiest.

    Threads that share a batch wait for each other at every node of a graph, those with batches of their own
    never. What is left to Python is done one at a time, and a batch takes memory: hence not a lane a core.
    """
    return min(cores, MOST_LANES)


def check_device(device: str) -> None:
    """Raise `OptionsError` unless `device` is auto, cpu, cuda or cuda:N."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise OptionsError(f"device must be one of auto, cpu, cuda and cuda:N, got {device!r}", "device")


def _fetch(value: Any) -> npt.NDArray[Any]:
    """An array from wherever it is."""
    return value if isinstance(value, np.ndarray) else value.numpy()


def _as_state(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The state that a step leaves, under the names by which the next one reads it."""
    return {f"state.{name[5:]}": value for name, value in outputs.items()}


def _unmoved(tokens: Ints) -> Ints:
    """The parents of beams that have not been reordered."""
    return np.arange(tokens.shape[1])[None].repeat(len(tokens), axis=0)


def _import_onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise RuntimeMissingError(
            "captioning needs ONNX Runtime: pip install 'captioner[cpu]', or 'captioner[gpu]' for CUDA"
        ) from None
    return onnxruntime
