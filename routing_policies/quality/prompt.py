"""Prompt: the part of a conversation that a quality prediction looks at."""

from __future__ import annotations

from typing import Final

import msgspec

TAIL_CHARS: Final = 480
"""Read of the last question; text further ahead counts by its length only, so that a long preamble cannot speak."""
EARLIER_CHARS: Final = 160


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """The last thing asked, and how much stands before it."""

    text: str
    """The last user message, whole."""
    earlier: str = ""
    """The user message before it."""
    num_turns: int = 1
    """User messages."""
    num_chars: int = 0
    """Characters of all messages together."""
    has_system: bool = False
    has_tools: bool = False
    kind: str = ""
    """Kind of work, where the route tells it: a name of the data that a predictor was trained on."""
