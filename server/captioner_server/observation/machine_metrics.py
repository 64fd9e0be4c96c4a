"""Metrics that are read on demand: the build, GPU memory, counters of other modules."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

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
    """`captioner_gpu_memory_bytes`: the memory of each GPU, of all processes. No samples without a GPU."""

    def __init__(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            self._gpus = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        except Exception:  # no package, no driver, no GPU
            self._gpus = []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily("captioner_gpu_memory_bytes", "Memory of a GPU", labels=("gpu", "kind"))
        for number, gpu in enumerate(self._gpus):
            import pynvml

            memory = pynvml.nvmlDeviceGetMemoryInfo(gpu)
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
