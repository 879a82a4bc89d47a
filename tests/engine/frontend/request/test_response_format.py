"""The form that a client requires of an answer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.frontend.request.errors import ApiError
from engine.frontend.request.response_format import ResponseFormat, check_response_format

NAMED = {"name": "n", "schema": {"type": "null"}}


def read(**members: Any) -> ResponseFormat:
    return msgspec.convert(members, ResponseFormat)


@pytest.mark.parametrize(
    ("members", "schema", "is_strict"),
    [
        ({"type": "text"}, None, False),
        ({"type": "json_object"}, {"type": "object"}, False),
        ({"type": "json_schema", "json_schema": NAMED}, {"type": "null"}, False),
        ({"type": "json_schema", "json_schema": {**NAMED, "strict": True}}, {"type": "null"}, True),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, {"type": "object"}, False),
    ],
)
def test_each_type_is_a_schema_or_any_text(
    members: dict[str, Any], schema: dict[str, Any] | None, is_strict: bool
) -> None:
    found = read(**members)
    check_response_format(found)
    assert (found.schema, found.is_strict) == (schema, is_strict)


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "text", "json_schema": NAMED}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {**NAMED, "schema": {"$ref": "other"}}}, "response_format"),
    ],
)
def test_members_that_do_not_go_together_are_named(members: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_response_format(read(**members))
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_request_without_the_member_is_right() -> None:
    check_response_format(None)
