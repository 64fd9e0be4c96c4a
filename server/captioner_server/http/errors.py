"""Errors as HTTP answers."""

from __future__ import annotations

import math
from typing import Any

from starlette.responses import JSONResponse

from captioner.errors import CaptionerError, ImageTooLargeError
from captioner_server.errors import RetryableError, UnauthenticatedError, field_of, message_of

_STATUS = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def status_of(error: CaptionerError) -> int:
    """The HTTP status of an error."""
    return 413 if isinstance(error, ImageTooLargeError) else _STATUS.get(error.grpc_code, 500)


def error_to_json(error: CaptionerError) -> dict[str, Any]:
    """The body of an error; it has `field` if one field of the request is invalid."""
    content = {"code": error.code.upper(), "message": message_of(error)}
    if field := field_of(error):
        content["field"] = field
    return {"error": content}


def error_response(error: CaptionerError, content: Any = None) -> JSONResponse:
    """The answer to a request that fails; `content` is its body where that has another form."""
    headers = {}
    if isinstance(error, RetryableError):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if isinstance(error, UnauthenticatedError):
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(content or error_to_json(error), status_of(error), headers)
