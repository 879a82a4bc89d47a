"""Marks around a model's reasoning, chosen from the chat template and the added tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from engine.config import EngineConfigError, Reasoning
from engine.frontend.tools.tool_format import HARMONY_MARKERS, is_harmony

ReasoningFamily = Literal["think", "think_response", "thought_process", "mistral", "harmony"]
ReasoningStart = Literal["inside", "behind", "open"]
"""Place at which an answer starts: inside the reasoning, behind it, or where the model decides whether to reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFormat:
    """Syntax of reasoning in one model family.

    think (Qwen3, DeepSeek, SmolLM3, GLM): `<think>…</think>`, then the answer;
    think_response (Granite 3.3): the same, with the answer in `<response>…</response>`;
    thought_process (Granite 3.2): one sentence before the reasoning and one before the answer;
    mistral (Magistral): `[THINK]…[/THINK]`;
    harmony (gpt-oss): messages in the channel `analysis`.
    """

    family: ReasoningFamily
    openings: tuple[str, ...]
    """Spellings of the text before the reasoning."""
    closings: tuple[str, ...]
    """Spellings of the text behind it."""
    answer_tags: tuple[str, str] | None = None
    """Tags around the answer, where a family has them."""
    marker_ids: Mapping[str, int]
    """Ids of the marks that are single tokens of the vocabulary."""
    other_ids: tuple[int, ...] = ()
    """Ids of the other added tokens that are not special."""
    is_apart: bool = True
    """False if reasoning is shown as part of the answer's text; harmony is parsed even then."""

    @property
    def markers(self) -> dict[int, str]:
        """Marks by token id; empty where they are ordinary text.

        Where a mark is a token, its spelling with other tokens is text: the model quotes it.
        """
        if not self.marker_ids.keys() >= {*self.openings, *self.closings}:
            return {}
        return {token_id: text for text, token_id in self.marker_ids.items()}

    def start_of(self, prompt: str) -> ReasoningStart:
        """Return where the answer to a rendered prompt starts; some templates open or close the reasoning."""
        tail = prompt[-256:].rstrip()
        if self.family == "harmony":
            return "open"
        if tail.endswith(self.openings):
            return "inside"
        return "behind" if tail.endswith(self.closings) else "open"


_MARKS: Final[dict[ReasoningFamily, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "think": (("<think>",), ("</think>",)),
    "think_response": (("<think>",), ("</think>",)),
    "thought_process": (
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
    ),
    "mistral": (("[THINK]",), ("[/THINK]",)),
    "harmony": (HARMONY_MARKERS[:4], HARMONY_MARKERS[4:]),
}


def choose_reasoning_format(
    setting: Reasoning,
    template_source: str | None,
    added_tokens: Mapping[str, int],
    special_texts: Collection[str] = (),
) -> ReasoningFormat | None:
    """Return the syntax of this template and vocabulary, or the one that the setting names; None: no reasoning.

    Raises:
        EngineConfigError: The vocabulary lacks the special tokens of the named syntax.
    """
    chosen = _family(template_source or "", added_tokens)
    family = chosen if setting == "auto" or setting == "off" else setting
    if family is None or (setting == "off" and family != "harmony"):
        return None
    openings, closings = _MARKS[family]
    marks = {*openings, *closings}
    if family == "harmony" and not added_tokens.keys() >= marks:
        missing = ", ".join(sorted(marks - added_tokens.keys()))
        raise EngineConfigError(f"reasoning: harmony needs tokens that the vocabulary lacks: {missing}")
    return ReasoningFormat(
        family=family,
        openings=openings,
        closings=closings,
        answer_tags=("<response>", "</response>") if family == "think_response" else None,
        is_apart=setting != "off",
        marker_ids={text: added_tokens[text] for text in marks if text in added_tokens},
        other_ids=tuple(
            sorted(i for text, i in added_tokens.items() if text not in closings and text not in special_texts)
        ),
    )


def _family(source: str, added_tokens: Mapping[str, int]) -> ReasoningFamily | None:
    if is_harmony(source, added_tokens):
        return "harmony"
    if _MARKS["thought_process"][0][0] in source:
        return "thought_process"
    if "<think>" in source or "</think>" in source:
        return "think_response" if "<response>" in source else "think"
    if "[THINK]" in source:
        return "mistral"
    return "think" if source and added_tokens.keys() >= {"<think>", "</think>"} else None
