"""Standalone texts: their answer does not depend on the conversation before. Pure, microseconds.

A rule on the safe side: nothing in the text may point back, and nothing may be left out that the conversation would
fill in. It must name its topic in several words of its own.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from gateway.cache.grammar.lexicon import GOING_ON, POINTING
from gateway.cache.similarity.language import is_english
from gateway.cache.similarity.wording import Wording

MAX_CHARS: Final = 600
"""Longest text, about as much as the encoder reads; what stands behind that would not be compared."""
MIN_TOPIC_WORDS: Final = 3
"""Least number of different words that few questions share; fewer are as good as none: `Who wrote the songs?`."""

_SHORTENED: Final = frozenset({("what", "about"), ("how", "about"), ("how", "so"), ("what", "if"), ("why", "not")})
_NOT_KNOWN: Final = re.compile(r".+est|best|most|least|worst|difference|differences|way|ways|same")
"""Words that are clear behind `the` without earlier text; any other thing needs the conversation."""
_word: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*").findall
_ENDING: Final = re.compile(r"['’](?:s|re|ve|ll|d|m)$")


def is_standalone(text: str) -> bool:
    """Return whether the answer depends on nothing before the text, as far as the words show."""
    if len(text) > MAX_CHARS:
        return False
    if not is_english(_word(text.lower())):
        return False
    words = [_ENDING.sub("", word) for word in _word(text.lower())]
    if len(words) <= MIN_TOPIC_WORDS or words[0] in GOING_ON or not POINTING.isdisjoint(words):
        return False
    if any(pair in _SHORTENED for pair in pairwise(words[:3])):
        return False
    if any(first == "the" and not _NOT_KNOWN.fullmatch(second) for first, second in pairwise(words)):
        return False
    return len({word.stem for word in Wording.of(text).words if word.rarity == 1.0}) >= MIN_TOPIC_WORDS
