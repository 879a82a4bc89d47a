"""Vocabulary: the words that the packaged encoder knows, the frequent ones first.

A word that is in no vocabulary may be a slip of the hand; two words that both are in it are two words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from gateway.cache.grammar.word_lists import CODE_WORDS
from gateway.embedding.model_files import EncoderUnavailable, installed_model

_FILE: Final = "vocab.txt"
MIN_LETTERS: Final = 3
_ENDINGS: Final = ("s", "es", "ed", "ing", "er", "ers", "or", "ly", "able", "ies", "ied", "ier", "ness", "less", "ful")
_BEFORE_ES: Final = ("s", "x", "z", "h", "o")
_VOWELS: Final = frozenset("aeiou")
_MIN_ROOT: Final = 4
_BEGINNINGS: Final = ("un", "re", "dis", "non", "pre", "over", "out", "mis", "sub", "multi")


@cache
def ranks() -> Mapping[str, int]:
    """Return each word's place by frequency; empty without the packaged encoder, and then no word is corrected.

    Reads one file of a few hundred kilobytes, once.
    """
    try:
        lines = installed_model().tokenizer.with_name(_FILE).read_text("utf-8").splitlines()
    except (EncoderUnavailable, OSError):
        return {}
    words = (line for line in lines if len(line) >= MIN_LETTERS and line.isascii() and line.isalpha())
    found = {word: rank for rank, word in enumerate(words)}
    return found | {word: len(found) for word in CODE_WORDS if word not in found}


def is_common(word: str) -> bool:
    """Return whether a lower-case word says nothing of who sent it: one of the vocabulary, or at most two ASCII signs.

    What is computed of other words is remembered nowhere: names are among them, and the time of a request would tell
    one tenant which of them another one sent.
    """
    return word in ranks() or (len(word) < MIN_LETTERS and word.isascii())


def is_known(word: str) -> bool:
    """Return whether a lower-case word or what it is built of is in the vocabulary, or it is too short to tell."""
    if len(word) < MIN_LETTERS or word in ranks():
        return True
    return (word.endswith(_ENDINGS) or word.startswith(_BEGINNINGS)) and any(base in ranks() for base in _bases(word))


def _bases(word: str) -> Iterator[str]:
    """Give the words that a word may be a form of: `chat` for `chats`, `block` for `unblock`."""
    for ending in _ENDINGS:
        root = word.removesuffix(ending)
        if root != word and len(root) >= _MIN_ROOT:
            if ending != "es" or root.endswith(_BEFORE_ES):
                yield root
            if ending[0] in _VOWELS:
                yield root + "e"
                if root[-1] == root[-2]:
                    yield root[:-1]
            if ending[0] == "i":
                yield root + "y"
    for beginning in _BEGINNINGS:
        root = word.removeprefix(beginning)
        if root != word and len(root) > MIN_LETTERS:
            yield root
