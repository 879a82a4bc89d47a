"""Every member of a request or an answer, replaced by a value of another type: refused in words, or translated."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.chat.strictness import refuse_addressed_images, refuse_unknown_fields
from gateway.dialects.client_dialect import StateNeeded
from gateway.dialects.messages.answer import message_of
from gateway.dialects.messages.request import MessagesParser
from gateway.dialects.messages.stream import MessageStream
from gateway.dialects.messages.upstream.answer import completion_of
from gateway.dialects.messages.upstream.dialect import AnthropicDialect
from gateway.dialects.messages.upstream.events import MessageEvents
from gateway.dialects.responses.answer import response_of
from gateway.dialects.responses.request import ResponsesParser
from gateway.dialects.responses.response_frame import ResponseFrame
from gateway.dialects.responses.stream import ResponseStream
from gateway.dialects.responses.upstream.responses_upstream import ResponsesUpstream
from gateway.dialects.responses.upstream.upstream_answer import completion_of_response
from gateway.dialects.responses.upstream.upstream_stream import ResponsesTranslator
from gateway.errors import GatewayError
from tests.gateway.dialects.messages.upstream import anthropic_server as anthropic
from tests.gateway.dialects.responses.upstream import test_responses_upstream as responses

ODD: list[Any] = [None, [], {}, 3, "x", "\ud83d", True, 1.5, [1], [None], [{"type": []}], {"type": {}}]
PNG = "data:image/png;base64,AAAA"
FUNCTION = {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}}
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "q"},
                {"type": "image_url", "image_url": {"url": PNG}, "tool_result": {"tool_use_id": "c", "index": 0}},
                {"type": "file", "file": {"filename": "f", "file_data": "data:application/pdf;base64,AA"}},
            ],
            "content_blocks": [{"index": 0, "type": "document", "source": {"type": "text", "data": "x"}}],
        },
        {
            "role": "assistant",
            "content": "a",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                {"id": "d", "type": "custom", "custom": {"name": "g", "input": "x"}},
            ],
            "content_blocks": [{"index": 0, "type": "thinking", "thinking": "t", "signature": "s"}],
            "output_items": [{"at": 0, "item": {"id": "x", "type": "reasoning", "summary": []}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "x", "content_blocks": [{"index": 0, "type": "image"}]},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
    ],
    "tools": [FUNCTION],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [FUNCTION]}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
    "anthropic_beta": ["x"],
    "anthropic_tools": [{"index": 0, "type": "w", "name": "y"}],
    "reasoning": {"summary": "auto"},
    "reasoning_effort": "low",
    "include": ["x"],
    "modalities": ["text"],
    "output_config": {"effort": "low"},
    "thinking": {"type": "enabled"},
}
WITH_LOGPROBS = {"model": "m", "messages": [{"role": "user", "content": "q"}], "logprobs": True, "include": ["x"]}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
MESSAGE: dict[str, Any] = {
    "model": "m",
    "max_tokens": 5,
    "system": [{"type": "text", "text": "s"}],
    "messages": [
        {
            "role": "user",
            "content": [
                IMAGE,
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"}},
                {"type": "document", "source": {"type": "content", "content": [anthropic.TEXT]}, "title": "t"},
                {"type": "search_result", "source": "s", "title": "t", "content": [anthropic.TEXT]},
            ],
        },
        {"role": "assistant", "content": [anthropic.REASONED, anthropic.REDACTED, anthropic.CALL]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [IMAGE]}]},
    ],
    "tools": [{"name": "g", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "w"}],
    "tool_choice": {"type": "tool", "name": "g"},
    "thinking": {"type": "enabled", "budget_tokens": 2048},
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    "metadata": {"user_id": "u"},
}
RESPONSE: dict[str, Any] = {
    "model": "m",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "q"}, {"type": "input_image", "image_url": PNG}]},
        responses.REASONING,
        responses.CALL,
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "x"}]},
        responses.SEARCH,
        responses.MESSAGE,
    ],
    "tools": [{"type": "function", "name": "g", "parameters": {}}, {"type": "web_search"}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]},
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "json_schema", "name": "a", "schema": {}}, "verbosity": "low"},
    "include": ["message.output_text.logprobs"],
}
COMPLETION: dict[str, Any] = {
    "id": "c",
    "model": "m",
    "choices": [{"index": 0, "message": CHAT["messages"][1], "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
}
DELTA = {"role": "assistant", "content": "", **CHAT["messages"][1]}
CHUNKS = [
    {"id": "c", "model": "m", "choices": [{"index": 0, "delta": DELTA}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": COMPLETION["usage"]},
]
BLOCKS: list[dict[str, Any]] = [
    *(anthropic.REASONED, anthropic.TEXT, anthropic.CALL),
    *(anthropic.SEARCH, anthropic.FOUND, anthropic.CITED),
]
WHOLE = anthropic.message_with(BLOCKS)
PARSER = ChatRequestParser()
MESSAGES = MessagesParser(PARSER)
RESPONSES = ResponsesParser(PARSER)


def variants(document: Any) -> Iterator[Any]:
    """The document, and copies in each of which one member has another value."""
    yield document
    for path in paths(document):
        for value in ODD:
            copied = copy.deepcopy(document)
            place = copied
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
            yield copied


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every member below the value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in items:
        yield (*path, name)
        yield from paths(child, (*path, name))


def tried(*calls: Callable[[], object]) -> int:
    """Make calls that may fail in words only; return how many succeeded."""
    num_succeeded = 0
    for call in calls:
        try:
            call()
            num_succeeded += 1
        except (GatewayError, StateNeeded):
            pass
    return num_succeeded


def send(request: ChatRequest) -> int:
    """Translate a request to every dialect, and hold a strict route's rules."""
    return tried(
        lambda: AnthropicDialect().body(request.in_dialect("anthropic"), "m"),
        lambda: AnthropicDialect().request_headers(request),
        lambda: ResponsesUpstream().body(request.in_dialect("responses"), "m"),
        lambda: request.body_for("m"),
        lambda: refuse_unknown_fields(request),
        lambda: refuse_addressed_images(request),
    )


def responses_request(body: bytes) -> ChatRequest:
    return RESPONSES.parse(RESPONSES.read(body), {}, is_long=False).chat


@pytest.mark.parametrize(
    ("parse", "document"),
    [
        (PARSER.parse, CHAT),
        (PARSER.parse, WITH_LOGPROBS),
        (MESSAGES.parse, MESSAGE),
        (responses_request, RESPONSE),
    ],
)
def test_a_request_is_refused_or_translated(parse: Callable[[bytes], ChatRequest], document: dict[str, Any]) -> None:
    num_sent = 0
    for variant in variants(document):
        body = json.dumps(variant).encode()
        num_sent += tried(lambda body=body: send(parse(body)))  # type: ignore[misc]
    assert num_sent > 0


def frame() -> ResponseFrame:
    return ResponseFrame(
        RESPONSES.parse({"model": "m", "input": "hi"}, {}, is_long=False), "0" * 48, 1, is_stored=False
    )


def chat_answer(document: Any) -> bytes:
    return json.dumps(document).encode()


def anthropic_answer(document: Any) -> bytes:
    return completion_of(json.dumps(document).encode())


def responses_answer(document: Any) -> bytes:
    return ResponsesUpstream().answer(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("complete", "document"),
    [
        (chat_answer, COMPLETION),
        (anthropic_answer, WHOLE),
        (responses_answer, responses.response([responses.REASONING, responses.MESSAGE, responses.CALL])),
    ],
)
def test_an_answer_is_a_failure_or_translated(complete: Callable[[Any], bytes], document: Any) -> None:
    def give(variant: Any) -> int:
        completion = complete(variant)
        return tried(
            lambda: message_of(completion, shows_reasoning=True),
            lambda: response_of(completion, frame()),
        )

    assert sum(tried(lambda variant=variant: give(variant)) for variant in variants(document)) > 0  # type: ignore[misc]


def chat_stream(events: list[Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + b"data: [DONE]\n\n"


def named(events: list[Any]) -> bytes:
    names = [str(event.get("type")) if isinstance(event, dict) else "x" for event in events]
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (name.encode(errors="replace"), json.dumps(event).encode())
        for name, event in zip(names, events, strict=True)
    )


def anthropic_stream(events: list[Any]) -> bytes:
    translator = MessageEvents()
    return translator.feed(named(events)) + translator.finish()


def responses_stream(events: list[Any]) -> bytes:
    translator = ResponsesTranslator()
    return translator.feed(named(events)) + translator.finish()


@pytest.mark.parametrize(
    ("translate", "events"),
    [
        (chat_stream, CHUNKS),
        (anthropic_stream, [json.loads(part.split(b"data: ")[1]) for part in anthropic.stream_of(WHOLE)]),
        (responses_stream, responses.EVENTS),
    ],
)
def test_a_stream_is_a_failure_or_translated(translate: Callable[[list[Any]], bytes], events: list[Any]) -> None:
    def give(variant: Any) -> int:
        stream = translate(variant)
        return tried(
            lambda: MessageStream(shows_reasoning=True).finish(stream),
            lambda: ResponseStream(frame()).finish(stream),
        )

    assert sum(tried(lambda variant=variant: give(variant)) for variant in variants(events)) > 0  # type: ignore[misc]


def test_a_header_has_no_value_that_a_client_could_break_it_with() -> None:
    betas = ["a\r\nx-evil: 1", "fine-2025", 3, "a,b", "é"]
    request = PARSER.parse(json.dumps({**WITH_LOGPROBS, "anthropic_beta": betas}).encode())
    assert AnthropicDialect().request_headers(request) == ((b"anthropic-beta", b"fine-2025"),)
    request = PARSER.parse(json.dumps({**WITH_LOGPROBS, "anthropic_beta": ["x" * 100_000]}).encode())
    assert AnthropicDialect().request_headers(request) == ()


def test_an_older_function_call_stays_beside_its_output() -> None:
    request = PARSER.parse(json.dumps({"model": "m", "messages": CHAT["messages"][3:]}).encode())
    turns = json.loads(AnthropicDialect().body(request, "m"))["messages"]
    assert turns[0]["content"] == [{"type": "tool_use", "id": "f", "name": "f", "input": {}}]
    assert turns[1]["content"][0]["tool_use_id"] == "f"
    items = json.loads(ResponsesUpstream().body(request, "m"))["input"]
    assert items[0] == {"type": "function_call", "call_id": "f", "name": "f", "arguments": "{}"}
    assert items[1]["call_id"] == "f"


def test_a_creation_time_with_a_fraction_stays() -> None:
    body = b'{"id":"r","created_at":1741476542.25,"status":"completed","output":[]}'
    assert completion_of_response(body)["created"] == 1741476542
