"""Vetoes: differences that always make another question.

Each stays because `penstock bench cache_quality --without VETO` serves wrong answers that it prevents.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal

from gateway.cache.grammar.language_guards import GUARDS
from gateway.cache.grammar.lexicon import EXCEPTIONS, NEGATIONS, OPPOSITES
from gateway.cache.grammar.word_lists import HARMLESS_ADVERBS, QUANTITIES, VARIANTS, words_of
from gateway.cache.similarity.comparison import Comparison
from gateway.cache.similarity.contrasts import (
    has_other_code,
    has_other_modality,
    has_other_quantity,
    has_other_question,
    has_other_tense,
)
from gateway.cache.similarity.directions import has_other_direction
from gateway.cache.similarity.language import ENGLISH_NAME, UNGUARDED
from gateway.cache.similarity.wording import Word, Wording

Veto = Literal[
    "too_long",
    "language",
    "code",
    "number",
    "unit",
    "negation",
    "opposite",
    "name",
    "word",
    "verb",
    "direction",
    "modality",
    "tense",
    "quantity",
    "question",
    "addition",
]

_ONE: Final = Counter({"1": 1})
_ADDING: Final = words_of("and &")
_JOINTS: Final = _ADDING | words_of("or nor")
_BE: Final = words_of("is are am was were be been being")
_AVERTING: Final = words_of("off out up from away against")
_GOVERNING: Final = words_of("from of on about against up with off")
_DENYING: Final = words_of("un in im il ir dis non de mis")
_NARROWING: Final = NEGATIONS.union(EXCEPTIONS, words_of("just even"))
_BEFORE_NARROWED: Final = words_of("to a an the my our your his her its their this that these those")
"""Words that may stand between a denial and what it denies: `not to vote`, `to not vote`."""
_CONTRACTED_WITH_NOT: Final = words_of("can will shall")
_FREE_OF: Final = re.compile(r"\w-free\b", re.IGNORECASE)
MIN_DENIED: Final = 4
"""Letters of a word that a beginning may deny."""
MAX_PUT_IN: Final = 2
"""Words put in before a thing that make it a narrower one."""
MAX_SLOT: Final = 3
"""Words between equal beginnings and ends that count as one thing put in another's place."""
MAX_ADDED: Final = 4
"""Words of weight that one text may have and the other not."""
MIN_CLAUSE: Final = 2
"""Words other than grammar, one of weight, none of which the other text has: a clause about something else."""
MAX_REPEATED: Final = 1
"""Number of words that one text may repeat once more than the other."""


def find_veto(found: Comparison, without: frozenset[Veto] = frozenset()) -> Veto | None:
    """Return the first veto that holds; those named in `without` are left out."""
    return next((name for name, holds in _VETOES.items() if name not in without and holds(found)), None)


def _is_too_long(found: Comparison) -> bool:
    return not (found.prompt.is_whole and found.cached.is_whole)


def _has_other_language(found: Comparison) -> bool:
    """Return whether the languages differ, or a word was added in one whose negations are not known."""
    if found.prompt.language != found.cached.language:
        return True
    if found.prompt.language != UNGUARDED:
        return False
    num_only = len(found.only_prompt) + len(found.only_cached)
    return bool(found.only_prompt) != bool(found.only_cached) or num_only > len(found.shared)


def _has_other_number(found: Comparison) -> bool:
    if found.prompt.numbers == found.cached.numbers:
        return False
    ours, theirs = Counter(found.prompt.numbers), Counter(found.cached.numbers)
    more, fewer = ours - theirs, theirs - ours
    if not more and not fewer:
        return bool(found.prompt.code.strict)  # the same ones in another order: `0 5 * * *`
    has_one, has_none = found.prompt.grammar.has_one, found.cached.grammar.has_one
    if (has_none and +more == _ONE and not fewer) or (has_one and +fewer == _ONE and not more):
        return False  # `one` is `1`
    return bool((more or (has_one and not has_none)) and (fewer or (has_none and not has_one)))


def _has_other_unit(found: Comparison) -> bool:
    prompt, cached = found.prompt, found.cached
    if prompt.letters.has_other_unit(cached.letters):
        return True
    return bool(prompt.units - cached.units and cached.units - prompt.units)


def _is_denied(found: Comparison) -> bool:
    prompt, cached = found.prompt, found.cached
    if (prompt.num_negations, prompt.exceptions) != (cached.num_negations, cached.exceptions):
        return True
    if _is_free_of_it(found) or _averted(prompt.words) != _averted(cached.words):
        return True
    if found.only_prompt or found.only_cached:
        return False
    guards = GUARDS.get(prompt.language)
    narrowing, before = (_NARROWING, _BEFORE_NARROWED) if guards is None else (guards.narrowing, guards.articles)
    ours, theirs = (_narrowed_words(text.words, narrowing, before) for text in (prompt, cached))
    return ours != theirs and "" not in ours and "" not in theirs


def _narrowed_words(words: Sequence[Word], narrowing: frozenset[str], skipped: frozenset[str]) -> list[str]:
    """Return the stem behind each word that denies or narrows, sorted.

    It is empty for one at the end of its text, and for a contracted `not`, which stands before who does it.
    """
    found = []
    for at, word in enumerate(words):
        if word.text in narrowing:
            behind = next((behind for behind in words[at + 1 :] if behind.text not in skipped), None)
            is_contracted = word.text == "not" and at > 0 and words[at - 1].text in _CONTRACTED_WITH_NOT
            if behind is None or (is_contracted and behind.text not in QUANTITIES):
                found.append("")
            else:
                found.append(behind.stem)
    return sorted(found)


def _is_free_of_it(found: Comparison) -> bool:
    """Return whether one text is about a thing without what the other names: `sugar-free gum`, `sugar gum`."""
    return any(
        _FREE_OF.search(text.source) is not None and all(word.text != "free" for word in other.words)
        for text, _, other in found.sides
    )


def _has_opposite(found: Comparison) -> bool:
    """Return whether a text has a word's opposite; words of grammar count only beside the same word on both sides."""
    ours, theirs = ({word.text: word.rarity for word in words} for words in (found.only_prompt, found.only_cached))
    if any((ours[one] or theirs[other]) and _are_opposites(one, other) for one in ours for other in theirs):
        return True
    if found.contrasts_in_one_place(_are_opposites):
        return True
    return _is_built_from(found.only_prompt, found.only_cached) or _is_half_of_a_pair(found)


def _are_opposites(one: str, other: str) -> bool:
    return (one, other) in OPPOSITES


def _is_built_from(ours: Sequence[Word], theirs: Sequence[Word]) -> bool:
    """Return whether a word of one side denies one of the other by its beginning: `refundable`, `nonrefundable`."""
    sides = [{word.text for word in words if word.rarity} for words in (ours, theirs)]
    return any(
        text.startswith(denying) and len(text) >= len(denying) + MIN_DENIED and text.removeprefix(denying) in others
        for texts, others in (sides, sides[::-1])
        for text in texts
        for denying in _DENYING
    )


def _is_half_of_a_pair(found: Comparison) -> bool:
    """Return whether one text is about two opposites and the other about one of them: `causes or cures`, `cons`."""
    joints = _JOINTS if found.prompt.question == found.cached.question == "whether" else _ADDING
    return any(
        (first.text, second.text) in OPPOSITES and joint.text in joints and any(one in (first, second) for one in only)
        for text, only, _ in found.sides
        for first, joint, second in zip(text.words, text.words[1:], text.words[2:], strict=False)
    )


def _has_other_name(found: Comparison) -> bool:
    if found.prompt.letters.has_other_word(found.cached.letters):
        return True
    if all(any(word.is_name for word in words) for words in (found.only_prompt, found.only_cached)):
        return True
    return any(
        _has_variant(only, text.words) or _is_namesake(only, text.words, other.words)
        for text, only, other in found.sides
    )


def _has_variant(extra: Sequence[Word], words: Sequence[Word]) -> bool:
    """Return whether a text is about another product of the same name or number: `iPhone 14 Pro`."""
    return any(
        second.text in VARIANTS
        and (first.is_name or first.is_code or first.text[0].isdigit())
        and any(second is one for one in extra)
        for first, second in pairwise(words)
    )


def _is_namesake(extra: Sequence[Word], words: Sequence[Word], others: Sequence[Word]) -> bool:
    """Return whether a name stands between two names that are neighbours in the other text: `John Quincy Adams`."""
    neighbours = {(one.stem, other.stem) for one, other in pairwise(others) if extra and one.is_name and other.is_name}
    return any(
        name.is_name and (before.stem, after.stem) in neighbours and any(name is one for one in extra)
        for before, name, after in zip(words, words[1:], words[2:], strict=False)
    )


def _has_other_word(found: Comparison) -> bool:
    """Return whether a short thing stands in another's place, or something of it: `the reverse of a good idea`."""
    spans = [len(text.words) - found.begin - found.end for text in (found.prompt, found.cached)]
    if all(0 < span <= MAX_SLOT for span in spans) and all(
        any(word.rarity for word in words) for words in (found.only_prompt, found.only_cached)
    ):
        return True
    if _has_other_numbered(found):
        return True
    return any(_is_headed(only, text.words) for text, only, _ in found.sides)


def _has_other_numbered(found: Comparison) -> bool:
    """Return whether a number counts another thing in each text: `season 5`, `episode 5`."""
    ours, theirs = (
        {
            number.stem
            for word, number in pairwise(text.words)
            if number.stem.isdigit() and word.rarity == 1.0 and any(word is one for one in only)
        }
        for text, only, _ in found.sides
    )
    return not ours.isdisjoint(theirs)


def _has_other_verb(found: Comparison) -> bool:
    return any(_is_governed(only, text.words, other.words) for text, only, other in found.sides)


def _has_addition(found: Comparison) -> bool:
    return any(
        _is_narrowed(text, only, other, found) or _is_more(text, only, other) for text, only, other in found.sides
    )


_VETOES: Final[Mapping[Veto, Callable[[Comparison], bool]]] = {
    "too_long": _is_too_long,
    "language": _has_other_language,
    "code": has_other_code,
    "number": _has_other_number,
    "unit": _has_other_unit,
    "negation": _is_denied,
    "opposite": _has_opposite,
    "name": _has_other_name,
    "word": _has_other_word,
    "verb": _has_other_verb,
    "direction": has_other_direction,
    "modality": has_other_modality,
    "tense": has_other_tense,
    "quantity": has_other_quantity,
    "question": has_other_question,
    "addition": _has_addition,
}
VETOES: Final[tuple[Veto, ...]] = tuple(_VETOES)


def _averted(words: Sequence[Word]) -> set[str]:
    """Return the action that is not done, whichever verb denies it: `put off watering`, `get out of watering`."""
    found = set()
    for at, word in enumerate(words[2:], start=2):
        if word.text.endswith("ing") and word.rarity:
            before = words[at - 1].text
            if before in ("of", "on") and at > 2:
                before = words[at - 2].text
            if before in _AVERTING:
                found.add(word.stem)
    return found


def _is_headed(extra: Sequence[Word], words: Sequence[Word]) -> bool:
    """Return whether a text is about something of the rest: `the reverse of a good idea`."""
    if not any(word.text == "of" for word in extra):
        return False
    return any(
        second.text == "of" and first.rarity == 1.0 and any(first is one for one in extra)
        for first, second in pairwise(words)
    )


def _is_governed(extra: Sequence[Word], words: Sequence[Word], others: Sequence[Word]) -> bool:
    """Return whether a text mentions the action of the other: `water it`, `refrain from watering it`."""
    theirs = {other.stem: other.text for other in others} if extra else {}
    for at, word in enumerate(words[:-1] if extra else ()):
        if not word.rarity or not any(word is one for one in extra):
            continue
        after = at + 1
        if word.rarity == 1.0 and words[after].text in _GOVERNING:  # not `the best way of watering`
            after += 1
        doing = words[after] if after < len(words) else None
        if doing and doing.text.endswith("ing") and not theirs.get(doing.stem, "ing").endswith("ing"):
            return True
    return False


def _is_narrowed(text: Wording, only: Sequence[Word], other: Wording, found: Comparison) -> bool:
    """Return whether nothing but a word before a thing was put in, so that it is a narrower one: `a tourist visa`."""
    put_in = text.words[found.begin : len(text.words) - found.end]
    if text.language != ENGLISH_NAME:
        return False
    if len(other.words) != found.begin + found.end or not 0 < len(put_in) <= MAX_PUT_IN or not found.end:
        return False
    narrowing, thing = put_in[-1], text.words[len(text.words) - found.end]
    before = text.words[len(text.words) - found.end - 2].text if len(text.words) > found.end + 1 else ""
    if narrowing.text in HARMLESS_ADVERBS and text.question != "whether" and before not in _BE:
        return False
    if narrowing.rarity < 1.0 or narrowing.is_name or not thing.rarity or narrowing.text in NEGATIONS:
        return False
    return all(word.stem != narrowing.stem for word in other.words) and any(word is narrowing for word in only)


def _is_more(text: Wording, only: Sequence[Word], other: Wording) -> bool:
    """Return whether a text is more than another wording: an aimed text needs such words to be drawn to a question.

    That is an address, many words of weight, a clause of its own, or the other question once more.
    """
    rare_words = [word for word in only if word.rarity]
    if not rare_words:
        return False
    rare = {word.stem for word in rare_words if word.rarity == 1.0}
    if any(word.is_code for word in rare_words) or sum([word.rarity == 1.0 for word in rare_words]) > MAX_ADDED:
        return True
    left = {word.stem for word in rare_words}
    if any(len(clause) >= MIN_CLAUSE and clause <= left and not rare.isdisjoint(clause) for clause in text.clauses):
        return True
    theirs = {word.stem for word in other.words}
    return sum([word.stem in theirs for word in rare_words]) > MAX_REPEATED
