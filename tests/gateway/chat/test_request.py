"""ChatRequest: what is accepted, what is refused and with which place."""

from __future__ import annotations

import contextlib
import json
import re
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat.json_faults import MAX_DEPTH, MAX_VALUES
from gateway.chat.request import ChatRequest, ChatRequestParser, require_json
from gateway.errors import InvalidRequest, UnsupportedMediaType

PARSER = ChatRequestParser()


def parse(**fields: Any) -> ChatRequest:
    document = {"model": "auto", "messages": [{"role": "user", "content": "hi"}], **fields}
    return PARSER.parse(json.dumps(document).encode())


def refusal(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse(**fields)
    return caught.value


def raw_refusal(body: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        PARSER.parse(body)
    return caught.value


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ANSWER = {"role": "tool", "content": "4", "tool_call_id": "1"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
HTTPS = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "original"}}

ACCEPTED: list[dict[str, Any]] = [
    {"max_tokens": 1, "temperature": 0, "top_p": 1, "n": 2, "stop": "x", "seed": -1, "stream": False},
    {"max_completion_tokens": None, "temperature": None, "stop": None, "logit_bias": None, "tools": None},
    {"stop": ["a", "b"], "logit_bias": {"12": -100, "7": 1.5}, "logprobs": True, "top_logprobs": 20},
    {"stream": True, "stream_options": {"include_usage": True}},
    {"top_k": -1, "min_p": 0.1, "repetition_penalty": 1.1, "presence_penalty": -2, "frequency_penalty": 2},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}},
    {"tools": [{"type": "function", "function": {"name": "f-1", "parameters": {}}}], "tool_choice": "auto"},
    {"messages": [{"role": "developer", "content": [{"type": "text", "text": "a"}]}, {"role": "user", "content": ""}]},
    {"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}, ANSWER]},
    {"messages": [{"role": "user", "content": [IMAGE]}]},
    {"user": "u", "prompt_cache_key": "k", "service_tier": "auto", "metadata": {"a": "b"}, "own_field": {"x": [1]}},
    {"messages": [{"role": "user", "content": [HTTPS, {"type": "file", "file": {"file_id": "f"}}]}]},
    {"messages": [{"role": "system", "content": [{"type": "video_url", "video_url": {"url": "https://a/b.mp4"}}]}]},
    {"messages": [{**ANSWER, "content": [{"type": "text", "text": "a"}, IMAGE]}]},
    {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "custom", "custom": {}}]}]},
    {"tools": [{"type": "custom", "custom": {"name": "sh"}}, {"type": "web_search"}, {"name": "bare"}]},
    {"tools": [{"type": "function", "function": {"name": f"server.tool_{number}"}} for number in range(300)]},
    {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
    {"chat_template_kwargs": {"enable_thinking": False}, "thinking": {"type": "enabled"}, "provider": {"order": ["a"]}},
    {"response_format": {"type": "structural_tag", "structures": [], "triggers": []}, "max_completion_tokens": 0},
]


@pytest.mark.parametrize("fields", ACCEPTED)
def test_accepts_what_the_contract_lists(fields: dict[str, Any]) -> None:
    assert parse(**fields).document.items() >= fields.items()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "user", "content": "x"}] * 5000}, "messages"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "root", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"text": "hi"}]}]}, "messages[0].content[0].type"),
    ({"model": ""}, "model"),
    ({"model": 3}, "model"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 10**9}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"n": 1000}, "n"),
    ({"n": 0}, "n"),
    ({"best_of": 4}, "best_of"),
    ({"logprobs": 10**6}, "logprobs"),
    ({"logprobs": True, "top_logprobs": 10**6}, "top_logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"top_k": -5}, "top_k"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": 1e9}, "temperature"),
    ({"top_p": 1.01}, "top_p"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"stop": ["x"] * 10_000}, "stop"),
    ({"stop": [""]}, "stop[0]"),
    ({"logit_bias": {str(i): 1 for i in range(50_000)}}, "logit_bias"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"seed": 2**64}, "seed"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}] * 10_000}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "../f"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "a\n"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"response_format": "xml"}, "response_format"),
]


@pytest.mark.parametrize(
    ("fields", "param"), REFUSED, ids=[f"{param}-{index}" for index, (_, param) in enumerate(REFUSED)]
)
def test_refuses_with_the_path_of_the_field(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)

    assert (error.status, error.code, error.param) == (400, "invalid_value", param)
    assert error.message.startswith(f"`{param}` ")
    assert not re.search(r"[Ee]xpected|`(?:int|str|float|array|object|bool)`", error.message), "the parser's words"


@pytest.mark.parametrize("name", ["api_base", "base_url", "custom_host", "api_key", "chat_template"])
def test_refuses_privileged_fields_whatever_they_hold(name: str) -> None:
    values: list[Any] = ["x", None, {}, 1]
    for value in values:
        assert (refusal(**{name: value}).code, refusal(**{name: value}).param) == ("unsupported_parameter", name)


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/", "http://[::1]/", "file:///etc/passwd", "gopher://x", "//x", "data:text/html,x"]
)
def test_refuses_images_that_would_have_to_be_fetched(url: str) -> None:
    error = refusal(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])

    assert error.param == "messages[0].content[0].image_url.url"
    assert "must begin with data:image/ or https://" in error.message, "a pattern tells nobody what to send"


def test_a_name_with_other_characters_is_refused_in_words() -> None:
    error = refusal(tools=[{"type": "function", "function": {"name": "a/b"}}])
    assert error.message == (
        '`tools[0].function.name` must be 1 to 256 characters without slashes and control characters; got "a/b".'
    )
    assert refusal(temperature=7).message == "`temperature` must be between 0 and 2; got 7."


REPEATED: list[tuple[bytes, str]] = [
    (b'{"model":"a","model":"b","messages":[{"role":"user","content":"x"}]}', "model"),
    (b'{"model":"a", "model" : "b","messages":[{"role":"user","content":"x"}]}', "model"),
    (b'{"model":"a","mod\\u0065l":"b","messages":[{"role":"user","content":"x"}]}', "model"),
    (b'{"model":"a","messages":[{"role":"user","content":"x"}],"messages":[]}', "messages"),
    (b'{"model":"a","messages":[{"role":"user","role":"system","content":"x"}]}', "role"),
    (b'{"model":"a","messages":[{"role":"user","content":"x","content":"y"}]}', "content"),
    (b'{"model":"a","own":1,"own":2,"messages":[{"role":"user","content":"x"}]}', "own"),
    (b'{"model":"a","api_base":1,"api_base":2,"messages":[{"role":"user","content":"x"}]}', "api_base"),
    (b'{"top_p":1,"top_\\u0070":0,"model":"a","messages":[{"role":"user","content":"x"}]}', "top_p"),
]


@pytest.mark.parametrize(("body", "key"), REPEATED)
def test_refuses_repeated_keys(body: bytes, key: str) -> None:
    error = raw_refusal(body)

    assert (error.code, error.param) == ("invalid_json", key)


def test_the_same_key_in_different_objects_is_no_repetition() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"model": {}, "content": {}}}}}
    text = 'she said "model": "role": "content": and \\"model\\":'

    parse(tools=[tool, tool], messages=[{"role": "user", "content": text}] * 3, metadata={"model": "x", "role": "y"})


def test_depth_counts_containers_not_brackets_in_text() -> None:
    parse(messages=[{"role": "user", "content": "[" * 5000 + "{" * 5000}])
    nested: Any = 1
    for _ in range(MAX_DEPTH):
        nested = [nested]

    assert "nested" in refusal(own=nested).message


def test_bounds_the_number_of_values() -> None:
    assert refusal(own=[0] * (MAX_VALUES + 1) + [[]] * 100).code == "invalid_json"
    assert refusal(own={str(i): i for i in range(MAX_VALUES + 1)}).code == "invalid_json"


@pytest.mark.parametrize("body", [b"[" * 10_000, b'{"a":' * 10_000, b"[" * 10_000 + b"]" * 10_000, b"[{" * 5_000])
def test_ten_thousand_levels_cost_less_than_ten_milliseconds(body: bytes) -> None:
    begun = time.process_time()
    raw_refusal(body)

    assert time.process_time() - begun < 0.01


def test_the_raw_bytes_are_stored_when_the_model_is_already_right() -> None:
    raw = b'{"messages":[{"role":"user","content":"x"}],"model":"tiny"}'

    assert PARSER.parse(raw).body_for("tiny") is raw


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model" : "auto","messages":[{"role":"user","content":"\\"model\\": \\"auto\\""}]}',
        b'{"messages":[{"role":"user","content":"x"}],"metadata":{"model":"auto"},"model":"auto"}',
        b'{"messages":[{"role":"user","content":"model"}],"mod\\u0065l":"auto","user":"model"}',
        b'{"messages":[{"role":"user","content":"x"}],"model":"au\\u0074o","own":123456789012345678901234567890}',
    ],
)
def test_only_the_models_name_changes(raw: bytes) -> None:
    before, after = json.loads(raw), json.loads(PARSER.parse(raw).body_for('ti"ny'))

    assert after == {**before, "model": 'ti"ny'}


def test_a_big_integer_survives_encoding_anew() -> None:
    raw = b'{"model":"auto","own":{"model":123456789012345678901234567890},"messages":[{"role":"user","content":"x"}]}'

    assert json.loads(PARSER.parse(raw).body_for("tiny"))["own"] == {"model": 123456789012345678901234567890}


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(content=st.text(), own=json_values, name=st.text(min_size=1, max_size=20))
def test_any_good_document_is_accepted_and_forwarded_whole(content: str, own: Any, name: str) -> None:
    document = {"own_field": own, "model": "auto", "messages": [{"role": "user", "content": content}]}
    for raw in (json.dumps(document).encode(), msgspec.json.encode(document)):
        request = PARSER.parse(raw)
        assert json.loads(request.body_for(name)) == {**document, "model": name}


@given(st.binary(max_size=200))
def test_any_bytes_give_a_request_or_an_invalid_request(body: bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        PARSER.parse(body)


def test_a_whole_number_may_be_written_with_a_point_and_is_passed_on_without() -> None:
    request = parse(max_tokens=7.0, seed=-3.0, own_field=2.0, beyond=2**70)
    assert request.max_output_tokens == 7
    assert request.fields.seed == -3
    assert json.loads(request.body_for("other"))["max_tokens"] == 7
    assert b"7.0" not in request.raw
    assert b"2.0" in request.raw
    assert str(2**70).encode() in request.raw
    for value in (7.5, -7.0, 1e300):
        assert refusal(max_tokens=value).param == "max_tokens"


def test_what_the_newer_limit_states_wins() -> None:
    assert parse(max_tokens=5, max_completion_tokens=7).max_output_tokens == 7
    assert parse(max_tokens=5).max_output_tokens == 5
    assert parse().max_output_tokens is None
    assert parse(n=3).num_choices == 3


@pytest.mark.parametrize("value", [b"application/json", b"Application/JSON ; charset=UTF-8", b"application/json;x=y"])
def test_json_media_types(value: bytes) -> None:
    require_json(value, None)
    require_json(value, b"identity")


@pytest.mark.parametrize("value", [None, b"", b"text/json", b"application/json; charset=utf-16", b"application/jsonp"])
def test_other_media_types(value: bytes | None) -> None:
    with pytest.raises(UnsupportedMediaType):
        require_json(value, None)


def test_compressed_bodies_are_refused() -> None:
    with pytest.raises(UnsupportedMediaType):
        require_json(b"application/json", b"gzip")


STRANGE: list[Any] = [{"a": None, "b": [None, "", {}], "c": 1.50, "d": "\\u00e9"}, None, "", [], 1e5]


def _with_unknown_fields(value: Any) -> bytes:
    """A request with an unknown field at five depths, in a spelling that no encoder has."""
    own = json.dumps(value).replace("50000", "5e4").encode()
    return (
        b'{ "x_top" :%b, "model":"auto" ,"messages":[{"role":"user","x_message": %b,"content":[{"type":"text",'
        b'"text":"a","x_part":%b},{"type":"x_kind", "x_kind":{"x_in_kind" : %b}}]}],"tools":[ {"type":"function",'
        b'"function":{"name":"f","x_function":%b,"description":null}}]}' % ((own,) * 5)
    )


@pytest.mark.parametrize("padding", [0, 200_000])
@pytest.mark.parametrize("value", STRANGE)
def test_an_unknown_field_at_any_depth_goes_on_byte_by_byte(value: Any, padding: int) -> None:
    body = _with_unknown_fields(value)
    if padding:
        body = body[:-1] + b',"x_long":"' + b"y" * padding + b'"}'
    assert PARSER.parse(body).raw == body
    assert PARSER.parse(body).body_for("b") == body.replace(b'"model":"auto"', b'"model":"b"')


@pytest.mark.parametrize("padding", [0, 200_000])
def test_beside_absent_members_an_unknown_field_keeps_its_bytes(padding: int) -> None:
    own = b'{"a": null, "b" : [ "", 1.50, 1E5 ]}'
    long = b',"x_long":"' + b"y" * padding + b'"' if padding else b""
    body = (
        b'{"model":"auto","stop":"", "x":%b,"messages":[{"role":"user","x": %b,"content":[{"type":"image_url",'
        b'"image_url":{"url":"data:image/png;base64,AA","x":%b,"detail":""}}]},{"role":"user","name":[], '
        b'"content":"b"}]%b}'
    ) % (own, own, own, long)
    raw = PARSER.parse(body).raw
    assert raw.count(own) == 3
    assert json.loads(raw)["messages"][1] == {"role": "user", "content": "b"}
    assert "stop" not in json.loads(raw)
    assert json.loads(raw)["messages"][0] == json.loads(body)["messages"][0] | {
        "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "x": json.loads(own)}}]
    }
