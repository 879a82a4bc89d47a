"""Syntax of tool calls in each model family, chosen from the chat template and the added tokens."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

Family = Literal["hermes", "llama3", "mistral", "mistral_args"]
MakeId = Callable[[], str]

_PYTHON_TAG = "<|python_tag|>"
_TOOL_CALLS = "[TOOL_CALLS]"
ARGS = "[ARGS]"
"""Marker between name and arguments in Mistral's newer form."""
CALL_ID = "[CALL_ID]"
"""Marker before a call's id in Mistral's newer form, which some models write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """Tool-call syntax of one model family.

    hermes (also Qwen and the bundled models): `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, several in
    succession;
    llama3: `{"name": …, "parameters": {…}}` from the start of the answer, perhaps behind `<|python_tag|>`;
    mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`;
    mistral_args, since 2025: `[TOOL_CALLS]name[ARGS]{…}`, several in succession.
    """

    family: Family
    opening: str
    """Text that begins calls."""
    closing: str
    """Text that ends one call; may be empty."""
    arguments_key: Literal["arguments", "parameters"]
    opens_bare: bool
    """True if a call may begin the answer without the opening."""
    marker_ids: Mapping[str, int]
    """Ids of the markers that are single tokens of the vocabulary."""
    other_ids: tuple[int, ...] = ()
    """Ids of the other added tokens that are not special, such as `<think>`."""

    @property
    def knows_named_calls(self) -> bool:
        """True if `name[ARGS]{…}` may be a call; Mistral's models of either form may write both."""
        return self.family in ("mistral", "mistral_args")

    def make_id(self) -> str:
        """Return a new call id. Mistral's templates require nine letters and digits."""
        if self.knows_named_calls:
            return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
        return "call_" + secrets.token_hex(12)

    def token_bytes(self, ordinary: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """Return `ordinary` extended by the texts of the markers, which it hides if they are special tokens."""
        shown = {token_id: text.encode() for text, token_id in self.marker_ids.items()}
        return lambda token_id: shown.get(token_id) or ordinary(token_id)


def choose_tool_format(
    template_source: str | None, added_tokens: Mapping[str, int], special_texts: Collection[str] = ()
) -> ToolFormat | None:
    """Return the syntax of this template and vocabulary; None if the template supports no tools."""
    if template_source is None or "tools" not in template_source:
        return None
    if "<tool_call>" in template_source:
        return _format("hermes", "<tool_call>", "</tool_call>", added_tokens, special_texts)
    if _TOOL_CALLS in added_tokens or _TOOL_CALLS in template_source:
        family: Family = "mistral_args" if ARGS in template_source else "mistral"
        return _format(family, _TOOL_CALLS, "", added_tokens, special_texts)
    return _format("llama3", _PYTHON_TAG, "", added_tokens, special_texts)


def _format(
    family: Family, opening: str, closing: str, added_tokens: Mapping[str, int], special_texts: Collection[str]
) -> ToolFormat:
    markers = (opening, closing, ARGS, CALL_ID) if opening == _TOOL_CALLS else (opening, closing)
    return ToolFormat(
        family=family,
        opening=opening,
        closing=closing,
        arguments_key="parameters" if family == "llama3" else "arguments",
        opens_bare=family == "llama3",
        marker_ids={text: added_tokens[text] for text in markers if text in added_tokens},
        other_ids=tuple(
            sorted(i for text, i in added_tokens.items() if text not in markers and text not in special_texts)
        ),
    )
