"""Variables that a request hands to the model's chat template."""

from __future__ import annotations

from typing import Any, Final

from engine.frontend.fields.faults import FieldRefusal
from engine.frontend.request.errors import invalid_value, unsupported

MAX_OPTION_CHARS: Final = 256
"""Longest string that a request may hand to the chat template."""


def check_options(options: dict[str, Any]) -> None:
    """Raise ApiError (400) for a value that is no boolean, number or short string."""
    for name, value in options.items():
        if not (isinstance(value, int | float) or (isinstance(value, str) and len(value) <= MAX_OPTION_CHARS)):
            where = f"chat_template_kwargs.{name[:64]}"
            raise invalid_value(
                where, f"`{where}` must be true, false, a number or a string of at most {MAX_OPTION_CHARS} characters."
            )


def template_options(given: dict[str, Any] | None, effort: object, known: frozenset[str]) -> dict[str, Any]:
    """Return the variables that a request hands to the chat template.

    Args:
        given: Member `chat_template_kwargs`.
        effort: Member `reasoning_effort`.
        known: Variables that the template reads.

    Raises:
        ApiError: The template does not read one of `chat_template_kwargs` (400).
    """
    options = dict(given or {})
    for name in sorted(options.keys() - known):
        where = f"chat_template_kwargs.{name[:64]}"
        read = ", ".join(sorted(known)) or "none"
        message = f"`{where}` is not a variable that the model's chat template reads; it reads {read}."
        raise unsupported(FieldRefusal(where, message))
    if "reasoning_effort" in known and isinstance(effort, str) and len(effort) <= MAX_OPTION_CHARS:
        options.setdefault("reasoning_effort", effort)
    return options
