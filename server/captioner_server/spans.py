"""Spans of OpenTelemetry, sent over OTLP.

A call is a span with `admit`, `receive` and `send` in it, and an `image` for each of its images, with
`decode`, `wait` and `compute`. A batch is a trace of its own with `encode` and `search`: it links to its
images, and their `compute` links to it. No span holds anything of an image or a caption.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import (
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from captioner import __version__
from captioner.model.stages import Stage, observe
from captioner_server.call import Call

P = ParamSpec("P")
T = TypeVar("T")

_MOST_TRACESTATE = 512
"""Longest `tracestate` that is kept, in characters: every span of a call carries it."""
_SERVER_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE"})
"""Codes that make the span of a call an error, by the semantic conventions."""
_PROPAGATOR = TraceContextTextMapPropagator()


class Tracing:
    """Starts the traces of calls and exports them."""

    def __init__(self, endpoint: str, share: float) -> None:
        """`endpoint` is the URL of a collector for OTLP over gRPC. `share` is the share of calls to record
        among those without a parent trace. Variables such as OTEL_EXPORTER_OTLP_HEADERS apply too."""
        own = {"service.name": "captioner", "service.version": __version__}
        named = Resource.create({**own, "service.instance.id": socket.gethostname()})
        self._provider = TracerProvider(
            sampler=ParentBased(root=_Sampler(share)),
            resource=named.merge(OTELResourceDetector().detect()),
            shutdown_on_exit=False,  # it would wait for a collector that has gone
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer = self._provider.get_tracer("captioner_server", __version__)

    def begin(self, call: Call, headers: Mapping[str, Any]) -> CallSpans | None:
        """The spans of a call with these metadata or headers; None if it is not recorded."""
        carrier = {"traceparent": str(headers.get("traceparent", ""))}
        state = str(headers.get("tracestate", ""))
        if state and len(state) <= _MOST_TRACESTATE:
            carrier["tracestate"] = state
        parent = _PROPAGATOR.extract(carrier, Context())
        attributes = {"captioner.request_id": call.request_id, **_method_attributes(call.method)}
        root = self._tracer.start_span(
            call.method.lstrip("/"), parent, kind=SpanKind.SERVER, attributes=attributes
        )
        return CallSpans(self._tracer, root) if root.is_recording() else None

    def close(self, patience_s: float) -> None:
        """Export the remaining spans, for at most `patience_s`."""
        # Shutting down takes long if the collector does not answer.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(patience_s)


class _Spans:
    """A span and its child spans."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer, self._span = tracer, span
        self._context = set_span_in_context(span, Context())
        self._stages: list[Stage] = []

    @property
    def link(self) -> Link:
        return Link(self._span.get_span_context())

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        span = self._start(name)
        try:
            yield
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            raise
        finally:
            span.end()

    def observing(self, work: Callable[P, T]) -> Callable[P, T]:
        """The function, with the stages of the model recorded; it may run on any thread."""

        def observed(*args: P.args, **kwargs: P.kwargs) -> T:
            with observe() as self._stages:
                return work(*args, **kwargs)

        return observed

    def _start(self, name: str, **fields: Any) -> Span:
        return self._tracer.start_span(name, self._context, **fields)

    def _add_stages(self, parent: Span) -> None:
        context = set_span_in_context(parent, Context())
        for one in self._stages:
            steps = {"captioner.steps": one.steps} if one.steps else None
            span = self._tracer.start_span(one.name, context, attributes=steps, start_time=one.start_ns)
            span.end(one.end_ns or None)  # it may still be running if the call was cancelled


class CallSpans(_Spans):
    """The spans of one call."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        super().__init__(tracer, span)
        self.trace_id = format_trace_id(span.get_span_context().trace_id)
        self._sending: Span | None = None

    def begin_image(self) -> ImageSpans:
        return ImageSpans(self._tracer, self._start("image"))

    def begin_send(self) -> None:
        """The answer is ready; sending it lasts until the call ends."""
        self._sending = self._start("send")

    def finish(self, call: Call, code: str) -> None:
        """Record the outcome of the call."""
        self._span.set_attribute("captioner.code", code)
        self._span.set_attribute("captioner.images", call.images)
        if call.token is not None:
            self._span.set_attribute("captioner.caller", call.token)
        if code in _SERVER_FAULTS:
            self._span.set_status(StatusCode.ERROR, code)

    def end(self) -> None:
        if self._sending:
            self._sending.end()
        self._span.end()


class ImageSpans(_Spans):
    """The spans of one image."""

    def begin_wait(self) -> WaitSpans:
        return WaitSpans(self._tracer, self._span)

    def end(self, outcome: str) -> None:
        """`outcome` is the label of the image in the metrics."""
        self._span.set_attribute("captioner.outcome", outcome)
        self._span.end()


class WaitSpans(_Spans):
    """The spans of an image while it waits for the model and is computed."""

    def __init__(self, tracer: Tracer, image: Span) -> None:
        super().__init__(tracer, image)
        self._current: Span | None = self._start("wait")

    def begin_compute(self, *batch: Link) -> None:
        self.end()
        self._current = self._start("compute", links=batch)

    def begin_batch(self, waits: Sequence[WaitSpans], attributes: dict[str, int]) -> BatchSpans:
        """End the waits and start the batch, which is a trace of its own."""
        links = [one.link for one in waits]
        span = self._tracer.start_span("batch", Context(), links=links, attributes=attributes)
        return BatchSpans(self._tracer, span, waits)

    def end(self) -> None:
        """Harmless when repeated."""
        if self._current:
            self._add_stages(self._current)
            self._current.end()
            self._current = None


class BatchSpans(_Spans):
    """The span of a batch, and those of the computation of its images."""

    def __init__(self, tracer: Tracer, span: Span, waits: Sequence[WaitSpans]) -> None:
        super().__init__(tracer, span)
        self._waits = waits
        for one in waits:
            one.begin_compute(self.link)

    def end(self) -> None:
        self._add_stages(self._span)
        self._span.end()
        for one in self._waits:
            one.end()


class _Sampler(Sampler):
    """Samples spans without a parent: batches with recorded images, and a share of the calls."""

    def __init__(self, share: float) -> None:
        self._calls = TraceIdRatioBased(share)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Any = None,
        links: Sequence[Link] | None = None,
        trace_state: Any = None,
    ) -> SamplingResult:
        if links:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return self._calls.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return f"CaptionerSampler({self._calls.get_description()})"


def _method_attributes(method: str) -> dict[str, str]:
    """Attributes by the semantic conventions of gRPC (/package.Service/Method) or HTTP (VERB /path)."""
    if method.startswith("/"):
        service, _, name = method[1:].partition("/")
        return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
    verb, _, route = method.partition(" ")
    return {"http.request.method": verb, "http.route": route}
