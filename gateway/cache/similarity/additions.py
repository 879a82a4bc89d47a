"""Additions: what one text says besides the other's question, as whoever aims a text at a kept question has to.

A suffix that draws a text's vector to another question is made of words: a sentence or clause of its own, the other
question once more, an address, or many words that the other lacks. Similarity does not tell it from a paraphrase;
counting does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.cache.similarity.wording import Word, Wording

MAX_ADDED: Final = 4
"""Words of weight that one text may have and the other not."""
MIN_SENTENCE: Final = 2
"""Words other than grammar, one of weight, none of which the other text has: a clause about something else."""
MAX_REPEATED: Final = 1
"""Words that one text says once more than the other."""


def is_addition(text: Wording, only: Sequence[Word], other: Wording) -> bool:
    """Whether `text` is more than another wording of `other`; `only` are its words that `other` has none for."""
    if not only:
        return False
    said = [word for word in only if word.rarity]
    if any(word.is_code for word in said) or sum([word.rarity == 1.0 for word in said]) > MAX_ADDED:
        return True
    if text.sentences:
        left, rare = {word.stem for word in said}, {word.stem for word in said if word.rarity == 1.0}
        if any(
            len(sentence) >= MIN_SENTENCE and sentence <= left and not rare.isdisjoint(sentence)
            for sentence in text.sentences
        ):
            return True
    if len(said) <= MAX_REPEATED:
        return False
    theirs = {word.stem for word in other.words}
    return sum([word.stem in theirs for word in said]) > MAX_REPEATED
