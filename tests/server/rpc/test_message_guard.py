"""Messages that are small on the wire and large in memory: refused before they are parsed, at once."""

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.serving import RunningServer, make_image, serve

from captioner.v1 import captioner_pb2
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.errors import RequestError
from captioner_server.inference import grpc_predict_v2_pb2 as pb
from captioner_server.inference.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub
from captioner_server.rpc.message_guard import MAX_FIELDS, check_message
from captioner_server.rpc.wire import lenient

INFER = pb.ModelInferRequest.DESCRIPTOR


def infer(**fields: object) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="captioner", **fields)
    request.inputs.add(name="IMAGE", datatype="BYTES", shape=[1])
    request.inputs[0].contents.bytes_contents.append(make_image(1))
    return request


def with_shape(shape: list[int]) -> pb.ModelInferRequest:
    request = infer()
    request.inputs[0].shape[:] = shape
    return request


def with_empty_elements(count: int) -> pb.ModelInferRequest:
    request = infer()
    request.inputs[0].contents.bytes_contents.extend([b""] * count)
    request.inputs[0].shape[:] = [count + 1]
    return request


def with_string(name: str, length: int) -> pb.ModelInferRequest:
    return infer(parameters={name: pb.InferParameter(string_param="x" * length)})


OUTPUT = pb.ModelInferRequest.InferRequestedOutputTensor
ATTACKS = {
    "an unbounded shape": lambda: with_shape([2**62] * 60_000),
    "dimensions within the text limit": lambda: with_shape([2**62] * 300),
    "ones": lambda: with_shape([1] * 4000),
    "empty elements": lambda: with_empty_elements(8_000_000),
    "too many images": lambda: with_empty_elements(3000),
    "repeated outputs": lambda: infer(outputs=[OUTPUT(name="CAPTION")] * 300_000),
    "an output twice": lambda: infer(outputs=[OUTPUT(name="CAPTION")] * 2),
    "a long parameter": lambda: with_string("beam_size", 30_000_000),
    "a long unknown parameter": lambda: with_string("other", 30_000_000),
    "a text for a number": lambda: with_string("beam_size", 4000),
    "a long datatype": lambda: pb.ModelInferRequest(
        model_name="captioner",
        inputs=[pb.ModelInferRequest.InferInputTensor(name="IMAGE", datatype="x" * 4000)],
    ),
    "a long output": lambda: infer(outputs=[OUTPUT(name="x" * 4000)]),
    "a long id": lambda: infer(id="x" * 4000),
    "raw and other contents": lambda: infer(raw_input_contents=[b"\x01\0\0\0x"]),
    "two raw contents": lambda: infer(raw_input_contents=[b"", b""]),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_in_a_short_message_and_a_short_log_line(
    server: RunningServer, channel: grpc.Channel, attack: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "captioner_server")
    request = ATTACKS[attack]()
    with pytest.raises(grpc.RpcError) as caught:
        GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, caught.value.details()
    assert len(caught.value.details()) < 600
    wait_until(lambda: "call" in caplog.messages)  # after its answer has been sent
    assert all(len(str(record.__dict__.get("fields"))) < 1500 for record in caplog.records)


def test_a_long_version_is_still_a_model_that_is_not_found(channel: grpc.Channel) -> None:
    for length in (4000, 10_000):
        with pytest.raises(grpc.RpcError) as caught:
            GRPCInferenceServiceStub(channel).ModelReady(
                pb.ModelReadyRequest(name="captioner", version="x" * length), timeout=PATIENCE_S
            )
        expected = grpc.StatusCode.NOT_FOUND if length == 4000 else grpc.StatusCode.INVALID_ARGUMENT
        assert caught.value.code() is expected
        assert len(caught.value.details()) < 600


def test_the_walk_ends_at_the_limit_however_long_the_message() -> None:
    raw = with_empty_elements(8_000_000).SerializeToString()
    with pytest.raises(RequestError, match=f"more than {MAX_FIELDS} fields"):
        check_message(raw, INFER)


@given(st.binary(max_size=300))
def test_whatever_the_bytes_the_guard_passes_them_or_refuses_them(raw: bytes) -> None:
    for kind in (INFER, captioner_pb2.CaptionBatchRequest.DESCRIPTOR, None):
        try:
            check_message(raw, kind)
        except RequestError as error:
            assert len(str(error)) < 300


@given(
    st.binary(max_size=10_000),
    st.integers(1, 16),
    st.text(max_size=100),
    st.lists(st.integers(1, 2**40), max_size=5),
)
def test_what_a_client_sends_passes(image: bytes, beam: int, name: str, shape: list[int]) -> None:
    options = captioner_pb2.CaptionOptions(beam_size=beam, length_normalization=0.5)
    request = captioner_pb2.CaptionBatchRequest(id=name, image=image, options=options)
    check_message(request.SerializeToString(), request.DESCRIPTOR)
    infer_request = with_shape(shape)
    check_message(infer_request.SerializeToString(), INFER)


@pytest.mark.parametrize("before", [b"", b"\x1a\x01m"])  # field 3, the model
@pytest.mark.parametrize("after", [b"", b"\x12\x02\x08\x05"])  # field 2, a beam size of 5
def test_a_large_image_stays_where_it_was_received(before: bytes, after: bytes) -> None:
    image = b"x" * 2**20
    raw = before + captioner_pb2.CaptionRequest(image=image).SerializeToString() + after
    parsed = captioner_pb2.CaptionRequest.FromString(raw)
    received = lenient(captioner_pb2.CaptionRequest.FromString)(raw).checked()
    assert isinstance(received.image, memoryview) and received.image.obj is raw
    assert bytes(received.image) == image
    assert (received.model, received.options) == (parsed.model, parsed.options)
    twice = lenient(captioner_pb2.CaptionRequest.FromString)(raw + b"\x0a\x01y").checked()
    assert twice.image == b"y"  # the last one counts


def test_a_large_tensor_stays_where_it_was_received(channel: grpc.Channel) -> None:
    image = make_image(1) + bytes(100_000)
    request = pb.ModelInferRequest(model_name="captioner")
    request.inputs.add(name="IMAGE", datatype="BYTES", shape=[3])
    request.raw_input_contents.append((len(image).to_bytes(4, "little") + image) * 3)
    received = lenient(pb.ModelInferRequest.FromString)(request.SerializeToString()).checked()
    assert [len(raw) for raw in received.raw_input_contents] == [3 * (4 + len(image))]
    assert isinstance(received.raw_input_contents[0], memoryview)
    answer = GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=PATIENCE_S)
    assert answer.outputs[0].shape == [3]


def test_the_copies_of_nested_contents_count() -> None:
    request = pb.ModelInferRequest(model_name="captioner")
    request.inputs.add(name="IMAGE", datatype="BYTES", shape=[2]).contents.bytes_contents.extend(
        [bytes(10_000)] * 2
    )
    raw = request.SerializeToString()
    assert lenient(pb.ModelInferRequest.FromString)(raw).size == len(raw) + 20_000
    image = captioner_pb2.CaptionRequest(image=bytes(300_000)).SerializeToString()
    assert lenient(captioner_pb2.CaptionRequest.FromString)(image).size == len(image)


def test_large_images_are_captioned_in_every_kind_of_call() -> None:
    image = make_image(1) + bytes(2**20)
    with serve(FakeModel()) as running, grpc.insecure_channel(running.address) as channel:
        stub = CaptionServiceStub(channel)
        text = stub.Caption(captioner_pb2.CaptionRequest(image=image), timeout=PATIENCE_S).caption.text
        words = stub.StreamCaption(captioner_pb2.StreamCaptionRequest(image=image), timeout=PATIENCE_S)
        assert list(words)[-1].caption.text == text
        requests = iter([captioner_pb2.CaptionBatchRequest(id="1", image=image)])
        [answer] = stub.CaptionBatch(requests, timeout=PATIENCE_S)
        assert answer.caption.text == text
