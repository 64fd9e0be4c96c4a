"""The form that an answer must have: a format, or the arguments of a function (tools, tool_choice).

Nothing is known that would tell whether to call a function, so only one that must be called is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from captioner.errors import clip
from captioner_server.errors import RequestError
from captioner_server.http.dialects.answer.reply import JSON
from captioner_server.http.dialects.question.fields import take


class Function(NamedTuple):
    """A function to call."""

    name: str
    parameters: dict[str, Any]
    """The schema of its arguments."""


def forced_function(record: dict[str, Any]) -> Function | None:
    """The one function that must be called; None if the request forces none. Raises `RequestError` if it
    forces several, or another kind of tool."""
    functions = {}
    for tool in filter(_is_object, take(record, "tools", list, [])):
        about = tool.get("function", tool)
        functions[_name_of(tool)] = about.get("parameters") if isinstance(about, dict) else None
    names = _forced(record.get("tool_choice"), list(functions))
    if not names:
        return None
    if len(names) > 1:
        raise RequestError(
            f"one of {len(names)} tools must be called, and captioner cannot choose: name one function in "
            "tool_choice, or ask with response_format",
            "tool_choice",
        )
    [name] = names
    if not name or name not in functions:
        raise RequestError(
            f"tool_choice forces {clip(name, 50) or 'a tool'}, which is no function in tools; name "
            "one that is, or ask with response_format",
            "tool_choice",
        )
    parameters = functions[name] or {"type": "object"}
    if not isinstance(parameters, dict):
        raise RequestError(f"the parameters of {clip(name, 50)} must be a JSON schema", "tools")
    return Function(name, parameters)


def answer_format_of(format: Any) -> Any:
    """The format of an answer: None, "json" or a schema. Raises `RequestError`."""
    if format is None or (isinstance(format, dict) and format.get("type") == "text"):
        return None
    if not isinstance(format, dict):
        raise RequestError("the format of the answer must be an object", "response_format")
    if format.get("type") == "json_object":
        return _schema_in(format)  # as llama.cpp and others accept it
    if format.get("type") == "json_schema":
        return _schema_in(format.get("json_schema", format))
    return format  # a schema itself, as Ollama accepts it under this name


def _schema_in(described: Any) -> Any:
    schema = described.get("schema") if isinstance(described, dict) else None
    return schema or JSON


def _forced(choice: Any, names: list[str]) -> list[str]:
    """The names of the tools of which one must be called; "" for those that are no functions."""
    if choice in ("required", "any"):
        return names
    if not isinstance(choice, dict):
        return []
    if choice.get("type") != "allowed_tools":
        return [_name_of(choice)]
    allowed = choice.get("allowed_tools", choice)
    if not isinstance(allowed, dict) or allowed.get("mode") != "required":
        return []
    return [_name_of(tool) for tool in filter(_is_object, take(allowed, "tools", list, []))]


def _name_of(tool: dict[str, Any]) -> str:
    """The name of a function, in the form of either call."""
    about = tool.get("function", tool)
    name = about.get("name") if tool.get("type") == "function" and isinstance(about, dict) else None
    return name if isinstance(name, str) else ""


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)
