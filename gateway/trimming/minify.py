"""Dead weight in text: white space that says nothing, and JSON that is spread out."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gateway.trimming.conversation import Conversation, edited, outside_code

# Possessive, and begun only where a run begins: a run that leads nowhere is read once.
_TRAILING: Final = re.compile(r"(?<![ \t])[ \t]++$", re.MULTILINE)
_BLANK_LINES: Final = re.compile(r"\n{3,}")
_LONG_GAPS: Final = re.compile(r"(?<=\S)[ \t]{3,}+(?=\S)")
_MIN_JSON_BYTES: Final = 64


def minify(conversation: Conversation) -> Conversation:
    """Every message without dead weight; a function of each message alone, so that prefixes stay what they were."""
    return Conversation([edited(message, minify_text) for message in conversation.messages])


def minify_text(text: str) -> str:
    """JSON compact; other text without trailing blanks, runs of empty lines and wide gaps. Fenced code stays whole."""
    compact = _compact_json(text)
    return compact if compact is not None else outside_code(text, _squeeze)


def _squeeze(text: str) -> str:
    return _LONG_GAPS.sub("  ", _BLANK_LINES.sub("\n\n", _TRAILING.sub("", text)))


def _compact_json(text: str) -> str | None:
    """The same document in fewer bytes, None when the text is no JSON object or list, or would not come back equal:
    numbers keep their spelling, and repeated keys are left alone."""
    stripped = text.strip()
    if len(stripped) < _MIN_JSON_BYTES or stripped[0] not in "{[" or stripped[-1] not in "}]":
        return None
    try:
        msgspec.json.decode(stripped)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return _without_gaps(stripped)


def _without_gaps(document: str) -> str:
    """Valid JSON without the white space between its tokens; strings and numbers are copied as they stand."""
    return "".join(_TOKENS.findall(document))


_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"]+')
