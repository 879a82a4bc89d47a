"""Report of a stream's tokens to the gateway: comments between its events, which no client reads.

A comment `: penstock-tokens 17 4 99` states the tokens since the last one. With them, the events before it can be
continued by another engine. Without it, they cannot yet.
"""

from __future__ import annotations

from typing import Final

from engine.frontend.text.choice import Choice

_MARK: Final = b": penstock-tokens"


HANDED_OVER: Final = b": penstock-handed-over\n\n"
"""End of a stream that another engine continues, because this one drains."""


def token_report(choice: Choice) -> list[bytes]:
    """Return the report of a choice's tokens that no report had, which may wait for the next events."""
    token_ids = choice.unreported
    if not token_ids or choice.has_open_logprobs or choice.finish is not None:
        return []
    choice.unreported = []
    return [b"%b %b\n\n" % (_MARK, " ".join(map(str, token_ids)).encode("ascii"))]
