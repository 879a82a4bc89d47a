"""Requests of the Messages API as chat requests; refusals name the client's own fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.dialects.messages.request import MessagesParser, client_message, client_path
from gateway.errors import InvalidRequest
from tests.gateway.dialects.messages.client import message

PARSER = MessagesParser(ChatRequestParser())
CACHED = {"cache_control": {"type": "ephemeral"}}
PNG: dict[str, Any] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def parsed(**fields: Any) -> ChatRequest:
    return PARSER.parse(json.dumps(message(**fields)).encode())


def plain(**fields: Any) -> dict[str, Any]:
    """What a server of chat completions gets."""
    found: dict[str, Any] = json.loads(parsed(**fields).body_for("m"))
    return found


def turns(*messages: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in messages]


def test_a_small_request_needs_no_projection() -> None:
    request = parsed(system="be brief", temperature=0.5, top_k=4, metadata={"user_id": "u"})
    assert request.projection is None
    assert json.loads(request.raw) == {
        "model": "auto",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "max_completion_tokens": 64,
        "user": "u",
        "temperature": 0.5,
        "top_k": 4,
    }
    assert request.max_output_tokens == 64


def test_a_stream_wants_its_usage() -> None:
    found = plain(stream=True)
    assert found["stream"] is True
    assert found["stream_options"] == {"include_usage": True}


def test_null_and_empty_members_are_absent() -> None:
    assert "stop" not in plain(stop_sequences=[], system=None, tools=[], thinking=None, metadata={}, stream=None)


def test_a_conversation_with_tools() -> None:
    found = plain(
        messages=turns(
            ("user", [{"type": "text", "text": "weather?"}]),
            (
                "assistant",
                [{"type": "text", "text": "I look."}, _use("t1", "get", {"city": "Lyon"}), _use("t2", "get")],
            ),
            (
                "user",
                [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"},
                    {"type": "tool_result", "tool_use_id": "t2", "content": [_text("a"), PNG], "is_error": True},
                    _text("and now?"),
                ],
            ),
        ),
        tools=[{"name": "get", "description": "d", "input_schema": {"type": "object"}, **CACHED}],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    assert found["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [_call("t1", "get", '{"city":"Lyon"}'), _call("t2", "get", "{}")],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: a"},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "text", "text": "and now?"},
            ],
        },
    ]
    function = {"name": "get", "parameters": {"type": "object"}, "description": "d"}
    assert found["tools"] == [{"type": "function", "function": function}]
    assert found["tool_choice"] == "required"
    assert found["parallel_tool_calls"] is False


def _use(identifier: str, name: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": identifier, "name": name, "input": arguments or {}}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _call(identifier: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "get"}, {"type": "function", "function": {"name": "get"}}),
    ],
)
def test_tool_choices(choice: dict[str, Any], expected: Any) -> None:
    assert plain(tools=[{"name": "get", "input_schema": {"type": "object"}}], tool_choice=choice)["tool_choice"] == (
        expected
    )


def test_cache_control_is_dropped_for_chat_servers_and_stays_in_the_document() -> None:
    request = parsed(system=[{**_text("s"), **CACHED}], messages=turns(("user", [{**_text("q"), **CACHED}])))
    assert "cache_control" not in request.body_for("m").decode()
    assert request.document["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}


def test_reasoning_of_chat_servers_goes_back_and_that_of_others_only_to_its_maker() -> None:
    own = {"type": "thinking", "thinking": "mine", "signature": "penstock"}
    signed = {"type": "thinking", "thinking": "theirs", "signature": "c2ln"}
    request = parsed(messages=turns(("user", "q"), ("assistant", [own, signed, _text("a")]), ("user", "r")))
    given = json.loads(request.body_for("m"))["messages"][1]
    assert given == {"role": "assistant", "content": "a", "reasoning_content": "mine"}
    assert request.document["messages"][1]["content_blocks"] == [{"index": 1, **signed}]


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ({"type": "text", "media_type": "text/plain", "data": "DOC"}, {"type": "text", "text": "T\nDOC"}),
        ({"type": "content", "content": [_text("one"), _text("two")]}, {"type": "text", "text": "T\none\ntwo"}),
        (
            {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
            {"type": "file", "file": {"filename": "T", "file_data": "data:application/pdf;base64,JVBE"}},
        ),
    ],
)
def test_documents(source: dict[str, Any], part: dict[str, Any]) -> None:
    document = {"type": "document", "source": source, "title": "T", **CACHED}
    found = plain(messages=turns(("user", [_text("read"), document, _text("this")])))
    assert found["messages"][0]["content"] == [_text("read"), part, _text("this")]


def test_a_document_that_is_no_text_counts_little() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "A" * 50_000}
    assert parsed(messages=turns(("user", [{"type": "document", "source": source}]))).text_bytes < 2000


def test_an_image_at_an_address_passes_on() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}}
    found = plain(messages=turns(("user", [image])))
    assert found["messages"][0]["content"][0]["image_url"] == {"url": "https://a.example/b.png"}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        (
            {"messages": turns(("user", [_text("a"), {"type": "container_upload", "file_id": "f"}]))},
            "messages[0].content[1].type",
        ),
        (
            {"messages": turns(("user", [{"type": "image", "source": {"type": "file", "file_id": "f"}}]))},
            "messages[0].content[0].source",
        ),
        (
            {"messages": turns(("user", [{"type": "document", "source": {"type": "url", "url": "https://a"}}]))},
            "messages[0].content[0].source",
        ),
        ({"mcp_servers": [{"type": "url", "url": "https://a", "name": "n"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"thread": {"type": "create"}}, "thread"),
        ({"compaction": {"instructions": "short"}}, "compaction"),
    ],
)
def test_what_only_anthropics_api_has_is_refused_at_a_chat_server_by_name(fields: dict[str, Any], path: str) -> None:
    request = parsed(**fields)
    with pytest.raises(InvalidRequest) as caught:
        request.body_for("m")
    assert caught.value.param == path
    assert path in caught.value.message


def test_unknown_fields_pass_on_and_those_of_anthropics_api_do_not() -> None:
    found = plain(
        own_field={"a": [1]},
        context_management={"edits": []},
        thinking={"type": "enabled", "budget_tokens": 5000},
        messages=turns(("user", [{**_text("q"), "own_member": 1, **CACHED}])),
    )
    assert found["own_field"] == {"a": [1]}
    assert found["messages"][0]["content"] == [{**_text("q"), "own_member": 1}]
    assert "context_management" not in found
    assert "thinking" not in found
    assert found["reasoning_effort"] == "medium"


def test_whole_numbers_may_be_written_as_floats() -> None:
    document = parsed(top_k=4.0, max_tokens=9.0, thinking={"type": "enabled", "budget_tokens": 1024.0}).document
    assert [type(document[name]) for name in ("top_k", "max_completion_tokens")] == [int, int]


def test_a_schema_of_the_answer() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    found = plain(output_config={"effort": "max", "format": {"type": "json_schema", "schema": schema}})
    assert found["response_format"]["json_schema"]["schema"] == schema
    assert found["reasoning_effort"] == "high"
    assert "output_config" not in found


def test_a_trimmed_conversation_is_projected_too() -> None:
    request = parsed(messages=turns(("user", [{**_text("q"), **CACHED}])))
    shorter = request.with_messages([{"role": "user", "content": [{**_text("r"), **CACHED}]}])
    assert json.loads(shorter.body_for("m"))["messages"] == [{"role": "user", "content": [_text("r")]}]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": "x"}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 10**9}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": turns(("wizard", "x"))}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": turns(("user", [{"text": "x"}]))}, "messages[0].content[0].type"),
        ({"messages": turns(("user", [{"type": "text", "text": 7}]))}, "messages[0].content[0].text"),
        ({"messages": turns(("user", [{"type": "image"}]))}, "messages[0].content[0].source"),
        (
            {
                "messages": turns(
                    ("user", [_text("a"), {"type": "image", "source": {"type": "url", "url": "file:///a"}}])
                )
            },
            "messages[0].content[1].source.url",
        ),
        (
            {
                "messages": turns(
                    ("user", [{"type": "image", "source": {"type": "base64", "media_type": "a", "data": ""}}])
                )
            },
            "messages[0].content[0].source.media_type",
        ),
        ({"messages": turns(("user", [{"type": "tool_result"}]))}, "messages[0].content[0].tool_use_id"),
        (
            {"messages": turns(("user", "q"), ("assistant", [{"type": "tool_use", "id": "a", "name": "f"}]))},
            "messages[1].content[0].input",
        ),
        ({"system": 7}, "system"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"temperature": 9}, "temperature"),
        ({"temperature": "x"}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"stream": "yes"}, "stream"),
        ({"stop_sequences": ["x"] * 100}, "stop_sequences"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"system": [{"text": "x"}]}, "system[0].type"),
        ({"tools": [7]}, "tools[0]"),
        ({"tools": [{"name": 7, "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"type": "custom", "name": "f", "input_schema": None}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "f", "input_schema": {}}, {"input_schema": {}}]}, "tools[1].name"),
        ({"n": 2}, "n"),
        ({"n": "two"}, "n"),
        ({"metadata": {"user_id": "x" * 600}}, "metadata.user_id"),
        ({"api_base": "http://169.254.169.254"}, "api_base"),
    ],
)
def test_refusals_name_the_field_of_the_client(fields: dict[str, Any], path: str) -> None:
    body = {name: value for name, value in message(**fields).items() if value is not None}
    with pytest.raises(InvalidRequest) as caught:
        PARSER.parse(json.dumps(body).encode())
    assert caught.value.param == path
    assert path in caught.value.message
    assert "completion" not in caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"model":"a"',
        b"\xef\xbb\xbf{}",
        b'{"model":"\xff"}',
        b'{"model":"a","model":"b"}',
        b'{"model":"a","max_tokens":1e999,"messages":[{"role":"user","content":"x"}]}',
        b'{"model":"\\ud800","max_tokens":1,"messages":[{"role":"user","content":"x"}]}',
        b'{"messages":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"model":"a","max_tokens":NaN}',
    ],
)
def test_bad_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        PARSER.parse(body)


def test_a_long_conversation_is_parsed_in_slices() -> None:
    blocks = [{**_text("word " * 2000), **CACHED} for _ in range(40)]
    request = parsed(messages=turns(("user", blocks)))
    assert len(request.document["messages"][0]["content"]) == 40
    assert "cache_control" not in request.body_for("m").decode()


def test_stop_sequences_are_sent_as_stop_and_their_match_is_wanted() -> None:
    request = parsed(stop_sequences=["END"], metadata={"user_id": "u"})
    assert json.loads(request.body_for("m"))["stop"] == ["END"]
    assert "stop_sequences" not in json.loads(request.body_for("m"))
    assert request.projection is not None
    assert request.projection.headers == ((b"x-penstock-stop-reason", b"1"),)
    cached = parsed(system=[{**_text("s"), **CACHED}]).projection
    assert cached is not None
    assert cached.headers == ()


FULL: dict[str, Any] = {
    "system": "s",
    "stream": True,
    "stop_sequences": ["END"],
    "metadata": {"user_id": "u"},
    "service_tier": "standard_only",
    "tools": [{"name": "f", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "w"}],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
}
"""A request from which every member of a chat document is made."""
WRITTEN = sorted(
    {
        *PARSER.parse(json.dumps(message(**FULL)).encode(), ["a-beta"]).document,
        *plain(**{**FULL, "tools": FULL["tools"][:1]}),
    }
)
OTHER: dict[str, Any] = {
    "stream_options": {"continuous_usage_stats": True},
    "stop": ["x"],
    "user": "v",
    "max_completion_tokens": 1,
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
    "reasoning_effort": "high",
    "anthropic_tools": "x",
    "anthropic_beta": ["b"],
}
"""Values that a client may write under names that are not of this API."""


@pytest.mark.parametrize("name", WRITTEN)
def test_no_name_of_the_client_changes_a_member_that_is_made_of_its_fields(name: str) -> None:
    assert name in FULL or name in OTHER or name in message()
    if name in FULL or name in message():
        return
    expected = PARSER.parse(json.dumps(message(**FULL)).encode(), ["a-beta"])
    body = json.dumps(message(**FULL) | {name: OTHER[name]}).encode()
    refusal = None
    try:
        assert PARSER.parse(body, ["a-beta"]).document == expected.document
    except InvalidRequest as error:
        refusal = error
    assert refusal is None or (refusal.param == name and f"`{name}`" in refusal.message)


@pytest.mark.parametrize("name", sorted(OTHER.keys() - {"stream_options", "anthropic_beta", "reasoning_effort"}))
def test_a_name_of_chat_completions_is_refused_with_that_of_this_api(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(**{name: OTHER[name]})
    assert (caught.value.param, caught.value.code) == (name, "unsupported_parameter")
    assert "Send `" in caught.value.message


def test_an_effort_that_the_client_states_in_one_way_passes_on() -> None:
    assert plain(reasoning_effort="none")["reasoning_effort"] == "none"
    assert plain(n=1, stream_options={"include_usage": False}) == plain()


REFUSED_AT_AN_ENGINE = [
    (
        {"messages": turns(("user", [_text("a"), PNG]))},
        "messages[0].content[1].type",
        '`messages[0].content[1].type` must be "text" at this engine: it reads text only; got "image_url".',
        '`messages[0].content[1].type` must be "text" at this engine: it reads text only; got "image".',
    ),
    (
        {"messages": turns(("user", [{"type": "tool_result", "tool_use_id": "t", "content": [_text("a"), PNG]}]))},
        "messages[1].content[0].type",
        'messages[1].content[0].type: got "image_url"',
        'messages[0].content[0].content[1].type: got "image"',
    ),
    (
        {"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "g"}},
        "tool_choice.function.name",
        "`tool_choice.function.name` must be the name of one of the tools",
        "`tool_choice.name` must be the name of one of the tools",
    ),
    (
        {"tools": [{"name": "f", "input_schema": {}}]},
        "tools[0].function.parameters",
        "`tools[0].function.parameters` has a schema that cannot be followed",
        "`tools[0].input_schema` has a schema that cannot be followed",
    ),
    ({"stop_sequences": ["a"]}, "stop", "`stop` must stop early", "`stop_sequences` must stop early"),
    ({}, "max_completion_tokens", "max_completion_tokens is too large", "max_tokens is too large"),
    ({}, "max_tokens", "Shorten the prompt or lower max_tokens.", "Shorten the prompt or lower max_tokens."),
]


@pytest.mark.parametrize(("fields", "field", "message_of_engine", "expected"), REFUSED_AT_AN_ENGINE)
def test_a_refusal_of_an_engine_is_in_the_words_of_the_client(
    fields: dict[str, Any], field: str, message_of_engine: str, expected: str
) -> None:
    turns_of_request = PARSER.translate(json.dumps(message(**fields)).encode(), None)[1]
    assert client_message(message_of_engine, field, turns_of_request) == expected


def test_parts_behind_a_document_have_their_own_places() -> None:
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}
    sent = turns(("user", [document, PNG]))
    turns_of_request = PARSER.translate(json.dumps(message(messages=sent)).encode(), None)[1]
    assert json.loads(parsed(messages=sent).body_for("m"))["messages"][0]["content"][1]["type"] == "image_url"
    assert client_path("messages[0].content[1].type", turns_of_request) == "messages[0].content[1].type"
