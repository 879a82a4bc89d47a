"""Removal of redundant bytes: insignificant white space, and the layout of pretty-printed JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from gateway.trimming.conversation import Conversation, edited, outside_code

# Possessive quantifiers make a run of blanks one match, so each blank is read once.
_BLANKS: Final = re.compile(r"[ \t](?:[ \t]{2,}+|[ \t]*+(?=\n|\Z))")
_BLANK_LINES: Final = re.compile(r"\n{3,}")
_MIN_JSON_BYTES: Final = 64
_PIECE_CHARS: Final = 64 * 1024
_SEAM: Final = re.compile(r"\S\S")


def minify(conversation: Conversation) -> Conversation:
    """Return the conversation with every message minified.

    Each result depends on its message alone, so prefixes stay stable.
    """
    return Conversation([edited(message, minify_text) for message in conversation.messages])


def minify_text(text: str) -> str:
    """Return JSON in compact form, and other text without trailing blanks, runs of empty lines and wide gaps.

    Fenced code stays whole.
    """
    compact = _compact_json(text)
    return compact if compact is not None else outside_code(text, _squeeze)


def _squeeze(text: str) -> str:
    """Squeeze a text piece by piece, because a regular expression holds the interpreter's lock until it ends."""
    if len(text) <= _PIECE_CHARS:
        return _squeezed(text)
    return "".join([_squeezed(piece) for piece in _pieces(text)])


def _pieces(text: str) -> Iterator[str]:
    """Split a text between two characters that are no white space, so no gap and no line end is cut."""
    begin = 0
    while len(text) - begin > _PIECE_CHARS:
        seam = _SEAM.search(text, begin + _PIECE_CHARS)
        if seam is None:
            break
        yield text[begin : seam.start() + 1]
        begin = seam.start() + 1
    yield text[begin:]


def _squeezed(text: str) -> str:
    return _BLANK_LINES.sub("\n\n", _BLANKS.sub(_narrowed, text))


def _narrowed(found: re.Match[str]) -> str:
    """Return the replacement of a run of blanks: nothing at a line's end, two between words, itself as indentation."""
    text, begin, end = found.string, found.start(), found.end()
    if end == len(text) or text[end] == "\n":
        return ""
    is_gap = begin > 0 and not text[begin - 1].isspace() and not text[end].isspace()
    return "  " if is_gap else found.group()


def _compact_json(text: str) -> str | None:
    """Return the JSON document without its layout, or None when the text is no JSON object or list.

    Numbers keep their spelling, and repeated keys stay.
    """
    stripped = text.strip()
    if len(stripped) < _MIN_JSON_BYTES or stripped[0] not in "{[" or stripped[-1] not in "}]":
        return None
    try:
        msgspec.json.decode(stripped)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return _without_gaps(stripped)


def _without_gaps(document: str) -> str:
    """Return valid JSON without the white space between its tokens; strings and numbers are copied."""
    if len(document) <= _PIECE_CHARS:
        return "".join(_TOKENS.findall(document))
    return "".join([token.group() for token in _TOKENS.finditer(document)])  # other threads can run between two matches


_TOKENS: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s"]++')
