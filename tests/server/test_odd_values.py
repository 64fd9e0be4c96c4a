"""Odd values of every option, over every protocol: the caller's mistake or a caption, never a defect."""

import base64
import math

import grpc
import httpx
import pytest
from support.models import FakeModel
from support.patience import PATIENCE_S
from support.serving import RunningServer, make_image, serve

from captioner.options import OPTION_SPECS
from captioner_server.inference import grpc_predict_v2_pb2 as oip
from captioner_server.inference.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub

IMAGE = make_image(1, (8, 8))
PARAMETERS = {
    "bool_param": [True, False],
    "int64_param": [0, 3, -1, 2**63 - 1, -(2**63)],
    "uint64_param": [0, 2**64 - 1],
    "double_param": [0.0, 1.5, 3.0, math.nan, math.inf, -math.inf, 1e308, 5e-324],
    "string_param": ["", " ", ",", "\0", "\u0130", "red", "red blue", "a b c d e", "x" * 4000, "1", "7x7"],
}
HUGE = "1" + 400 * "0"
JSON = [
    *(
        "0",
        "-1",
        "1.5",
        "1e400",
        HUGE,
        f"-{HUGE}",
        5000 * "9",
        "NaN",
        "-Infinity",
        "null",
        "true",
        '""',
        '"1"',
    ),
    *("[]", "[[]]", "{}", "[null]", f"[{HUGE}, 1]", "[1e400, 1]", "[true, true]", '[""]'),
    *(r'["\ud800"]', r'"\u0000"'),
]


@pytest.fixture(scope="module")
def server():
    with serve(FakeModel(), http_port=0) as running:
        yield running


@pytest.mark.parametrize("name", [*OPTION_SPECS, "", "other"])
def test_parameters_of_the_open_inference_protocol(server: RunningServer, name: str) -> None:
    with grpc.insecure_channel(server.address) as channel:
        stub = GRPCInferenceServiceStub(channel)
        for kind, value in [(kind, value) for kind, values in PARAMETERS.items() for value in values]:
            request = oip.ModelInferRequest(model_name="captioner")
            request.inputs.add(name="IMAGE", datatype="BYTES", shape=[1]).contents.bytes_contents.append(
                IMAGE
            )
            setattr(request.parameters[name], kind, value)
            try:
                stub.ModelInfer(request, timeout=PATIENCE_S)
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, (kind, value)


@pytest.mark.parametrize("name", [*OPTION_SPECS, "other"])
def test_options_in_json(server: RunningServer, name: str) -> None:
    image = base64.b64encode(IMAGE).decode()
    with httpx.Client(base_url=server.server.http_url, timeout=PATIENCE_S) as client:
        for value in JSON:
            body = f'{{"image": "{image}", "options": {{"{name}": {value}}}}}'
            answer = client.post("/v1/caption", content=body, headers={"content-type": "application/json"})
            assert answer.status_code in (200, 400), value
