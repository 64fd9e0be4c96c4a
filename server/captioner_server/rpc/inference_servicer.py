"""inference.GRPCInferenceService: the Open Inference Protocol, for tritonclient, KServe and similar tools.

Each model has the name that it is served under; the default is also called `captioner`. Input IMAGE (BYTES,
[images]), outputs CAPTION (BYTES, [images]) and LOG_PROB (FP32, [images]). Request parameters named like the
fields of `CaptionOptions` set them.
"""

from __future__ import annotations

import asyncio
import math
import struct
from typing import Any

import grpc
import numpy as np

from captioner import __version__
from captioner.errors import ImageError, clip
from captioner.options import OPTION_SPECS, CaptionOptions
from captioner.results import Caption
from captioner_server.captioning.hosted_model import HostedModel
from captioner_server.captioning.models import Models
from captioner_server.errors import ModelNotFoundError, RequestError
from captioner_server.inference import grpc_predict_v2_pb2 as pb
from captioner_server.inference import grpc_predict_v2_pb2_grpc
from captioner_server.intake.state import ServerState
from captioner_server.intake.ticket import Ticket, current_ticket

MODEL = "captioner"
INPUT, OUTPUTS = "IMAGE", {"CAPTION": "BYTES", "LOG_PROB": "FP32"}
_MAX_DIMENSIONS = 8
_MAX_ID = 1024
_PARAMETERS = [name for name, spec in OPTION_SPECS.items() if spec.changes_text]


class InferenceServicer(grpc_predict_v2_pb2_grpc.GRPCInferenceServiceServicer):
    """Captions as tensors. Errors are raised; the interceptor turns them into statuses."""

    def __init__(self, models: Models, state: ServerState) -> None:
        self._models = models
        self._state = state

    async def ServerLive(
        self, request: pb.ServerLiveRequest, context: grpc.aio.ServicerContext
    ) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(
        self, request: pb.ServerReadyRequest, context: grpc.aio.ServicerContext
    ) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._state.serving)

    async def ModelReady(
        self, request: pb.ModelReadyRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelReadyResponse:
        if self._state.serving:
            self._find(request.name, request.version)
        return pb.ModelReadyResponse(ready=self._state.serving)

    async def ServerMetadata(
        self, request: pb.ServerMetadataRequest, context: grpc.aio.ServicerContext
    ) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name="captioner", version=__version__)

    async def ModelMetadata(
        self, request: pb.ModelMetadataRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelMetadataResponse:
        _, version = self._find(request.name, request.version)
        tensor = pb.ModelMetadataResponse.TensorMetadata
        return pb.ModelMetadataResponse(
            name=request.name,
            versions=[version],
            platform="onnxruntime_onnx",
            inputs=[tensor(name=INPUT, datatype="BYTES", shape=[-1])],
            outputs=[tensor(name=name, datatype=kind, shape=[-1]) for name, kind in OUTPUTS.items()],
        )

    async def ModelInfer(
        self, request: pb.ModelInferRequest, context: grpc.aio.ServicerContext
    ) -> pb.ModelInferResponse:
        hosted, version = self._find(request.model_name, request.model_version)
        options = hosted.search.resolve(_options(request))
        wanted = _outputs(request)
        if len(request.id) > _MAX_ID:
            raise RequestError(f"an id has at most {_MAX_ID} characters", "id")
        images, shape = _images(request, hosted.most_images)
        ticket = current_ticket.get()
        with hosted.enter(ticket, options, len(images)):
            captions = await self._caption_all(hosted, ticket, images, options)
        response = pb.ModelInferResponse(model_name=request.model_name, model_version=version, id=request.id)
        for name in wanted:
            response.outputs.add(name=name, datatype=OUTPUTS[name], shape=shape)
            _fill(response, name, captions, raw=bool(request.raw_input_contents))
        return response

    def _find(self, name: str, version: str) -> tuple[HostedModel, str]:
        """The model and its version; raises `ModelNotFoundError` for another name or version."""
        hosted = self._models.get("" if name == MODEL and name not in self._models.names else name)
        served = hosted.model.digest[:12]
        if not name or version not in ("", served):
            requested = f"{clip(repr(name))} {clip(version)}"
            raise ModelNotFoundError(f"there is no model {requested}, only {name or MODEL!r} {served}")
        return hosted, served

    @staticmethod
    async def _caption_all(
        hosted: HostedModel, ticket: Ticket, images: list[bytes], options: CaptionOptions
    ) -> list[Caption]:
        tasks = [asyncio.create_task(hosted.caption(ticket, image, options)) for image in images]
        try:
            await asyncio.gather(*tasks)
        except ImageError as error:
            number = next(n for n, task in enumerate(tasks) if task.done() and task.exception() is error)
            raise RequestError(f"image {number}: {error}", f"inputs.{INPUT}[{number}]") from error
        finally:
            for task in tasks:
                task.cancel()
        return [task.result() for task in tasks]


def _options(request: pb.ModelInferRequest) -> CaptionOptions:
    values: dict[str, Any] = {}
    for name in _PARAMETERS:
        if name in request.parameters:
            parameter = request.parameters[name]
            if not (choice := parameter.WhichOneof("parameter_choice")):
                raise RequestError(f"the parameter {name} has no value", f"parameters.{name}")
            value = getattr(parameter, choice)
            is_text = OPTION_SPECS[name].kind is str
            if is_text != (choice == "string_param"):
                kind = "words separated by spaces" if is_text else "a number"
                raise RequestError(f"the parameter {name} must be {kind}", f"parameters.{name}")
            try:
                values[name] = OPTION_SPECS[name].parse(value) if is_text else value
            except ValueError as error:
                raise RequestError(f"the parameter {name} has {error}", f"parameters.{name}") from None
    return CaptionOptions(**values, attention=False)


def _outputs(request: pb.ModelInferRequest) -> list[str]:
    """The names of the requested outputs."""
    wanted = [output.name for output in request.outputs]
    for name in wanted:
        if name not in OUTPUTS:
            raise RequestError(f"there is no output {clip(repr(name))}, only {', '.join(OUTPUTS)}", "outputs")
    if len(set(wanted)) < len(wanted):
        raise RequestError("an output is asked for twice", "outputs")
    return wanted or list(OUTPUTS)


def _images(request: pb.ModelInferRequest, most: int) -> tuple[list[bytes], list[int]]:
    """The images of the request, at most `most`, and the shape of their tensor."""
    if len(request.inputs) != 1 or request.inputs[0].name != INPUT:
        raise RequestError(f"there is one input, {INPUT}", "inputs")
    [tensor] = request.inputs
    if tensor.datatype != "BYTES":
        raise RequestError(
            f"{INPUT} is of type BYTES, not {clip(tensor.datatype)}", f"inputs.{INPUT}.datatype"
        )
    if len(tensor.shape) > _MAX_DIMENSIONS:
        raise RequestError(
            f"{INPUT} has {len(tensor.shape)} dimensions, the limit is {_MAX_DIMENSIONS}",
            f"inputs.{INPUT}.shape",
        )
    if len(request.raw_input_contents) > 1:
        raise RequestError("there is one input, and so one raw content", "raw_input_contents")
    if request.raw_input_contents:
        if tensor.HasField("contents"):
            raise RequestError(f"{INPUT} has raw contents already", f"inputs.{INPUT}.contents")
        images = _split(request.raw_input_contents[0], most)
    elif len(tensor.contents.bytes_contents) > most:
        raise _too_many(most)
    else:
        images = list(tensor.contents.bytes_contents)
    shape = list(tensor.shape)
    if not images:
        raise RequestError(f"{INPUT} has no images; those in shared memory are not read", f"inputs.{INPUT}")
    if any(side < 1 for side in shape) or math.prod(shape) != len(images):
        raise RequestError(f"{len(images)} images do not fill the shape {shape}", f"inputs.{INPUT}.shape")
    return images, shape


def _split(raw: bytes, most: int) -> list[bytes]:
    """The elements of a BYTES tensor, each preceded by its length in four bytes, little-endian."""
    elements: list[bytes] = []
    position = 0
    while position < len(raw):
        if len(elements) == most:
            raise _too_many(most)
        if position + 4 > len(raw):
            raise RequestError("a length is cut short", "raw_input_contents")
        (length,) = struct.unpack_from("<I", raw, position)
        element = raw[position + 4 : position + 4 + length]
        if len(element) < length:
            raise RequestError("an element is cut short", "raw_input_contents")
        elements.append(element)
        position += 4 + length
    return elements


def _too_many(most: int) -> RequestError:
    return RequestError(f"a request has at most {most} images (queue_size)", f"inputs.{INPUT}")


def _fill(response: pb.ModelInferResponse, name: str, captions: list[Caption], *, raw: bool) -> None:
    """Add the values of the last output, in the encoding that the request used for its input."""
    contents = response.outputs[-1].contents
    if name == "LOG_PROB":
        values = [caption.log_prob for caption in captions]
        if raw:
            response.raw_output_contents.append(np.asarray(values, dtype="<f4").tobytes())
        else:
            contents.fp32_contents.extend(values)
    else:
        texts = [caption.text.encode() for caption in captions]
        if raw:
            packed = b"".join(struct.pack("<I", len(text)) + text for text in texts)
            response.raw_output_contents.append(packed)
        else:
            contents.bytes_contents.extend(texts)
