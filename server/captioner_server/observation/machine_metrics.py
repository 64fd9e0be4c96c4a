"""Metrics that are read on demand: the build, GPU memory, counters of other modules."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from captioner import __version__

_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")


class BuildCollector(Collector):
    """`captioner_build_info`: 1, with the versions as labels."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        help = "1, with the versions of the server, Python and ONNX Runtime"
        family = GaugeMetricFamily("captioner_build_info", help, labels=("version", "python", "onnxruntime"))
        family.add_metric((__version__, platform.python_version(), _runtime_version()), 1)
        yield family


class CallbackCounter(Collector):
    """A counter whose value is that of a function."""

    def __init__(self, name: str, help: str, count: Callable[[], int]) -> None:
        self._name, self._help, self._count = name, help, count

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(self._name, self._help, value=self._count())


class GpuCollector(Collector):
    """`captioner_gpu_memory_bytes`: the memory of each GPU, of all processes. No samples without a GPU,
    nor of one that does not answer."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._count = 0
        with suppress(Exception):  # no package, no driver, no GPU
            import pynvml

            pynvml.nvmlInit()
            self._nvml, self._count = pynvml, pynvml.nvmlDeviceGetCount()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily("captioner_gpu_memory_bytes", "Memory of a GPU", labels=("gpu", "kind"))
        for number in range(self._count):
            try:
                memory = self._nvml.nvmlDeviceGetMemoryInfo(self._nvml.nvmlDeviceGetHandleByIndex(number))
            except self._nvml.NVMLError:  # the GPU is lost or being reset
                continue
            family.add_metric((str(number), "used"), memory.used)
            family.add_metric((str(number), "total"), memory.total)
        yield family


def _runtime_version() -> str:
    for package in _RUNTIMES:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "none"
