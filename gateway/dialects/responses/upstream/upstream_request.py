"""UpstreamRequest of Responses: a chat request as the body of a request to a deployment that speaks Responses."""

from __future__ import annotations

from typing import Any, Final

from gateway.chat.request import ChatRequest
from gateway.chat.schema import OUTPUT_ITEMS
from gateway.dialects.chat_calls import calls_of
from gateway.dialects.responses.content import responses_content
from gateway.dialects.responses.output_items import latest_items
from gateway.dialects.responses.tools import responses_tool_choice, responses_tools
from gateway.errors import InvalidRequest

_RENAMED: Final = frozenset(
    {
        *("messages", "model", "stream_options", "max_tokens", "max_completion_tokens", "response_format", "verbosity"),
        *(
            "reasoning_effort",
            "tools",
            "tool_choice",
            "logprobs",
            "top_logprobs",
            "store",
            "n",
            "best_of",
            "prediction",
        ),
    }
)
"""Fields of a chat request that have another form in Responses, or none that changes the answer."""
_NOT_EXPRESSIBLE: Final = ("stop", "logit_bias", "functions", "function_call", "audio")
"""Fields without which the answer would be another one."""
_LOGPROBS: Final = "message.output_text.logprobs"


def responses_body(request: ChatRequest, model: str) -> dict[str, Any]:
    """Return the body of the request to a deployment of that model.

    Raises:
        InvalidRequest: A field cannot be expressed, and the answer depends on it.
    """
    document = request.document
    _refuse(document)
    instructions, items = _input_of(document["messages"])
    body: dict[str, Any] = {name: value for name, value in document.items() if name not in _RENAMED}
    body |= {"model": model, "input": items, "store": False}
    if instructions is not None:
        body["instructions"] = instructions
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = request.max_output_tokens
    if document.get("tools"):
        body["tools"] = responses_tools(document["tools"])
    if document.get("tool_choice") is not None:
        body["tool_choice"] = responses_tool_choice(document["tool_choice"])
    body |= _text(document)
    _add_settings(body, document)
    return body


def _refuse(document: dict[str, Any]) -> None:
    for name in _NOT_EXPRESSIBLE:
        if document.get(name):
            raise InvalidRequest(
                f"`{name}` cannot be expressed in the Responses API, which the deployment of this model speaks.",
                param=name,
                code="unsupported_parameter",
            )
    if (document.get("n") or 1) > 1:
        raise InvalidRequest(
            "`n` must be 1: the deployment of this model speaks the Responses API, which gives one answer.",
            param="n",
            code="unsupported_parameter",
        )


def _text(document: dict[str, Any]) -> dict[str, Any]:
    """Return `text`, where the request says anything about the form of the answer."""
    text = {} if document.get("verbosity") is None else {"verbosity": document["verbosity"]}
    form = document.get("response_format")
    if isinstance(form, dict) and form.get("type") == "json_schema" and isinstance(form.get("json_schema"), dict):
        text["format"] = {"type": "json_schema", **form["json_schema"]}
    elif isinstance(form, dict):
        text["format"] = form
    return {"text": text} if text else {}


def _add_settings(body: dict[str, Any], document: dict[str, Any]) -> None:
    """Add the settings of reasoning and of log probabilities, which Responses has in other places."""
    if document.get("reasoning_effort") is not None:
        settings = document.get("reasoning")
        body["reasoning"] = {**(settings if isinstance(settings, dict) else {}), "effort": document["reasoning_effort"]}
    if document.get("logprobs"):
        body["top_logprobs"] = document.get("top_logprobs") or 0
        include = document.get("include")
        stated = include if isinstance(include, list) else []
        body["include"] = stated if _LOGPROBS in stated else [*stated, _LOGPROBS]


def _input_of(messages: list[dict[str, Any]]) -> tuple[str | None, list[Any]]:
    """Return the instructions, which are a first message of the system, and the items of all others."""
    instructions = None
    first = messages[0]
    if first["role"] == "system" and isinstance(first["content"], str) and len(messages) > 1:
        instructions, messages = first["content"], messages[1:]
    custom = _custom_calls(messages)
    return instructions, [item for message in messages for item in _items_of(message, custom)]


def _custom_calls(messages: list[dict[str, Any]]) -> frozenset[Any]:
    """Return the ids of calls of custom tools, whose outputs have a type of their own."""
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    return frozenset(call.get("id") for call in calls if isinstance(call.get("custom"), dict))


def _items_of(message: dict[str, Any], custom: frozenset[Any]) -> list[Any]:
    role = message["role"]
    if role == "assistant":
        return _answer_items(message)
    if role == "tool":
        kind = "custom_tool_call_output" if message["tool_call_id"] in custom else "function_call_output"
        output = responses_content(message["content"], is_output=False)
        return [{"type": kind, "call_id": message["tool_call_id"], "output": output}]
    if role == "function":
        return [{"type": "function_call_output", "call_id": message["name"], "output": message.get("content") or ""}]
    return [{"role": role, "content": responses_content(message["content"], is_output=False)}]


def _answer_items(message: dict[str, Any]) -> list[Any]:
    """Return what an assistant message consists of, its deployment's own items in their places."""
    pieces: list[Any] = []
    content = message.get("content") or message.get("refusal")
    if content:
        pieces.append({"role": "assistant", "content": responses_content(content, is_output=True)})
    pieces += [_call_item(call) for call in calls_of(message)]
    entries = latest_items(message.get(OUTPUT_ITEMS))
    items: list[Any] = []
    for number in range(len(pieces) + 1):
        last = number == len(pieces)
        items += [entry["item"] for entry in entries if entry["at"] == number or (last and entry["at"] > number)]
        items += pieces[number : number + 1]
    return items


def _call_item(call: dict[str, Any]) -> dict[str, Any]:
    custom = call.get("custom")
    if isinstance(custom, dict):
        name, text = custom.get("name"), custom.get("input") or ""
        return {"type": "custom_tool_call", "call_id": call.get("id"), "name": name, "input": text}
    function = call.get("function")
    if not isinstance(function, dict):
        return call
    arguments = function.get("arguments") or ""
    return {"type": "function_call", "call_id": call.get("id"), "name": function["name"], "arguments": arguments}
