"""The Prometheus metrics of a server."""

from __future__ import annotations

import math
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from captioner_server.observation.machine_metrics import BuildCollector, CallbackCounter, GpuCollector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_MODEL = ("name", "model", "device", "provider", "precision")
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
OTHER = "other"
"""The label of callers without a token and of those after the first hundred, which bounds the time series."""
SHADOW = "shadow"
"""The label of images that the shadow model captions; it is no caller."""
_MOST_CALLERS = 100


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self, name_callers: bool = False) -> None:
        """`name_callers` labels what callers use with the names of their tokens."""
        self._name_callers = name_callers
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(BuildCollector())
        self.registry.register(GpuCollector())
        self.serving = self._gauge("serving", "1 while calls are accepted and images answered, else 0")
        self.calls = self._counter("calls", "Calls finished", "method", "code")
        self.call_seconds = self._histogram("call_seconds", "Time to answer a call", _SECONDS, "method")
        self.refused = self._counter("refused_calls", "Calls with an error, refused or not", "reason")
        self.images = self._counter("images", "Images answered", "outcome")
        self._caller_images = self._counter("caller_images", "Images captioned, by caller", "caller")
        self._caller_seconds = self._counter(
            "caller_compute_seconds", "Time of the model, by caller: shares of batches", "caller"
        )
        self._callers: set[str] = set()
        self.dropped = self._counter("dropped_images", "Images dropped before they cost compute", "reason")
        self.in_flight = self._gauge("in_flight_calls", "Calls open")
        self.admitted = self._gauge("admitted_images", "Images accepted and not yet answered")
        self.waiting = self._gauge("waiting_images", "Decoded images in the queue of the model")
        self.image_bytes = self._gauge(
            "in_flight_bytes", "Bytes of image messages, including room reserved for arriving ones"
        )
        self.expected_wait = self._gauge(
            "expected_wait_seconds", "Expected time to answer an image that arrives now"
        )
        self.batch_size = self._histogram("batch_size_images", "Images in a batch", _SIZES)
        self.decode_seconds = self._histogram("decode_seconds", "Time to decode an image", _SECONDS)
        self.queue_seconds = self._histogram("queue_seconds", "Time an image waited for the model", _SECONDS)
        self.compute_seconds = self._histogram(
            "compute_seconds", "Time of the model for a batch", _SECONDS, "precision"
        )
        self.log_lines_dropped = self._gauge("log_lines_dropped", "Log lines that were dropped")
        self.failed_batches = self._counter("failed_batches", "Batches on which the model failed")
        about_model = "1 for each served model, with its device"
        self.model = self._gauge("model_info", about_model, *_MODEL)
        self.shadow = self._counter("shadow_images", "Images that the shadow model captioned too", "outcome")
        self.reloads = self._counter("reloads", "Attempts to load a model again", "name", "outcome")
        self.unusable_files = self._gauge(
            "unusable_files", "1 while what was read before is used, as the file cannot be used now", "file"
        )
        for file in ("tokens", "certificate"):
            self.unusable_files.labels(file)

        self.certificate_expiry = self._gauge(
            "certificate_expiry_timestamp_seconds", "When the certificate expires; NaN without one"
        )
        self.client_ca_expiry = self._gauge(
            "client_ca_expiry_timestamp_seconds",
            "When the first of the authorities of callers expires; NaN without one",
        )
        for expiry in (self.certificate_expiry, self.client_ca_expiry):
            expiry.set(math.nan)

    def count_share(self, caller: str | None, compute_s: float) -> None:
        """Count a captioned image and its share of compute time. `caller` is the name of its token."""
        named = caller == SHADOW or (caller is not None and self._name_callers)
        name = caller if caller and named else OTHER
        if name not in self._callers and len(self._callers) >= _MOST_CALLERS:
            name = OTHER
        self._callers.add(name)
        self._caller_images.labels(name).inc()
        self._caller_seconds.labels(name).inc(compute_s)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"captioner_{name}", help, labels, registry=self.registry)

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:
        return Gauge(f"captioner_{name}", help, labels, registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"captioner_{name}", help, labels, buckets=buckets, registry=self.registry)

    def count_decoder_restarts(self, count: Callable[[], int]) -> None:
        """`count` returns how many decoding processes have been replaced since the start."""
        help = "Decoding processes that were replaced"
        self.registry.register(CallbackCounter("captioner_decoder_restarts", help, count))
