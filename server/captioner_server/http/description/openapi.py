"""The description of the HTTP interface (OpenAPI 3.1), generated from the options and limits."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints

from captioner import __version__
from captioner.model.calibration import Calibration
from captioner.model.info import ModelInfo
from captioner.options import OPTION_SPECS, STYLE_HELP, STYLES, CaptionOptions, OptionSpec
from captioner_server.http.request.body import MODEL, STYLE, TIMEOUT
from captioner_server.options import ServerOptions

_ERRORS = {
    "400": "Not an image (NOT_AN_IMAGE), an option out of range (INVALID_OPTIONS), a malformed request",
    "401": "The token is missing or wrong (UNAUTHENTICATED)",
    "403": "The page of another site called from a browser (FOREIGN_ORIGIN)",
    "404": "No model has that name (MODEL_NOT_FOUND)",
    "413": "The image exceeds a limit of bytes or pixels (TOO_LARGE)",
    "429": "The server is overloaded (BUSY); Retry-After says when to try again",
    "503": "The model is loading, or the server is shutting down (NOT_SERVING)",
    "504": f"{TIMEOUT} has passed, or the request arrived too slowly (DEADLINE_EXCEEDED)",
}


def describe_api(options: ServerOptions) -> dict[str, Any]:
    """The document that /openapi.json answers with."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "captioner",
            "version": __version__,
            "description": "Captions images and shows where the model looked for each word.",
        },
        # Relative to this document: a proxy may publish the server below a path that it does not tell.
        "servers": [{"url": "."}],
        "paths": {
            "/v1/caption": {"post": _caption_call("Caption an image", _answer("Caption"), options)},
            "/v1/caption:stream": {
                "post": _caption_call(
                    "Caption an image, word by word",
                    {
                        "description": "Server-sent events: `word` for each word of greedy search as it is "
                        "decoded, then `caption` with the caption for the options; `error` if "
                        "something fails after the first word.",
                        "content": {"text/event-stream": {"schema": {"type": "string"}}},
                    },
                    options,
                )
            },
            "/v1/picture": {
                "post": _image_call(
                    "The image as a JPEG of 1280 pixels, for browsers that do not show its format",
                    {"description": "OK", "content": {"image/jpeg": {"schema": {"type": "string"}}}},
                    options,
                )
                | {"operationId": "MakePicture"}
            },
            "/v1/model": {
                "get": {
                    "summary": "The model and the limits of this server",
                    "operationId": "getModel",
                    "security": _SECURITY,
                    "parameters": [_MODEL],
                    "responses": {"200": _answer("Model"), **_errors("401", "404", "503")},
                }
            },
            **{
                path: {verb.lower(): _dialect(verb, path, summary)}
                for (verb, path), summary in _DIALECTS.items()
            },
            "/health": {"get": _health("Whether the server captions images", "health", "503")},
            "/healthz": {"get": _health("Whether the process answers", "healthz")},
            "/readyz": {"get": _health("Whether the server captions images", "readyz", "503")},
            "/docs": {"get": _file("This description, to read", "docs", "text/html")},
            "/openapi.json": {"get": _file("This description, for programs", "openapi", "application/json")},
        },
        "components": {
            "schemas": {
                **_SCHEMAS,
                "Options": _options_schema(),
                "RequestOptions": _options_schema(**{STYLE: {**_STYLE, "description": STYLE_HELP}}),
                "Model": _model_schema(),
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def calls_of(api: dict[str, Any]) -> list[str]:
    """The calls of a document, as "VERB /path"."""
    return [f"{verb.upper()} {path}" for path, verbs in api["paths"].items() for verb in verbs]


_DIALECTS = {
    ("POST", "/api/generate"): "Ollama: caption an image",
    ("POST", "/api/chat"): "Ollama: caption the latest image of a chat",
    ("POST", "/api/show"): "Ollama: what a model can do",
    ("GET", "/api/tags"): "Ollama: the models",
    ("GET", "/api/ps"): "Ollama: the loaded models, which are all",
    ("GET", "/api/version"): "Ollama: the version of the protocol",
    ("POST", "/v1/chat/completions"): "OpenAI: caption the latest image of a chat",
    ("POST", "/v1/responses"): "OpenAI: caption an image",
    ("GET", "/v1/models"): "OpenAI: the models",
    ("GET", "/v1/models/{model}"): "OpenAI: one of the models",
}
"""The calls of other programs' protocols, which are described elsewhere."""
_REQUIRED = {"/v1/chat/completions": "messages", "/v1/responses": "input"}
"""Requests without this field are rejected."""
_SECURITY: list[dict[str, list[str]]] = [{}, {"token": []}]
_MODEL = {
    "name": MODEL,
    "in": "query",
    "description": "name of the model (default: the default model)",
    "schema": {"type": "string"},
}

_STYLE = {"type": "string", "enum": [*STYLES], "default": STYLES[0]}


def _caption_call(summary: str, answer: dict[str, Any], options: ServerOptions) -> dict[str, Any]:
    call = _image_call(summary, answer, options)
    call["parameters"] = [
        *(_parameter(name, spec) for name, spec in OPTION_SPECS.items()),
        {"name": STYLE, "in": "query", "description": STYLE_HELP, "schema": _STYLE},
        *call["parameters"],
    ]
    body = call["requestBody"]["content"]["application/json"]["schema"]
    body["properties"]["options"] = {"$ref": "#/components/schemas/RequestOptions"}
    return call


def _image_call(summary: str, answer: dict[str, Any], options: ServerOptions) -> dict[str, Any]:
    image = {"type": "string", "format": "binary", "maxLength": options.max_image_bytes}
    base64 = {"type": "string", "contentEncoding": "base64"}
    return {
        "summary": summary,
        "operationId": summary.replace(",", "").title().replace(" ", ""),
        "security": _SECURITY,
        "parameters": [
            {
                "name": TIMEOUT,
                "in": "query",
                "description": "how long the caller waits, in seconds",
                "schema": {"type": "number", "exclusiveMinimum": 0},
            },
            _MODEL,
        ],
        "requestBody": {
            "required": True,
            "content": {
                "image/*": {"schema": image},
                "application/octet-stream": {"schema": image},
                "multipart/form-data": {
                    "schema": {"type": "object", "required": ["image"], "properties": {"image": image}}
                },
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["image"],
                        "properties": {"image": base64},
                        "additionalProperties": False,
                    }
                },
            },
        },
        "responses": {"200": answer, **_errors(*_ERRORS)},
    }


def _parameter(name: str, spec: OptionSpec) -> dict[str, Any]:
    schema = _schema(spec)
    if spec.kind is tuple:
        schema = {"type": "string", "pattern": "^[0-9]+x[0-9]+$", "examples": ["14x14"]}
    elif spec.kind is str:
        schema = {"type": "string", "examples": ["dog ball"]}
    return {"name": name, "in": "query", "description": spec.help, "schema": schema}


def _options_schema(**more: Any) -> dict[str, Any]:
    properties = {name: {**_schema(spec), "description": spec.help} for name, spec in OPTION_SPECS.items()}
    return {"type": "object", "properties": properties | more, "additionalProperties": False}


def _model_schema() -> dict[str, Any]:
    types = get_type_hints(ModelInfo)
    properties = {
        field.name: {**_MODEL_TYPES[types[field.name]], **field.metadata}
        for field in dataclasses.fields(ModelInfo)
    }
    required = [field.name for field in dataclasses.fields(ModelInfo) if field.default is dataclasses.MISSING]
    return _object(" ".join(["model", *required]), model=_TEXT, **properties)


def _schema(spec: OptionSpec) -> dict[str, Any]:
    if spec.kind is bool:
        return {"type": "boolean", "default": False}
    if spec.kind is str:
        return {"type": "array", "items": {"type": "string"}, "maxItems": int(spec.high)}
    number = {
        "type": "integer" if spec.kind in (int, tuple) else "number",
        "minimum": spec.low,
        "maximum": spec.high,
    }
    return {"type": "array", "items": number, "minItems": 2, "maxItems": 2} if spec.kind is tuple else number


def _answer(schema: str, description: str = "OK") -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"description": description, "content": {"application/json": {"schema": reference}}}


def _errors(*statuses: str, schema: str = "Error") -> dict[str, Any]:
    return {status: _answer(schema, _ERRORS[status]) for status in statuses}


def _health(summary: str, operation: str, *errors: str) -> dict[str, Any]:
    return {
        "summary": summary,
        "operationId": operation,
        "responses": {"200": _answer("Health"), **_errors(*errors)},
    }


def _file(summary: str, operation: str, kind: str) -> dict[str, Any]:
    content = {kind: {"schema": {"type": "string"}}}
    return {
        "summary": summary,
        "operationId": operation,
        "responses": {"200": {"description": "OK", "content": content}},
    }


def _dialect(verb: str, path: str, summary: str) -> dict[str, Any]:
    anything = {"content": {"application/json": {"schema": {"type": "object"}}}}
    asked = {"content": {"application/json": {"schema": _object(_REQUIRED.get(path, ""))}}}
    schema = "OllamaError" if path.startswith("/api/") else "Error"
    call: dict[str, Any] = {
        "summary": summary,
        "operationId": f"{verb.lower()}{path.title().translate(str.maketrans('', '', '/{}'))}",
        "security": _SECURITY,
        "responses": {
            "200": {"description": "OK", **anything},
            **_errors("401", "404", "503", schema=schema),
        },
    }
    if verb == "POST":
        call["requestBody"] = {"required": True, **asked}
        call["responses"] |= _errors("400", "413", "429", schema=schema)
    if "{" in path:
        call["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]
    return call


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


_LOG_PROB = {"type": "number", "maximum": 0, "description": "natural logarithm of the probability"}
_TEXT, _COUNT, _BOOLEAN = ({"type": kind} for kind in ("string", "integer", "boolean"))
_MODEL_TYPES: dict[Any, dict[str, Any]] = {
    str: _TEXT,
    int: _COUNT,
    bool: _BOOLEAN,
    tuple[int, int]: {"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2},
    tuple[str, ...]: {"type": "array", "items": _TEXT},
    CaptionOptions: {"$ref": "#/components/schemas/Options"},
    Calibration | None: {"type": ["object", "null"]},
}
_SCHEMAS: dict[str, Any] = {
    "Word": _object(
        "text log_prob",
        text=_TEXT,
        log_prob=_LOG_PROB,
        attention={
            "type": "array",
            "items": {"type": "array", "items": {"type": "number", "minimum": 0}},
            "description": "rows of weights over the whole image, top row first",
        },
        sentinel={"type": "number", "minimum": 0, "maximum": 1},
    ),
    "Alternative": _object("caption log_prob", caption=_TEXT, log_prob=_LOG_PROB),
    "Caption": _object(
        "caption log_prob words alternatives model",
        caption=_TEXT,
        log_prob=_LOG_PROB,
        words={"type": "array", "items": {"$ref": "#/components/schemas/Word"}},
        alternatives={"type": "array", "items": {"$ref": "#/components/schemas/Alternative"}},
        confidence={
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "calibrated probability that the caption is good",
        },
        keywords={
            "type": "array",
            "items": _TEXT,
            "description": "things in the photo, if requested: first those that the caption names",
        },
        model=_TEXT,
    ),
    "Health": _object("status", status=_TEXT),
    "Error": _object("error", error=_object("code message", code=_TEXT, message=_TEXT, field=_TEXT)),
    "OllamaError": _object("error", error=_TEXT),
}
