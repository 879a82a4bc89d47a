"""SentenceGrammar: the modals, tenses and quantities of a text, and whether two texts' are compatible.

Polite and general questions vary them freely (`how do I`, `how can I`, `how would one`), so a class on one side alone
counts only where it is what the question is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from gateway.cache.grammar.word_lists import (
    BOUNDS,
    MODALS,
    NUMBER_WORDS,
    ORDINALS,
    PARTICIPLES,
    PAST_FORMS,
    QUANTITIES,
    TENSES,
    words_of,
)

_CONTRACTED: Final = re.compile(r"'(s|re|ve|ll|m)$")
_MODAL_PAIRS: Final = frozenset(tuple(modal.split()) for modal in MODALS if " " in modal)
_NEGATED: Final = {"can't": "can", "cannot": "can", "won't": "will"} | {
    f"{modal}n't": modal for modal in MODALS if " " not in modal
}
_BE: Final = words_of("is are am was were be been being isn't aren't wasn't weren't s re m")
_HAVE: Final = words_of("has have had hasn't haven't hadn't ve")
_PARTICIPLE_SPAN: Final = 5
"""Words behind `have` among which the participle is searched."""
_GOING_SPAN: Final = 8
_BEFORE_A_VERB: Final = words_of("who what which that and")
_SUPERLATIVE: Final = re.compile(r".*(?:ous|less|ss|us|is)")
_SUBJECT_SPAN: Final = 4
"""First words among which a short question has its subject."""
_PLURALS: Final = words_of("people men women children")
_DO: Final = words_of("do does did")
_COUNTING: Final = words_of("how too so as very that not this")
_FREE_MODALS: Final = frozenset({"ability", "conditional", "advice", "necessity", "intention"})
"""Classes that a question with a question word may have or lack: `what should I do`, `what do I do`."""
_POLITE: Final = frozenset({"ability", "conditional"})
"""Classes that may stand for one another behind `how`."""
_SUPPOSED: Final = frozenset({"intention", "conditional"})
"""Classes that may stand for one another: `what will happen`, `what would happen`."""
_FREE_QUANTITIES: Final = frozenset({"some", "any", "all", "many", "usually", "often", "enough", "always", "few"})
_RANKS: Final = words_of("second third fourth fifth sixth seventh eighth ninth tenth 3rd 4th 5th 6th 7th 8th 9th 10th")
_IS_SUPERLATIVE: Final = re.compile(r"[a-z]{2,}est|most|least|best|worst|last")
_PARTS_OF_TIME: Final = words_of("early mid late")
_NAMED_TIMES: Final = words_of(
    "morning afternoon evening night spring summer autumn fall winter century january february march april may june "
    "july august september october november december"
)
_VAGUE: Final = frozenset({"some", "any"})
"""Quantities that may stand for one another: `are there any`, `what are some`."""
_BARE_DO: Final = frozenset({"present"})


class SentenceGrammar(msgspec.Struct, frozen=True, gc=False):
    """The classes that a text has."""

    modals: frozenset[str]
    tenses: frozenset[str]
    quantities: frozenset[str]
    ordinals: frozenset[str]
    has_one: bool
    """True if it has `one`, which is a number beside a text that has another number in its place."""
    question: str
    """The kind of the question: `how`, or `whether` where yes or no answers it."""
    bounds: frozenset[str] = frozenset()
    """Bounds of its numbers, such as `at_least`."""
    ranks: frozenset[str] = frozenset()
    """Places in an order or a time: `second` of `second largest` or `second to last`, `late` of `late 1920s`."""
    is_of_some: bool = False
    """True if it is about some things, not about people: `why are some swans black`."""

    def has_other_modality(self, other: SentenceGrammar, *, is_same_frame: bool) -> bool:
        """Return whether the texts are about different ones of what must, may, should or can be.

        A class that one text lacks counts where `is_same_frame`: no word of weight differs.
        """
        ours, theirs = self.modals - other.modals, other.modals - self.modals
        if not ours and not theirs:
            return False
        if ours and theirs:
            is_polite = "how" in (self.question, other.question) and ours | theirs == _POLITE
            return not is_polite and ours | theirs != _SUPPOSED
        if not is_same_frame:
            return False
        if self.question == other.question == "why" and ours | theirs == {"ability"}:
            return True  # `why can't dogs eat figs`, `why don't dogs eat figs`
        return (self.question == other.question == "whether") or not (ours | theirs) <= _FREE_MODALS

    def has_other_tense(self, other: SentenceGrammar) -> bool:
        """Return whether the texts are about other times; a present form beside another counts for nothing."""
        ours, theirs = self.tenses - _BARE_DO, other.tenses - _BARE_DO
        if ours == theirs:
            return False
        if ours and theirs:
            return not (ours <= theirs or theirs <= ours)
        return not ("present" in self.tenses and "present" in other.tenses)

    def has_other_quantity(self, other: SentenceGrammar) -> bool:
        """Return whether the texts are about other quantities, or another one in an order."""
        if self.ordinals - other.ordinals and other.ordinals - self.ordinals:
            return True
        if self.ranks != other.ranks or self.bounds != other.bounds:
            return True
        if self.question == other.question == "why" and self.is_of_some != other.is_of_some:
            return True
        ours, theirs = self.quantities - other.quantities, other.quantities - self.quantities
        if not ours and not theirs:
            return False
        if ours and theirs:
            return ours | theirs != _VAGUE
        if self.question == other.question == "whether":
            return not (ours | theirs) <= {"some", "any"}
        return not (ours | theirs) <= _FREE_QUANTITIES


def sentence_grammar(lowered: Sequence[str], question: str) -> SentenceGrammar:
    """Return the classes of a text's lower-case words; never raises."""
    words = list(_split(lowered))
    return SentenceGrammar(
        frozenset(_modals(words)),
        frozenset(_tenses(words)) or _BARE_DO,
        frozenset(_quantities(words)),
        frozenset(ORDINALS[word] for word in words if word in ORDINALS),
        "one" in words,
        question,
        frozenset(_bounds(words)),
        frozenset(_ranks(words)),
        any(first == "some" and second not in _PLURALS for first, second in pairwise(words[:_SUBJECT_SPAN])),
    )


def _ranks(words: Sequence[str]) -> Iterator[str]:
    """Give the words that choose one of an order or a part of a time."""
    for at, (first, second) in enumerate(pairwise(words)):
        is_last = second == "to" and words[at + 2 : at + 3] == ["last"]
        is_time = second[0].isdigit() or second in _NAMED_TIMES
        if (first in _PARTS_OF_TIME and is_time) or (
            first in _RANKS and (is_last or _IS_SUPERLATIVE.fullmatch(second))
        ):
            yield first


def _bounds(words: Sequence[str]) -> Iterator[str]:
    """Give the kind of bound of each number that has one."""
    for at, word in enumerate(words):
        if not (word[0].isdigit() or word in NUMBER_WORDS):
            continue
        for length in (3, 2, 1):
            kind = BOUNDS.get(" ".join(words[max(0, at - length) : at])) if at >= length else None
            if kind is not None:
                yield kind
                break
    for first, second in pairwise(words):
        if first == "at" and second in ("most", "least"):  # `how much is it at most`
            yield f"at_{second}"


def _split(lowered: Sequence[str]) -> Iterator[str]:
    """Give each word, and what is joined to it by an apostrophe as a word of its own."""
    for word in lowered:
        found = _CONTRACTED.search(word) if "'" in word else None
        if found is None:
            yield word
        else:
            yield word[: found.start()]
            yield found.group(1)


def _modals(words: Sequence[str]) -> Iterator[str]:
    for at, word in enumerate(words):
        bare = _NEGATED.get(word, word)
        if bare in MODALS:
            yield MODALS[bare]
        elif at + 1 < len(words) and (word, words[at + 1]) in _MODAL_PAIRS:
            if word != "going" or any(before in _BE for before in words[max(0, at - _GOING_SPAN) : at]):
                yield MODALS[f"{word} {words[at + 1]}"]
        elif word in _HAVE and "to" in words[at + 2 : at + 5] and not at:  # `have I to pay`
            yield "necessity"


def _tenses(words: Sequence[str]) -> list[str]:
    found: list[str] = []
    has_helper = False
    for at, word in enumerate(words):
        tense = TENSES.get(word)
        if tense is not None:
            found.append(_with_participle(words, at) if tense == "perfect" else tense)
        elif word == "going" and words[at + 1 : at + 2] == ["to"]:
            if any(before in _BE for before in words[max(0, at - _GOING_SPAN) : at]):
                found = [*found[:-1], "future"]  # in place of its `is`
        elif not has_helper and _is_past(words, at):
            found.append("past")
        has_helper = has_helper or tense is not None or word in MODALS
    return found


def _with_participle(words: Sequence[str], at: int) -> str:
    """Return the tense of a form of `have`, which depends on what stands around it."""
    if any(TENSES.get(before) == "future" for before in words[max(0, at - _GOING_SPAN) : at]):
        return "future"
    behind = words[at + 1 : at + 1 + _PARTICIPLE_SPAN]
    return "perfect" if any(map(_is_participle, behind)) else "present"


def _is_past(words: Sequence[str], at: int) -> bool:
    word, before = words[at], words[at - 1] if at else ""
    if word == "used":
        return words[at + 1 : at + 2] == ["to"] and before not in _BE
    return word in PAST_FORMS or (before in _BEFORE_A_VERB and _is_regular_past(word))


def _is_participle(word: str) -> bool:
    return word in PARTICIPLES or _is_regular_past(word)


def _is_regular_past(word: str) -> bool:
    return len(word) > 4 and word.endswith("ed") and not word.endswith("eed")


def _quantities(words: Sequence[str]) -> Iterator[str]:
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        after = words[at + 1] if at + 1 < len(words) else ""
        if word == "most":
            is_of_things = after == "of" or before in _DO or after in _PLURALS
            is_of_things = is_of_things or (after.endswith("s") and not _SUPERLATIVE.fullmatch(after))
            if is_of_things and before not in ("the", "at"):
                yield "most"
        elif word in ("few", "little"):
            if before == "a":
                yield "some"
            elif before not in _COUNTING and (word == "few" or not before or before in ("is", "there", "has", "have")):
                yield "few"
        elif word == "every" and (after == "other" or after in _RANKS):
            yield "every second" if after == "other" else f"every {ORDINALS.get(after, after)}"
        elif word in QUANTITIES and before not in _COUNTING and not (word == "all" and before in ("at", "of", "for")):
            yield QUANTITIES[word]
