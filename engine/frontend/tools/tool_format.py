"""Syntax of tool calls in each model family, chosen from the chat template and the added tokens."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Family = Literal[
    "hermes", "llama3", "mistral", "mistral_args", "granite", "deepseek", "deepseek_v31", "qwen_coder", "glm", "harmony"
]
MakeId = Callable[[], str]

_PYTHON_TAG = "<|python_tag|>"
_TOOL_CALLS = "[TOOL_CALLS]"
_TOOL_CALL = ("<tool_call>", "</tool_call>")
_GRANITE = "<|tool_call|>"
ARGS: Final = "[ARGS]"
"""Marker between name and arguments in Mistral's newer form."""
CALL_ID: Final = "[CALL_ID]"
"""Marker before a call's id in Mistral's newer form, which some models write."""
DEEPSEEK_CALLS: Final = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
DEEPSEEK_CALL: Final = "<｜tool▁call▁begin｜>"
DEEPSEEK_CALL_END: Final = "<｜tool▁call▁end｜>"
DEEPSEEK_SEPARATOR: Final = "<｜tool▁sep｜>"
FUNCTION: Final = "<function="
"""Opening of a call in Qwen3-Coder's form."""
KEY: Final = "<arg_key>"
"""Opening of an argument's name in GLM's form."""
HARMONY_MARKERS: Final = (
    *("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"),
    *("<|end|>", "<|call|>", "<|return|>"),
)
"""Special tokens of the harmony format: those of a message's head, then those that end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """Tool-call syntax of one model family.

    hermes (also Qwen, SmolLM3, Granite 4 and the bundled models): `<tool_call>{"name": …, "arguments": {…}}`, closed by
    `</tool_call>`, several in succession;
    llama3: `{"name": …, "parameters": {…}}` from the start of the answer, perhaps behind `<|python_tag|>`;
    mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`;
    mistral_args, since 2025: `[TOOL_CALLS]name[ARGS]{…}`, several in succession;
    granite, before its fourth version: `<|tool_call|>[{"name": …, "arguments": {…}}, …]`;
    deepseek: calls between two markers, each with its name, a separator and its arguments in a fenced block;
    deepseek_v31: as deepseek, with the bare arguments;
    qwen_coder: `<tool_call><function=name><parameter=key>value</parameter>…</function></tool_call>`;
    glm: `<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value>…</tool_call>`;
    harmony: a message to `functions.name` whose text is the arguments.
    """

    family: Family
    opening: str
    """Text that begins calls."""
    closing: str
    """Text that ends one call, or all of them; may be empty."""
    arguments_key: Literal["arguments", "parameters"] = "arguments"
    opens_bare: bool = False
    """True if a call may begin the answer without the opening."""
    marker_ids: Mapping[str, int]
    """Ids of the markers that are single tokens of the vocabulary."""
    other_ids: tuple[int, ...] = ()
    """Ids of the other added tokens that are not special, such as `<think>`."""

    @property
    def has_tagged_arguments(self) -> bool:
        """True if each argument stands between tags of its own instead of in a JSON object."""
        return self.family in ("qwen_coder", "glm")

    def make_id(self) -> str:
        """Return a new call id. Mistral's templates require nine letters and digits."""
        if self.family in ("mistral", "mistral_args"):
            return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
        return call_id()

    def token_bytes(self, ordinary: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """Return `ordinary` extended by the texts of the markers, which it hides if they are special tokens."""
        shown = {token_id: text.encode() for text, token_id in self.marker_ids.items()}
        return lambda token_id: shown.get(token_id) or ordinary(token_id)


def call_id() -> str:
    """Return a new call id in OpenAI's form."""
    return "call_" + secrets.token_hex(12)


def choose_tool_format(
    template_source: str | None, added_tokens: Mapping[str, int], special_texts: Collection[str] = ()
) -> ToolFormat | None:
    """Return the syntax of this template and vocabulary; None if the template supports no tools."""
    if template_source is None or "tools" not in template_source:
        return None
    family = _family(template_source, added_tokens)
    opening, *others = _MARKERS[family]
    markers = (opening, *others)
    return ToolFormat(
        family=family,
        opening=opening,
        closing=_CLOSINGS.get(family, ""),
        arguments_key="parameters" if family == "llama3" else "arguments",
        opens_bare=family == "llama3",
        marker_ids={text: added_tokens[text] for text in markers if text in added_tokens},
        other_ids=tuple(
            sorted(i for text, i in added_tokens.items() if text not in markers and text not in special_texts)
        ),
    )


_MARKERS: Final[dict[Family, tuple[str, ...]]] = {
    "hermes": _TOOL_CALL,
    "llama3": (_PYTHON_TAG,),
    "mistral": (_TOOL_CALLS, ARGS, CALL_ID),
    "mistral_args": (_TOOL_CALLS, ARGS, CALL_ID),
    "granite": (_GRANITE,),
    "deepseek": (*DEEPSEEK_CALLS, DEEPSEEK_CALL, DEEPSEEK_CALL_END, DEEPSEEK_SEPARATOR),
    "deepseek_v31": (*DEEPSEEK_CALLS, DEEPSEEK_CALL, DEEPSEEK_CALL_END, DEEPSEEK_SEPARATOR),
    "qwen_coder": _TOOL_CALL,
    "glm": (*_TOOL_CALL, KEY, "</arg_key>", "<arg_value>", "</arg_value>"),
    "harmony": HARMONY_MARKERS,
}
"""Markers of each family, the opening of calls first."""
_CLOSINGS: Final[dict[Family, str]] = {
    "hermes": _TOOL_CALL[1],
    "qwen_coder": _TOOL_CALL[1],
    "glm": _TOOL_CALL[1],
    "deepseek": DEEPSEEK_CALLS[1],
    "deepseek_v31": DEEPSEEK_CALLS[1],
}


def _family(source: str, added_tokens: Mapping[str, int]) -> Family:
    """Return the family; a more special syntax is looked for before those that its template may mention, too."""
    if is_harmony(source, added_tokens):
        return "harmony"
    if KEY in source:
        return "glm"
    if FUNCTION in source:
        return "qwen_coder"
    if DEEPSEEK_CALLS[0] in source:
        return "deepseek" if "```json" in source else "deepseek_v31"
    if _GRANITE in source:
        return "granite"
    if _TOOL_CALL[0] in source:
        return "hermes"
    if _TOOL_CALLS in added_tokens or _TOOL_CALLS in source:
        return "mistral_args" if ARGS in source else "mistral"
    return "llama3"


def is_harmony(source: str, added_tokens: Mapping[str, int]) -> bool:
    """Return whether the template writes messages in channels, and the vocabulary has a token for each marker."""
    return "<|channel|>" in source and "analysis" in source and added_tokens.keys() >= set(HARMONY_MARKERS)
