"""How a family of models writes calls of tools: markers, key of the arguments, ids; chosen from template and tokens."""

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
"""Stands between name and arguments in Mistral's newer form."""
CALL_ID = "[CALL_ID]"
"""Stands before a call's id there, where a model writes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One family's form.

    hermes (also Qwen and the bundled models): `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, several in a row;
    llama3: `{"name": …, "parameters": {…}}` from the start of the answer, perhaps behind `<|python_tag|>`;
    mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`;
    mistral_args, since 2025: `[TOOL_CALLS]name[ARGS]{…}`, several in a row.
    """

    family: Family
    opening: str
    """Text that begins calls."""
    closing: str
    """Text that ends one call; may be empty."""
    arguments_key: Literal["arguments", "parameters"]
    opens_bare: bool
    """Whether a call may begin the answer without the opening."""
    marker_ids: Mapping[str, int]
    """Ids of the markers that are single tokens of the vocabulary."""
    other_ids: tuple[int, ...] = ()
    """Ids of other tokens that are whole pieces of text of their own, such as `<think>`; special ones left out."""

    @property
    def knows_named_calls(self) -> bool:
        """Whether `name[ARGS]{…}` may be a call; Mistral's models of either age may write both forms."""
        return self.family in ("mistral", "mistral_args")

    def make_id(self) -> str:
        """A new call's id. Mistral's templates insist on nine letters and digits."""
        if self.knows_named_calls:
            return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
        return "call_" + secrets.token_hex(12)

    def token_bytes(self, ordinary: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """`ordinary`, with the markers shown although they are special tokens."""
        shown = {token_id: text.encode() for text, token_id in self.marker_ids.items()}
        return lambda token_id: shown.get(token_id) or ordinary(token_id)


def choose_tool_format(
    template_source: str | None, added_tokens: Mapping[str, int], special_texts: Collection[str] = ()
) -> ToolFormat | None:
    """The form that this template and vocabulary speak; None when the template knows no tools."""
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
