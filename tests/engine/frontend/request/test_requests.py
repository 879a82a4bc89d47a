"""What a request may state: every refusal names its field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.config import FrontConfig
from engine.frontend.request.errors import ApiError
from engine.frontend.request.requests import parse_chat, parse_completion

CONFIG = FrontConfig(listen="unix:/nowhere", model_name="tiny")
USER = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> bytes:
    return json.dumps({"model": "tiny", "messages": [USER], **fields}).encode()


def completion(**fields: Any) -> bytes:
    return json.dumps({"model": "tiny", "prompt": "hi", **fields}).encode()


def refusal(body: bytes, parse: Any = parse_chat) -> tuple[int, str, str | None]:
    with pytest.raises(ApiError) as caught:
        parse(body, CONFIG)
    return caught.value.status, caught.value.code, caught.value.param


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", 2.5),
        ("temperature", 1e9),
        ("temperature", "1"),
        ("temperature", True),
        ("temperature", 10**400),
        ("top_p", 1.01),
        ("top_k", -5),
        ("top_k", 1.5),
        ("min_p", 2),
        ("presence_penalty", -2.1),
        ("frequency_penalty", 3),
        ("repetition_penalty", 0),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 1.5),
        ("max_tokens", "5"),
        ("max_tokens", True),
        ("max_tokens", 10**12),
        ("max_completion_tokens", 0),
        ("n", 0),
        ("n", 1000),
        ("n", True),
        ("seed", 2**64),
        ("seed", 1.5),
        ("stream", "yes"),
        ("prediction", "text"),
        ("stream", 1),
        ("logprobs", 1),
        ("top_logprobs", 3),
        ("stop", 5),
        ("stop", ["x"] * 10_000),
        ("logit_bias", {str(i): 1 for i in range(50_000)}),
        ("logit_bias", {"a": 1}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"5": 101}),
        ("messages", []),
        ("messages", None),
        ("messages", "hi"),
        ("messages", [USER] * 5_000),
        ("model", None),
        ("model", 5),
        ("user", 5),
        ("stream_options", {"include_usage": True}),
    ],
)
def test_a_wrong_value_is_named(field: str, value: object) -> None:
    assert refusal(chat(**{field: value})) == (400, "invalid_value", field)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 10**6}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"stream": True, "stream_options": {"surprise": 1}}, "stream_options.surprise"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stop": ["a", 5]}, "stop[1]"),
        ({"messages": [USER, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": ["hi"]}]}, "messages[0].content[0]"),
        ({"messages": [None]}, "messages[0]"),
        ({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].id"),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ],
)
def test_a_wrong_value_inside_is_named_with_its_place(fields: dict[str, Any], param: str) -> None:
    assert refusal(chat(**fields)) == (400, "invalid_value", param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"api_base": "http://x"}, "api_base"),
        ({"base_url": "http://x"}, "base_url"),
        ({"custom_host": "x"}, "custom_host"),
        ({"chat_template": "{{ 1 }}"}, "chat_template"),
        ({"chat_template": None}, "chat_template"),
        ({"audio": {"voice": "alloy"}}, "audio"),
        ({"messages": [USER, {"role": "assistant", "audio": {"id": "a"}}]}, "messages[1].audio"),
        ({"guided_json": {"type": "object"}}, "guided_json"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"web_search_options": {"search_context_size": "low"}}, "web_search_options"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"stop_token_ids": [7]}, "stop_token_ids"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"api_key": "x"}, "api_key"),
        ({"tools": [{"type": "custom", "custom": {"name": "sh"}}]}, "tools[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].type",
        ),
    ],
)
def test_what_is_not_served_is_named(fields: dict[str, Any], param: str) -> None:
    assert refusal(chat(**fields)) == (400, "unsupported_parameter", param)


ADVISORY: dict[str, Any] = {
    "reasoning_effort": "low", "verbosity": "low", "modalities": ["text"], "prediction": {"content": "a"},
    "cache_control": {"type": "ephemeral"}, "store": True, "metadata": {"a": 1}, "safety_identifier": "s",
    "x_unknown": [1],
    "web_search_options": None, "thinking": {"type": "disabled"}, "provider": {"order": ["a"]}, "service_tier": "gold",
    "echo": False, "use_beam_search": False, "top_k": -1, "top_p": 0, "best_of": 1, "trust_remote_code": True,
}  # fmt: skip


@pytest.mark.parametrize("name", ADVISORY)
def test_a_field_without_which_the_answer_is_the_same_is_ignored(name: str) -> None:
    assert parse_chat(chat(**{name: ADVISORY[name]}), CONFIG).messages == parse_chat(chat(), CONFIG).messages


def test_every_advisory_field_at_once_and_at_any_depth() -> None:
    answer = {"role": "assistant", "content": "a", "reasoning_content": "b", "annotations": [{"x": 1}], "x": {"y": 1}}
    part = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    tool = {"type": "function", "function": {"name": "f", "x": 1}, "cache_control": {}, "x": 1}
    messages = [{"role": "user", "content": [part], "x": 1}, answer, USER]
    request = parse_chat(chat(**{**ADVISORY, "messages": messages, "tools": [tool]}), CONFIG)
    assert [message.text for message in request.messages] == ["hi", "a", "hi"]


def test_the_newer_limit_wins() -> None:
    assert parse_chat(chat(max_tokens=5, max_completion_tokens=6), CONFIG).output_limit == 6


def test_calls_in_the_older_spelling_are_calls() -> None:
    messages = [
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "4"},
    ]
    older = parse_chat(chat(messages=messages), CONFIG).messages
    assert older[1].tool_calls is not None
    assert (older[1].tool_calls[0].id, older[1].tool_calls[0].function.name) == ("call_f", "f")
    assert (older[2].role, older[2].tool_call_id, older[2].text) == ("tool", "call_f", "4")


@pytest.mark.parametrize("value", [[], {"a": 1}, "x" * 257, 1e400, None])
def test_an_option_of_the_template_is_a_boolean_a_number_or_a_short_string(value: object) -> None:
    body = chat(chat_template_kwargs={"enable_thinking": False, "a": value})
    if not value:
        assert parse_chat(body, CONFIG).chat_template_kwargs == {"enable_thinking": False}
    elif value == 1e400:
        assert refusal(body) == (400, "invalid_json", None)
    else:
        assert refusal(body)[2] == "chat_template_kwargs.a"


def test_missing_fields_are_named() -> None:
    assert refusal(b'{"model": "tiny"}') == (400, "invalid_value", "messages")
    assert refusal(json.dumps({"messages": [USER]}).encode()) == (400, "invalid_value", "model")


def test_another_model_is_not_found() -> None:
    assert refusal(chat(model="gpt")) == (404, "model_not_found", "model")


def test_fields_that_request_nothing_are_taken() -> None:
    request = parse_chat(
        chat(
            user="u", store=False, metadata={"a": "b"}, service_tier="auto", prompt_cache_key="k", tools=[],
            safety_identifier="s", parallel_tool_calls=True, tool_choice="none", response_format={"type": "text"},
            temperature=None, stop=None, n=None, logit_bias=None, stream=None, stream_options=None, top_logprobs=None,
        ),
        CONFIG,
    )  # fmt: skip
    assert (request.num_choices, request.stops, request.num_top_logprobs) == (1, (), None)


def test_text_parts_are_joined_and_both_names_of_the_limit_count() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    message = {"role": "assistant", "content": parts, "refusal": None, "tool_calls": None, "name": "x"}
    request = parse_chat(chat(messages=[message], max_completion_tokens=7, stop="s"), CONFIG)
    assert (request.messages[0].text, request.output_limit, request.stops) == ("ab", 7, ("s",))


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"prompt": ""}, "invalid_value", "prompt"),
        ({"prompt": []}, "invalid_value", "prompt"),
        ({"prompt": ["a", ""]}, "invalid_value", "prompt[1]"),
        ({"prompt": ["a", [1]]}, "invalid_value", "prompt[1]"),
        ({"prompt": [[1], [2, -1]]}, "invalid_value", "prompt[1][1]"),
        ({"prompt": ["a"] * 65}, "invalid_value", "prompt"),
        ({"prompt": [1, True]}, "invalid_value", "prompt[1]"),
        ({"prompt": [1, -1]}, "invalid_value", "prompt[1]"),
        ({"prompt": None}, "invalid_value", "prompt"),
        ({"echo": True}, "unsupported_parameter", "echo"),
        ({"suffix": "x"}, "unsupported_parameter", "suffix"),
        ({"best_of": 5}, "unsupported_parameter", "best_of"),
        ({"logprobs": True}, "invalid_value", "logprobs"),
        ({"logprobs": 10**6}, "invalid_value", "logprobs"),
    ],
)
def test_completions_are_as_strict(fields: dict[str, Any], code: str, param: str) -> None:
    assert refusal(completion(**fields), parse_completion) == (400, code, param)


def test_completions_take_text_and_token_ids() -> None:
    assert parse_completion(completion(prompt=[1, 2], best_of=1, echo=False), CONFIG).prompt == [1, 2]
    assert parse_completion(completion(logprobs=0), CONFIG).num_top_logprobs == 0


@pytest.mark.parametrize(
    ("prediction", "param"),
    [
        ({"type": "image", "content": "a"}, "prediction.type"),
        ({"type": "content", "content": 5}, "prediction.content"),
        ({"type": "content", "content": [{"type": "image_url", "text": "a"}]}, "prediction.content[0].type"),
        ({"type": "content", "content": [{"type": "text", "text": 5}]}, "prediction.content[0].text"),
    ],
)
def test_a_malformed_prediction_is_named(prediction: Any, param: str) -> None:
    assert refusal(chat(prediction=prediction)) == (400, "invalid_value", param)
