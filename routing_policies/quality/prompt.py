"""Prompt: the part of a conversation that a quality prediction reads."""

from __future__ import annotations

from typing import Final

import msgspec

TAIL_CHARS: Final = 480
"""Number of characters whose words are read, at the end of the last question.

The text before them counts by its length, and by the names and long words of the last sentence in it:
`features.CONTEXT_CHARS` says how far back they are searched. Its other words have no influence on the prediction.
"""
EARLIER_CHARS: Final = 160
"""Number of characters read at the end of the user message before."""


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """Last message of the user, and the amount of text before it."""

    text: str
    """Last user message, whole."""
    earlier: str = ""
    """User message before the last one."""
    num_turns: int = 1
    """Number of user messages."""
    num_chars: int = 0
    """Number of characters of all messages together."""
    has_system: bool = False
    has_tools: bool = False
    kind: str = ""
    """Kind of work that the route names: a name from the data that a predictor was trained on."""
    sender: str = ""
    """Tenant that sent it; its preambles are its own, so that no tenant's texts change another's predictions."""
