"""Calls with tags around each argument become JSON, however the text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.frontend.tools.call_scanner import CallDelta, Parsed
from engine.frontend.tools.tagged_parser import TaggedCallParser
from engine.frontend.tools.tool_format import choose_tool_format

SCHEMAS: dict[str, dict[str, Any]] = {
    "f": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "deep": {"type": "boolean"},
            "tags": {"$ref": "#/$defs/tags"},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "$defs": {"tags": {"type": "array"}},
    },
    "g": {},
}


def parser(family: str, max_calls: int | None = None) -> TaggedCallParser:
    form = choose_tool_format({"qwen": "tools <tool_call><function=", "glm": "tools <arg_key>"}[family], {})
    assert form is not None
    return TaggedCallParser(form, SCHEMAS, lambda: "id", max_calls)


def qwen(name: str, **arguments: str) -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def glm(name: str, **arguments: str) -> str:
    inner = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in arguments.items())
    return f"<tool_call>{name}\n{inner}</tool_call>"


def parsed(found: TaggedCallParser, answer: str, size: int) -> tuple[str, list[tuple[str, Any]]]:
    whole = Parsed()
    for start in range(0, len(answer), size):
        whole += found.feed(answer[start : start + size])
    whole += found.finish()
    calls: list[tuple[str, str]] = []
    for piece in whole.calls:
        if piece.name is not None:
            calls.append((piece.name, ""))
        else:
            calls[piece.index] = (calls[piece.index][0], calls[piece.index][1] + piece.arguments)
    return whole.text, [(name, json.loads(arguments)) for name, arguments in calls]


ARGUMENTS = {
    "text": 'a "b"\n<c> \\ é',
    "count": "5",
    "deep": "True",
    "tags": '["x", 1]',
    "maybe": "null",
    "other": "free text",
}
VALUES = {
    "text": 'a "b"\n<c> \\ é', "count": 5, "deep": True, "tags": ["x", 1], "maybe": None, "other": "free text",
}  # fmt: skip


@pytest.mark.parametrize("family", ["qwen", "glm"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_arguments_have_the_types_of_their_schema(family: str, size: int) -> None:
    call = {"qwen": qwen, "glm": glm}[family]
    answer = f"Sure.\n{call('f', **ARGUMENTS)}\n{call('g')} "
    assert parsed(parser(family), answer, size) == ("Sure.", [("f", VALUES), ("g", {})])


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_line_breaks_around_a_value_are_no_part_of_it(size: int) -> None:
    for value in ("", "\n", "\n\n", "a\n", "\na", "a\n\n"):
        assert parsed(parser("qwen"), qwen("f", text=value), size) == ("", [("f", {"text": value})])
        assert parsed(parser("glm"), glm("f", text=value), size) == ("", [("f", {"text": value})])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (qwen("h", text="x"), qwen("h", text="x")),
        ("<tool_call>\nfunction", "<tool_call>\nfunction"),
        ("<tool_call>\n<function=f", "<tool_call>\n<function=f"),
        ("a <tool_", "a <tool_"),
        ("a <function=h>x", "a <function=h>x"),
    ],
)
def test_what_only_resembles_a_call_stays_text(answer: str, text: str) -> None:
    for size in (1, 3, 1000):
        assert parsed(parser("qwen"), answer, size) == (text, [])


def test_qwen_coder_may_leave_out_the_first_tag_or_the_last() -> None:
    call = qwen("f", count="1").removeprefix("<tool_call>\n")
    assert parsed(parser("qwen"), "Go. " + call, 2) == ("Go.", [("f", {"count": 1})])
    assert parsed(parser("qwen"), call.removesuffix("\n</tool_call>"), 2) == ("", [("f", {"count": 1})])


def test_a_text_is_sent_while_it_grows_and_other_values_when_complete() -> None:
    found = parser("qwen")
    assert found.feed("<tool_call>\n<function=f>").calls == (CallDelta(index=0, id="id", name="f"),)
    pieces = found.feed("\n<parameter=text>\nab").calls
    assert "".join(piece.arguments for piece in pieces) == '{"text": "ab'
    assert found.feed("c\n").calls == (CallDelta(index=0, arguments="c"),)
    assert found.feed("</parameter>").calls == (CallDelta(index=0, arguments='"'),)
    assert found.feed("<parameter=count>\n1").calls == (CallDelta(index=0, arguments=', "count": '),)
    assert found.feed("2\n</parameter></function>").calls == (
        CallDelta(index=0, arguments="12"),
        CallDelta(index=0, arguments="}"),
    )


def test_behind_the_only_call_that_may_be_made_nothing_counts() -> None:
    found = parser("glm", max_calls=1)
    assert parsed(found, glm("g") * 2 + "bye", 5) == ("", [("g", {})])
    assert found.is_full


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(("family", "build", "tag"), [("qwen", qwen, "</parameter>"), ("glm", glm, "</arg_value>")])
def test_a_closing_tag_inside_a_json_string_belongs_to_the_value(family: str, build: Any, tag: str, size: int) -> None:
    tags = [f"a{tag}b", f'\\"{tag}', tag]
    answer = build("f", tags=json.dumps(tags), count="2")
    assert parsed(parser(family), answer, size) == ("", [("f", {"tags": tags, "count": 2})])


@pytest.mark.parametrize(("family", "build", "tag"), [("qwen", qwen, "</parameter>"), ("glm", glm, "</arg_value>")])
def test_thousands_of_closing_tags_inside_a_string_are_read_in_linear_time(family: str, build: Any, tag: str) -> None:
    value = {"html": f'{tag}x"\\' * 3000}
    assert parsed(parser(family), build("g", any=json.dumps(value)), 4) == ("", [("g", {"any": value})])


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(("family", "build"), [("qwen", qwen), ("glm", glm)])
def test_broken_json_ends_at_the_tag_behind_which_the_call_goes_on(family: str, build: Any, size: int) -> None:
    answer = build("f", tags='["a', count="2")
    assert parsed(parser(family), answer, size) == ("", [("f", {"tags": '["a', "count": 2})])
    answer = build("f", tags='["a')
    assert parsed(parser(family), answer, size) == ("", [("f", {"tags": '["a'})])
