"""The syntax of tool calls, by template and vocabulary."""

from __future__ import annotations

import re

import pytest

from engine.frontend.tools.tool_format import HARMONY_MARKERS, choose_tool_format


@pytest.mark.parametrize(
    ("template", "added", "family"),
    [
        ("{% if tools %}<tool_call>", {}, "hermes"),
        ("tools <tool_call> [TOOL_CALLS]", {}, "hermes"),
        ("tools [TOOL_CALLS]", {}, "mistral"),
        ("tools", {"[TOOL_CALLS]": 5}, "mistral"),
        ("tools [ARGS]", {"[TOOL_CALLS]": 5}, "mistral_args"),
        ("tools", {}, "llama3"),
        ("tools <tool_call> <arg_key>", {}, "glm"),
        ("tools <tool_call> <function=", {}, "qwen_coder"),
        ("tools <|tool_call|>", {}, "granite"),
        ("tools <｜tool▁calls▁begin｜> ```json", {}, "deepseek"),
        ("tools <｜tool▁calls▁begin｜>", {}, "deepseek_v31"),
        ("tools <|channel|>analysis", dict.fromkeys(HARMONY_MARKERS, 9), "harmony"),
        ("no mention of them", {"[TOOL_CALLS]": 5}, None),
        (None, {"[TOOL_CALLS]": 5}, None),
    ],
)
def test_the_family_is_that_of_the_template_or_of_the_vocabulary(
    template: str | None, added: dict[str, int], family: str | None
) -> None:
    found = choose_tool_format(template, added)
    assert (None if found is None else found.family) == family


def test_markers_that_are_tokens_are_named_and_other_added_tokens_stored_unless_special() -> None:
    added = {"<tool_call>": 7, "</tool_call>": 8, "<think>": 5, "</think>": 4, "<|im_end|>": 2}
    form = choose_tool_format("tools <tool_call>", added, {"<|im_end|>"})
    assert form is not None
    assert form.marker_ids == {"<tool_call>": 7, "</tool_call>": 8}
    assert form.other_ids == (4, 5)


def test_a_hidden_marker_is_shown_and_other_tokens_are_what_they_were() -> None:
    form = choose_tool_format("tools [TOOL_CALLS]", {"[TOOL_CALLS]": 5}, {"[TOOL_CALLS]"})
    assert form is not None
    token_bytes = form.token_bytes(lambda token_id: b"" if token_id == 5 else b"x")
    assert (token_bytes(5), token_bytes(6)) == (b"[TOOL_CALLS]", b"x")


@pytest.mark.parametrize(
    ("template", "pattern"), [("tools", r"call_[0-9a-f]{24}"), ("tools [TOOL_CALLS]", r"[A-Za-z0-9]{9}")]
)
def test_ids_have_the_form_that_templates_require_and_never_repeat(template: str, pattern: str) -> None:
    form = choose_tool_format(template, {})
    assert form is not None
    ids = {form.make_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(re.fullmatch(pattern, found) for found in ids)
