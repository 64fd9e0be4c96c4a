"""ONNX Runtime: devices, threads and sessions."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from captioner.cores import available_cores, check_parallel, core_limit
from captioner.errors import (
    BundleError,
    DeviceError,
    OptionsError,
    RuntimeMissingError,
    clip,
    how_to_install_a_runtime,
)
from captioner.model.bundle import DECODER, ENCODER, FORMAT, Bundle
from captioner.model.calibration import CERTAINTY
from captioner.model.graphs.cache import GRAPH, WEIGHTS, GraphCache
from captioner.model.graphs.decoder import CHOSEN, OnnxDecoder, OnnxStepper
from captioner.model.graphs.device import check_device, cuda_options, preload_cuda
from captioner.model.graphs.graph import Graph
from captioner.model.graphs.precision import FLOAT32, INT8, check_precision, has_fast_int8

MOST_LANES = 4
_ENCODED_AT_ONCE = 4
"""Images. Parts of 4 were faster than parts of 8 and 16 and the whole batch of 32, on two cores."""
_SPIN_LIMIT_SINCE = (1, 26)
"""The first version of ONNX Runtime that can limit the time that threads spin (wait in a busy loop)."""
_SPIN_US = 50
"""Microseconds. 30 to 200 were equally fast; without a limit, calls took longer than without spinning."""
_FIRST = ["log_probs", "attention"]
_WEIGHTS_IN_MEMORY = "add_external_initializers_from_files_in_memory"
_EXTERNAL = "session.optimized_model_external_initializers_"
_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
_ASKED_FOR = "it was asked for"


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
        threads, lanes = check_parallel("threads", threads), check_parallel("lanes", lanes)
        self._ort = _import_onnxruntime()
        self.threads = threads
        """As given."""
        threads = threads or core_limit()  # without a limit, ONNX Runtime takes a thread per core
        self._threads = threads  # for the session that tries CUDA; lanes share them below
        self._gpu = int(device.partition(":")[2] or 0)
        self.provider, self.device_reason = self._choose_provider(bundle, device)
        # "auto" says what it took; a GPU that was chosen by number keeps it.
        self.device = "cpu" if self.provider == _CPU else "cuda" if device == "auto" else device
        cores = threads or available_cores()
        self.lanes = lanes or (default_lanes(cores) if self.provider == _CPU else 1)
        """Calls that are best made at the same time."""
        self._threads = threads if self.lanes == 1 else max(1, cores // self.lanes)
        self.precision, self.precision_reason = self._choose_precision(bundle, precision)
        """What is computed in, float32 or int8, and why."""
        self._cache = cache or GraphCache(None)
        encoder, decoder = bundle.encoder, bundle.decoder
        if self.precision == INT8 and bundle.int8 is not None:
            encoder, decoder = bundle.int8
        self._encoder = self._graph(bundle, encoder, {ENCODER: bundle.encoder})
        graph = self._graph(bundle, decoder, {DECODER: bundle.decoder})
        self._decoder = OnnxDecoder(graph, len(bundle.vocabulary))
        self._check(bundle)

    def encode(self, pixels: npt.NDArray[np.uint8], mask: npt.NDArray[np.bool_] | None = None) -> OnnxStepper:
        """Encode a batch of images, uint8 (batch, size, size, 3), for `captioner.model.search` to decode. A
        model that letterboxes also needs `mask`, the cells that show the photo, bool (batch, rows *
        columns)."""
        feeds: dict[str, Any] = {"pixels": pixels} if mask is None else {"pixels": pixels, "mask": mask}
        outputs = self._encode(feeds, len(pixels))
        memory = {name: value for name, value in outputs.items() if name.startswith("memory.")}
        state = {name: value for name, value in outputs.items() if name.startswith("state.")}
        return OnnxStepper(self._decoder, len(pixels), memory, state, certainty=outputs.get(CERTAINTY))

    def _encode(self, feeds: Mapping[str, Any], images: int) -> dict[str, Any]:
        """All outputs. A CPU takes large batches in parts, whose features stay in its cache."""
        names = list(self._encoder.outputs)
        if not self._encoder.on_cpu or images <= _ENCODED_AT_ONCE:
            return self._encoder.run(feeds, (), names)[1]
        parts = [
            self._encoder.run(
                {name: value[start : start + _ENCODED_AT_ONCE] for name, value in feeds.items()}, (), names
            )[1]
            for start in range(0, images, _ENCODED_AT_ONCE)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    @property
    def heads(self) -> int:
        """Maps that a word has."""
        return self._decoder.heads

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
        return Graph(session, ("cpu", 0) if self.provider == _CPU else ("cuda", self._gpu))

    def _load(self, optimized: Path) -> Any:
        options = self._session_options()
        options.graph_optimization_level = self._ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return self._ort.InferenceSession(str(optimized), options, providers=[_CPU])

    def _choose_provider(self, bundle: Bundle, device: str) -> tuple[str, str]:
        """The provider, and why it is that one."""
        if device == "cpu":
            return _CPU, _ASKED_FOR
        reason = self._why_no_cuda(bundle)
        if reason is None:
            return _CUDA, "CUDA works"
        if device != "auto":
            raise DeviceError(f"{device.upper()} cannot be used: {reason}")
        return _CPU, reason

    def _why_no_cuda(self, bundle: Bundle) -> str | None:
        if _CUDA not in self._ort.get_available_providers():
            return "this onnxruntime is built for the CPU; install '.[gpu]' in its place"
        try:
            with redirect_stdout(io.StringIO()):  # it prints what it misses among the captions
                preload_cuda(self._ort)
            # The list of available providers only says what was compiled in; a session says what works.
            used = self._session(bundle.decoder, _CUDA).get_providers()[0]
        except Exception as error:
            return str(error).splitlines()[0]
        missing = "no working GPU, driver or CUDA library was found; captioner doctor says what is missing"
        return None if used == _CUDA else missing

    def _choose_precision(self, bundle: Bundle, wanted: str) -> tuple[str, str]:
        """The precision, and why it is that one."""
        if wanted == FLOAT32:
            return FLOAT32, _ASKED_FOR
        can = {
            "the bundle holds no INT8 graphs": bundle.int8 is not None,
            "INT8 graphs run on the CPU": self.provider == _CPU,
            "INT8 graphs need ONNX Runtime 1.20": hasattr(self._ort.SessionOptions, _WEIGHTS_IN_MEMORY),
        }
        if wanted == INT8:
            for reason, fulfilled in can.items():
                if not fulfilled:
                    raise OptionsError(f"precision int8 cannot be used: {reason}", "precision")
            return INT8, _ASKED_FOR
        for reason, fulfilled in {**can, "this processor gains little from INT8": has_fast_int8()}.items():
            if not fulfilled:
                return FLOAT32, reason
        return INT8, "this processor multiplies 8-bit numbers fast"

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
            settings: Any = (provider, cuda_options(self._gpu)) if provider == _CUDA else provider
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
        # Threads that spin are ready at once for the next node. But each graph has threads of its own: those
        # that wait for longer must leave the cores to those that compute.
        if _version(self._ort.__version__) >= _SPIN_LIMIT_SINCE:
            options.add_session_config_entry("session.intra_op.spin_duration_us", str(_SPIN_US))
        else:
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
        same = shows == (takes if bundle.letterbox is None else {**takes, "mask": [rows * columns]})
        decoder = self._decoder.graph
        asks = {"tokens", "parents"} | ({"count", "forbidden", "asked"} if self._decoder.chooses else set())
        wants = set(decoder.inputs) - asks
        outputs = decoder.outputs
        answers = set(CHOSEN) <= set(outputs) if self._decoder.chooses else True
        if not same or not wants <= set(self._encoder.outputs) or list(outputs)[:2] != _FIRST or not answers:
            raise BundleError(f"the graphs of the bundle do not keep the contract of format {FORMAT}")
        if [outputs[name][-1] for name in _FIRST] != [len(bundle.vocabulary), rows * columns]:
            raise BundleError("the graphs of the bundle do not match its vocabulary and its grid")


def default_lanes(cores: int) -> int:
    """How many batches at once keep that many cores busiest.

    Threads that share a batch wait for each other at every node of a graph, those with batches of their own
    never. What is left to Python is done one at a time, and a batch takes memory: hence not a lane a core.
    """
    return min(cores, MOST_LANES)


def _version(text: str) -> tuple[int, ...]:
    """Major and minor version: "1.32.0" -> (1, 32). Empty if there are no such numbers."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else ()


def _import_onnxruntime() -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise RuntimeMissingError(f"captioning needs ONNX Runtime: {how_to_install_a_runtime()}") from None
    except ImportError as error:  # a library of the system is missing, or memory
        raise RuntimeMissingError(f"ONNX Runtime cannot be loaded: {clip(str(error))}") from None
    onnxruntime.disable_telemetry_events()  # a program may have imported it before captioner
    return onnxruntime
