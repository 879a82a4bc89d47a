"""Respelling: a text in the spelling of another one, where they differ by slips of the hand."""

from __future__ import annotations

import re
from typing import Final

from gateway.cache.grammar.lexicon import (
    COMMON_WORDS,
    EXCEPTIONS,
    FUNCTION_WORDS,
    NEGATIONS,
    NUMBERS,
    OPPOSITES,
    SYNONYM_FORMS,
    UNITS,
)
from gateway.cache.grammar.spelling import are_one_word, slip_between, with_case_of
from gateway.cache.grammar.vocabulary import ranks
from gateway.cache.grammar.word_lists import CLASS_WORDS, CODE_WORDS, words_of
from gateway.cache.similarity.normal_form import without_accents
from gateway.cache.similarity.wording import Word, Wording

MAX_SLIPS: Final = 3
"""Words that may be misspelt in one text."""
MIN_BARE: Final = 2
"""Letters of a word whose accents may be left out; a single letter is a name."""
MAX_SHORT: Final = 5
"""Letters of a name of programming that another one may begin with."""
_WEIGHTY: Final = NEGATIONS.union(EXCEPTIONS, CLASS_WORDS - {"does", "have"})
_PLAIN: Final = frozenset(word for word in FUNCTION_WORDS - _WEIGHTY if len(word) > 3)
"""Words of grammar of four letters and more that narrow nothing."""
_MENTIONING: Final = words_of(
    "mean means meaning pronounce pronounced spell spelled word letter accent significa significan escribe dice "
    "pronuncia palabra signifie écrit dit prononce mot bedeutet heißt schreibt spricht wort parola dire diz palavra "
    "betekent woord"
)
"""Words beside which a word is named, not used: each accent of it counts."""
_LISTED: Final = CLASS_WORDS.union(
    FUNCTION_WORDS, COMMON_WORDS, NEGATIONS, EXCEPTIONS, NUMBERS, UNITS, SYNONYM_FORMS, *OPPOSITES
)
"""Words of any list, none of which is another one misspelt."""


def respelled(prompt: Wording, cached: Wording) -> Wording:
    """Return the prompt in the cached text's spelling; itself where no word is a slip of one of the cached text."""
    ours = _others(prompt, cached)
    if not 0 < len(ours) <= MAX_SLIPS:
        return prompt
    theirs = [*_others(cached, prompt), *cached.words]
    if len(theirs) - len(cached.words) > MAX_SLIPS:
        return prompt
    is_bare = prompt.text.isascii() != cached.text.isascii()  # one is typed without accents
    are_mentioned = not _MENTIONING.isdisjoint(word.text for word in (*prompt.words, *cached.words))
    is_bare = is_bare and not are_mentioned
    meant: dict[str, str] = {}
    for word in ours:
        other = next((other for other in theirs if _may_be_one(word, other, is_bare=is_bare)), None)
        if other is not None:
            meant[word.text] = other.text
    if not meant:
        return prompt
    slips = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, meant))})(?!\w)", re.IGNORECASE)
    source = slips.sub(lambda found: with_case_of(found.group(), meant[found.group().lower()]), prompt.source)
    return Wording.of(source, prompt.language)


def _others(text: Wording, other: Wording) -> list[Word]:
    """Return the words that the other text lacks."""
    theirs = {word.text for word in other.words}
    return [word for word in text.words if word.text not in theirs]


def _may_be_one(one: Word, other: Word, *, is_bare: bool) -> bool:
    if one.is_code or other.is_code:
        return False
    if not (one.text.isascii() and other.text.isascii()):
        return is_bare and _is_bare_form(*sorted((one.text, other.text), key=str.isascii))
    if one.text in _LISTED and other.text in _LISTED:
        return False
    if _is_longer_name(one.text, other.text) or _is_longer_name(other.text, one.text):
        return False
    return are_one_word(one.text, other.text) or _is_plain(one, other) or _is_plain(other, one)


def _is_bare_form(accented: str, bare: str) -> bool:
    """Return whether a word is another one typed without accents, and no word of its own: `resume` is a verb."""
    if len(bare) < MIN_BARE or without_accents(accented) != without_accents(bare):
        return False
    return not any(bare.removesuffix("e") + ending in ranks() for ending in ("ed", "ing")) or bare not in ranks()


def _is_longer_name(one: str, other: str) -> bool:
    """Return whether one is a short name of programming and the other begins with it: `json`, `jsonb`."""
    return one in CODE_WORDS and len(one) <= MAX_SHORT and other.startswith(one)


def _is_plain(word: Word, other: Word) -> bool:
    """Return whether one is a word of grammar without weight of its own and the other, a slip away, a rare one."""
    if word.text not in _PLAIN or other.rarity < 1.0 or other.is_name or other.text in FUNCTION_WORDS:
        return False
    return slip_between(word.text, other.text) is not None
