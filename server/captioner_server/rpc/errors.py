"""Errors as statuses of gRPC."""

from __future__ import annotations

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from captioner.errors import CaptionerError
from captioner.v1 import captioner_pb2 as pb
from captioner_server.errors import RetryableError, field_of, message_of

DOMAIN = "captioner"


def status_code(error: CaptionerError) -> grpc.StatusCode:
    return grpc.StatusCode[error.grpc_code]


def to_status(error: CaptionerError) -> status_pb2.Status:
    """The error with machine-readable details."""
    details: list[Message] = [error_details_pb2.ErrorInfo(reason=error.code.upper(), domain=DOMAIN)]
    if field := field_of(error):
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=message_of(error))
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, RetryableError):
        details.append(error_details_pb2.RetryInfo(retry_delay=_duration(error.retry_after_s)))
    status = status_pb2.Status(code=status_code(error).value[0], message=message_of(error))
    for detail in details:
        packed = Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def to_trailers(error: CaptionerError) -> tuple[tuple[str, str | bytes], ...]:
    """Trailing metadata of a call that fails with the error.

    `grpc-retry-pushback-ms` is the RetryInfo for the retries of gRPC itself.
    """
    trailers: list[tuple[str, str | bytes]] = [
        ("grpc-status-details-bin", to_status(error).SerializeToString())
    ]
    if isinstance(error, RetryableError):
        trailers.append(("grpc-retry-pushback-ms", str(round(error.retry_after_s * 1000))))
    return tuple(trailers)


def to_batch_error(error: CaptionerError) -> pb.Error:
    """The error as the answer for one image of a `CaptionBatch` call."""
    return pb.Error(
        status=status_code(error).value[0],
        reason=error.code,
        message=message_of(error),
        field=field_of(error),
        retry_after=_duration(error.retry_after_s) if isinstance(error, RetryableError) else None,
    )


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration
