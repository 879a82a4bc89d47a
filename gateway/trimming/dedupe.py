"""Removal of repeated blocks from a conversation: the first copy stays, later ones go."""

from __future__ import annotations

import re
from typing import Final

from gateway.trimming.conversation import Conversation, edited
from gateway.trimming.structure.blocks import blocks_of

MIN_BLOCK_BYTES: Final = 160
"""Size below which a repetition stays; short ones are ordinary speech."""

_BLANK_LINES: Final = re.compile(r"(\n[ \t]*\n)")


def dedupe(conversation: Conversation) -> Conversation:
    """Return the conversation without the blocks that repeat an earlier message.

    Instructions and the last turn stay as they are. The earliest copy stays, so a prefix is cut alike in every longer
    conversation.
    """
    seen: set[str] = set()
    messages = list(conversation.messages)
    old = {*conversation.old_messages()} - conversation.fixed_messages()
    # What stands behind the last of them stays, and nothing is compared with it.
    for index, message in enumerate(messages[: max(old, default=-1) + 1]):

        def drop(text: str, *, is_old: bool = index in old) -> str:
            return _without_seen(text, seen, is_old=is_old)

        edited_message = edited(message, drop)
        if index in old:
            messages[index] = edited_message
    return conversation.of(messages)


def _without_seen(text: str, seen: set[str], *, is_old: bool) -> str:
    if len(text) < MIN_BLOCK_BYTES:
        return text
    retained: list[str] = []
    for block in blocks_of(text):
        if block.kind != "prose":
            retained.append(block.text)
            continue
        for place, piece in enumerate(_BLANK_LINES.split(block.text)):
            key = " ".join(piece.split())
            if place % 2 == 0 and len(key) >= MIN_BLOCK_BYTES and "```" not in piece:  # half of a fence may stand there
                if is_old and key in seen:
                    retained.append("[said before]")
                    continue
                seen.add(key)
            retained.append(piece)
    return "".join(retained)
