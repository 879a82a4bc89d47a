"""Report of a stream's tokens to the gateway: comments between its events, which no client reads.

A comment `: penstock-tokens 0 17 4 99` states the tokens of the choice with index 0 since its last one, and
`: penstock-tokens 0 stop 2` its last tokens with the reason for which the model ended it. With them, the events before
it can be continued by another engine. Without it, they cannot yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.frontend.text.choice import Choice

HANDED_OVER: Final = b": penstock-handed-over\n\n"
"""End of a stream that another engine continues, because this one drains."""


def token_reports(choices: Sequence[Choice]) -> list[bytes]:
    """Return the reports of the tokens that no report had, which may all wait for the next events."""
    if any(choice.finish is None and choice.has_open_logprobs for choice in choices):
        return []
    return [_report(choice) for choice in choices if choice.unreported or _has_new_end(choice)]


def _has_new_end(choice: Choice) -> bool:
    return choice.unreported is not None and choice.finish is not None


def _report(choice: Choice) -> bytes:
    words = [str(choice.index), *([choice.ended_by] if choice.ended_by is not None else ())]
    words += map(str, choice.unreported or ())
    choice.unreported = [] if choice.finish is None else None
    return b": penstock-tokens %b\n\n" % " ".join(words).encode("ascii")
