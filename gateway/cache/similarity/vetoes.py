"""Vetoes: differences that always make another question.

Each stays because `penstock bench cache_quality --without VETO` serves wrong answers that it prevents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal

from gateway.cache.grammar.word_lists import HARMLESS_ADVERBS, VARIANTS, words_of
from gateway.cache.similarity.comparison import Comparison
from gateway.cache.similarity.contrasts import (
    by_person,
    has_other_code,
    has_other_modality,
    has_other_place,
    has_other_quantity,
    has_other_question,
    has_other_role,
    has_other_tense,
)
from gateway.cache.similarity.language import ENGLISH_NAME, UNGUARDED
from gateway.cache.similarity.lexicon import NEGATIONS, OPPOSITES
from gateway.cache.similarity.stems import are_variants
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
_BOTH_WAYS: Final = words_of("far distance distances between difference differences versus vs")
"""Words behind which the order of two things does not matter."""
_SYMMETRIC: Final = words_of("and or vs versus between among & / v nor plus with")
"""Words between two things that may be named in either order."""
_ADDING: Final = words_of("and &")
_JOINTS: Final = _ADDING | words_of("or nor")
_REPLACING: Final = words_of("replac substitut cover fill coat treat feed begin start end")
"""Stems behind which `x with y` is another thing than `y with x`."""
_QUESTION_WORDS: Final = words_of("who whom what which")
_DOING: Final = words_of("do does did")
_HAVING: Final = words_of("has have had")
_BE: Final = words_of("is are am was were be been being")
_ORDERED: Final = words_of("then later afterward thereafter")
"""Words that make the order matter, whatever else stands between: `x and then y`."""
_AVERTING: Final = words_of("off out up from away against")
_FROM: Final = words_of("from")
_TO: Final = words_of("to into onto")
_ARTICLES: Final = words_of("a an the my your our his her its their this that")
_GOVERNING: Final = words_of("from of on about against up with off")
_DENYING: Final = words_of("un in im il ir dis non de mis")
MIN_DENIED: Final = 4
"""Letters of a word that a beginning may deny."""
MAX_TURNED: Final = 24
"""Words among which two things may have changed places."""
MAX_END: Final = 3
"""Words of weight behind `from` or `to` that name an end."""
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


def is_turned(prompt: Sequence[str], cached: Sequence[str], *, is_replaced: bool = False) -> bool:
    """Return whether two things changed places: `x to y`, `y to x`; not `x and y`, `y and x`.

    `is_replaced`: one takes the place of the other, so that `x with y` is turned, too.
    """
    length = len(prompt)
    if not 3 <= length == len(cached) <= MAX_TURNED or sorted(prompt) != sorted(cached):
        return False
    joint = _SYMMETRIC - {"with"} if is_replaced else _SYMMETRIC
    for left in range(1, length - 1):
        if [*prompt[:left]] != [*cached[length - left :]]:
            continue
        for right in range(1, length - left):
            between = prompt[left : length - right]
            if [*cached[: length - left]] == [*prompt[length - right :], *between]:
                return joint.isdisjoint(between) or not _ORDERED.isdisjoint(between)
    return False


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
    return bool(found.prompt.units - found.cached.units and found.cached.units - found.prompt.units)


def _is_denied(found: Comparison) -> bool:
    prompt, cached = found.prompt, found.cached
    if (prompt.num_negations, prompt.exceptions) != (cached.num_negations, cached.exceptions):
        return True
    return _averted(prompt.words) != _averted(cached.words)


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


def _has_other_direction(found: Comparison) -> bool:
    if has_other_role(found) or has_other_place(found):
        return True
    return _has_turned(found) or _has_ends_exchanged(found) or _is_converse(found)


def _has_ends_exchanged(found: Comparison) -> bool:
    """Return whether what one text goes from is what the other goes to, whatever the order of its words."""
    if any(word.text in _BOTH_WAYS for word in found.prompt.words):
        return False
    sources, targets = zip(*(_ends_of(text.words) for text in (found.prompt, found.cached)), strict=True)
    return bool(sources[0] & targets[1] or sources[1] & targets[0])


def _ends_of(words: Sequence[Word]) -> tuple[set[str], set[str]]:
    """Return the stems behind `from`, and those behind `to` and `into`."""
    sources, targets = set[str](), set[str]()
    for at, word in enumerate(words):
        ends = sources if word.text in _FROM else targets if word.text in _TO else None
        if ends is None:
            continue
        num_taken = 0
        for behind in words[at + 1 :]:
            if behind.text in NEGATIONS or num_taken == MAX_END:
                break
            if behind.rarity:
                ends.add(behind.stem)
                num_taken += 1
            elif num_taken or behind.text not in _ARTICLES:
                break
    return sources - targets, targets - sources


def _is_converse(found: Comparison) -> bool:
    """Return whether two neighbouring things changed places in a yes-or-no question: `all squares rectangles`."""
    if not found.prompt.question == found.cached.question == "whether":
        return False
    prompt, cached = (text.words[found.begin : len(text.words) - found.end] for text in (found.prompt, found.cached))
    if len(prompt) != 2 or len(cached) != 2 or not all(word.rarity for word in (*prompt, *cached)):
        return False
    return [prompt[1].stem, prompt[0].stem] == [word.stem for word in cached]


def _has_turned(found: Comparison) -> bool:
    prompt, cached = (text.words[found.begin : len(text.words) - found.end] for text in (found.prompt, found.cached))
    if len(prompt) < 2 or len(cached) < 2 or abs(len(prompt) - len(cached)) > 1:
        return False
    shared = found.prompt.words[: found.begin]
    if any(word.text in _BOTH_WAYS for word in shared):
        return False
    before = {word.stem for word in shared}
    if _have_exchanged(prompt, cached):
        return True
    ours, theirs = [word.stem for word in prompt], _in_forms_of(cached, prompt)
    if len(ours) == len(theirs):
        is_replaced = not before.isdisjoint(_REPLACING)
        if is_turned(ours, theirs, is_replaced=is_replaced):
            return True
        ours, theirs = by_person(prompt, ours), by_person(cached, theirs)
        first = next((at for at, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other), 0)
        helper = ours[first - 1] if first else shared[-1].text if shared else ""
        if helper in _HAVING and not before.isdisjoint(_QUESTION_WORDS) and _is_rotated(ours[first:], theirs[first:]):
            return True
        return is_turned(ours[first:], theirs[first:], is_replaced=is_replaced)
    return not before.isdisjoint(_QUESTION_WORDS) and _is_done_by_the_other(ours, theirs)


def _have_exchanged(prompt: Sequence[Word], cached: Sequence[Word]) -> bool:
    """Return whether two things changed places around what stays: `buy in Porto, sell in Braga`."""
    ours, theirs = ([word.stem for word in words if word.rarity] for words in (prompt, cached))
    if len(ours) != len(theirs) or len(ours) > MAX_TURNED:
        return False
    if any(word.text == "by" for word in prompt) != any(word.text == "by" for word in cached):
        return False  # the passive turns the order of its verb around
    moved = [at for at, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other]
    stays = set(range(len(ours))).difference(moved)
    return bool(moved) and all(
        any(
            ours[at] == theirs[there]
            and ours[there] == theirs[at]
            and not stays.isdisjoint(range(*sorted((at, there))))
            for there in moved
        )
        for at in moved
    )


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
    "direction": _has_other_direction,
    "modality": has_other_modality,
    "tense": has_other_tense,
    "quantity": has_other_quantity,
    "question": has_other_question,
    "addition": _has_addition,
}
VETOES: Final[tuple[Veto, ...]] = tuple(_VETOES)


def _in_forms_of(words: Sequence[Word], others: Sequence[Word]) -> list[str]:
    """Return the words' stems, those of the other side where it has another form: `go` for `going`."""
    stems = {other.stem for other in others}
    forms: dict[str, str] = {}
    for word in words:
        if word.rarity and word.stem not in stems and word.text not in forms:
            forms[word.text] = next((other.stem for other in others if _is_form(word, other)), word.stem)
    return [forms.get(word.text, word.stem) for word in words]


def _is_form(one: Word, other: Word) -> bool:
    shorter, longer = sorted((one.text, other.text), key=len)
    return longer == shorter + "ing" or (other.rarity > 0 and are_variants(one.text, other.text))


def _is_done_by_the_other(prompt: Sequence[str], cached: Sequence[str]) -> bool:
    """Return whether who did it became whom it was done to: `(who) did Ada teach`, `(who) taught Ada`."""
    longer, shorter = (prompt, cached) if len(prompt) > len(cached) else (cached, prompt)
    if longer[0] not in _DOING or len(shorter) < 2:
        return False
    return _is_rotated(longer[1:], shorter)


def _is_rotated(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether what one begins with is what the other ends with."""
    return any([*one[at:], *one[:at]] == [*other] for at in range(1, len(one)))


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
