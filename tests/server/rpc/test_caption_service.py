"""captioner.v1.CaptionService over the wire, with plain stubs."""

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2, status_pb2
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.serving import RunningServer, make_image, serve

from captioner.options import CaptionOptions
from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub


@pytest.fixture
def stub(channel: grpc.Channel) -> CaptionServiceStub:
    return CaptionServiceStub(channel)


def details(error: grpc.RpcError) -> dict[str, object]:
    """The details of a status by the name of their type."""
    trailers = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert status.code == error.code().value[0]
    found = {}
    for detail in status.details:
        message = getattr(error_details_pb2, detail.TypeName().rpartition(".")[2])()
        assert detail.Unpack(message)
        found[detail.TypeName().rpartition(".")[2]] = message
    return found


def test_a_caption_is_what_the_engine_says(server: RunningServer, stub: CaptionServiceStub) -> None:
    image = make_image(1)
    options = pb.CaptionOptions(alternatives=2, attention_size=pb.GridSize(rows=3, columns=5))
    caption = stub.Caption(pb.CaptionRequest(image=image, options=options), timeout=PATIENCE_S).caption
    model = server.model
    local = model.describe(model.preprocess(image), CaptionOptions(alternatives=2, attention_size=(3, 5)))
    assert caption.text == local.text
    assert caption.log_prob == local.log_prob
    assert caption.model == model.model
    assert [other.text for other in caption.alternatives] == [other.text for other in local.alternatives]
    for word, same in zip(caption.words, local.words, strict=True):
        assert (word.text, word.log_prob) == (same.text, same.log_prob)
        assert not word.HasField("sentinel")
        weights = np.array(word.attention.weights, np.float32).reshape(
            word.attention.rows, word.attention.columns
        )
        np.testing.assert_array_equal(weights, same.attention)


def test_trailing_metadata_say_what_took_how_long(stub: CaptionServiceStub) -> None:
    _, call = stub.Caption.with_call(
        pb.CaptionRequest(image=make_image(1)), metadata=[("x-request-id", "abc-123")], timeout=PATIENCE_S
    )
    trailers = dict(call.trailing_metadata())
    assert trailers["x-request-id"] == "abc-123"
    timing = dict(part.split(";dur=") for part in trailers["server-timing"].split(", "))
    assert set(timing) == {"decode", "queue", "compute"}
    assert all(float(milliseconds) >= 0 for milliseconds in timing.values())


def test_words_are_streamed_as_they_come_and_the_caption_is_last() -> None:
    model = FakeModel()
    with serve(model) as server, grpc.insecure_channel(server.address) as channel:
        model.first_word_read.clear()
        events = CaptionServiceStub(channel).StreamCaption(
            pb.StreamCaptionRequest(image=make_image(2)), timeout=PATIENCE_S
        )
        first = next(events)
        assert first.HasField("word")
        assert len(first.word.attention.weights) == 6
        assert not server.metric("images_total", outcome="ok")  # the last word is still to be thought of
        model.first_word_read.set()
        rest = list(events)
    assert [event.WhichOneof("event") for event in rest] == ["word"] * 4 + ["caption"]
    words = [first.word, *(event.word for event in rest[:-1])]
    assert list(rest[-1].caption.words) == words


def test_a_batch_answers_each_image_on_its_own(server: RunningServer, stub: CaptionServiceStub) -> None:
    images = {str(number): make_image(number) for number in range(30)} | {
        "bad": b"no image",
        "": make_image(99),
    }
    requests = [pb.CaptionBatchRequest(id=name, image=image) for name, image in images.items()]
    wrong = pb.CaptionOptions(beam_size=99)
    requests.append(pb.CaptionBatchRequest(id="options", image=make_image(1), options=wrong))
    requests.append(pb.CaptionBatchRequest(id="x" * 2000, image=make_image(1)))
    answers = {answer.id: answer for answer in stub.CaptionBatch(iter(requests), timeout=PATIENCE_S)}
    assert set(answers) == {request.id for request in requests}
    bad = answers.pop("bad").error
    assert (bad.status, bad.reason, bad.field) == (3, "not_an_image", "image")
    assert answers.pop("options").error.field == "options.beam_size"
    assert answers.pop("x" * 2000).error.field == "id"
    for name, answer in answers.items():
        assert answer.caption.text == server.model.describe(server.model.preprocess(images[name])).text


def test_a_batch_without_images_is_answered_with_nothing(stub: CaptionServiceStub) -> None:
    assert list(stub.CaptionBatch(iter(()), timeout=PATIENCE_S)) == []


def test_the_model_says_what_it_is(server: RunningServer, stub: CaptionServiceStub) -> None:
    model = stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_S)
    assert f"{model.name}@{model.digest}" == server.model.model
    assert (model.grid.rows, model.grid.columns) == server.model.grid
    assert (model.device, model.provider, model.precision) == ("cpu", "FakeProvider", "float32")
    assert model.defaults.beam_size == 3
    assert (model.max_image_bytes, model.max_beam_size, model.max_words) == (200_000, 8, 30)
    labels = {"name": "default", "device": "cpu", "provider": "FakeProvider", "precision": "float32"}
    assert server.metric("model_info", model=server.model.model, **labels) == 1


@pytest.mark.parametrize(
    ("request_", "field", "reason"),
    [
        (pb.CaptionRequest(image=b"GIF89a but not really"), "image", "NOT_AN_IMAGE"),
        (pb.CaptionRequest(image=make_image(1)[:1000]), "image", "NOT_AN_IMAGE"),
        (pb.CaptionRequest(), "image", "NOT_AN_IMAGE"),
        (pb.CaptionRequest(image=b"x" * 250_000), "image", "TOO_LARGE"),
        (
            pb.CaptionRequest(image=make_image(1), options=pb.CaptionOptions(beam_size=0)),
            "options.beam_size",
            "INVALID_OPTIONS",
        ),
        (
            pb.CaptionRequest(image=make_image(1), options=pb.CaptionOptions(beam_size=9)),
            "options.beam_size",
            "INVALID_OPTIONS",
        ),
        (
            pb.CaptionRequest(image=make_image(1), options=pb.CaptionOptions(max_words=31)),
            "options.max_words",
            "INVALID_OPTIONS",
        ),
        (
            pb.CaptionRequest(
                image=make_image(1), options=pb.CaptionOptions(length_normalization=float("nan"))
            ),
            "options.length_normalization",
            "INVALID_OPTIONS",
        ),
        (
            pb.CaptionRequest(
                image=make_image(1), options=pb.CaptionOptions(attention_size=pb.GridSize(rows=99, columns=1))
            ),
            "options.attention_size",
            "INVALID_OPTIONS",
        ),
        (
            pb.CaptionRequest(image=make_image(1), options=pb.CaptionOptions(attention_head=2)),
            "options.attention_head",
            "INVALID_OPTIONS",
        ),
    ],
)
def test_what_is_asked_wrongly_is_an_invalid_argument_that_names_the_field(
    stub: CaptionServiceStub, request_: pb.CaptionRequest, field: str, reason: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Caption(request_, timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    found = details(caught.value)
    assert found["BadRequest"].field_violations[0].field == field
    assert (found["ErrorInfo"].reason, found["ErrorInfo"].domain) == (reason, "captioner")
    assert "\n" not in caught.value.details()


def test_streaming_is_greedy(stub: CaptionServiceStub) -> None:
    for options in (
        pb.CaptionOptions(beam_size=3),
        pb.CaptionOptions(alternatives=1),
        pb.CaptionOptions(include=["red"]),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.StreamCaption(pb.StreamCaptionRequest(image=make_image(1), options=options)))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_full_queue_is_told_at_once_with_the_time_to_come_again() -> None:
    model = FakeModel()
    with serve(model, queue_size=2) as server, grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        model.hold.clear()
        held = [
            stub.Caption.future(pb.CaptionRequest(image=make_image(n)), timeout=PATIENCE_S) for n in (1, 2)
        ]
        while server.metric("admitted_images") < 2:
            pass
        with pytest.raises(grpc.RpcError) as caught:
            stub.Caption(pb.CaptionRequest(image=make_image(3)), timeout=PATIENCE_S)
        model.hold.set()
        assert all(future.result().caption.text for future in held)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details(caught.value)["RetryInfo"].retry_delay.ToMilliseconds() >= 0
    assert int(dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"]) >= 0


def test_streams_wait_where_single_calls_are_refused() -> None:
    model = FakeModel(image_s=0.005)
    with serve(model, queue_size=2) as server, grpc.insecure_channel(server.address) as channel:
        requests = (pb.CaptionBatchRequest(id=str(n), image=make_image(n)) for n in range(40))
        answers = list(CaptionServiceStub(channel).CaptionBatch(requests, timeout=PATIENCE_S))
    assert {answer.WhichOneof("outcome") for answer in answers} == {"caption"}
    assert len(answers) == 40


def test_the_number_of_streams_is_bounded() -> None:
    model = FakeModel()
    with serve(model, max_streams=1) as server, grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        model.hold.clear()
        first = stub.StreamCaption(pb.StreamCaptionRequest(image=make_image(1)), timeout=PATIENCE_S)
        wait_until(lambda: model.streams == 2)  # one stream was the warm-up's
        with pytest.raises(grpc.RpcError) as caught:
            next(stub.StreamCaption(pb.StreamCaptionRequest(image=make_image(1)), timeout=PATIENCE_S))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        model.hold.set()
        assert len(list(first)) == 6
        assert (
            len(list(stub.StreamCaption(pb.StreamCaptionRequest(image=make_image(1)), timeout=PATIENCE_S)))
            == 6
        )


def test_a_passed_deadline_stops_work_that_has_not_started() -> None:
    model = FakeModel()
    with serve(model) as server, grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        warmed = len(model.batches)
        model.hold.clear()
        held = stub.Caption.future(pb.CaptionRequest(image=make_image(1)), timeout=PATIENCE_S)
        wait_until(lambda: len(model.batches) > warmed)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Caption(pb.CaptionRequest(image=make_image(2)), timeout=0.1)
        model.hold.set()
        held.result()
        stub.Caption(pb.CaptionRequest(image=make_image(3)), timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert len(model.batches) == warmed + 2


def test_who_would_wait_past_the_deadline_is_refused_before_the_image_is_decoded() -> None:
    model = FakeModel(image_s=0.1)
    with (
        serve(model, max_batch_size=1) as server,
        grpc.insecure_channel(server.address, [("grpc.enable_retries", 0)]) as channel,
    ):
        call = CaptionServiceStub(channel).Caption
        request = pb.CaptionRequest(image=make_image(1))
        call(request, timeout=PATIENCE_S)  # now it is known how long one takes
        model.hold.clear()
        waiting = [call.future(request, timeout=PATIENCE_S) for _ in range(20)]
        wait_until(lambda: server.metric("decode_seconds_count") == 21)
        with pytest.raises(grpc.RpcError) as caught:
            call(request, timeout=2.5)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "too close" in caught.value.details()
        assert details(caught.value)["RetryInfo"].retry_delay.ToTimedelta().total_seconds() > 0.5
        assert server.metric("decode_seconds_count") == 21
        model.hold.set()
        assert all(future.result(PATIENCE_S).caption.text for future in waiting)

        def answered() -> bool:
            try:
                return bool(call(request, timeout=2.5).caption.text)
            except grpc.RpcError as error:  # a busy machine may take longer
                assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                return False

        wait_until(answered)


def test_only_callers_with_the_token_come_in(tmp_path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with (
        serve(FakeModel(), token_file=tmp_path / "token") as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = CaptionServiceStub(channel)
        right, wrong = ("authorization", "Bearer secret"), ("authorization", "Bearer wrong")
        for metadata in ([], [wrong], [right, wrong], [wrong, right], [right, right]):
            with pytest.raises(grpc.RpcError) as caught:
                stub.GetModel(pb.GetModelRequest(), metadata=metadata, timeout=PATIENCE_S)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert stub.GetModel(pb.GetModelRequest(), metadata=[right], timeout=PATIENCE_S).name


def test_a_defect_is_an_internal_error_without_details_of_ours(
    server: RunningServer, stub: CaptionServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.model, "describe", lambda *_: 1 / 0)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Caption(pb.CaptionRequest(image=make_image(1)), timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "Zero" not in caught.value.details()
    requests = [pb.CaptionBatchRequest(id="1", image=make_image(1)), pb.CaptionBatchRequest(id="2")]
    answers = {answer.id: answer.error for answer in stub.CaptionBatch(iter(requests), timeout=PATIENCE_S)}
    assert (answers["1"].status, answers["2"].status) == (13, 3)


def test_a_limit_below_the_model_s_default_becomes_the_default() -> None:
    with serve(FakeModel(), max_words=2) as server, grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        assert stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_S).defaults.max_words == 2
        caption = stub.Caption(pb.CaptionRequest(image=make_image(1)), timeout=PATIENCE_S).caption
    assert len(caption.words) == 2


@pytest.mark.parametrize(
    ("include", "max_beam_size"),
    [
        (["zebra"], 16),
        (["two words"], 16),
        (["red", "green", "blue", "grey", "tall"], 16),
        (["red", "blue", "green"], 2),
    ],
)
def test_words_that_cannot_be_included_name_the_field(include: list[str], max_beam_size: int) -> None:
    with (
        serve(FakeModel(), max_beam_size=max_beam_size) as server,
        grpc.insecure_channel(server.address) as channel,
        pytest.raises(grpc.RpcError) as caught,
    ):
        options = pb.CaptionOptions(beam_size=2, include=include)
        request = pb.CaptionRequest(image=make_image(1), options=options)
        CaptionServiceStub(channel).Caption(request, timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details(caught.value)["BadRequest"].field_violations[0].field == "options.include"
