"""Errors between a client and a server.

Errors about an image or an option are those of the library, as with a local captioner; these are specific to
servers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from captioner.errors import (
    CaptionerError,
    ImageTooLargeError,
    ModelOutputError,
    NotAnImageError,
    OptionsError,
    clip,
)
from captioner.v1 import captioner_pb2 as pb


class ServerError(CaptionerError):
    """The server did not return a caption, for a reason other than the image or the options."""

    code = "server_error"
    exit_status = 2
    """As for a model that cannot be loaded: no image is at fault."""

    def __init__(self, message: str, *, request_id: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id
        """The id of the call in the log of the server; "" if the call did not reach it."""
        self.retry_after_s = retry_after_s
        """Requested wait before the next call, in seconds; None if the server did not say."""


class ServerUnavailableError(ServerError):
    """No server answers at the address, or it is starting or shutting down."""

    code = "unavailable"
    grpc_code = "UNAVAILABLE"


class ServerBusyError(ServerError):
    """The server rejected the call because it is overloaded."""

    code = "busy"
    grpc_code = "RESOURCE_EXHAUSTED"


class DeadlineExceededError(ServerError):
    """The server did not answer in time."""

    code = "deadline_exceeded"
    grpc_code = "DEADLINE_EXCEEDED"


class AuthenticationError(ServerError):
    """The server requires a token that the call did not carry."""

    code = "unauthenticated"
    grpc_code = "UNAUTHENTICATED"


_BY_STATUS: dict[grpc.StatusCode, type[ServerError]] = {
    grpc.StatusCode.UNAVAILABLE: ServerUnavailableError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ServerBusyError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
    grpc.StatusCode.PERMISSION_DENIED: AuthenticationError,
}


_UNTRUSTED = "give the authority to trust: root_certificates=, --root-certificates FILE"
_HINTS = {
    "Failed parsing HTTP/2": "is this its gRPC port?",
    "WRONG_VERSION_NUMBER": "is this its gRPC port, and does it use TLS?",
    "Socket closed": "does it use TLS?",
    "self signed certificate": _UNTRUSTED,
    "unable to get local issuer certificate": _UNTRUSTED,
}
"""What is likely wrong where gRPC says this of a connection that could not be opened."""
_CONNECTING = re.compile(r"((?:ipv4|ipv6):\S+): (Failed to connect to remote host)?")
"""What gRPC says of an address, and whether nothing listens there."""
_HTTP_STATUS = "http2 header with status: "
"""What gRPC says of an answer that is not gRPC's."""
_TOO_LARGE = f"{_HTTP_STATUS}413"
_LASTING = re.compile(rf"{_HTTP_STATUS}(?!408|413)[34]")
"""Redirections and errors, such as 404: what a proxy would answer every time."""
_PROXY = "a proxy before the server"
_LONGEST = 2000
"""Most characters of what a server says that a message has."""


@contextmanager
def reading_answer(servers: str) -> Iterator[None]:
    """Turns the `ValueError` of an answer that contradicts itself into a `ServerError`: the answers of
    `servers`, addresses, are not trusted."""
    try:
        yield
    except ValueError as error:
        raise ServerError(f"{servers}: the answer is malformed: {error}") from error


def is_reset(error: grpc.aio.AioRpcError) -> bool:
    """Whether something on the way reset the stream, for example a proxy whose server has gone. A server that
    ends a stream itself always sends a request id."""
    if error.code() not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED):
        return False
    if _LASTING.search(error.details() or ""):
        return False
    return "x-request-id" not in _trailers(error)


def broken_off(error: grpc.aio.AioRpcError, servers: str) -> ServerUnavailableError:
    """The error for a call to `servers`, addresses, that was reset."""
    return ServerUnavailableError(f"{servers}: the call was broken off: {_message_of(error)}")


def _trailers(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    return dict(iter(error.trailing_metadata() or ()))  # type: ignore[arg-type]


def _message_of(error: grpc.aio.AioRpcError) -> str:
    """What gRPC says, and who answered where that was no server of ours."""
    message = clip(error.details() or error.code().name, _LONGEST)
    if _TOO_LARGE in message:
        return f"{message} ({_PROXY} limits how large requests are)"
    return f"{message} (from {_PROXY})" if _HTTP_STATUS in message else message


def from_rpc_error(error: grpc.aio.AioRpcError, servers: str, timeout_s: float) -> CaptionerError:
    """The typed error for a failed call to `servers`, addresses, which were given `timeout_s`."""
    message, trailers = _message_of(error), _trailers(error)
    details = _read_details(trailers.get("grpc-status-details-bin", b""))
    if known := _library_error(details.get("reason", ""), message, details.get("field", "")):
        return known
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in message:  # gRPC's own
        if "CLIENT: Received" in message:
            return ServerError(f"{servers}: the answer is larger than this client takes")
        return ImageTooLargeError("the image is larger than the server takes")
    if is_reset(error):
        if _TOO_LARGE in message:
            return ImageTooLargeError(f"{servers}: the image is larger than {_PROXY} takes")
        return broken_off(error, servers)
    kind = _BY_STATUS.get(error.code(), ServerError)
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        message += " (give one: token=, --token-file FILE)"
    if kind is ServerError:
        message = f"{servers}: {error.code().name}: {message}"
    elif details:
        message = f"{servers}: {message}"
    else:
        message = _explained(kind, message, servers, timeout_s)
    return kind(
        message, request_id=trailers.get("x-request-id", ""), retry_after_s=details.get("retry_after_s")
    )


def _explained(kind: type[ServerError], message: str, servers: str, timeout_s: float) -> str:
    """The message of a status that is gRPC's own, not the server's."""
    if kind is DeadlineExceededError:
        return f"no answer from {servers} within {timeout_s:g} s"
    _, connecting, reason = message.rpartition("last error: ")
    reason = unquote(reason.removeprefix("UNKNOWN: "))  # of ipv6:%5B::1%5D:50051
    if kind is ServerUnavailableError:
        hints = (f" ({hint})" for said, hint in _HINTS.items() if connecting and said in reason)
        return f"no server answers at {servers}: {reason}{next(hints, '')}"
    return f"{servers}: {reason}"


def tells_more(error: ServerUnavailableError, other: ServerUnavailableError) -> bool:
    """Whether `error` says why a connection failed, and `other` that nothing listens at another address. gRPC
    tries all addresses of a server (::1 and 127.0.0.1 of localhost), and names the last that failed."""
    one, another = (_CONNECTING.search(str(each)) for each in (error, other))
    return bool(one and another and another[2] and not one[2] and one[1] != another[1])


def from_batch_error(error: pb.Error, servers: str) -> CaptionerError:
    """The typed error for one image of a batch that `servers`, addresses, were given."""
    message = clip(error.message, _LONGEST)
    if known := _library_error(error.reason, message, error.field):
        return known
    by_number = {status.value[0]: kind for status, kind in _BY_STATUS.items()}
    retry_after_s = _seconds(error.retry_after) if error.HasField("retry_after") else None
    kind = by_number.get(error.status, ServerError)
    return kind(f"{servers}: {message}", retry_after_s=retry_after_s)


def _library_error(reason: str, message: str, field: str) -> CaptionerError | None:
    reason = reason.lower()
    for kind in (NotAnImageError, ImageTooLargeError, ModelOutputError):
        if reason == kind.code:
            return kind(message)
    if reason == OptionsError.code:
        return OptionsError(message, clip(field.removeprefix("options.")))
    return None


def _read_details(packed: bytes) -> dict[str, Any]:
    """`reason`, `field` and `retry_after_s`, as far as the status names them."""
    found: dict[str, Any] = {}
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    request = error_details_pb2.BadRequest()
    with suppress(DecodeError):  # the error is then described by its status alone
        for detail in status_pb2.Status.FromString(packed).details:
            if detail.Unpack(info):
                found["reason"] = info.reason
            elif detail.Unpack(request) and request.field_violations:
                found["field"] = request.field_violations[0].field
            elif detail.Unpack(retry):
                found["retry_after_s"] = _seconds(retry.retry_delay)
    return found


def _seconds(duration: Duration) -> float:
    return duration.ToNanoseconds() / 1e9
