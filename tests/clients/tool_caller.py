"""Upstream of the matrix: an OpenAI-compatible server that plays a model with tools, fields and a long context.

It calls the first tool when the user's text mentions one, answers with a tool's output when it has one, and fills a
JSON schema where one is required. Agents can so be driven through whole loops without a large model.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

GREETING: Final = "Hello from the upstream."
_USAGE: Final = {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28}


def example_of(schema: dict[str, Any], definitions: dict[str, Any] | None = None) -> Any:
    """Return a value that the schema allows, for the usual keywords."""
    definitions = definitions or schema.get("$defs") or {}
    if "$ref" in schema:
        return example_of(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    for word in ("const", "default"):
        if word in schema:
            return schema[word]
    if schema.get("enum"):
        return schema["enum"][0]
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return example_of(schema[word][0], definitions)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        required = schema.get("required", [])
        properties = schema.get("properties", {})
        return {name: example_of(properties.get(name, {}), definitions) for name in required}
    return {"integer": 7, "number": 7, "boolean": True, "array": [], "null": None}.get(str(kind), "Paris")


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.get("text") or "" for part in content or () if isinstance(part, dict))


def message_for(document: dict[str, Any]) -> dict[str, Any]:
    """Return the message that answers a chat completion request."""
    messages, tools = document["messages"], document.get("tools") or []
    names = [tool["function"]["name"] for tool in tools if tool.get("type") == "function"]
    last, choice = messages[-1], document.get("tool_choice", "auto")
    text = next((_text_of(message["content"]) for message in reversed(messages) if message["role"] == "user"), "")
    wanted = None
    if isinstance(choice, dict):
        wanted = (choice.get("function") or {}).get("name")
    elif last["role"] == "tool":
        wanted = "final_answer" if "final_answer" in names else None
    elif names and choice != "none" and (choice == "required" or "tool" in text.lower()):
        wanted = names[0]
    if wanted is not None:
        function = next(tool["function"] for tool in tools if tool.get("function", {}).get("name") == wanted)
        arguments = json.dumps(example_of(function.get("parameters") or {}))
        call = {"id": "call_1", "type": "function", "function": {"name": wanted, "arguments": arguments}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if last["role"] == "tool":
        return {"role": "assistant", "content": f"The tool answered: {_text_of(last['content'])}"}
    wish = document.get("response_format") or {}
    if wish.get("type") == "json_schema":
        return {"role": "assistant", "content": json.dumps(example_of(wish["json_schema"]["schema"]))}
    if wish.get("type") == "json_object" or any("JSON" in _text_of(message["content"]) for message in messages):
        return {"role": "assistant", "content": '{"answer": "7"}'}
    return {"role": "assistant", "content": GREETING}


def _pieces(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the deltas of a message: a few characters each."""
    content = None if message.get("tool_calls") else ""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": content}]
    text = message["content"] or ""
    deltas += [{"content": text[at : at + 5]} for at in range(0, len(text), 5)]
    for index, call in enumerate(message.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        deltas.append({"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": arguments[at : at + 5]}}]}
            for at in range(0, len(arguments), 5)
        ]
    return deltas


async def _events(document: dict[str, Any], message: dict[str, Any]) -> AsyncIterator[bytes]:
    common: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1}
    common["model"] = document["model"]
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in _pieces(message)]
    choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    for choice in choices:
        yield b"data: " + json.dumps({**common, "choices": [choice]}).encode() + b"\n\n"
    if (document.get("stream_options") or {}).get("include_usage"):
        yield b"data: " + json.dumps({**common, "choices": [], "usage": _USAGE}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


async def _complete(request: Request) -> Response:
    document = await request.json()
    message = message_for(document)
    if document.get("stream"):
        return StreamingResponse(_events(document, message), media_type="text/event-stream")
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    common = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": document["model"]}
    return JSONResponse({**common, "choices": [choice], "usage": _USAGE})


async def _models(request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [{"id": "agent", "object": "model"}]})


application = Starlette(
    routes=[Route("/v1/chat/completions", _complete, methods=["POST"]), Route("/v1/models", _models)]
)
