"""Contrasts: two texts with the same topic about another time, duty, quantity, role or reason of it.

Words of grammar vary freely between wordings of one question. They count where they stand against others of their
class, and where nothing else differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.cache.grammar.word_lists import CLASS_WORDS, HELPING_VERBS, PERSONS, words_of
from gateway.cache.similarity.comparison import Comparison
from gateway.cache.similarity.wording import Word, Wording

_QUESTIONS: Final = words_of("how why when where who")
"""Kinds of questions of which no two have one answer; `what` may stand for any of them."""
_IN_ANY_ORDER: Final = words_of("distanc between differenc versus vs and or")
"""Stems beside which the order of signs does not matter."""
_BE: Final = words_of("is are am was were")
_DO: Final = words_of("do does did")
_HELPERS: Final = words_of("is are am was were be been has have had will would can could should must may might")


def has_other_code(found: Comparison) -> bool:
    """Return whether a sign, a letter's case or the order of signs differs in what is code."""
    stems = {word.stem for word in found.prompt.words}
    return found.prompt.code.differ_from(found.cached.code, in_any_order=not stems.isdisjoint(_IN_ANY_ORDER))


def has_other_modality(found: Comparison) -> bool:
    """Return whether one text is about what must be and the other about what may, can or should be."""
    prompt, cached = found.prompt.grammar, found.cached.grammar
    return prompt.has_other_modality(cached, is_same_frame=_is_same_frame(found))


def has_other_tense(found: Comparison) -> bool:
    """Return whether nothing but the time differs: `did`, `does`, `will`, `has`; or the ending of a verb."""
    if not _is_same_frame(found):
        return False
    if found.prompt.grammar.has_other_tense(found.cached.grammar):
        return True
    pasts = [_finite_pasts(text) for text in (found.prompt, found.cached)]
    bare_forms = [_bare_forms(text) for text in (found.cached, found.prompt)]
    return any(not past.isdisjoint(bare) for past, bare in zip(pasts, bare_forms, strict=True))


def has_other_quantity(found: Comparison) -> bool:
    """Return whether the texts are about all, most, some or few, or about another one in an order."""
    if found.prompt.grammar.has_other_quantity(found.cached.grammar):
        return True
    return {_comparing(found.prompt), _comparing(found.cached)} == {"than", "as"}


def _comparing(text: Wording) -> str:
    """Return how a text compares: `harder than`, `as hard as`; empty where it does not, or does both."""
    words = [word.text for word in text.words]
    is_equal = any(first == third == "as" for first, third in zip(words, words[2:], strict=False))
    return "" if is_equal == ("than" in words) else "as" if is_equal else "than"


def has_other_question(found: Comparison) -> bool:
    """Return whether nothing but the question word differs: `how`, `why`, `when`."""
    kinds = {found.prompt.question, found.cached.question}
    if len(kinds) < 2 or not kinds <= _QUESTIONS:
        return False
    return not any(word.rarity for word in (*found.only_prompt, *found.only_cached))


def has_other_role(found: Comparison) -> bool:
    """Return whether an agent of one text is no agent of the other: `was x taught by y`, `did x teach y`."""
    for passive, active in ((found.prompt, found.cached), (found.cached, found.prompt)):
        words, others = _texts(passive), _texts(active)
        if "by" not in words or "by" in others or _BE.isdisjoint(words) or _DO.isdisjoint(others):
            continue
        stems, theirs = _things(passive), _things(active)
        shared = stems & theirs
        if len(shared) >= 2 and _in_order(passive, shared) == _in_order(active, shared):
            return True
    return False


def by_person(words: Sequence[Word], stems: Sequence[str]) -> list[str]:
    """Return stems in which a person and a helping verb have one form: `I` for `me`, `do` for `does`."""
    return [
        stem if word.rarity else PERSONS.get(stem, HELPING_VERBS.get(stem, stem))
        for word, stem in zip(words, stems, strict=True)
    ]


def _is_same_frame(found: Comparison) -> bool:
    """Return whether no word of weight differs."""
    both = (*found.only_prompt, *found.only_cached)
    return not any(word.rarity == 1.0 and word.text not in CLASS_WORDS for word in both)


def _finite_pasts(text: Wording) -> set[str]:
    """Return the stems of words such as `owned` that no helping verb stands before."""
    if any(word.text in _HELPERS for word in text.words):
        return set()
    return {word.stem for word in text.words if word.rarity and len(word.text) > 4 and word.text.endswith("ed")}


def _bare_forms(text: Wording) -> set[str]:
    return {word.stem for word in text.words if not word.text.endswith(("ed", "ing"))}


def _texts(text: Wording) -> set[str]:
    return {word.text for word in text.words}


def _things(text: Wording) -> set[str]:
    return {word.stem for word in text.words if word.rarity}


def _in_order(text: Wording, shared: set[str]) -> list[str]:
    return [word.stem for word in text.words if word.stem in shared]
