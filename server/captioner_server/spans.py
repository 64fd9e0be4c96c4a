"""Spans of OpenTelemetry, sent over OTLP.

A call is a span with `admit`, `receive` and `send` in it, and an `image` for each of its images, with
`decode`, `wait` and `compute`. A batch is a trace of its own with `encode` and `search`: it links to its
images, and their `compute` links to it. No span holds anything of an image or a caption.

Calls and batches are spans of OpenTelemetry's tracer, which samples and limits them. Their parts, most of the
spans, are made without it, which costs a third.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import (
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, format_trace_id
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
        resource = named.merge(OTELResourceDetector().detect())
        self._recorder = _Recorder(
            _Resource(resource.attributes, resource.schema_url),
            ParentBased(root=_Sampler(share)),
            BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)),
        )

    def begin(self, call: Call, headers: Mapping[str, Any]) -> CallSpans | None:
        """The spans of a call with these metadata or headers; None if it is not recorded."""
        carrier = {"traceparent": str(headers.get("traceparent", ""))}
        state = str(headers.get("tracestate", ""))
        if state and len(state) <= _MOST_TRACESTATE:
            carrier["tracestate"] = state
        parent = _PROPAGATOR.extract(carrier, Context())
        attributes = {"captioner.request_id": call.request_id, **_method_attributes(call.method)}
        root = self._recorder.tracer.start_span(
            call.method.lstrip("/"), parent, kind=SpanKind.SERVER, attributes=attributes
        )
        return CallSpans(self._recorder, root) if root.is_recording() else None

    def close(self, patience_s: float) -> None:
        """Export the remaining spans, for at most `patience_s`."""
        # Shutting down takes long if the collector does not answer.
        closing = threading.Thread(target=self._recorder.provider.shutdown, daemon=True)
        closing.start()
        closing.join(patience_s)


class _Resource(Resource):
    """The one resource of all spans. The exporter hashes it for each span; by content, that is slow."""

    __hash__ = object.__hash__


class _Recorder:
    """Where spans go."""

    def __init__(self, resource: Resource, sampler: Sampler, processor: BatchSpanProcessor) -> None:
        self.resource, self.processor = resource, processor
        self.scope = InstrumentationScope("captioner_server", __version__)
        self.provider = TracerProvider(
            sampler=sampler,
            resource=resource,
            shutdown_on_exit=False,  # it would wait for a collector that has gone
        )
        self.provider.add_span_processor(processor)
        self.tracer = self.provider.get_tracer(self.scope.name, __version__)


class _Part:
    """A span below a recorded one, from now on or from `start_ns`, in nanoseconds since 1970."""

    __slots__ = ("_links", "_name", "_parent", "_recorder", "_start_ns", "attributes", "context")

    def __init__(
        self,
        recorder: _Recorder,
        name: str,
        parent: SpanContext,
        links: Sequence[Link] = (),
        start_ns: int | None = None,
    ) -> None:
        self._recorder, self._name, self._parent, self._links = recorder, name, parent, links
        self._start_ns = time.time_ns() if start_ns is None else start_ns
        self.attributes: dict[str, str | int] = {}
        number = random.getrandbits(64) or 1  # 0 is not valid
        self.context = SpanContext(parent.trace_id, number, False, parent.trace_flags, parent.trace_state)

    def end(self, end_ns: int | None = None) -> None:
        """Export it. Call this once."""
        recorder = self._recorder
        recorder.processor.on_end(
            ReadableSpan(
                self._name,
                self.context,
                self._parent,
                recorder.resource,
                self.attributes,
                links=self._links,
                start_time=self._start_ns,
                end_time=time.time_ns() if end_ns is None else end_ns,
                instrumentation_scope=recorder.scope,
            )
        )


class _Spans:
    """A span and its child spans."""

    def __init__(self, recorder: _Recorder, context: SpanContext) -> None:
        """`context` is the span's."""
        self._recorder, self._context = recorder, context
        self._stages: list[Stage] = []

    @property
    def link(self) -> Link:
        return Link(self._context)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        part = self._start(name)
        try:
            yield
        except BaseException as error:
            part.attributes["error.type"] = type(error).__name__
            raise
        finally:
            part.end()

    def observing(self, work: Callable[P, T]) -> Callable[P, T]:
        """The function, with the stages of the model recorded; it may run on any thread."""

        def observed(*args: P.args, **kwargs: P.kwargs) -> T:
            with observe() as self._stages:
                return work(*args, **kwargs)

        return observed

    def _start(self, name: str, *links: Link) -> _Part:
        return _Part(self._recorder, name, self._context, links)

    def _add_stages(self, parent: SpanContext) -> None:
        for one in self._stages:
            part = _Part(self._recorder, one.name, parent, start_ns=one.start_ns)
            if one.steps:
                part.attributes["captioner.steps"] = one.steps
            part.end(one.end_ns or None)  # it may still be running if the call was cancelled


class CallSpans(_Spans):
    """The spans of one call."""

    def __init__(self, recorder: _Recorder, span: Span) -> None:
        super().__init__(recorder, span.get_span_context())
        self.trace_id = format_trace_id(self._context.trace_id)
        self._span = span
        self._sending: _Part | None = None

    def begin_image(self) -> ImageSpans:
        return ImageSpans(self._recorder, self._start("image"))

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

    def __init__(self, recorder: _Recorder, image: _Part) -> None:
        super().__init__(recorder, image.context)
        self._image = image

    def begin_wait(self) -> WaitSpans:
        return WaitSpans(self._recorder, self._context)

    def end(self, outcome: str) -> None:
        """`outcome` is the label of the image in the metrics."""
        self._image.attributes["captioner.outcome"] = outcome
        self._image.end()


class WaitSpans(_Spans):
    """The spans of an image while it waits for the model and is computed."""

    def __init__(self, recorder: _Recorder, image: SpanContext) -> None:
        super().__init__(recorder, image)
        self._current: _Part | None = self._start("wait")

    def begin_compute(self, *batch: Link) -> None:
        self.end()
        self._current = self._start("compute", *batch)

    def begin_batch(self, waits: Sequence[WaitSpans], attributes: dict[str, int]) -> BatchSpans:
        """End the waits and start the batch, which is a trace of its own."""
        links = [one.link for one in waits]
        span = self._recorder.tracer.start_span("batch", Context(), links=links, attributes=attributes)
        return BatchSpans(self._recorder, span, waits)

    def end(self) -> None:
        """Harmless when repeated."""
        if self._current:
            self._add_stages(self._current.context)
            self._current.end()
            self._current = None


class BatchSpans(_Spans):
    """The span of a batch, and those of the computation of its images."""

    def __init__(self, recorder: _Recorder, span: Span, waits: Sequence[WaitSpans]) -> None:
        super().__init__(recorder, span.get_span_context())
        self._span, self._waits = span, waits
        for one in waits:
            one.begin_compute(self.link)

    def end(self) -> None:
        self._add_stages(self._context)
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
