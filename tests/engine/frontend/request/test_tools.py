"""Tools of requests: what is refused, what a choice comes to, and how families are distinguished."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.config import FrontConfig
from engine.frontend.request.errors import ApiError
from engine.frontend.request.requests import ChatBody, parse_chat
from engine.frontend.tools.tool_format import choose_tool_format
from tests.engine.frontend.conftest import chat

CONFIG = FrontConfig(listen="unix:/nowhere", model_name="tiny")
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def parsed(**fields: Any) -> ChatBody:
    return parse_chat(json.dumps(chat(**fields)).encode(), CONFIG)


def tool(name: str = "f", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def allowing(mode: str, *names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [tool(name) for name in names]}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": "x"}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [tool("../etc")]}, "tools[0].function.name"),
        ({"tools": [tool("a\n")]}, "tools[0].function.name"),
        ({"tools": [tool("")]}, "tools[0].function.name"),
        ({"tools": [tool("x" * 65)]}, "tools[0].function.name"),
        ({"tools": [tool(), tool()]}, "tools[1].function.name"),
        ({"tools": [tool(f"f{i}") for i in range(129)]}, "tools"),
        ({"tools": [tool(f"f{i}") for i in range(10_000)]}, "tools"),
        ({"tools": [tool(parameters="x")]}, "tools[0].function.parameters"),
        ({"tools": [tool(parameters={"type": "string"})]}, "tools[0].function.parameters.type"),
        ({"tools": [tool(parameters={"$ref": "http://a/b"})]}, "tools[0].function.parameters"),
        ({"tools": [tool(strict="yes")]}, "tools[0].function.strict"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": "f"}, "tool_choice"),
        (
            {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice.function.name",
        ),
        ({"tools": [tool()], "tool_choice": {"type": "function"}}, "tool_choice.function.name"),
        ({"tools": [tool()], "tool_choice": {"function": {"name": "f"}}}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        (
            {"tools": [tool()], "tool_choice": allowing("auto", "g")},
            "tool_choice.allowed_tools.tools[0].function.name",
        ),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_object", "json_schema": {"name": "n"}}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n/"}}},
            "response_format.json_schema.name",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": "x"}}},
            "response_format.json_schema.schema",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"enum": ["x" * 9000]}},
                }
            },
            "response_format",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]},
            "messages[0].tool_calls",
        ),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parsed(**fields)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_value", param)


def test_choices_of_kinds_that_are_not_served_are_named() -> None:
    with pytest.raises(ApiError) as caught:
        parsed(tools=[tool()], tool_choice={"type": "custom", "custom": {"name": "f"}})
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "tool_choice.type")
    assert 'must be "function"' in caught.value.message


@pytest.mark.parametrize(
    ("fields", "allowed", "is_forced", "may_be_many"),
    [
        ({}, ["f", "g"], False, True),
        ({"tool_choice": "auto"}, ["f", "g"], False, True),
        ({"tool_choice": "required"}, ["f", "g"], True, True),
        ({"tool_choice": "required", "parallel_tool_calls": False}, ["f", "g"], True, False),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, ["g"], True, False),
        ({"tool_choice": allowing("auto", "g")}, ["g"], False, True),
        ({"tool_choice": allowing("required", "g", "f")}, ["f", "g"], True, True),
    ],
)
def test_a_choice_states_what_may_be_called(
    fields: dict[str, Any], allowed: list[str], is_forced: bool, may_be_many: bool
) -> None:
    use = parsed(tools=[tool("f"), tool("g")], **fields).tool_use
    assert use is not None
    assert [tool.function.name for tool in use.allowed] == allowed
    assert len(use.tools) == 2
    assert (use.is_forced, use.may_be_many) == (is_forced, may_be_many)


@pytest.mark.parametrize("fields", [{}, {"tools": []}, {"tools": [tool()], "tool_choice": "none"}])
def test_without_tools_nothing_is_called(fields: dict[str, Any]) -> None:
    assert parsed(**fields).tool_use is None


def test_references_in_data_are_data() -> None:
    schema = {"type": "object", "properties": {"a": {"const": {"$ref": "http://a/b"}}}}
    assert parsed(tools=[tool(parameters=schema)]).tool_use is not None


@pytest.mark.parametrize(
    ("template", "added", "family"),
    [
        ("{{ messages }}", {}, None),
        (None, {}, None),
        ("{{ tools }} <tool_call>", {}, "hermes"),
        ("{{ tools }}", {"[TOOL_CALLS]": 5}, "mistral"),
        ("{{ tools }} [TOOL_CALLS] [ARGS]", {"[TOOL_CALLS]": 5, "[ARGS]": 6}, "mistral_args"),
        ("{{ tools }} ipython", {"<|python_tag|>": 7}, "llama3"),
    ],
)
def test_a_family_is_known_by_its_template_and_tokens(
    template: str | None, added: dict[str, int], family: str | None
) -> None:
    form = choose_tool_format(template, added)
    assert (form.family if form is not None else None) == family


def test_every_marker_of_the_newer_mistral_form_is_shown() -> None:
    markers = {"[TOOL_CALLS]": 5, "[ARGS]": 6, "[CALL_ID]": 7}
    form = choose_tool_format("tools [TOOL_CALLS] [ARGS]", markers, set(markers))
    assert form is not None
    shown = form.token_bytes(lambda _token_id: b"")
    assert [shown(token_id) for token_id in (5, 6, 7)] == [b"[TOOL_CALLS]", b"[ARGS]", b"[CALL_ID]"]
    assert len(form.make_id()) == 9


def test_markers_that_are_special_tokens_are_shown() -> None:
    form = choose_tool_format("tools", {"[TOOL_CALLS]": 5, "<think>": 6, "</s>": 2}, {"</s>", "[TOOL_CALLS]"})
    assert form is not None
    shown = form.token_bytes(lambda token_id: b"" if token_id == 5 else b"x")
    assert (shown(5), shown(6)) == (b"[TOOL_CALLS]", b"x")
    assert form.other_ids == (6,)
    assert len(form.make_id()) == 9
