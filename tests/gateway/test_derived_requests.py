"""Derived requests: exactly the meant members change, at the top level, however they are written."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.forwarding.cascade import telling

PARSER = ChatRequestParser()
MESSAGES = [{"role": "user", "content": "x"}]


def parse(text: str) -> ChatRequest:
    return PARSER.parse(text.encode())


ESCAPED = [
    r'{"\u006dodel":"auto","messages":[{"role":"user","content":"x"}],"metadata":{"model":"theirs"}}',
    r'{"metadata":{"model":"auto"},"messages":[{"role":"user","content":"x"}],"mod\u0065l":"auto"}',
    r'{"messages":[{"role":"user","content":"\"model\":\"auto\""}],"\u006D\u006f\u0064\u0065\u006C" : "auto" }',
    r'{"messages":[{"role":"user","content":"\u00e9\\u006d"}],"user":"model","model":"auto"}',
    '{"messages":[{"role":"user","content":"x"}],\n\t"model"\r\n :\t"a\\u0075to", "own": [{"model": "a"}, 1.50, 1E3]}',
    '{"messages":[{"role":"user","content":"x"}],"own":[{"model":"auto"}],"model":"auto","big":123456789012345678901}',
]


@pytest.mark.parametrize("text", ESCAPED)
@pytest.mark.parametrize("name", ["tiny", 'ti"ny', "größer", "a/b:c"])
def test_the_model_is_found_by_what_its_key_means(text: str, name: str) -> None:
    before, body = json.loads(text), parse(text).body_for(name)

    assert json.loads(body) == {**before, "model": name}


@pytest.mark.parametrize("text", ESCAPED)
def test_what_is_not_changed_stays_byte_for_byte(text: str) -> None:
    name = "auto-2"
    body = parse(text).body_for(name).decode()
    start = next(at for at in range(len(text)) if text[at] != body[at : at + 1])
    assert body.startswith(text[:start])
    assert len(body) - len(name) <= len(text)
    for stored in ("1.50, 1E3", r"\u00e9\\u006d", "123456789012345678901"):
        assert (stored in body) == (stored in text)


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({}, {"max_tokens": 8}),
        ({"max_tokens": 100}, {"max_tokens": 8}),
        ({"max_completion_tokens": 100}, {"max_completion_tokens": 8}),
        ({"max_tokens": 100, "max_completion_tokens": 100}, {"max_tokens": 8, "max_completion_tokens": 8}),
        ({"max_tokens": 100, "max_completion_tokens": None}, {"max_tokens": 8}),
        ({"max_tokens": None, "max_completion_tokens": 100}, {"max_completion_tokens": 8}),
        ({"max_tokens": None, "max_completion_tokens": None}, {"max_tokens": 8}),
        ({"max_tokens": 100, "min_tokens": 50}, {"max_tokens": 8, "min_tokens": 8}),
        ({"max_tokens": 100, "min_tokens": 5}, {"max_tokens": 8}),
        ({"max_tokens": 100, "metadata": {"max_completion_tokens": "9"}}, {"max_tokens": 8}),
    ],
)
def test_a_smaller_answer_is_requested_in_every_field_that_bounds_it(
    fields: dict[str, Any], changed: dict[str, Any]
) -> None:
    document = {"model": "auto", "messages": MESSAGES, **fields}
    smaller = parse(json.dumps(document)).with_max_tokens(8)

    assert json.loads(smaller.raw) == smaller.document == {**document, **changed}
    assert smaller.max_output_tokens == 8
    assert PARSER.parse(smaller.raw).fields == smaller.fields


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stream": False},
        {"stream": None, "stream_options": None},
        {"logprobs": False, "top_logprobs": None},
        {"metadata": {"stream": "no", "logprobs": "no"}, "n": 2},
    ],
)
def test_companions_are_set_together(fields: dict[str, Any]) -> None:
    document = {"model": "auto", "messages": MESSAGES, **fields}
    requested = telling(parse(json.dumps(document))).as_stream()
    wanted = {"stream": True, "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 2}

    assert json.loads(requested.raw) == requested.document == {**document, **wanted}
    assert PARSER.parse(requested.raw).fields == requested.fields


def test_another_conversation_leaves_all_else_as_it_was_written() -> None:
    text = '{ "temperature" : 0.10, "messages":[{"role":"user","content":"long"}],"model":"auto"}'
    shorter = parse(text).with_messages([{"role": "user", "content": "s"}])

    assert shorter.raw == text.replace('"long"', '"s"').encode()
    assert shorter.messages[0].content == "s"


values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["model", "stream", "max_tokens", "messages", '"', "\\", ""]) | st.text(), inner
        )
    ),
    max_leaves=12,
)
names = st.sampled_from(["model", "mod", "stream", "stream_options", "max_tokens", "n", "own"]) | st.text(max_size=6)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """The value as JSON with odd spacing and, in strings, odd escapes."""
    space = draw(st.sampled_from(["", " ", "\n\t", "\r\n  "]))
    if isinstance(value, dict):
        members = [f"{draw(written(name))}{space}:{space}{draw(written(item))}" for name, item in value.items()]
        return "{" + space + f"{space},{space}".join(members) + space + "}"
    if isinstance(value, list):
        return "[" + space + f",{space}".join(draw(written(item)) for item in value) + space + "]"
    if isinstance(value, str) and value.isascii() and draw(st.booleans()):
        return '"' + "".join(f"\\u{ord(letter):04x}" for letter in value) + '"'
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


documents = st.dictionaries(names, values, max_size=6)


@given(st.data(), documents, st.text(min_size=1, max_size=8))
def test_any_request_goes_up_with_the_models_name_alone_changed(
    data: st.DataObject, own: dict[str, Any], name: str
) -> None:
    reserved = ("model", "stream", "stream_options", "max_tokens", "n")
    document = {**{key: value for key, value in own.items() if key not in reserved}, "model": "auto"}
    text = data.draw(written(document))
    fields = PARSER.parse(json.dumps({"model": "auto", "messages": MESSAGES}).encode()).fields
    request = ChatRequest(text.encode(), document, fields)

    assert json.loads(request.body_for(name)) == {**document, "model": name}


def wide(rest: str) -> str:
    return (
        f'{{"messages":[{{"role":"user","content":"x"}}],{rest},"stream":false,"max_tokens":100,"\\u006dodel":"auto"}}'
    )


LONG = {
    "members": wide(",".join(f'"k{number:06}":1.50' for number in range(150_000))),
    "members with spaces": wide(",".join(f'"k{number:06}"\t : 1' for number in range(150_000))),
    "brackets": wide('"own":[' + ",".join(["[]"] * 190_000) + "]"),
    "objects": wide('"own":[' + ",".join(['{"a":{}}'] * 90_000) + "]"),
    "escaped quotes": wide('"own":"' + '\\"' * 2_000_000 + '"'),
    "backslashes": wide('"own":"' + "\\\\" * 2_000_000 + '"'),
    "parts": '{"model":"auto","max_tokens":null,"messages":['
    + ",".join(['{"role":"user","content":[' + ",".join(['{"type":"text","text":"a"}'] * 4_000) + "]}"] * 15)
    + "]}",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_a_long_request_of_many_members_is_derived_in_a_moment(text: str) -> None:
    request = parse(text)
    before = json.loads(text)

    def seconds() -> float:
        begun = time.process_time()
        request.with_max_tokens(8)
        telling(request).as_stream().body_for("tiny")
        return time.process_time() - begun

    assert min(seconds() for _ in range(3)) < 0.2
    derived = json.loads(telling(request).as_stream().with_max_tokens(8).body_for("tiny"))
    assert derived["own" if "own" in before else "messages"] == before["own" if "own" in before else "messages"]
    wanted = {"stream": True, "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 2}
    assert derived == {**before, **wanted, "max_tokens": 8, "model": "tiny"}


@pytest.mark.parametrize("num_images", [0, 1, 3])
def test_a_derived_request_has_the_same_text(num_images: int) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}
    content = [{"type": "text", "text": "what?"}, *[image] * num_images]
    request = parse(json.dumps({"model": "auto", "messages": [{"role": "user", "content": content}]}))
    derived = request.as_stream().with_max_tokens(8)
    assert derived.text_bytes == PARSER.parse(derived.raw).text_bytes


AS_WRITTEN = (
    r'"y": -0,"z" :-0.0,"e":1E2,"t":0.10000000000000000555,"u":"\u00e9\/","big":123456789012345678901234567890,'
    r'"own":{"stream":true,"max_tokens":1E2,"stream_options":[{"model":"a"}]}'
)


@pytest.mark.parametrize("number", ["1E2", "100.0", "1.0e+2"])
def test_a_whole_number_is_written_as_one_and_nothing_else_changes(number: str) -> None:
    text = '{"model":"auto", "max_tokens":%s, "messages":[{"role":"user","content":"x"}],%s}'
    request = parse(text % (number, AS_WRITTEN))

    assert request.fields.max_tokens == 100
    assert request.raw.decode() == text % ("100", AS_WRITTEN)


def long_request(rest: str) -> bytes:
    """A body long enough to be decoded in slices, its known members before, between and behind the others."""
    filler = "x" * 50_000
    return (
        f'{{ "max_tokens" : 7.0, "a":"{filler}",{AS_WRITTEN}, "model" : "auto",\n "metadata":null ,"b":["{filler}"],'
        f'"messages" : [{{"role":"user","content":"x"}}]{rest} }}'
    ).encode()


@pytest.mark.parametrize(
    "rest", ["", ',"user":null', ',"user":null , "seed" : null', ', "stream" : false', ',"mine":1e5']
)
def test_a_long_request_keeps_the_bytes_of_what_nobody_changes(rest: str) -> None:
    body = long_request(rest)
    request = parse(body.decode())
    derived = telling(request).as_stream().with_max_tokens(8).body_for("tiny")
    assert AS_WRITTEN.encode() in derived
    removed = {name for name in ("metadata", "user", "seed") if json.loads(body).get(name, 0) is None}
    before = {name: value for name, value in json.loads(body).items() if name not in removed}
    wanted = {"stream": True, "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 2}
    assert json.loads(derived) == {**before, **wanted, "max_tokens": 8, "model": "tiny"}
    assert json.loads(request.raw) == {**before, "max_tokens": 7}
    assert ("1e5" in rest) == (b'"mine":1e5' in derived)
