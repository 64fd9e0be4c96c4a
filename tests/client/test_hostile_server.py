"""The client against servers that answer what no server of this project does."""

from __future__ import annotations

import asyncio
import math
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any as Anything

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2
from support.patience import PATIENCE_S
from support.serving import make_image

from captioner.cli.main import main
from captioner.errors import OptionsError
from captioner.options import MAX_GRID_SIDE, MAX_WORDS
from captioner.results import Caption
from captioner.v1 import captioner_pb2 as pb
from captioner.v1 import captioner_pb2_grpc
from captioner_client import (
    AsyncCaptionClient,
    ClientOptions,
    DeadlineExceededError,
    ServerBusyError,
    ServerError,
    ServerUnavailableError,
)

DAYS_S = 10 * 86_400


class Answers(captioner_pb2_grpc.CaptionServiceServicer):
    """Gives `caption` for every image, under `id` in a batch if there is one."""

    def __init__(self, caption: pb.Caption | None = None, id: str | None = None) -> None:
        self._caption, self._id = caption or pb.Caption(text="hello"), id

    def GetModel(self, request: Anything, context: Anything) -> pb.GetModelResponse:
        return pb.GetModelResponse(name="x", digest="0", max_image_bytes=10**7)

    def Caption(self, request: Anything, context: Anything) -> pb.CaptionResponse:
        return pb.CaptionResponse(caption=self._caption)

    def StreamCaption(self, request: Anything, context: Anything) -> Iterator[pb.StreamCaptionResponse]:
        yield from (pb.StreamCaptionResponse(word=word) for word in self._caption.words)

    def CaptionBatch(self, requests: Anything, context: Anything) -> Iterator[pb.CaptionBatchResponse]:
        for request in requests:
            id = request.id if self._id is None else self._id
            yield pb.CaptionBatchResponse(id=id, caption=self._caption)


class Busy(Answers):
    """Refuses batches, with a delay of ten days."""

    def __init__(self, pushback: str, detail: Any | None = None) -> None:
        super().__init__()
        self._pushback = pushback
        self._detail = detail or pack(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=DAYS_S)))
        self.calls = 0

    def CaptionBatch(self, requests: Anything, context: Anything) -> Iterator[pb.CaptionBatchResponse]:
        self.calls += 1
        for _ in requests:  # a write to a call that has ended would hide its status from the client
            pass
        status = status_pb2.Status(code=8, message="busy", details=[self._detail])
        details = ("grpc-status-details-bin", status.SerializeToString())
        context.set_trailing_metadata((details, ("grpc-retry-pushback-ms", self._pushback)))
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")
        yield


def pack(message: Anything) -> Any:
    packed = Any()
    packed.Pack(message)
    return packed


@contextmanager
def serving(servicer: Answers | grpc.GenericRpcHandler) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_send_message_length", -1)])
    if isinstance(servicer, grpc.GenericRpcHandler):
        server.add_generic_rpc_handlers([servicer])
    else:
        captioner_pb2_grpc.add_CaptionServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def ask(
    address: str, call: Callable[[AsyncCaptionClient], Awaitable[Anything]], **options: Anything
) -> Anything:
    """The result of a call, which is given up rather than waited for without end."""

    async def run() -> Anything:
        async with AsyncCaptionClient(address, ClientOptions(**options)) as client:
            return await asyncio.wait_for(call(client), PATIENCE_S)

    return asyncio.run(run())


def with_map(rows: int, columns: int, count: int, weight: float = 1.0) -> pb.Caption:
    attention = pb.AttentionMap(rows=rows, columns=columns, weights=[weight] * count)
    return pb.Caption(text="a", words=[pb.Word(text="a", attention=attention)])


async def stream(client: AsyncCaptionClient) -> list[Anything]:
    return [item async for item in client.stream(make_image(1))]


@pytest.mark.parametrize("pushback", ["-1", str(DAYS_S * 1000)])
def test_a_batch_waits_no_longer_than_its_time_whatever_the_server_asks(pushback: str) -> None:
    servicer = Busy(pushback)
    with serving(servicer) as address, pytest.raises(ServerError) as caught:
        ask(address, lambda client: client.caption([make_image(1)]), timeout_s=1, wait_s=0)
    if pushback == "-1":  # gRPC does not repeat the call itself
        assert isinstance(caught.value, ServerBusyError) and caught.value.retry_after_s == DAYS_S
        assert servicer.calls == 1


def test_a_busy_server_is_asked_again_after_slow_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time begins when an image is sent, not with the batch."""

    class OnceBusy(Answers):
        calls = 0

        def CaptionBatch(self, requests: Anything, context: Anything) -> Iterator[Anything]:
            self.calls += 1
            if self.calls > 1:
                yield from super().CaptionBatch(requests, context)
                return
            next(requests)
            context.set_trailing_metadata((("grpc-retry-pushback-ms", "-1"),))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")

    passed_s = 0.0

    def slowly() -> Iterator[bytes]:
        nonlocal passed_s
        passed_s += 1000
        yield make_image(1)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s)
    monkeypatch.setattr("captioner_client.waiting.time", clock)
    with serving(OnceBusy()) as address:
        [found] = ask(address, lambda client: client.caption(slowly()), timeout_s=PATIENCE_S)
    assert found.text == "hello"


def test_a_batch_is_tried_as_often_as_the_options_say() -> None:
    """By the client alone: what gRPC repeats of a call with several messages may end the process."""

    class Away(Answers):
        calls = 0

        def CaptionBatch(self, requests: Anything, context: Anything) -> Iterator[Anything]:
            self.calls += 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "away")
            yield

    servicer = Away()
    with serving(servicer) as address, pytest.raises(ServerUnavailableError):
        ask(address, lambda client: client.caption([make_image(1)]), max_attempts=3, wait_s=0)
    assert servicer.calls == 3


@pytest.mark.parametrize("ends", ["never", "with an error"])
def test_when_all_images_are_answered_the_end_of_the_call_is_of_no_interest(ends: str) -> None:
    left = threading.Event()

    class Answered(Answers):
        calls = 0

        def CaptionBatch(self, requests: Anything, context: Anything) -> Iterator[Anything]:
            self.calls += 1
            yield from super().CaptionBatch(requests, context)
            if ends == "never":
                left.wait(PATIENCE_S)
            context.abort(grpc.StatusCode.UNAVAILABLE, "away")

    servicer = Answered()
    with serving(servicer) as address:
        found = ask(address, lambda client: client.caption([make_image(1)] * 3), timeout_s=1, wait_s=0)
        left.set()
    assert [caption.text for caption in found] == ["hello"] * 3
    assert servicer.calls == 1


@pytest.mark.parametrize(
    ("rows", "columns", "count"),
    [
        (3, 7, 15),
        (3, -5, 15),
        (-3, -5, 15),
        (-1, 15, 15),
        (0, 0, 0),
        (0, 5, 0),
        (257, 1, 257),
        (2**31 - 1, 5, 1),
    ],
)
def test_maps_of_an_impossible_size_are_an_error_of_the_server(rows: int, columns: int, count: int) -> None:
    with serving(Answers(with_map(rows, columns, count))) as address:
        malformed = f"^{re.escape(address)}: the answer is malformed: a map of {rows} rows"
        for call in (
            lambda client: client.caption(make_image(1)),
            lambda client: client.caption([make_image(1)]),
            stream,
        ):
            with pytest.raises(ServerError, match=malformed):
                ask(address, call)
        one = ask(address, lambda client: client.caption(make_image(1), return_errors=True))
        assert type(one) is ServerError


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_maps_that_are_not_finite_are_an_error_of_the_server(weight: float) -> None:
    with (
        serving(Answers(with_map(2, 2, 4, weight))) as address,
        pytest.raises(ServerError, match="the answer is malformed: a map has weights that are not finite"),
    ):
        ask(address, lambda client: client.caption(make_image(1)))


@pytest.mark.parametrize(
    "caption",
    [
        pb.Caption(text="a", log_prob=math.nan),
        pb.Caption(text="a", confidence=math.inf),
        pb.Caption(text="a", words=[pb.Word(text="a", log_prob=-math.inf)]),
        pb.Caption(text="a", words=[pb.Word(text="a", sentinel=math.nan)]),
        pb.Caption(text="a", alternatives=[pb.Alternative(text="b", log_prob=math.nan)]),
    ],
    ids=["log_prob", "confidence", "word", "sentinel", "alternative"],
)
def test_probabilities_that_are_not_finite_are_an_error_of_the_server(caption: pb.Caption) -> None:
    """JSON cannot hold them."""
    with (
        serving(Answers(caption)) as address,
        pytest.raises(ServerError, match="a probability is not finite"),
    ):
        ask(address, lambda client: client.caption(make_image(1)))


class Raw(grpc.GenericRpcHandler):
    """Answers every request with the same bytes, those for its model with others."""

    def __init__(self, answer: bytes, model: bytes) -> None:
        self._answer, self._model = answer, model

    def service(self, details: Anything) -> grpc.RpcMethodHandler:
        match details.method.rpartition("/")[2]:
            case "GetModel":
                return grpc.unary_unary_rpc_method_handler(lambda *_: self._model)
            case "StreamCaption":
                return grpc.unary_stream_rpc_method_handler(lambda *_: iter([self._answer]))
            case "CaptionBatch":
                return grpc.stream_stream_rpc_method_handler(
                    lambda requests, _: (self._answer for _ in requests)
                )
        return grpc.unary_unary_rpc_method_handler(lambda *_: self._answer)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\xff" * 50, "it is no message of this service"),
        (b"\x0a\xff\xff\xff\xff\x0f", "it is no message of this service"),
        (b"", "it has no caption"),
        (b"\x18\x01", "it has no caption"),  # of another service
    ],
    ids=["garbage", "cut", "empty", "another"],
)
def test_answers_that_are_no_captions_are_an_error_of_the_server(
    answer: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    malformed = f"the answer is malformed: {reason}"
    with serving(Raw(answer, pb.GetModelResponse(name="x").SerializeToString())) as address:
        for call in (lambda client: client.caption(make_image(1)), stream):
            with pytest.raises(ServerError, match=malformed):
                ask(address, call)
        with pytest.raises(ServerError, match="the answer is malformed"):
            ask(address, lambda client: client.caption([make_image(1)]))
    assert not caplog.records  # gRPC would log a traceback


def test_what_is_no_description_of_a_model_is_an_error_of_the_server() -> None:
    with serving(Raw(b"", b"\xff")) as address, pytest.raises(ServerError, match="it is no message"):
        ask(address, lambda client: client.get_model())


def test_an_answer_of_a_batch_without_a_caption_is_an_error_of_the_server() -> None:
    class Empty(Answers):
        def CaptionBatch(self, requests: Anything, context: Anything) -> Iterator[pb.CaptionBatchResponse]:
            yield from (pb.CaptionBatchResponse(id=request.id) for request in requests)

    with serving(Empty()) as address:
        [found] = ask(address, lambda client: client.caption([make_image(1)], return_errors=True))
    assert isinstance(found, ServerError) and "it has no caption" in str(found)


def test_a_stream_ends_with_its_caption_whatever_the_server_does_then() -> None:
    left = threading.Event()

    class Endless(Answers):
        def StreamCaption(self, request: Anything, context: Anything) -> Iterator[pb.StreamCaptionResponse]:
            yield pb.StreamCaptionResponse(caption=pb.Caption(text="hello"))
            left.wait(PATIENCE_S)

    with serving(Endless()) as address:
        [found] = ask(address, stream, timeout_s=PATIENCE_S)
        left.set()
    assert found.text == "hello"


def test_a_stream_without_a_caption_is_an_error_of_the_server() -> None:
    with (
        serving(Answers(pb.Caption(words=[pb.Word(text="a")]))) as address,
        pytest.raises(ServerError, match="the server ended the stream without a caption"),
    ):
        ask(address, stream)


@pytest.mark.parametrize("limit", [0, -5])
def test_a_server_that_names_no_limit_for_images_has_that_of_the_client(limit: int) -> None:
    class Unlimited(Answers):
        def GetModel(self, request: Anything, context: Anything) -> pb.GetModelResponse:
            return pb.GetModelResponse(name="x", max_image_bytes=limit)

    with serving(Unlimited()) as address:
        [found] = ask(address, lambda client: client.caption([make_image(1)]))
    assert found.text == "hello"


def test_what_a_server_says_is_cut() -> None:
    class Verbose(Answers):
        def Caption(self, request: Anything, context: Anything) -> None:
            context.abort(grpc.StatusCode.INTERNAL, "x" * 5000)

        def CaptionBatch(self, requests: Anything, context: Anything) -> Iterator[pb.CaptionBatchResponse]:
            error = pb.Error(status=3, message="x" * 10**6, reason="INVALID_OPTIONS", field="x" * 10**6)
            yield from (pb.CaptionBatchResponse(id=request.id, error=error) for request in requests)

    with serving(Verbose()) as address:
        one = ask(address, lambda client: client.caption(make_image(1), return_errors=True), wait_s=0)
        [other] = ask(address, lambda client: client.caption([make_image(1)], return_errors=True))
    assert isinstance(one, ServerError) and len(str(one)) < 2500
    assert isinstance(other, OptionsError) and len(str(other)) < 2500 and len(other.field) < 300


def test_answers_to_images_that_were_not_sent_are_an_error_of_the_server() -> None:
    for id in ("7", "-1", "x", "", "9" * 5000):
        with serving(Answers(id=id)) as address, pytest.raises(ServerError, match="the answer is malformed"):
            ask(address, lambda client: client.caption([make_image(1)]))


def test_an_answer_that_never_comes_lets_later_ones_wait_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class AllButTheFirst(Answers):
        def CaptionBatch(self, requests: Anything, context: Anything) -> Iterator[pb.CaptionBatchResponse]:
            next(requests)
            yield from super().CaptionBatch(requests, context)

    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while taken < 1000:
            taken += 1
            yield make_image(1)

    async def in_order(client: AsyncCaptionClient) -> None:
        async for _ in client.caption_each(endless()):
            pass

    monkeypatch.setattr("captioner_client.batch._MOST_AHEAD", 5)
    with serving(AllButTheFirst()) as address, pytest.raises(DeadlineExceededError):
        ask(address, in_order, timeout_s=1)
    assert 5 <= taken <= 7


def test_the_largest_legal_answer_is_taken_and_larger_ones_are_not() -> None:
    weights = [0.5] * MAX_GRID_SIDE**2
    attention = pb.AttentionMap(rows=MAX_GRID_SIDE, columns=MAX_GRID_SIDE, weights=weights)
    word = pb.Word(text="x" * 100, attention=attention)
    for caption in (pb.Caption(text="a", words=[word] * MAX_WORDS), pb.Caption(text="x" * 2**26)):
        with serving(Answers(caption)) as address:
            for call in (
                lambda client: client.caption(make_image(1)),
                lambda client: client.caption([make_image(1)]),
            ):
                if caption.words:
                    found = ask(address, call)
                    [found] = [found] if isinstance(found, Caption) else found
                    assert len(found.words) == MAX_WORDS
                else:
                    with pytest.raises(ServerError, match="the answer is larger") as caught:
                        ask(address, call)
                    assert type(caught.value) is ServerError  # trying again would not help


def test_details_that_are_no_message_are_left_out() -> None:
    broken = Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=b"\xff\xff\xff")
    with serving(Busy("-1", broken)) as address, pytest.raises(ServerBusyError, match="busy"):
        ask(address, lambda client: client.caption([make_image(1)]), timeout_s=1, wait_s=0)


def test_what_a_server_sends_cannot_command_the_terminal(tmp_path, capsys) -> None:
    (tmp_path / "a.png").write_bytes(make_image(1))
    text = "\x1b]0;pwned\x07a\x9bdog\nb.png\ta cat"
    caption = pb.Caption(text=text, alternatives=[pb.Alternative(text=text)])
    with serving(Answers(caption)) as address:
        assert main(["caption", "--server", address, "--alternatives", "1", str(tmp_path / "a.png")]) == 0
    shown = r"\x1b]0;pwned\x07a\x9bdog\nb.png\ta cat"
    assert capsys.readouterr().out == f"{tmp_path / 'a.png'}\t{shown}\n\t{shown}\n"
