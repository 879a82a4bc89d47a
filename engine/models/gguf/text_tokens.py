"""Tokens of a SentencePiece vocabulary that stand for plain text but are not made by merges.

Gemma's vocabulary marks runs of white space and HTML tags as "user-defined": each is one token wherever it occurs. All
other user-defined tokens are markup, which only a chat template may use.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

_TAGS = (
    *("a", "b", "bbox", "blockquote", "body", "caption", "code", "div", "em", "footer", "h1", "h2", "h3", "h4", "h5"),
    *("h6", "html", "i", "iframe", "img", "li", "s", "span", "strong", "sub", "sup", "table", "tbody", "td", "tfoot"),
    *("th", "thead", "tr", "u", "ul"),
)
_TAG = re.compile(f"</?(?:{'|'.join(_TAGS)})>")
_ESCAPES = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}


def is_plain_text(token: str) -> bool:
    """Return whether a user-defined token is white space or an HTML tag."""
    return token.isspace() or _TAG.fullmatch(token) is not None


def split_pattern(tokens: Iterable[str]) -> str:
    """Return a regular expression that matches the longest of the tokens at a place."""
    lengths: dict[str, set[int]] = defaultdict(set)
    others = []
    for token in tokens:
        if len(set(token)) == 1:
            lengths[token[0]].add(len(token))
        else:
            others.append(token)
    runs = [_run(character, found) for character, found in lengths.items()]
    return "|".join([*runs, *map(re.escape, sorted(others, key=len, reverse=True))])


def _run(character: str, lengths: set[int]) -> str:
    escaped = _ESCAPES.get(character, re.escape(character))
    low, high = min(lengths), max(lengths)
    if len(lengths) == high - low + 1:
        return f"{escaped}{{{low},{high}}}"
    return "|".join(f"{escaped}{{{length}}}" for length in sorted(lengths, reverse=True))
