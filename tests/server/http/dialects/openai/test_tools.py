"""Tool calls, with OpenAI's official client."""

import base64
import json

import openai
import pytest
from support.http_serving import IMAGE, expected, keywords

URL = "data:image/png;base64," + base64.b64encode(IMAGE).decode()
ASKED = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]}]
TEXT = {"type": "string"}


def function(name: str, **fields: object) -> dict:
    parameters = {"type": "object", "properties": fields, "required": list(fields)}
    return {"name": name, "parameters": parameters}


PHOTO = function("photo", caption=TEXT, tags={"type": "array", "items": TEXT})
FORCED = {"type": "function", "function": {"name": "photo"}}
ALLOWED = {"mode": "required", "tools": [FORCED]}


def tool(about: dict) -> dict:
    return {"type": "function", "function": about}


@pytest.fixture(scope="module")
def client(http_running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{http_running[0].server.http_url}/v1", api_key="any", max_retries=0)


@pytest.fixture
def arguments(http_server) -> dict:
    return {"caption": expected(http_server)["caption"], "tags": keywords(http_server)}


@pytest.mark.parametrize(
    ("choice", "others"),
    [
        (FORCED, [function("weather", city=TEXT)]),
        ("required", []),
        ({"type": "allowed_tools", "allowed_tools": ALLOWED}, [function("weather", city=TEXT)]),
    ],
    ids=["named", "required", "allowed"],
)
def test_a_function_that_must_be_called_is(client, arguments, choice, others) -> None:
    asked = {"model": "captioner", "messages": ASKED, "tool_choice": choice}
    asked["tools"] = list(map(tool, (PHOTO, *others)))
    [answer] = client.chat.completions.create(**asked).choices
    [call] = answer.message.tool_calls
    assert (answer.finish_reason, answer.message.content) == ("tool_calls", None)
    assert (call.function.name, json.loads(call.function.arguments)) == ("photo", arguments)
    with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        final = stream.get_final_completion()
    [call] = final.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("photo", arguments)
    assert final.choices[0].finish_reason == "tool_calls"
    assert final.usage.completion_tokens


@pytest.mark.parametrize(
    "choice", [{"type": "function", "name": "photo"}, "required"], ids=["named", "required"]
)
def test_a_function_that_must_be_called_is_in_responses(client, arguments, choice) -> None:
    image = {"type": "input_image", "image_url": URL, "detail": "low"}
    asked = {"model": "captioner", "input": [{"role": "user", "content": [image]}], "tool_choice": choice}
    asked["tools"] = [{"type": "function", "strict": True, **PHOTO}]
    [call] = client.responses.create(**asked).output
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "photo", arguments)
    with client.responses.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        [call] = stream.get_final_response().output
    assert (call.name, json.loads(call.arguments), call.parsed_arguments) == ("photo", arguments, arguments)
    assert kinds.count("response.function_call_arguments.delta") == 1


@pytest.mark.parametrize(
    "choice", [None, "auto", "none", {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}]
)
def test_a_function_that_need_not_be_called_is_not(http, http_server, choice) -> None:
    asked = {"messages": ASKED, "tools": [tool(PHOTO)], "tool_choice": choice}
    [answer] = http.post("/v1/chat/completions", json=asked).json()["choices"]
    assert answer["message"]["content"] == expected(http_server)["caption"]
    assert answer["finish_reason"] == "stop"


def test_required_without_tools_forces_nothing(http, http_server) -> None:
    """As LlamaIndex asks."""
    asked = {"messages": ASKED, "tool_choice": "required"}
    [answer] = http.post("/v1/chat/completions", json=asked).json()["choices"]
    assert answer["message"]["content"] == expected(http_server)["caption"]


def test_a_function_without_parameters(http) -> None:
    asked = {"messages": ASKED, "tools": [tool({"name": "shoot"})], "tool_choice": "required"}
    [answer] = http.post("/v1/chat/completions", json=asked).json()["choices"]
    assert answer["message"]["tool_calls"][0]["function"] == {"name": "shoot", "arguments": "{}"}


@pytest.mark.parametrize(
    ("tools", "choice", "reason"),
    [
        ([tool(function("a", mood=TEXT))], "required", "nothing is known for mood"),
        ([tool(PHOTO), tool(function("b"))], "required", "one of 2 tools must be called"),
        ([tool(PHOTO)], {"type": "function", "function": {"name": "b"}}, "forces b, which is no function"),
        ([{"type": "custom", "custom": {"name": "c"}}], "required", "no function in tools"),
        ([tool(PHOTO)], {"type": "web_search"}, "no function in tools"),
        ([tool(PHOTO)], {"type": "function", "function": 3}, "no function in tools"),
        ([3, {"type": "function", "function": 3}], "required", "no function in tools"),
        ([tool({"name": "a", "parameters": 3})], "required", "must be a JSON schema"),
        (3, "required", "tools must be a list"),
    ],
    ids=range(9),
)
def test_functions_that_cannot_be_called(http, tools, choice, reason) -> None:
    asked = {"messages": ASKED, "tools": tools, "tool_choice": choice}
    answer = http.post("/v1/chat/completions", json=asked)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"] in ("tools", "tool_choice")) == (400, True)
    assert reason in error["message"]
    assert "response_format" in error["message"] or "must be a" in error["message"]
