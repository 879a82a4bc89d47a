"""Routes that take fewer fields and images than the API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.chat.request import ChatRequest, ChatRequestParser
from gateway.chat.strictness import refuse_addressed_images, refuse_unknown_fields
from gateway.dialects.completions.dialect import completions_dialect
from gateway.dialects.direct import DirectDialect
from gateway.dialects.embeddings.dialect import embeddings_dialect
from gateway.errors import InvalidRequest
from tests.gateway.chat.test_absent import REQUEST

PARSER = ChatRequestParser()


def parse(**fields: Any) -> ChatRequest:
    return PARSER.parse(json.dumps({**REQUEST, **fields}).encode())


def part(kind: str, **members: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [{"type": kind, **members}]}]}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"x": None}, "x"),
        ({"messages": [{"role": "user", "content": "a", "x": 1}]}, "messages[0].x"),
        (part("text", text="a", x=1), "messages[0].content[0].x"),
        (part("image_url", image_url={"url": "https://a/b", "x": 1}), "messages[0].content[0].image_url.x"),
        (part("x", x=1), "messages[0].content[0].x"),
        ({"tools": [{"type": "function", "function": {"name": "f", "x": {}}}]}, "tools[0].function.x"),
        ({"response_format": {"type": "text", "x": 1}}, "response_format.x"),
        ({"prediction": {"type": "content", "content": "a", "x": 1}}, "prediction.x"),
        (
            {"prediction": {"type": "content", "content": [{"type": "text", "text": "a", "x": 1}]}},
            "prediction.content[0].x",
        ),
        ({"x": [0] * 50_000}, "x"),
    ],
)
def test_an_unknown_field_is_named_at_any_depth(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_unknown_fields(parse(**fields))
    assert (caught.value.param, caught.value.code) == (path, "unsupported_parameter")
    assert caught.value.message.startswith(f"`{path}` ")


def test_known_fields_and_names_of_the_clients_choice_are_no_fault() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"y": 1}}}}}
    refuse_unknown_fields(parse(tools=[tool], logit_bias={"7": 1}, metadata={"x": "y"}, guided_json={"x": 1}))
    refuse_unknown_fields(parse(chat_template_kwargs={"x": 1}, provider={"order": ["x"]}))
    for content in ("a", [{"type": "text", "text": "a"}]):
        refuse_unknown_fields(parse(prediction={"type": "content", "content": content}))


def test_an_image_by_address_is_named() -> None:
    inline, address = ({"url": url} for url in ("data:image/png;base64,AA", "https://example.com/a.png"))
    refuse_addressed_images(parse(**part("image_url", image_url=inline)))
    with pytest.raises(InvalidRequest) as caught:
        refuse_addressed_images(parse(**part("image_url", image_url=address)))
    assert caught.value.param == "messages[0].content[0].image_url.url"


ADDRESS = "https://example.com/a.png"


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"content": [{"type": "image_url", "image_url": ADDRESS}]}, "content[0].image_url"),
        ({"content": [{"type": "input_image", "image_url": ADDRESS}]}, "content[0].image_url"),
        ({"content": [{"type": "image", "source": {"type": "url", "url": ADDRESS}}]}, "content[0].source.url"),
        (
            {"content": "a", "content_blocks": [{"index": 0, "type": "image", "source": {"type": "url"}}]},
            "content_blocks[0].source.url",
        ),
        (
            {"content": "a", "output_items": [{"at": 0, "item": {"output": {"image_url": ADDRESS}}}]},
            "output_items[0].item.output.image_url",
        ),
    ],
)
def test_an_image_by_address_in_the_words_of_another_api(message: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_addressed_images(parse(messages=[{"role": "user", **message}]))
    assert caught.value.param == f"messages[0].{path}"


def test_an_answer_of_any_deployment_sent_back_as_history_has_no_unknown_field() -> None:
    blocks = [{"index": 0, "type": "thinking", "thinking": "a", "signature": "b"}]
    items = [{"at": 0, "item": {"id": "rs", "type": "reasoning"}}]
    answer = {"role": "assistant", "content": "a", "content_blocks": blocks, "output_items": items}
    refuse_unknown_fields(parse(messages=[{"role": "user", "content": "q"}, answer]))


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (completions_dialect(), {"model": "m", "prompt": ["a"], "echo": False, "suffix": None, "best_of": 1}),
        (embeddings_dialect(), {"model": "m", "input": [[1, 2]], "dimensions": 3, "encoding_format": "float"}),
    ],
)
def test_other_operations_have_fields_of_their_own(dialect: DirectDialect, body: dict[str, Any]) -> None:
    def read(**fields: Any) -> ChatRequest:
        return dialect.begin(()).parse(json.dumps({**body, **fields}).encode())

    refuse_unknown_fields(read())
    with pytest.raises(InvalidRequest) as caught:
        refuse_unknown_fields(read(x=1))
    assert caught.value.param == "x"
