"""One field table: what gateway and engine refuse, they refuse in the same words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import engine.frontend.fields.table as engine_table
import gateway.chat.fields.table as gateway_table
from engine.config import AnswerConfig, FrontConfig
from engine.frontend.request.errors import ApiError
from engine.frontend.request.requests import ChatBody, parse_chat
from gateway.chat.fields.table import FIELD_RULES, FieldRule
from gateway.chat.request import ChatRequestParser
from gateway.chat.schema import ChatFields
from gateway.errors import InvalidRequest
from tests.gateway.chat.test_request import REFUSED

CONFIG = FrontConfig(listen="unix:/nowhere", model_name="auto", answers=AnswerConfig(max_choices=128))
PARSER = ChatRequestParser()
CHECKED = {
    path: rule
    for path, rule in FIELD_RULES.items()
    if path.isidentifier() and path in ChatFields.__struct_fields__ and path in ChatBody.__struct_fields__
}


def both(**fields: Any) -> list[str | None]:
    """The refusals of gateway and engine; None where one accepts."""
    document = {"model": "auto", "messages": [{"role": "user", "content": "hi"}], **fields}
    body = json.dumps(document).encode()
    found: list[str | None] = [None, None]
    try:
        PARSER.parse(body)
    except InvalidRequest as error:
        found[0] = error.message
    try:
        parse_chat(body, CONFIG)
    except ApiError as error:
        found[1] = error.message
    return found


def test_both_packages_hold_the_same_table() -> None:
    homes = [Path(module.__file__ or "").with_name("fields.json") for module in (gateway_table, engine_table)]
    assert homes[0].read_bytes() == homes[1].read_bytes()


def test_every_typed_field_of_either_side_is_in_the_table() -> None:
    assert set(ChatFields.__struct_fields__) <= set(FIELD_RULES)
    assert set(ChatBody.__struct_fields__) <= set(FIELD_RULES)
    read = {path for path, rule in FIELD_RULES.items() if path.isidentifier() and rule.engine == "serves"}
    assert read <= set(ChatBody.__struct_fields__)


NARROWER = frozenset({"max_completion_tokens", "logit_bias", "tools"})
"""Fields whose limits the engine narrows; the table states both."""


@pytest.mark.parametrize("fields", [fields for fields, _ in REFUSED])
def test_what_both_refuse_they_refuse_in_the_same_words(fields: dict[str, Any]) -> None:
    of_gateway, of_engine = both(**fields)
    assert of_gateway is not None
    if not NARROWER & fields.keys() and "image_url" not in str(fields):
        assert of_engine is not None
        assert of_engine.partition("; got")[0] == of_gateway.partition("; got")[0]


def wrong_values(rule: FieldRule) -> list[Any]:
    wrong: list[Any] = [] if rule.type == "any" else [{"boolean": "yes", "string": 5}.get(rule.type, "x")]
    if rule.type in ("integer", "number"):
        wrong += [True, [1], *([] if rule.most is None else [rule.most + 1])]
        wrong += [rule.above] if rule.above is not None else [] if rule.least is None else [rule.least - 1]
    if rule.type == "string" and rule.most:
        wrong.append("x" * (rule.most + 1))
    return wrong


@pytest.mark.parametrize("name", sorted(CHECKED))
def test_a_wrong_value_of_each_field_gets_the_same_words(name: str) -> None:
    for value in wrong_values(CHECKED[name]):
        found = both(**{"logprobs": True, name: value} if name == "top_logprobs" else {name: value})
        assert found[0] is not None, value
        assert found[0].startswith(f"`{name}` ")
        if name not in NARROWER:
            assert found[1] == found[0]


@pytest.mark.parametrize("name", ["api_base", "base_url", "custom_host", "api_key", "chat_template"])
def test_privileged_fields_are_refused_by_both(name: str) -> None:
    of_gateway, of_engine = both(**{name: "x"})
    assert of_gateway == of_engine == f"`{name}` must not be part of a request; the operator sets it."


def test_the_words_are_the_clients() -> None:
    assert both(temperature=7) == ["`temperature` must be between 0 and 2; got 7."] * 2
    assert both(stream="yes") == ['`stream` must be true or false; got "yes".'] * 2
    assert both(messages=[{"role": "user"}]) == ["`messages[0].content` is required."] * 2
