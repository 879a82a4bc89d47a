"""Patterns of a call's beginning, up to its arguments, whole and in part.

A pattern of beginnings tells whether more text may still complete the head.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.frontend.tools.tool_format import (
    ARGS,
    CALL_ID,
    DEEPSEEK_CALL,
    DEEPSEEK_SEPARATOR,
    FUNCTION,
    KEY,
    ToolFormat,
)

SPACES: Final = r"\s*+"
_NAME = "[A-Za-z0-9_-]{1,64}"
_ID = "[A-Za-z0-9]{0,64}"


@dataclass(frozen=True, slots=True)
class CallHead:
    """Patterns of one spelling of a head; the group `name` is the function's name."""

    whole: re.Pattern[str]
    beginnings: re.Pattern[str]
    """Pattern of every text that a whole head begins with."""


def named_head(form: ToolFormat) -> CallHead | None:
    """Return the head of calls whose name stands before their arguments; None for families without such calls."""
    match form.family:
        case "mistral" | "mistral_args":
            return _MISTRAL
        case "deepseek" | "deepseek_v31":
            return _DEEPSEEK
        case "qwen_coder":
            return _QWEN_CODER
        case "glm":
            return _GLM
        case _:
            return None


def _object_parts(has_type: bool, key: str) -> list[str]:
    """Return the patterns of the parts of a call's object up to its arguments' bracket."""
    parts = [SPACES, r"\[?", SPACES, r"\{", SPACES]
    if has_type:
        parts += [*'"type"', SPACES, ":", SPACES, *'"function"', SPACES, ",", SPACES]
    parts += [*'"name"', SPACES, ":", SPACES, '"', "[A-Za-z0-9_-]{0,64}", '"', SPACES, ",", SPACES]
    return [*parts, *f'"{key}"', SPACES, ":", SPACES, r"\{"]


def _beginnings(*variants: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that matches every prefix of each sequence of parts."""
    patterns = []
    for parts in variants:
        pattern = ""
        for part in reversed(parts):
            pattern = f"(?:{part}{pattern})?"
        patterns.append(pattern)
    return re.compile("|".join(patterns))


def _letters(text: str) -> list[str]:
    return [re.escape(letter) for letter in text]


OBJECT_HEAD: Final = CallHead(
    re.compile(
        rf"{SPACES}\[?{SPACES}\{{{SPACES}"
        rf'(?:"type"{SPACES}:{SPACES}"function"{SPACES},{SPACES})?'
        rf'"name"{SPACES}:{SPACES}"(?P<name>{_NAME})"{SPACES},{SPACES}'
        rf'"(?:arguments|parameters)"{SPACES}:{SPACES}\{{'
    ),
    _beginnings(*(_object_parts(has_type, key) for has_type in (False, True) for key in ("arguments", "parameters"))),
)
"""Head of a JSON object with the name first."""
ANY_OBJECT: Final = re.compile(rf"{SPACES}\[?{SPACES}\{{")

_MISTRAL = CallHead(
    re.compile(rf"{SPACES}(?P<name>{_NAME})(?:{re.escape(CALL_ID)}{_ID})?{re.escape(ARGS)}{SPACES}\{{"),
    _beginnings(
        *([SPACES, _NAME, *between, *_letters(ARGS), SPACES, r"\{"] for between in ([], [*_letters(CALL_ID), _ID]))
    ),
)
_CALL, _SEPARATOR = re.escape(DEEPSEEK_CALL), re.escape(DEEPSEEK_SEPARATOR)
_DEEPSEEK = CallHead(
    re.compile(
        rf"{SPACES}{_CALL}{SPACES}(?:function{SPACES}{_SEPARATOR}{SPACES}(?P<fenced>{_NAME}){SPACES}```(?:json)?"
        rf"|(?P<name>{_NAME}){SPACES}{_SEPARATOR}){SPACES}\{{"
    ),
    _beginnings(
        [SPACES, *_letters(DEEPSEEK_CALL), SPACES, _NAME, SPACES, *_letters(DEEPSEEK_SEPARATOR), SPACES, r"\{"],
        *(
            [
                *(SPACES, *_letters(DEEPSEEK_CALL), SPACES, *"function", SPACES, *_letters(DEEPSEEK_SEPARATOR)),
                *(SPACES, _NAME, SPACES, *"```", *language, SPACES, r"\{"),
            ]
            for language in ("", "json")
        ),
    ),
)
_QWEN_CODER = CallHead(
    re.compile(rf"{SPACES}{re.escape(FUNCTION)}{SPACES}(?P<name>{_NAME}){SPACES}>"),
    _beginnings([SPACES, *_letters(FUNCTION), SPACES, _NAME, SPACES, ">"]),
)
_GLM = CallHead(
    re.compile(rf"{SPACES}(?P<name>{_NAME}){SPACES}(?={re.escape(KEY)}|</tool_call>)"),
    _beginnings(
        [SPACES, _NAME, SPACES, *_letters(KEY)],
        [SPACES, _NAME, SPACES, *_letters("</tool_call>")],
    ),
)
