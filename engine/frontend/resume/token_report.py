"""Report of a stream's tokens to the gateway: comments between its events, which no client reads.

A comment `: penstock-tokens 0 17 4,1 stop 2` states the tokens of the choice with index 0 since the last comment, and
the last one of the choice with index 1 with the reason for which the model ended it. With it, the events before it can
be continued by another engine. Without it, they cannot yet: so one comment has all choices of a write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.frontend.text.choice import Choice

HANDED_OVER: Final = b": penstock-handed-over\n\n"
"""End of a stream that another engine continues, because this one drains."""


def can_report(choice: Choice) -> bool:
    """Return whether an engine that gets the choice's tokens so far can go on behind the events for them."""
    return choice.finish is not None or not choice.has_open_logprobs


def token_report(choices: Sequence[Choice]) -> bytes:
    """Return the comment with the tokens that none had, of the choices that can be reported; empty without any."""
    found = [_of_choice(one) for one in choices if can_report(one) and (one.unreported or _has_new_end(one))]
    return b": penstock-tokens %b\n\n" % ",".join(found).encode("ascii") if found else b""


def _has_new_end(choice: Choice) -> bool:
    return choice.unreported is not None and choice.finish is not None


def _of_choice(choice: Choice) -> str:
    words = [str(choice.index), *([choice.ended_by] if choice.ended_by is not None else ())]
    words += map(str, choice.unreported or ())
    choice.unreported = [] if choice.finish is None else None
    return " ".join(words)
