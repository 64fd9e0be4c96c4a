"""Traces of calls, as a collector receives them. Servers send the last spans when they stop."""

import subprocess
import sys

import grpc
import httpx
import pytest
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.processes import child_environment
from support.serving import make_image, serve

from captioner.errors import NotAnImageError
from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_client import AsyncCaptionClient, CaptionClient

pytest.importorskip("opentelemetry.sdk")
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from support.collector import Collector, attributes, collecting

IMAGE = make_image(1)
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
RECORDED, NOT_RECORDED = (f"00-{TRACE}-{SPAN}-{flag}" for flag in ("01", "00"))
STEPS = {"decode", "wait", "compute"}


@pytest.fixture
def collector():
    with collecting() as running:
        yield running


def serve_traced(model, collector: Collector, **options):
    return serve(model, trace_endpoint=collector.url, decode_workers=1, max_batch_size=4, **options)


def names(spans) -> list[str]:
    return [span.name for span in spans]


def test_a_call_has_a_span_for_each_part_and_its_batch_links_to_it(collector, tiny_captioner) -> None:
    with serve_traced(tiny_captioner, collector) as server, grpc.insecure_channel(server.address) as channel:
        call = CaptionServiceStub(channel).Caption.with_call
        answer, _ = call(pb.CaptionRequest(image=IMAGE), metadata=(("x-request-id", "my-id"),))
    assert answer.caption.words
    [root] = collector.named("captioner.v1.CaptionService/Caption")
    assert (root.kind, root.parent_span_id) == (root.SPAN_KIND_SERVER, b"")
    assert attributes(root) == {
        "captioner.request_id": "my-id",
        "rpc.system": "grpc",
        "rpc.service": "captioner.v1.CaptionService",
        "rpc.method": "Caption",
        "captioner.code": "OK",
        "captioner.images": 1,
    }
    parts = collector.below(root)
    assert names(parts) == ["admit", "receive", "image", "send"]
    image = parts[2]
    assert names(collector.below(image)) == ["decode", "wait", "compute"]
    assert attributes(image) == {"captioner.outcome": "ok"}

    [batch] = collector.named("batch")
    assert batch.trace_id != root.trace_id and not batch.parent_span_id
    assert [(link.trace_id, link.span_id) for link in batch.links] == [(root.trace_id, image.span_id)]
    [compute] = collector.named("compute")
    assert [link.span_id for link in compute.links] == [batch.span_id]
    assert attributes(batch)["captioner.images"] == 1
    encode, search = collector.below(batch)
    assert names([encode, search]) == ["encode", "search"]
    assert attributes(search)["captioner.steps"] >= len(answer.caption.words)
    assert encode.end_time_unix_nano <= search.start_time_unix_nano
    for parent in (root, image, batch):
        for part in collector.below(parent):
            assert parent.start_time_unix_nano <= part.start_time_unix_nano <= part.end_time_unix_nano
            assert part.end_time_unix_nano <= parent.end_time_unix_nano, part.name
    assert collector.resources[0]["service.name"] == "captioner"


def test_a_batch_of_several_calls_links_to_each(collector) -> None:
    model = FakeModel()
    with serve_traced(model, collector) as server, grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        model.hold.clear()
        begun = len(model.batches)
        calls = [stub.Caption.future(pb.CaptionRequest(image=make_image(0)))]
        wait_until(lambda: len(model.batches) > begun)  # else the first two may share a batch
        calls += [stub.Caption.future(pb.CaptionRequest(image=make_image(n))) for n in range(1, 5)]
        wait_until(lambda: server.metric("waiting_images") == 4)
        model.hold.set()
        assert all(call.result() for call in calls)
    images = {span.span_id for span in collector.named("image")}
    linked = [{link.span_id for link in span.links} for span in collector.named("batch")]
    assert sorted(map(len, linked)) == [1, 4]
    assert set.union(*linked) == images
    assert len({span.trace_id for span in collector.named("image")}) == 5


def test_streams_are_traced(collector, tiny_captioner) -> None:
    with serve_traced(tiny_captioner, collector) as server, grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        *words, _ = stub.StreamCaption(pb.StreamCaptionRequest(image=IMAGE))
        batch = [pb.CaptionBatchRequest(id=str(n), image=make_image(n)) for n in range(3)]
        assert len(list(stub.CaptionBatch(iter(batch)))) == 3
    [stream] = collector.named("captioner.v1.CaptionService/StreamCaption")
    parts = names(collector.below(stream))
    assert parts[:3] == ["admit", "receive", "image"]
    assert parts.count("send") == len(words) + 1
    [image] = [span for span in collector.below(stream) if span.name == "image"]
    compute = collector.below(image)[-1]
    assert names(collector.below(compute)) == ["encode", "search"]

    [call] = collector.named("captioner.v1.CaptionService/CaptionBatch")
    images = [span for span in collector.below(call) if span.name == "image"]
    assert len(images) == 3
    assert all(set(names(collector.below(image))) == STEPS for image in images)
    assert {"admit", "receive", "send"} < set(names(collector.below(call)))


def test_http_is_traced_too(collector) -> None:
    with serve_traced(FakeModel(), collector, http_port=0) as server:
        for path in ("/v1/caption", "/v1/caption:stream"):
            url = f"{server.server.http_url}{path}"
            headers = {"traceparent": RECORDED}
            assert httpx.post(url, content=IMAGE, headers=headers, timeout=PATIENCE_S).status_code == 200
    for path in ("/v1/caption", "/v1/caption:stream"):
        [root] = collector.named(f"POST {path}")
        assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, SPAN)
        assert attributes(root)["http.route"] == path
        assert {"admit", "receive", "image", "send"} == set(names(collector.below(root)))


def test_the_callers_decision_holds_and_a_share_of_the_others(collector) -> None:
    server = serve_traced(FakeModel(), collector, trace_share=0.0)
    with server as running, grpc.insecure_channel(running.address) as channel:
        stub = CaptionServiceStub(channel)
        for metadata in ((), (("traceparent", NOT_RECORDED),), (("traceparent", "nonsense"),)):
            stub.Caption(pb.CaptionRequest(image=IMAGE), metadata=metadata)
        hostile = (("traceparent", RECORDED), ("tracestate", f"a={'x' * 2000}"))
        stub.Caption(pb.CaptionRequest(image=IMAGE), metadata=hostile)
    [root] = collector.named("captioner.v1.CaptionService/Caption")
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, SPAN)
    assert root.trace_state == ""
    assert len(collector.named("batch")) == 1


def test_a_call_that_fails_says_where(collector) -> None:
    model = FakeModel()
    with serve_traced(model, collector) as server, grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        with pytest.raises(grpc.RpcError):
            stub.Caption(pb.CaptionRequest(image=b"\xff\xd8\xff but no JPEG"))
        model.breaks_after = 0
        with pytest.raises(grpc.RpcError):
            stub.Caption(pb.CaptionRequest(image=IMAGE))
    wrong, broken = collector.named("captioner.v1.CaptionService/Caption")
    assert attributes(wrong)["captioner.code"] == "INVALID_ARGUMENT"
    assert wrong.status.code == wrong.status.STATUS_CODE_UNSET
    [image] = [span for span in collector.below(wrong) if span.name == "image"]
    [decode] = collector.below(image)
    assert attributes(decode) == {"error.type": NotAnImageError.__name__}
    assert attributes(image) == {"captioner.outcome": "not_an_image"}
    assert broken.status.code == broken.status.STATUS_CODE_ERROR


def test_our_clients_send_the_current_span(collector) -> None:
    tracer = TracerProvider().get_tracer("test")

    async def call(address: str) -> None:
        async with AsyncCaptionClient(address) as client:
            with tracer.start_as_current_span("aio") as span:
                wanted.append(span.get_span_context())
                await client.caption(IMAGE)

    wanted: list[trace.SpanContext] = []
    with serve_traced(FakeModel(), collector, trace_share=0.0) as server:
        with CaptionClient(server.address) as client:
            with tracer.start_as_current_span("sync") as span:
                wanted.append(span.get_span_context())
                client.caption(IMAGE)
                list(client.stream(IMAGE))
                client.caption([IMAGE])
            client.caption(IMAGE)  # outside of a span: not recorded
        server.call(call(server.address))
    roots = [span for span in collector.spans if span.name.startswith("captioner.v1.CaptionService/")]
    methods = [span.name.rpartition("/")[2] for span in roots]
    assert sorted(methods) == ["Caption", "Caption", "CaptionBatch", "GetModel", "StreamCaption"]
    found = {(span.trace_id.hex(), span.parent_span_id.hex()) for span in roots}
    assert found == {(f"{one.trace_id:032x}", f"{one.span_id:016x}") for one in wanted}


def test_off_it_costs_no_import() -> None:
    code = "import sys, captioner_client.aio, captioner_server.server; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=child_environment(), capture_output=True, text=True
    )
    assert "captioner_server.observation.tracing" in done.stdout
    assert "opentelemetry" not in done.stdout


def test_a_collector_that_is_gone_holds_nobody_up() -> None:
    server = serve(FakeModel(), trace_endpoint="http://127.0.0.1:1", decode_workers=1)
    with server as running, grpc.insecure_channel(running.address) as channel:
        assert CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=IMAGE), timeout=PATIENCE_S)


def test_the_log_names_the_trace(collector, caplog) -> None:
    caplog.set_level("INFO", "captioner_server.calls")
    with serve_traced(FakeModel(), collector) as server, grpc.insecure_channel(server.address) as channel:
        CaptionServiceStub(channel).Caption(
            pb.CaptionRequest(image=IMAGE), metadata=(("traceparent", RECORDED),)
        )
    assert [record.fields["trace_id"] for record in caplog.records if hasattr(record, "fields")] == [TRACE]
