"""Reads the image and the options of an HTTP request, within limits and without temporary files."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Any

from python_multipart.multipart import parse_options_header
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from captioner.errors import ImageTooLargeError, OptionsError, clip
from captioner.options import OPTION_SPECS, STYLES, CaptionOptions, check_style, merge_options
from captioner_server.errors import RequestError
from captioner_server.http.off_loop import off_loop
from captioner_server.http.request.json_body import LongText, parse_json

TIMEOUT = "timeout_s"
"""The query parameter for how long the caller waits; it is not a caption option."""
_FORM = "application/x-www-form-urlencoded"
"""What curl sends unless told otherwise."""
_RAW = ("image/", "application/octet-stream", "binary/octet-stream", _FORM)  # the third is S3's default
_JSON = ("application/json", "text/json")
_EXTRA_BYTES = 2**16
"""Room for the rest of a JSON or multipart body beside the image."""
MOST_FIELDS = 64
"""Most values in a JSON body, and fields of a form or a query."""
_KIND_BYTES = 2**10
"""Longest content type. To read one takes time by the square of its length: 0.1 s for 30 KiB."""
_CHARSETS = (b"utf-8", b"utf8", b"us-ascii", b"iso-8859-1")
"""Accepted in a multipart body. Python has codecs that take seconds for a text of 64 KiB."""
MODEL = "model"
"""The query parameter that names the model."""
STYLE = "style"
"""The parameter for the wording, one of `STYLES`, given where caption options are."""
_NAMES = (*OPTION_SPECS, STYLE)
_DEFAULTS = CaptionOptions(attention=False)
logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of each malformed form


@dataclass(frozen=True, slots=True)
class CaptionCall:
    """A parsed request."""

    image: bytes
    options: CaptionOptions
    model: str = ""
    """The name of the model; "" for the default."""
    style: str = STYLES[0]
    """The wording of the answer, one of `STYLES`."""

    def size_of(self) -> int:
        """Its size in bytes."""
        return len(self.image)


async def read_request(request: Request, max_image_bytes: int, max_body_bytes: int) -> CaptionCall:
    """The image and the options of a request. Raises an `ImageError`, `OptionsError` or `RequestError`."""
    image, asked = await _read(request, max_image_bytes, max_body_bytes)
    style = asked.pop(STYLE, STYLES[0])
    check_style(style)
    options = merge_options(_DEFAULTS, asked)
    assert options  # there are defaults
    return CaptionCall(image, options, query_field(request, MODEL) or "", style)


async def read_image(request: Request, max_image_bytes: int, max_body_bytes: int) -> CaptionCall:
    """The same for an answer without a caption, to which no option applies."""
    image, asked = await _read(request, max_image_bytes, max_body_bytes)
    if asked:
        name = min(asked)
        raise OptionsError(f"{name} is an option of captions, and this answer has none", name)
    return CaptionCall(image, _DEFAULTS, query_field(request, MODEL) or "")


async def _read(request: Request, max_image_bytes: int, max_body_bytes: int) -> tuple[bytes, dict[str, Any]]:
    """The image, and what is asked by name."""
    given = parse_options(
        (name, text) for name, text in request.query_params.multi_items() if name not in (TIMEOUT, MODEL)
    )
    content_type = request.headers.get("content-type", _RAW[1])
    if len(content_type) > _KIND_BYTES:
        raise RequestError(f"the content-type has more than {_KIND_BYTES} bytes", "content-type")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        image, more = await _read_multipart(request, max_image_bytes)
    elif kind in _JSON:
        most = min(max_image_bytes * 4 // 3 + _EXTRA_BYTES, max_body_bytes)
        body = await read_body(request, most, max_image_bytes)
        if len(body) <= _EXTRA_BYTES:
            image, more = _parse_json(body)
        else:
            image, more = await off_loop(_parse_json, body)
    elif kind.startswith(_RAW):
        image, more = bytes(await read_body(request, max_image_bytes, max_image_bytes)), {}
        if image[:99].lstrip().startswith(b"{"):  # curl -d sends JSON as a form by default
            raise RequestError(
                "the body is JSON: send Content-Type: application/json with it", "content-type"
            )
        if kind == _FORM and image and not any(byte in image for byte in b"\0\n\r"):  # as no image is
            raise RequestError(
                "the body has no zero bytes and no line breaks: send it with curl --data-binary, not -d",
                "body",
            )
    else:
        raise RequestError(
            f"the body is an image, multipart/form-data or application/json, not {clip(kind, 100)}",
            "content-type",
        )
    return image, given | more


def query_field(request: Request, name: str) -> str | None:
    """The value of a field of the query. Raises `RequestError` for one given twice."""
    values = request.query_params.getlist(name)
    if values[1:]:
        raise RequestError(f"{name} is given more than once", name)
    return values[0] if values else None


def parse_options(fields: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Options and the style from pairs of name and text. Raises `OptionsError`, also for one given twice."""
    values: dict[str, Any] = {}
    for name, text in fields:
        if name in values:
            raise OptionsError(f"{name} is given more than once", name)
        _check_name(name)
        try:
            values[name] = text if name == STYLE else OPTION_SPECS[name].parse(text)
        except ValueError:
            raise OptionsError(f"{name} cannot be {clip(text, 100)!r}", name) from None
    return values


def _check_name(name: str) -> None:
    if name not in _NAMES:
        known = ", ".join(_NAMES)
        raise OptionsError(f"unknown option {clip(name, 100)!r}; options are {known}", clip(name, 100))


async def _chunks(request: Request, max_bytes: int, max_image_bytes: int) -> AsyncGenerator[bytes]:
    """The body as it arrives. Raises `ImageTooLargeError` after `max_bytes`, and `RequestError` for one that
    is compressed."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RequestError("a compressed body is not accepted (content-encoding)", "content-encoding")
    too_large = ImageTooLargeError(
        f"the request is larger than the limit of {max_image_bytes} bytes for an image (max_image_bytes)"
    )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 18 or int(length) > max_bytes):
        raise too_large
    received = 0
    async for chunk in request.stream():
        received += len(chunk)
        if received > max_bytes:
            raise too_large
        yield chunk


async def read_body(request: Request, max_bytes: int, max_image_bytes: int) -> bytearray:
    body = bytearray()
    async for chunk in _chunks(request, max_bytes, max_image_bytes):
        body += chunk
    return body


async def _read_multipart(request: Request, max_image_bytes: int) -> tuple[bytes, dict[str, Any]]:
    _, parameters = parse_options_header(request.headers["content-type"])
    if parameters.get(b"charset", _CHARSETS[0]).lower() not in _CHARSETS:
        raise RequestError("the charset of a multipart body must be utf-8", "content-type")
    chunks = _chunks(request, max_image_bytes + _EXTRA_BYTES, max_image_bytes)
    parser = MultiPartParser(
        request.headers, chunks, max_files=1, max_fields=MOST_FIELDS, max_part_size=_EXTRA_BYTES
    )
    parser.spool_max_size = max_image_bytes + 2 * _EXTRA_BYTES  # never on disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        why = f"the multipart body is malformed, or its image has no filename: {clip(error.message)}"
        if error.message.startswith("Too many files"):
            why = "the form has several files: send one image per request"
        raise RequestError(why, "body") from error
    try:
        upload = form.get("image")
        if isinstance(upload, str):
            raise RequestError("image is a text in the multipart body: send it with a filename", "image")
        if upload is None:
            raise RequestError("the multipart body has no file in a field called image", "image")
        texts = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
        return await upload.read(), parse_options(texts)
    finally:
        await form.close()


def _parse_json(body: bytearray) -> tuple[bytes, dict[str, Any]]:
    parsed = parse_json(body, MOST_FIELDS, _EXTRA_BYTES)
    record = parsed.record
    if not isinstance(record, dict) or not isinstance(record.get("image"), str):
        raise RequestError('the JSON body must be {"image": BASE64, "options": {...}}', "image")
    if unknown := set(record) - {"image", "options"}:
        raise RequestError(f"the JSON body has an unknown field {clip(min(unknown), 100)!r}", "body")
    options = {} if record.get("options") is None else record["options"]
    if not isinstance(options, dict):
        raise RequestError("options must be an object", "options")
    for name in options:
        _check_name(name)
    if parsed.long_texts > isinstance(record["image"], LongText):
        raise RequestError("the longest text of a JSON body must be the image, alone", "image")
    return parsed.image(record["image"], "image"), options
