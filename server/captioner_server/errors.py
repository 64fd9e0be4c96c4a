"""Errors of the server, and what is said of all errors."""

from __future__ import annotations

from captioner.errors import CaptionerError, ImageError, OptionsError, clip
from captioner.printable import printable
from captioner.surrogates import escape_surrogates

INTERNAL = "internal error; the server's log has more under the request id"
"""The message that callers get for a defect."""


class RetryableError(CaptionerError):
    """The call can succeed if it is repeated later."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BusyError(RetryableError):
    """A limit on work in progress is reached."""

    code = "busy"
    grpc_code = "RESOURCE_EXHAUSTED"


class NotServingError(RetryableError):
    """The server is starting or draining."""

    code = "not_serving"
    grpc_code = "UNAVAILABLE"


class DeadlineError(CaptionerError):
    """The deadline of the caller has passed, or would pass before the answer."""

    code = "deadline_exceeded"
    grpc_code = "DEADLINE_EXCEEDED"


class UnauthenticatedError(CaptionerError):
    """The call does not carry a valid token."""

    code = "unauthenticated"
    grpc_code = "UNAUTHENTICATED"


class NotFoundError(CaptionerError):
    """The caller asked for a path or a service that the server does not have."""

    code = "not_found"
    grpc_code = "NOT_FOUND"


class ForeignOriginError(CaptionerError):
    """The page of another site called from a browser."""

    code = "foreign_origin"
    grpc_code = "PERMISSION_DENIED"


class ModelNotFoundError(CaptionerError):
    """No model of that name or version is served."""

    code = "model_not_found"
    grpc_code = "NOT_FOUND"


class RequestError(CaptionerError):
    """One field of the request is invalid."""

    code = "invalid_request"
    grpc_code = "INVALID_ARGUMENT"

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class ServerStartError(CaptionerError):
    """The server cannot start with its options."""

    code = "cannot_start"
    exit_status = 2
    grpc_code = "FAILED_PRECONDITION"


_MAX_MESSAGE = 500  # gRPC drops a status whose message and details do not fit into 8 KiB of metadata


def message_of(error: CaptionerError) -> str:
    """The message of the error, shortened for a status or a log line. It is printable, and has no lone
    surrogates, which headers and JSON do not accept."""
    return escape_surrogates(clip(str(error), _MAX_MESSAGE))


def release_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error and of those it came from.

    Their frames hold the message of the call. gRPC keeps the error of a call in a reference cycle, and so
    does a frame that awaits a future with its error; only the garbage collector would free the message."""
    errors = [error]
    for one in errors:
        one.__traceback__ = None
        errors += [other for other in (one.__cause__, one.__context__) if other and other.__traceback__]


def field_of(error: CaptionerError) -> str:
    """The field of the request that the error is about; "" if none."""
    if isinstance(error, ImageError):
        return "image"
    if isinstance(error, OptionsError):
        field = escape_surrogates(printable(clip(error.field or "", 100)))  # may come from the caller
        return f"options.{field}" if field else "options"
    return error.field if isinstance(error, RequestError) else ""
