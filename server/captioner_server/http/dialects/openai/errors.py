"""Errors as OpenAI sends them."""

from __future__ import annotations

from starlette.responses import Response

from captioner.errors import CaptionerError
from captioner_server.errors import field_of, message_of
from captioner_server.http.errors import error_response, status_of

_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
_TYPES |= {404: "invalid_request_error", 413: "invalid_request_error", 429: "rate_limit_error"}


def openai_error(error: CaptionerError) -> Response:
    """An error as OpenAI sends it."""
    status = status_of(error)
    content = {
        "message": message_of(error),
        "type": _TYPES.get(status, "server_error"),
        "param": "model" if error.code == "model_not_found" else field_of(error) or None,
        "code": error.code,
    }
    return error_response(error, {"error": content})
