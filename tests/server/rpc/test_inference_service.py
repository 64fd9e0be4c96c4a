"""The Open Inference Protocol: with its own stubs here, and with tritonclient as it comes from PyPI."""

import struct

import grpc
import numpy as np
import pytest
from support.patience import PATIENCE_S
from support.serving import RunningServer, make_image

from captioner.options import CaptionOptions
from captioner_server.inference import grpc_predict_v2_pb2 as pb
from captioner_server.inference.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub


@pytest.fixture
def stub(channel: grpc.Channel) -> GRPCInferenceServiceStub:
    return GRPCInferenceServiceStub(channel)


def expected(server: RunningServer, images: list[bytes], options: CaptionOptions | None = None) -> list[str]:
    return [server.model.describe(server.model.preprocess(image), options).text for image in images]


def infer(images: list[bytes], shape: list[int], *, raw: bool, **fields: object) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="captioner", id="7", **fields)
    tensor = request.inputs.add(name="IMAGE", datatype="BYTES", shape=shape)
    if raw:
        packed = b"".join(struct.pack("<I", len(image)) + image for image in images)
        request.raw_input_contents.append(packed)
    else:
        tensor.contents.bytes_contents.extend(images)
    return request


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("shape", [[3], [3, 1]])
def test_a_batch_comes_back_in_the_form_it_was_sent_in(
    server: RunningServer, stub: GRPCInferenceServiceStub, raw: bool, shape: list[int]
) -> None:
    images = [make_image(n) for n in range(3)]
    parameters = {
        "max_words": pb.InferParameter(int64_param=2),
        "anything else": pb.InferParameter(bool_param=True),
    }
    response = stub.ModelInfer(infer(images, shape, raw=raw, parameters=parameters), timeout=PATIENCE_S)
    assert (response.id, response.model_name) == ("7", "captioner")
    assert [(o.name, o.datatype, list(o.shape)) for o in response.outputs] == [
        ("CAPTION", "BYTES", shape),
        ("LOG_PROB", "FP32", shape),
    ]
    texts = expected(server, images, CaptionOptions(max_words=2))
    if raw:
        captions, log_probs = response.raw_output_contents
        assert captions == b"".join(struct.pack("<I", len(text)) + text.encode() for text in texts)
        assert len(struct.unpack("<3f", log_probs)) == 3
    else:
        captions, log_probs = response.outputs
        assert [text.decode() for text in captions.contents.bytes_contents] == texts
        assert all(value < 0 for value in log_probs.contents.fp32_contents)


def test_outputs_can_be_chosen(stub: GRPCInferenceServiceStub) -> None:
    outputs = [pb.ModelInferRequest.InferRequestedOutputTensor(name="LOG_PROB")]
    response = stub.ModelInfer(infer([make_image(1)], [1], raw=True, outputs=outputs), timeout=PATIENCE_S)
    assert [output.name for output in response.outputs] == ["LOG_PROB"]
    assert len(response.raw_output_contents) == 1


@pytest.mark.parametrize(
    "request_",
    [
        infer([make_image(1), b"no image"], [2], raw=True),
        infer([make_image(1)], [2], raw=True),
        infer([make_image(1)], [-1], raw=False),
        infer([], [0], raw=False),
        infer([make_image(1)], [1], raw=True, parameters={"beam_size": pb.InferParameter(int64_param=99)}),
        infer([make_image(1)], [1], raw=True, parameters={"beam_size": pb.InferParameter(string_param="a")}),
        infer([make_image(1)], [1], raw=True, parameters={"beam_size": pb.InferParameter()}),
        infer(
            [make_image(1)],
            [1],
            raw=True,
            outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="NONE")],
        ),
        pb.ModelInferRequest(model_name="captioner"),
        pb.ModelInferRequest(
            model_name="captioner",
            inputs=[pb.ModelInferRequest.InferInputTensor(name="IMAGE", datatype="FP32", shape=[1])],
        ),
        pb.ModelInferRequest(
            model_name="captioner",
            inputs=[pb.ModelInferRequest.InferInputTensor(name="IMAGE", datatype="BYTES", shape=[1])],
            raw_input_contents=[b"\xff\xff\xff\xff123"],
        ),
        pb.ModelInferRequest(
            model_name="captioner",
            inputs=[pb.ModelInferRequest.InferInputTensor(name="IMAGE", datatype="BYTES", shape=[1])],
            raw_input_contents=[b"\xff"],
        ),
        infer([make_image(1, (4, 4))] * 300, [300], raw=True),  # more than the queue will ever hold
    ],
)
def test_what_is_asked_wrongly_is_an_invalid_argument(
    stub: GRPCInferenceServiceStub, request_: pb.ModelInferRequest
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request_, timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, caught.value.details()


@pytest.mark.parametrize("shape", [[0], [1]])  # [1] as of a tensor in shared memory
def test_a_request_without_images_is_told_so(stub: GRPCInferenceServiceStub, shape: list[int]) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(infer([], shape, raw=False), timeout=PATIENCE_S)
    assert "IMAGE has no images; those in shared memory are not read" in (caught.value.details() or "")


def test_there_is_one_model_in_one_version(server: RunningServer, stub: GRPCInferenceServiceStub) -> None:
    version = server.model.digest[:12]
    assert stub.ModelReady(pb.ModelReadyRequest(name="captioner", version=version), timeout=PATIENCE_S).ready
    for name, version in (("other", ""), ("captioner", "2")):
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelReady(pb.ModelReadyRequest(name=name, version=version), timeout=PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_tritonclient_works_unchanged_and_beside_the_server(server: RunningServer) -> None:
    triton = pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed")
    files = [make_image(n) for n in range(4)]
    images = np.array(files, dtype=np.object_)
    tensor = triton.InferInput("IMAGE", list(images.shape), "BYTES")
    tensor.set_data_from_numpy(images)
    outputs = [triton.InferRequestedOutput(name) for name in ("CAPTION", "LOG_PROB")]
    with triton.InferenceServerClient(server.address) as client:
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("captioner")
        assert client.get_server_metadata().name == "captioner"
        metadata = client.get_model_metadata("captioner")
        assert (metadata.name, list(metadata.versions)) == ("captioner", [server.model.digest[:12]])
        assert [tensor.name for tensor in metadata.inputs] == ["IMAGE"]
        assert [tensor.name for tensor in metadata.outputs] == ["CAPTION", "LOG_PROB"]
        result = client.infer(
            "captioner",
            [tensor],
            outputs=outputs,
            request_id="7",
            parameters={"max_words": 2, "beam_size": 1},
        )
    captions = [text.decode() for text in result.as_numpy("CAPTION").tolist()]
    assert captions == expected(server, files, CaptionOptions(max_words=2))
    log_probs = result.as_numpy("LOG_PROB")
    assert np.isfinite(log_probs).all() and (log_probs < 0).all()
