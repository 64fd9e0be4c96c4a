"""Spans of OpenTelemetry, sent over OTLP.

A call is a span with `admit`, `receive` and `send` in it, and an `image` for each of its images, with
`decode`, `wait` and `compute`. A batch is a trace of its own with `encode` and `search`: it links to its
images, and their `compute` links to it. No span holds anything of an image or a caption.

Each image has nine spans. To save time, spans are built directly as OTLP messages: OpenTelemetry's tracer
would take several times as long.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2 as pb
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanContext, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from captioner import __version__
from captioner.model.graphs.spans import Span as ModelSpan
from captioner.model.graphs.spans import observe
from captioner_server.observation.call import Call

P = ParamSpec("P")
T = TypeVar("T")

_MOST_TRACESTATE = 512
"""Longest `tracestate` that is kept, in characters: every span of a call carries it."""
_SERVER_FAULTS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE"})
"""Codes that make the span of a call an error, by the semantic conventions."""
_PROPAGATOR = TraceContextTextMapPropagator()
_LOCAL_PARENT = pb.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_REMOTE_PARENT = _LOCAL_PARENT | pb.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


class Tracing:
    """Starts the traces of calls and exports them."""

    def __init__(self, endpoint: str, share: float) -> None:
        """`endpoint` is the URL of a collector for OTLP over gRPC. `share` is the share of calls to record
        among those without a parent trace. Variables such as OTEL_EXPORTER_OTLP_HEADERS apply too."""
        own = {"service.name": "captioner", "service.version": __version__}
        named = Resource.create({**own, "service.instance.id": socket.gethostname()})
        exporter = _Exporter(endpoint, named.merge(OTELResourceDetector().detect()))
        self._share, self._processor = share, BatchSpanProcessor(exporter)

    def begin(self, call: Call, headers: Mapping[str, Any]) -> CallSpans | None:
        """The spans of a call with these metadata or headers; None if it is not recorded."""
        parent = _parent_of(headers)
        recorded = parent.trace_flags.sampled if parent.is_valid else random.random() < self._share
        if not recorded:
            return None
        trace_id = parent.trace_id if parent.is_valid else random.getrandbits(128) or 1  # 0 is not valid
        span = _Span(self._processor, call.method.lstrip("/"), trace_id.to_bytes(16, "big"))
        span.message.kind = pb.Span.SPAN_KIND_SERVER
        if parent.is_valid:
            span.message.parent_span_id = parent.span_id.to_bytes(8, "big")
            span.message.trace_state = parent.trace_state.to_header()
            span.message.flags = _REMOTE_PARENT
        span.add(**{"captioner.request_id": call.request_id, **_method_attributes(call.method)})
        return CallSpans(span)

    def close(self, patience_s: float) -> None:
        """Export the remaining spans, for at most `patience_s`."""
        # Shutting down takes long if the collector does not answer.
        closing = threading.Thread(target=self._processor.shutdown, daemon=True)
        closing.start()
        closing.join(patience_s)


class _Exporter(OTLPSpanExporter):
    """Sends spans that are messages already."""

    def __init__(self, endpoint: str, resource: Resource) -> None:
        super().__init__(endpoint=endpoint)
        self._frame = pb.ResourceSpans(schema_url=resource.schema_url)
        for key, value in resource.attributes.items():
            self._frame.resource.attributes.add(key=key).value.string_value = str(value)
        scope = self._frame.scope_spans.add().scope
        scope.name, scope.version = "captioner_server", __version__

    def _translate_data(self, data: Sequence[Any]) -> ExportTraceServiceRequest:
        request = ExportTraceServiceRequest(resource_spans=[self._frame])
        request.resource_spans[0].scope_spans[0].spans.extend([span.message for span in data])
        return request


class _Span:
    """A span that began when it was made, or at `start_ns`, in nanoseconds since 1970."""

    __slots__ = ("_processor", "message")

    context = SpanContext(1, 1, False, TraceFlags(TraceFlags.SAMPLED))
    """What the processor asks: whether to export."""

    def __init__(
        self, processor: BatchSpanProcessor, name: str, trace_id: bytes, start_ns: int | None = None
    ) -> None:
        self._processor = processor
        self.message = pb.Span(
            name=name,
            trace_id=trace_id,
            span_id=(random.getrandbits(64) or 1).to_bytes(8, "big"),
            start_time_unix_nano=time.time_ns() if start_ns is None else start_ns,
            flags=_LOCAL_PARENT,
        )

    def begin(self, name: str, start_ns: int | None = None) -> _Span:
        """A part of it."""
        part = _Span(self._processor, name, self.message.trace_id, start_ns)
        part.message.parent_span_id = self.message.span_id
        if self.message.trace_state:
            part.message.trace_state = self.message.trace_state
        return part

    def begin_trace(self, name: str) -> _Span:
        """A span without a parent, in a trace of its own."""
        return _Span(self._processor, name, (random.getrandbits(128) or 1).to_bytes(16, "big"))

    def add(self, **attributes: str | int) -> None:
        for key, value in attributes.items():
            to = self.message.attributes.add(key=key).value
            if isinstance(value, str):
                to.string_value = value
            else:
                to.int_value = value

    def link(self, other: _Span) -> None:
        self.message.links.add(
            trace_id=other.message.trace_id, span_id=other.message.span_id, flags=_LOCAL_PARENT
        )

    def end(self, end_ns: int | None = None) -> None:
        """Export it. Call this once."""
        self.message.end_time_unix_nano = time.time_ns() if end_ns is None else end_ns
        self._processor.on_end(cast(ReadableSpan, self))


class _Spans:
    """A span and its child spans."""

    def __init__(self, span: _Span) -> None:
        self._span = span
        self._of_model: list[ModelSpan] = []

    @contextmanager
    def child(self, name: str) -> Iterator[None]:
        part = self._span.begin(name)
        try:
            yield
        except BaseException as error:
            part.add(**{"error.type": type(error).__name__})
            raise
        finally:
            part.end()

    def observing(self, work: Callable[P, T]) -> Callable[P, T]:
        """The function, with the spans of the model recorded; it may run on any thread."""

        def observed(*args: P.args, **kwargs: P.kwargs) -> T:
            with observe() as self._of_model:
                return work(*args, **kwargs)

        return observed

    def _add_those_of_model(self, parent: _Span) -> None:
        for one in self._of_model:
            part = parent.begin(one.name, one.start_ns)
            if one.steps:
                part.add(**{"captioner.steps": one.steps})
            part.end(one.end_ns or None)  # it may still be running if the call was cancelled


class CallSpans(_Spans):
    """The spans of one call."""

    def __init__(self, span: _Span) -> None:
        super().__init__(span)
        self.trace_id = span.message.trace_id.hex()

    def begin_image(self) -> ImageSpans:
        return ImageSpans(self._span.begin("image"))

    def finish(self, call: Call, code: str) -> None:
        """Record the outcome of the call."""
        attributes: dict[str, str | int] = {"captioner.code": code, "captioner.images": call.images}
        if call.token is not None:
            attributes["captioner.caller"] = call.token
        self._span.add(**attributes)
        if code in _SERVER_FAULTS:
            self._span.message.status.code = pb.Status.STATUS_CODE_ERROR
            self._span.message.status.message = code

    def end(self) -> None:
        self._span.end()


class ImageSpans(_Spans):
    """The spans of one image."""

    def begin_wait(self) -> WaitSpans:
        return WaitSpans(self._span)

    def end(self, outcome: str) -> None:
        """`outcome` is the label of the image in the metrics."""
        self._span.add(**{"captioner.outcome": outcome})
        self._span.end()


class WaitSpans(_Spans):
    """The spans of an image while it waits for the model and is computed."""

    def __init__(self, image: _Span) -> None:
        super().__init__(image)
        self._current: _Span | None = image.begin("wait")

    def begin_compute(self, batch: _Span | None = None) -> None:
        self.end()
        self._current = self._span.begin("compute")
        if batch:
            self._current.link(batch)

    def begin_batch(self, waits: Sequence[WaitSpans], attributes: dict[str, int]) -> BatchSpans:
        """End the waits and start the batch, which is a trace of its own."""
        batch = self._span.begin_trace("batch")
        batch.add(**attributes)
        for one in waits:
            batch.link(one._span)
            one.begin_compute(batch)
        return BatchSpans(batch, waits)

    def end(self) -> None:
        """Harmless when repeated."""
        if self._current:
            self._add_those_of_model(self._current)
            self._current.end()
            self._current = None


class BatchSpans(_Spans):
    """The span of a batch, and those of the computation of its images."""

    def __init__(self, batch: _Span, waits: Sequence[WaitSpans]) -> None:
        super().__init__(batch)
        self._waits = waits

    def end(self) -> None:
        self._add_those_of_model(self._span)
        self._span.end()
        for one in self._waits:
            one.end()


def _parent_of(headers: Mapping[str, Any]) -> SpanContext:
    """The caller's span; not valid if there is none."""
    carrier = {"traceparent": str(headers.get("traceparent", ""))}
    state = str(headers.get("tracestate", ""))
    if state and len(state) <= _MOST_TRACESTATE:
        carrier["tracestate"] = state
    return get_current_span(_PROPAGATOR.extract(carrier, Context())).get_span_context()


def _method_attributes(method: str) -> dict[str, str]:
    """Attributes by the semantic conventions of gRPC (/package.Service/Method) or HTTP (VERB /path)."""
    if method.startswith("/"):
        service, _, name = method[1:].partition("/")
        return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
    verb, _, route = method.partition(" ")
    return {"http.request.method": verb, "http.route": route}
