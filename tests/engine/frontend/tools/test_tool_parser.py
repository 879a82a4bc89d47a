"""Calls are found in text however it is cut, and what only resembles one stays text."""

from __future__ import annotations

import itertools

import pytest

from engine.frontend.tools.call_scanner import CallDelta, Parsed
from engine.frontend.tools.tool_format import ToolFormat, choose_tool_format
from engine.frontend.tools.tool_parser import ToolParser

Calls = dict[int, tuple[str, str]]


def form(template: str) -> ToolFormat:
    found = choose_tool_format(template, {})
    assert found is not None
    return found


HERMES = form("tools <tool_call>")
LLAMA3 = form("tools ipython")
MISTRAL = form("tools [TOOL_CALLS]")
MISTRAL_ARGS = form("tools [TOOL_CALLS] [ARGS]")
GRANITE = form("tools <|tool_call|>")
DEEPSEEK = form("tools <｜tool▁calls▁begin｜> ```json")
DEEPSEEK_V31 = form("tools <｜tool▁calls▁begin｜>")
BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_BEGIN, SEPARATOR, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
ARGUMENTS = '{"a": "x}\\"{\\\\", "b": [1, {}]}'
FENCED = f"{CALL_BEGIN}function{SEPARATOR}f\n```json\n{ARGUMENTS}\n```{CALL_END}"
BARE = f"{CALL_BEGIN}g{SEPARATOR}{ARGUMENTS}{CALL_END}"
CALL = f'<tool_call>\n{{"name": "f", "arguments": {ARGUMENTS}}}\n</tool_call>'


def parser(form: ToolFormat, max_calls: int | None = None) -> ToolParser:
    ids = itertools.count()
    return ToolParser(form, {"f", "g"}, lambda: f"id{next(ids)}", max_calls)


def collect(results: list[Parsed]) -> tuple[str, Calls]:
    """Text and calls put together, as a client does it."""
    calls: Calls = {}
    for piece in (piece for result in results for piece in result.calls):
        if piece.name is not None:
            assert piece.index not in calls
            assert piece.id == f"id{piece.index}"
            assert piece.arguments == ""
            calls[piece.index] = (piece.name, "")
        else:
            name, arguments = calls[piece.index]
            calls[piece.index] = (name, arguments + piece.arguments)
    return "".join(result.text for result in results), calls


@pytest.mark.parametrize(
    ("form", "answer", "text", "calls"),
    [
        (HERMES, "hello ", "hello ", {}),
        (HERMES, "", "", {}),
        (HERMES, CALL, "", {0: ("f", ARGUMENTS)}),
        (HERMES, f"\n{CALL}\n", "", {0: ("f", ARGUMENTS)}),
        (HERMES, f"Sure.\n{CALL}\n{CALL}", "Sure.", {0: ("f", ARGUMENTS), 1: ("f", ARGUMENTS)}),
        (HERMES, f"{CALL} bye ", " bye", {0: ("f", ARGUMENTS)}),
        (HERMES, '<tool_call>{"arguments": {"z":1}, "name": "f"}</tool_call>', "", {0: ("f", '{"z":1}')}),
        (HERMES, '<tool_call>{"name": "f", "arguments": "{\\"a\\":1}"}</tool_call>', "", {0: ("f", '{"a":1}')}),
        (HERMES, '<tool_call>{"name": "f", "arguments": {}, "id": "}"}</tool_call>', "", {0: ("f", "{}")}),
        (HERMES, '<tool_call>{"name": "g"}</tool_call>', "", {0: ("g", "{}")}),
        (HERMES, '<tool_call>{"name": "f", "arguments": {"a": 1', "", {0: ("f", '{"a": 1')}),
        (HERMES, '<tool_call>{"name": "f"', '<tool_call>{"name": "f"', {}),
        (HERMES, '<tool_call>{"name": "h", "arguments": {}}x', '<tool_call>{"name": "h", "arguments": {}}x', {}),
        (HERMES, "<tool_call>nonsense</tool_call>", "<tool_call>nonsense</tool_call>", {}),
        (HERMES, "a < b <tool_", "a < b <tool_", {}),
        (LLAMA3, '{"name": "f", "parameters": {"a":1}}', "", {0: ("f", '{"a":1}')}),
        (LLAMA3, '{"type": "function", "name": "f", "parameters": {}}', "", {0: ("f", "{}")}),
        (
            LLAMA3,
            ' <|python_tag|>{"name": "f", "parameters": {"a":1}}; {"name": "g", "parameters": {}}',
            "",
            {0: ("f", '{"a":1}'), 1: ("g", "{}")},
        ),
        (LLAMA3, '{"city": "x"}', '{"city": "x"}', {}),
        (LLAMA3, 'Hi {"name": "f", "parameters": {}}', 'Hi {"name": "f", "parameters": {}}', {}),
        (
            MISTRAL,
            '[TOOL_CALLS] [{"name": "f", "arguments": {"a":1}, "id": "abc"}, {"name": "g", "arguments": {}}]',
            "",
            {0: ("f", '{"a":1}'), 1: ("g", "{}")},
        ),
        (MISTRAL, "[TOOL_", "[TOOL_", {}),
        (MISTRAL_ARGS, f"[TOOL_CALLS]f[ARGS]{ARGUMENTS}", "", {0: ("f", ARGUMENTS)}),
        (MISTRAL, f"[TOOL_CALLS]f[ARGS]{ARGUMENTS}", "", {0: ("f", ARGUMENTS)}),
        (MISTRAL_ARGS, '[TOOL_CALLS][{"name": "f", "arguments": {"a":1}}]', "", {0: ("f", '{"a":1}')}),
        (
            MISTRAL_ARGS,
            'Sure. [TOOL_CALLS]f[ARGS]{"a": 1}\n[TOOL_CALLS] g[CALL_ID]Ab3dE6gH9[ARGS] {}',
            "Sure.",
            {0: ("f", '{"a": 1}'), 1: ("g", "{}")},
        ),
        (MISTRAL_ARGS, '[TOOL_CALLS]f[ARGS]{"a": [1', "", {0: ("f", '{"a": [1')}),
        (MISTRAL_ARGS, "[TOOL_CALLS]h[ARGS]{} x", "[TOOL_CALLS]h[ARGS]{} x", {}),
        (MISTRAL_ARGS, "[TOOL_CALLS]f[ARG", "[TOOL_CALLS]f[ARG", {}),
        (MISTRAL_ARGS, "[TOOL_CALLS]f is a function", "[TOOL_CALLS]f is a function", {}),
        (MISTRAL_ARGS, "f[ARGS]{}", "f[ARGS]{}", {}),
        (HERMES, "<tool_call>f[ARGS]{}", "<tool_call>f[ARGS]{}", {}),
        (
            GRANITE,
            '<|tool_call|>[{"name": "f", "arguments": {"a":1}}, {"arguments": {}, "name": "g"}]',
            "",
            {0: ("f", '{"a":1}'), 1: ("g", "{}")},
        ),
        (DEEPSEEK, f"Sure.\n{BEGIN}{FENCED}{END}", "Sure.", {0: ("f", ARGUMENTS)}),
        (DEEPSEEK, f"{BEGIN}{FENCED}\n{FENCED}{END}", "", {0: ("f", ARGUMENTS), 1: ("f", ARGUMENTS)}),
        (DEEPSEEK, f"{BEGIN}{BARE}{BARE}{END}", "", {0: ("g", ARGUMENTS), 1: ("g", ARGUMENTS)}),
        (DEEPSEEK_V31, f"{BEGIN}{BARE}{BARE}{END} ok", " ok", {0: ("g", ARGUMENTS), 1: ("g", ARGUMENTS)}),
        (DEEPSEEK_V31, f"{BEGIN}{BARE}", "", {0: ("g", ARGUMENTS)}),
        (DEEPSEEK_V31, f"{BEGIN}{BARE.partition(ARGUMENTS)[0]}" + ARGUMENTS[:2], "", {0: ("g", ARGUMENTS[:2])}),
        (DEEPSEEK_V31, f"{BEGIN}{CALL_BEGIN}h{SEPARATOR}{{}}", f"{BEGIN}{CALL_BEGIN}h{SEPARATOR}{{}}", {}),
        (DEEPSEEK_V31, BEGIN[:9], BEGIN[:9], {}),
    ],
)
def test_an_answer_is_taken_apart_the_same_however_it_is_cut(
    form: ToolFormat, answer: str, text: str, calls: Calls
) -> None:
    for size in (1, 2, 3, 7, 1000):
        found = parser(form)
        results = [found.feed(answer[start : start + size]) for start in range(0, len(answer), size)]
        assert collect([*results, found.finish()]) == (text, calls), size
        assert found.num_calls == len(calls)


def test_the_name_is_known_before_the_arguments_and_these_come_as_they_are() -> None:
    found = parser(HERMES)
    assert found.feed('<tool_call>{"name": "f", "arg').calls == ()
    assert found.feed('uments": {"a":').calls == (
        CallDelta(index=0, id="id0", name="f"),
        CallDelta(index=0, arguments='{"a":'),
    )
    assert found.feed(" 5").calls == (CallDelta(index=0, arguments=" 5"),)
    assert found.feed("}}").calls == (CallDelta(index=0, arguments="}"),)
    assert found.feed("\n</tool_call>") == Parsed("", ())


def test_a_name_before_a_marker_is_known_before_the_arguments() -> None:
    found = parser(MISTRAL_ARGS)
    assert found.feed("[TOOL_CALLS]f[CALL").calls == ()
    assert found.feed("_ID]123456789[ARGS]{").calls == (
        CallDelta(index=0, id="id0", name="f"),
        CallDelta(index=0, arguments="{"),
    )
    assert found.feed("}[TOOL_CALLS]g[ARGS]").calls == (CallDelta(index=0, arguments="}"),)
    assert found.feed("{").calls[0].name == "g"


def test_text_is_shown_as_soon_as_it_cannot_be_a_call() -> None:
    found = parser(HERMES)
    assert found.feed("hello <tool").text == "hello"
    assert found.feed("box").text == " <toolbox"


def test_behind_the_only_call_that_may_be_made_nothing_counts() -> None:
    found = parser(HERMES, max_calls=1)
    found.feed(CALL[:-30])
    assert not found.is_full
    found.feed(CALL[-30:] + CALL)
    assert found.is_full
    assert found.finish() == Parsed("", ())
    assert found.num_calls == 1
