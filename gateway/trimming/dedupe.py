"""Blocks that the conversation has said before: the first stays, the later ones go."""

from __future__ import annotations

import re
from typing import Final

from gateway.trimming.conversation import Conversation, edited, outside_code

MIN_BLOCK_BYTES: Final = 160
"""Shorter repetitions are how people talk."""

_BLOCKS: Final = re.compile(r"(\n[ \t]*\n)")


def dedupe(conversation: Conversation) -> Conversation:
    """Old messages without the blocks that an earlier message had; instructions and the last turn stay as they are.

    The copy that stays is the earliest, so that what was kept of a prefix is kept of every longer one.
    """
    seen: set[str] = set()
    messages = list(conversation.messages)
    old = {index for index in conversation.old_messages() if not conversation.instructs(index)}
    for index, message in enumerate(messages):

        def drop(text: str, *, is_old: bool = index in old) -> str:
            return _without_seen(text, seen, is_old=is_old)

        edited_message = edited(message, lambda text, drop=drop: outside_code(text, drop))  # type: ignore[misc]
        if index in old:
            messages[index] = edited_message
    return Conversation(messages)


def _without_seen(text: str, seen: set[str], *, is_old: bool) -> str:
    pieces = _BLOCKS.split(text)
    kept = []
    for index, piece in enumerate(pieces):
        key = " ".join(piece.split())
        if index % 2 == 0 and len(key) >= MIN_BLOCK_BYTES:
            if is_old and key in seen:
                kept.append("[said before]")
                continue
            seen.add(key)
        kept.append(piece)
    return "".join(kept)
