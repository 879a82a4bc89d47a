"""The syntax of reasoning is that of the template, and the rendered prompt tells where an answer starts."""

from __future__ import annotations

import pytest

from engine.config import EngineConfigError, Reasoning
from engine.frontend.tools.reasoning_format import ReasoningFormat, choose_reasoning_format
from engine.frontend.tools.tool_format import HARMONY_MARKERS

HARMONY = "<|start|>assistant<|channel|>analysis<|message|>"
HARMONY_IDS = {text: 200 + i for i, text in enumerate(HARMONY_MARKERS)}


def chosen(source: str | None, added: dict[str, int] | None = None, setting: Reasoning = "auto") -> str | None:
    found = choose_reasoning_format(setting, source, added or {})
    return None if found is None else found.family


@pytest.mark.parametrize(
    ("source", "added", "family"),
    [
        ("{{ message.content.split('</think>')[-1] }}", {}, "think"),
        ("<think></think> and <response></response>", {}, "think_response"),
        ("Write after 'Here is my thought process:'", {}, "thought_process"),
        ("[THINK]", {}, "mistral"),
        (HARMONY, HARMONY_IDS, "harmony"),
        (HARMONY, {}, None),
        ("plain", {"<think>": 7, "</think>": 8}, "think"),
        ("plain", {"<think>": 7}, None),
        (None, {"<think>": 7, "</think>": 8}, None),
        ("plain", {}, None),
    ],
)
def test_the_family_is_that_of_the_template_or_of_the_vocabulary(
    source: str | None, added: dict[str, int], family: str | None
) -> None:
    assert chosen(source, added) == family


def test_a_setting_replaces_the_choice() -> None:
    assert chosen("plain", setting="think") == "think"
    assert chosen("<think>", setting="off") is None
    off = choose_reasoning_format("off", HARMONY, HARMONY_IDS)
    assert off is not None
    assert (off.family, off.is_apart) == ("harmony", False)
    with pytest.raises(EngineConfigError, match=r"reasoning: harmony needs tokens .*<\|call\|>"):
        chosen("plain", {"<|start|>": 1}, "harmony")


def test_marks_are_tokens_only_where_the_vocabulary_has_both() -> None:
    both = choose_reasoning_format(
        "auto", "<think>", {"<think>": 7, "</think>": 8, "<tool_call>": 9, "</s>": 2}, {"</s>"}
    )
    assert both is not None
    assert both.markers == {7: "<think>", 8: "</think>"}
    assert both.other_ids == (7, 9)
    one = choose_reasoning_format("auto", "<think>", {"<think>": 7})
    assert one is not None
    assert one.markers == {}


@pytest.mark.parametrize(
    ("prompt", "start"),
    [
        ("<|im_start|>assistant\n", "open"),
        ("<|im_start|>assistant\n<think>\n", "inside"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "behind"),
        ("<｜Assistant｜></think>", "behind"),
        ("what is <think>?<|im_end|>\n<|im_start|>assistant\n", "open"),
        ("", "open"),
    ],
)
def test_an_answer_starts_where_its_prompt_ends(prompt: str, start: str) -> None:
    form = choose_reasoning_format("auto", "<think>", {})
    assert form is not None
    assert form.start_of(prompt) == start


def test_a_harmony_answer_begins_with_a_head() -> None:
    form: ReasoningFormat | None = choose_reasoning_format("auto", HARMONY, HARMONY_IDS)
    assert form is not None
    assert form.start_of("<|start|>assistant") == "open"
    assert form.start_of("<|message|>") == "open"
