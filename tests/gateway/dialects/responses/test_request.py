"""Requests of the Responses API as chat requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.chat.request import ChatRequestParser
from gateway.dialects.client_dialect import StateNeeded
from gateway.dialects.responses.request import Items, ResponsesParser
from gateway.errors import InvalidRequest


def parsed(recalled: dict[str, Items] | None = None, **fields: Any) -> dict[str, Any]:
    """The chat document that a request becomes."""
    parser = ResponsesParser(ChatRequestParser())
    document = parser.read(json.dumps({"model": "auto", "input": "hi", **fields}).encode())
    return parser.parse(document, recalled or {}, is_long=False).chat.document


@pytest.mark.parametrize(
    ("fields", "chat"),
    [
        ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
        ({"text": {"verbosity": "low"}}, {"verbosity": "low"}),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        ({"top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}},
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
                }
            },
        ),
        ({"tool_choice": {"type": "web_search"}}, {"tool_choice": {"type": "web_search"}}),
        ({"safety_identifier": "u", "user": "v"}, {"safety_identifier": "u", "user": "v"}),
        ({"store": True, "metadata": {"a": "b"}}, {}),
    ],
)
def test_a_field_has_its_name_in_chat_completions(fields: dict[str, Any], chat: dict[str, Any]) -> None:
    document = parsed(**fields)
    del document["model"], document["messages"]
    assert document == chat


def test_include_requests_log_probabilities() -> None:
    document = parsed(include=["message.output_text.logprobs"])
    assert (document["logprobs"], document["top_logprobs"]) == (True, 0)


def test_consecutive_items_of_the_model_are_one_message() -> None:
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": ""},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "custom_tool_call", "call_id": "c", "name": "p", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "2"}]},
    ]
    messages = parsed(input=items)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert messages[1]["reasoning_content"] == "hm"
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["a", "b"]
    assert messages[3]["tool_calls"] == [{"id": "c", "type": "custom", "custom": {"name": "p", "input": "x"}}]
    assert messages[4]["content"] == "2"


def test_everything_that_a_request_refers_to_is_needed_at_once() -> None:
    with pytest.raises(StateNeeded) as caught:
        parsed(previous_response_id="resp_1", input=[{"type": "item_reference", "id": "msg_1"}])
    assert caught.value.names == {"previous_response_id": "resp_1", "input[0].id": "msg_1"}


def test_recalled_items_come_before_the_clients_own() -> None:
    recalled: dict[str, Items] = {
        "resp_1": [{"role": "user", "content": "a"}],
        "msg_1": [{"type": "message", "role": "assistant", "content": "b"}],
    }
    sent = [{"type": "item_reference", "id": "msg_1"}, {"role": "user", "content": "c"}]
    messages = parsed(recalled, previous_response_id="resp_1", input=sent)["messages"]
    assert [message["content"] for message in messages] == ["a", "b", "c"]


def test_a_wrong_field_behind_a_tool_call_has_the_path_of_its_item() -> None:
    items = [{"role": "user", "content": "x"}, {"type": "function_call", "call_id": "a", "arguments": "{}"}]
    with pytest.raises(InvalidRequest) as caught:
        parsed(input=items)
    assert caught.value.param == "input[1].name"


def test_too_many_items_are_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(input=[{"role": "user", "content": "x"}] * 4097)
    assert caught.value.param == "input"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"store": "false"}, "store"),
        ({"n": 3}, "n"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"messages": [{"role": "user", "content": "x"}]}, "messages"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"metadata": "x"}, "metadata"),
        ({"input": [{"type": "item_reference"}]}, "input[0].id"),
        ({"input": [{"type": "function_call_output", "call_id": "a", "output": False}]}, "input[0].output"),
        ({"input": [{"type": False, "role": "user", "content": "x"}]}, "input[0].type"),
    ],
)
def test_refusals_name_the_field_of_the_request(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(**fields)
    assert caught.value.param == path


def test_numbers_that_are_whole_may_be_floats() -> None:
    assert parsed(input="x", max_output_tokens=8.0, seed=7.0)["seed"] == 7


FULL: dict[str, Any] = {
    "instructions": "i",
    "max_output_tokens": 9,
    "stream": True,
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    "tool_choice": {"type": "function", "name": "f"},
    "top_logprobs": 2,
    "parallel_tool_calls": False,
    "user": "u",
    "temperature": 0.5,
    "top_p": 0.5,
    "prompt_cache_key": "k",
    "service_tier": "auto",
}
"""A request from which every member of a chat request is made."""
OTHER: dict[str, Any] = {
    "messages": [{"role": "user", "content": "y"}],
    "max_completion_tokens": 1,
    "reasoning_effort": "high",
    "response_format": {"type": "text"},
    "verbosity": "high",
    "logprobs": False,
    "stream_options": {"continuous_usage_stats": True},
}
"""Values that a client may write under names that are not of this API."""


@pytest.mark.parametrize("name", sorted(parsed(**FULL)))
def test_no_name_of_the_client_changes_a_member_that_is_made_of_its_fields(name: str) -> None:
    own = {**FULL, "model": "auto", "input": "hi"}
    assert name in own or name in OTHER
    if name in own:
        return
    refusal = None
    try:
        assert parsed(**FULL, **{name: OTHER[name]}) == parsed(**FULL)
    except InvalidRequest as error:
        refusal = error
    assert refusal is None or (refusal.param == name and f"`{name}`" in refusal.message)


@pytest.mark.parametrize(
    ("field", "message", "expected"),
    [
        ("tool_choice.function.name", "`tool_choice.function.name` is required.", "`tool_choice.name` is required."),
        (
            "tool_choice.allowed_tools.tools[1].function.name",
            "`tool_choice.allowed_tools.tools[1].function.name` is required.",
            "`tool_choice.tools[1].name` is required.",
        ),
        ("tool_choice.allowed_tools", "`tool_choice.allowed_tools` must have", "`tool_choice` must have"),
        (
            "tools[2].custom.format.grammar.syntax",
            "tools[2].custom.format.grammar.syntax: x",
            "tools[2].format.syntax: x",
        ),
        ("tools[0].function.parameters", "`tools[0].function.parameters` has", "`tools[0].parameters` has"),
        ("tools", "`tools` must be a list; tools", "`tools` must be a list; tools"),
        (
            "messages[0].content[1].type",
            '`messages[0].content[1].type` must be "text" at this engine; got "image_url".',
            '`input[0].content[1].type` must be "input_text" at this engine; got "input_image".',
        ),
        ("messages", "The messages: `messages` are too long", "The messages: `input` are too long"),
        ("max_tokens", "Shorten the prompt or lower max_tokens.", "Shorten the prompt or lower max_output_tokens."),
    ],
)
def test_a_refusal_of_an_engine_is_in_the_words_of_the_client(field: str, message: str, expected: str) -> None:
    parser = ResponsesParser(ChatRequestParser())
    image = {"type": "input_image", "image_url": "https://a.example/b.png"}
    parts = [{"type": "input_text", "text": "a"}, image]
    document = {"model": "auto", "input": [{"role": "user", "content": parts}]}
    request = parser.parse(document, {}, is_long=False)
    assert request.messages.paths.in_own_words(message, field) == expected
