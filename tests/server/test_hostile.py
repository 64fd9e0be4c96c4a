"""Callers that do it wrong, by mistake or by design: each gets an answer or a closed stream, and the
server is afterwards as healthy as before."""

import asyncio
import gc
import gzip
import queue
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.processes import peak_mib, resident_mib, server_process
from support.serving import RunningServer, make_image, serve
from support.stalling import Stalling

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub

STALLING = [("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0)]  # reads only what it must


@contextmanager
def serve_strictly(**options: float) -> Iterator[RunningServer]:
    limits = {"stream_window": 4, "queue_size": 16, "max_image_bytes": 100_000}
    with serve(FakeModel(), **limits, **options) as running:
        yield running
        wait_until(lambda: running.metric("in_flight_calls") == running.metric("admitted_images") == 0)
        with grpc.insecure_channel(running.address) as channel:
            status = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()).status
            assert status == health_pb2.HealthCheckResponse.SERVING
            caption = CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=make_image(1)))
            assert caption.caption.text


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serve_strictly() as running:
        yield running


@pytest.fixture
def impatient() -> Iterator[RunningServer]:
    """A server that ends streams whose caller is silent for a moment."""
    with serve_strictly(stream_idle_s=2.0) as running:
        yield running


@pytest.fixture
def channel(server: RunningServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.address) as channel:
        yield channel


def mutilated(seed: int) -> bytes:
    """Random bytes, or an image with bytes changed or cut off."""
    chance = random.Random(seed)
    if chance.random() < 0.2:
        return chance.randbytes(chance.randrange(2000))
    image = bytearray(make_image(seed, format=chance.choice(["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])))
    for _ in range(chance.randrange(20)):
        image[chance.randrange(len(image))] = chance.randrange(256)
    return bytes(image[: chance.randrange(len(image) + 1)])


def test_mutilated_images_are_captioned_or_refused(channel: grpc.Channel) -> None:
    requests = [pb.CaptionBatchRequest(id=str(seed), image=mutilated(seed)) for seed in range(300)]
    answers = list(CaptionServiceStub(channel).CaptionBatch(iter(requests), timeout=PATIENCE_S))
    assert len(answers) == 300
    outcomes = Counter(answer.error.reason or "caption" for answer in answers)
    assert set(outcomes) <= {"caption", "not_an_image", "too_large"}
    assert outcomes["not_an_image"] > 100


@pytest.mark.parametrize(
    "method",
    [
        "captioner.v1.CaptionService/Caption",
        "captioner.v1.CaptionService/StreamCaption",
        "captioner.v1.CaptionService/CaptionBatch",
        "inference.GRPCInferenceService/ModelInfer",
    ],
)
def test_what_is_no_protobuf_is_an_invalid_argument(channel: grpc.Channel, method: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.stream_stream(f"/{method}")(iter([b"\xff\xff\xff\xff"]), timeout=PATIENCE_S))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_unknown_methods_and_oversized_messages_are_refused(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/captioner.v1.CaptionService/Nothing")(b"", timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(grpc.RpcError) as caught:
        CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=bytes(70_000_000)), timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_path_that_is_no_text_does_not_end_the_server(
    server: RunningServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended gRPC's own loop, and with it all of gRPC, until the process was started again."""
    monkeypatch.setattr("captioner_server.rpc.port._TOLD_S", 0)
    more: queue.Queue[pb.CaptionBatchRequest | None] = queue.Queue()
    with grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        answers = stub.CaptionBatch(iter(more.get, None), timeout=PATIENCE_S)
        more.put(pb.CaptionBatchRequest(id="before", image=make_image(1)))
        assert next(answers).id == "before"
        for _ in range(3):
            Stalling(server.address, "/\udcff").ask(b"")
            wait_until(lambda: "was started again" in caplog.text)
            caplog.clear()
            with grpc.insecure_channel(server.address) as another:
                request = pb.CaptionRequest(image=make_image(1))
                call = CaptionServiceStub(another).Caption
                assert call(request, timeout=PATIENCE_S, wait_for_ready=True).caption.text
        more.put(pb.CaptionBatchRequest(id="after", image=make_image(1)))
        more.put(None)
        assert [answer.id for answer in answers] == ["after"]
    gc.collect()
    assert "Traceback" not in caplog.text


def test_headers_that_are_no_text_are_not_logged(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC logs them, which may be tokens, with a traceback."""
    caller = Stalling(server.address, "/captioner.v1.CaptionService/Caption")
    request = pb.CaptionRequest(image=make_image(1)).SerializeToString()
    caller.ask(request, headers=[("authorization", "Bearer secret\udcff"), ("traceparent", "\udcff")])
    assert caller.wait_for_answer()
    assert "secret" not in caplog.text and "Traceback" not in caplog.text


def test_bytes_that_are_no_http2_close_their_connection(server: RunningServer) -> None:
    host, port = server.address.split(":")
    for junk in (
        b"GET / HTTP/1.1\r\n\r\n",
        random.Random(1).randbytes(5000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" * 9,
    ):
        with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
            try:
                connection.sendall(junk)
                while connection.recv(65536):
                    pass
            except ConnectionError:
                pass


def test_calls_that_are_cancelled_at_once_are_counted_and_hardly_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also those that the server has begun to answer before it hears that they are cancelled."""
    caplog.set_level("INFO", "captioner_server.calls")
    method = "/captioner.v1.CaptionService/Caption"
    with serve_strictly() as server:
        attacks = [Stalling(server.address, method) for _ in range(5)]
        for attack in attacks:
            attack.reset(80)
            attack.reset(10, 100)
        wait_until(lambda: server.metric("calls_total", method=method, code="CANCELLED") >= 100)
        messages = Counter(record.getMessage() for record in caplog.records)
    assert messages["calls cancelled before their message"] >= 1
    assert not messages["call"]


def test_long_lists_of_headers_leave_no_memory() -> None:
    with server_process() as running:
        before = resident_mib(running.process.pid)
        for _ in range(24):
            attacker = Stalling(running.address, "/captioner.v1.CaptionService/Caption", 0)
            with suppress(OSError):
                attacker.continue_headers(1000)
            attacker.socket.close()
        wait_until(lambda: resident_mib(running.process.pid) - before < 56)


def test_a_header_that_is_repeated_for_ever_delays_nobody(server: RunningServer) -> None:
    """gRPC limits what one frame adds to a list of headers, and not always the whole list: the call may wait
    for its message until the caller goes."""
    method = "/captioner.v1.CaptionService/Caption"
    attacker = Stalling(server.address, method)
    attacker.repeat_header(1000, 100)
    threading.Timer(5, attacker.socket.close).start()
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        def has_ended() -> bool:
            health.Check(health_pb2.HealthCheckRequest(), timeout=10)
            return server.metric("calls_total", method=method, code="CANCELLED") == 1

        wait_until(has_ended)
    attacker.socket.close()


def test_a_message_is_inflated_no_further_than_the_largest() -> None:
    bomb = gzip.compress(bytes(50 * 2**20))  # whole within the window of flow control
    with server_process() as running:
        before = resident_mib(running.process.pid)
        attacker = Stalling(running.address, "/captioner.v1.CaptionService/Caption", 0)
        for _ in range(3):
            attacker.send_compressed(bomb)
        running.wait_for("calls cancelled before their message")  # the first; one line stands for those after
        with grpc.insecure_channel(running.address) as channel:
            CaptionServiceStub(channel).GetModel(pb.GetModelRequest(), timeout=PATIENCE_S)
        attacker.socket.close()
        assert peak_mib(running.process.pid) - before < 120


def test_an_endless_stream_is_read_no_faster_than_it_is_answered(
    server: RunningServer, channel: grpc.Channel
) -> None:
    sent = 0

    def endless() -> Iterator[pb.CaptionBatchRequest]:
        nonlocal sent
        image = make_image(1)
        while True:
            sent += 1
            yield pb.CaptionBatchRequest(id=str(sent), image=image)

    call = CaptionServiceStub(channel).CaptionBatch(endless(), timeout=PATIENCE_S)
    for _ in range(50):
        next(call)
    call.cancel()
    assert server.metric("images_total", outcome="ok") <= sent


def test_a_caller_that_does_not_read_loses_its_stream(impatient: RunningServer) -> None:
    large = pb.CaptionOptions(attention_size=pb.GridSize(rows=64, columns=64))
    requests = (
        pb.CaptionBatchRequest(id=str(number), image=make_image(1), options=large) for number in range(10_000)
    )
    with grpc.insecure_channel(impatient.address, options=STALLING) as channel:
        call = CaptionServiceStub(channel).CaptionBatch(requests, timeout=PATIENCE_S)
        wait_until(lambda: impatient.metric("images_total", outcome="ok"))
        wait_until(lambda: impatient.metric("in_flight_calls") == 0)
        assert impatient.metric("images_total", outcome="ok") <= 8
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "stream_idle_s" in caught.value.details()


def test_a_caller_that_falls_silent_loses_its_stream(impatient: RunningServer) -> None:
    silent = threading.Event()

    def requests() -> Iterator[pb.CaptionBatchRequest]:
        yield pb.CaptionBatchRequest(id="1", image=make_image(1))
        silent.wait(PATIENCE_S)

    with grpc.insecure_channel(impatient.address) as channel:
        call = CaptionServiceStub(channel).CaptionBatch(requests(), timeout=PATIENCE_S)
        assert next(call).id == "1"
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
    silent.set()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "stream_idle_s" in caught.value.details()


def test_callers_that_vanish_leave_nothing_behind(server: RunningServer) -> None:
    server.model.image_s = 0.002
    for number in range(20):
        with grpc.insecure_channel(server.address) as channel:
            stub = CaptionServiceStub(channel)
            requests = (pb.CaptionBatchRequest(id=str(n), image=make_image(n)) for n in range(1000))
            stub.CaptionBatch(requests, timeout=PATIENCE_S)
            stub.Caption.future(pb.CaptionRequest(image=make_image(number)), timeout=PATIENCE_S)
            stub.StreamCaption(pb.StreamCaptionRequest(image=make_image(number)), timeout=PATIENCE_S)
            time.sleep(0.01 * (number % 4))


def test_in_a_storm_every_request_is_answered_or_refused(server: RunningServer) -> None:
    codes: Counter[str] = Counter()
    most_admitted = 0.0
    over = False

    async def caller(stub: CaptionServiceStub, image: bytes) -> None:
        while not over:
            try:
                await stub.Caption(pb.CaptionRequest(image=image), timeout=PATIENCE_S)
                codes["OK"] += 1
            except grpc.aio.AioRpcError as error:
                codes[error.code().name] += 1
                await asyncio.sleep(0.01)

    async def watch_until(code: str) -> None:
        nonlocal most_admitted
        while codes[code] < 300:
            most_admitted = max(most_admitted, server.metric("admitted_images"))
            await asyncio.sleep(0.01)

    async def storm() -> None:
        nonlocal over
        server.model.hold.clear()
        async with grpc.aio.insecure_channel(server.address, [("grpc.enable_retries", 0)]) as channel:
            stub = CaptionServiceStub(channel)
            callers = [asyncio.create_task(caller(stub, make_image(n))) for n in range(150)]
            await watch_until("RESOURCE_EXHAUSTED")
            server.model.hold.set()
            await watch_until("OK")
            over = True
            await asyncio.gather(*callers)

    asyncio.run(storm())
    assert set(codes) <= {"OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
    assert 0 < most_admitted <= 16


def test_many_callers_share_batches_without_an_error(server: RunningServer) -> None:
    model = FakeModel()
    codes: Counter[str] = Counter()

    async def caller(address: str, image: bytes, expected: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            for _ in range(4):
                response = await CaptionServiceStub(channel).Caption(
                    pb.CaptionRequest(image=image), timeout=PATIENCE_S
                )
                codes["right" if response.caption.text == expected else "wrong"] += 1

    async def run(address: str) -> None:
        images = [make_image(n) for n in range(64)]
        expected = [model.describe(model.preprocess(image)).text for image in images]
        await asyncio.gather(*(caller(address, *pair) for pair in zip(images, expected, strict=True)))

    with serve(model) as busy:
        warmed = len(model.batches)
        model.hold.clear()
        with ThreadPoolExecutor(1) as pool:
            calls = pool.submit(asyncio.run, run(busy.address))
            wait_until(lambda: busy.metric("waiting_images") >= 48)
            model.hold.set()
            calls.result(PATIENCE_S)
    assert codes == {"right": 256}
    assert [size for size, _ in model.batches[warmed + 1 : warmed + 4]] == [16, 16, 16]
