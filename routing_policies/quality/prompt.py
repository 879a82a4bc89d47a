"""Prompt: what a quality prediction looks at of a conversation."""

from __future__ import annotations

from typing import Final

import msgspec

TAIL_CHARS: Final = 480
"""Of the last question; what stands further ahead counts by its length only, so that a long preamble cannot speak."""
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
    """Of all messages together."""
    has_system: bool = False
    has_tools: bool = False
    kind: str = ""
    """What kind of work it is, where the route tells: as the data named it that a predictor was trained on."""
