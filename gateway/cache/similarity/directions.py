"""Directions: the same words about things that changed places, which make another question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.cache.grammar.language_guards import GUARDS, LanguageGuards
from gateway.cache.grammar.lexicon import NEGATIONS
from gateway.cache.grammar.stems import are_variants
from gateway.cache.grammar.word_lists import heads_of, words_of
from gateway.cache.similarity.comparison import Comparison
from gateway.cache.similarity.contrasts import by_person, has_other_place, has_other_role
from gateway.cache.similarity.wording import Word

_BOTH_WAYS: Final = words_of("far distance distances between difference differences versus vs")
"""Words behind which the order of two things does not matter."""
_SYMMETRIC: Final = words_of("and or vs versus between among & / v nor plus")
"""Words between two things that may be named in either order."""
_MUTUAL: Final = words_of(
    "compar combin mix merg blend pair match connect integrat sync synchroniz interact interchang relat correlat "
    "associat compat compatibl use eat drink serv go work togeth"
)
"""Stems behind which `x with y` is the same as `y with x`."""
_QUESTION_WORDS: Final = words_of("who whom what which")
_DOING: Final = words_of("do does did")
_HAVING: Final = words_of("has have had")
_ORDERED: Final = words_of("then later afterward thereafter")
"""Words that make the order matter, whatever else stands between: `x and then y`."""
_FROM: Final = words_of("from")
_TO: Final = words_of("to into onto")
_ARTICLES: Final = words_of("a an the my your our his her its their this that")
MAX_TURNED: Final = 24
"""Words among which two things may have changed places."""
_DETERMINERS: Final = words_of("a an the")
_CONTRACTED: Final = heads_of(
    "zu zum zur; von vom; in im ins; an am ans; a al; de del du des; à au aux; da dal dalla; a ai alla alle"
)
"""A preposition, and its forms with an article."""
MAX_NEIGHBOURS: Final = 3
"""Neighbouring things that may have changed places."""
MIN_AGREEING: Final = 3
"""Letters that forms of one word share in any language."""
MAX_END: Final = 3
"""Words of weight behind `from` or `to` that name an end."""


def has_other_direction(found: Comparison) -> bool:
    """Return whether two things changed places, or what one text goes from is what the other goes to."""
    if has_other_role(found) or has_other_place(found):
        return True
    if _has_turned(found) or _has_ends_exchanged(found) or _is_converse(found):
        return True
    guards = GUARDS.get(found.prompt.language)
    return guards is not None and _have_exchanged_roles(found, guards)


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
    """Return whether neighbouring things changed places: `all squares rectangles`, `the child's mother`."""
    guards = GUARDS.get(found.prompt.language)
    prompt, cached = (
        _things_of(text.words, slice(found.begin, len(text.words) - found.end), guards) for text in found[:2]
    )
    if not 2 <= len(prompt) == len(cached) <= MAX_NEIGHBOURS or "" in prompt or "" in cached:
        return False
    cached = cached if guards is None else _agreeing(cached, prompt)
    return prompt != cached and sorted(prompt) == sorted(cached)


def _agreeing(stems: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return stems, those of the other side where the last letter alone differs, as in `caro` and `cara`."""
    return [
        stem
        if stem in others
        else next((other for other in others if _is_alike(*sorted((stem, other), key=len))), stem)
        for stem in stems
    ]


def _is_alike(shorter: str, longer: str) -> bool:
    return len(shorter) >= MIN_AGREEING and (longer[:-2] == shorter or longer[:-1] in (shorter, shorter[:-1]))


def _things_of(words: Sequence[Word], span: slice, guards: LanguageGuards | None) -> list[str]:
    """Return the stems of the words but articles; empty ones for words that may stand before or behind others.

    Those are words of grammar, adverbs, and in a language with guards words without an article.
    """
    articles = _DETERMINERS if guards is None else guards.articles
    return [
        _without_article(word.stem) if _is_thing(word, words[at - 1] if at else None, guards) else ""
        for at, word in enumerate(words[: span.stop])
        if at >= span.start and word.text not in articles
    ]


def _is_thing(word: Word, before: Word | None, guards: LanguageGuards | None) -> bool:
    if guards is None:
        return word.rarity > 0 and word.text.isalpha() and not word.text.endswith("ly") and word.text not in NEGATIONS
    return "'" in word.text or (before is not None and before.text in guards.articles)


def _without_article(stem: str) -> str:
    """Return the stem behind an apostrophe: `homme` for `l'homme`."""
    return stem.rpartition("'")[2]


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
        is_mutual = not before.isdisjoint(_MUTUAL)
        if is_turned(ours, theirs, is_mutual=is_mutual):
            return True
        ours, theirs = by_person(prompt, ours), by_person(cached, theirs)
        first = next((at for at, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other), 0)
        helper = ours[first - 1] if first else shared[-1].text if shared else ""
        if helper in _HAVING and not before.isdisjoint(_QUESTION_WORDS) and _is_rotated(ours[first:], theirs[first:]):
            return True
        return is_turned(ours[first:], theirs[first:], is_mutual=is_mutual)
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


def _have_exchanged_roles(found: Comparison, guards: LanguageGuards) -> bool:
    """Return whether two things changed places around a word, whatever the articles: `convertir l'euro en dollar`."""
    prompt, cached = (
        [
            word._replace(stem=_CONTRACTED.get(word.text, _without_article(word.stem)))
            for word in text.words
            if guards.articles.union(guards.free).isdisjoint({word.text, _CONTRACTED.get(word.text, word.text)})
        ]
        for text in found[:2]
    )
    if len(prompt) != len(cached) or len(prompt) > MAX_TURNED:
        return False
    ours = [word.stem for word in prompt]
    theirs = _agreeing(_in_forms_of(cached, prompt), ours)
    moved = [at for at, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other]
    if len(moved) != 2 or sorted(ours) != sorted(theirs):
        return False
    first, second = moved
    between = set(ours[first + 1 : second])
    return bool(between) and between.isdisjoint(guards.joints)


def is_turned(prompt: Sequence[str], cached: Sequence[str], *, is_mutual: bool = False) -> bool:
    """Return whether two things changed places: `x to y`, `y to x`; not `x and y`, `y and x`.

    `is_mutual`: what is done with one of the other is done with that of the one, so that `x with y` is not turned.
    """
    length = len(prompt)
    if not 3 <= length == len(cached) <= MAX_TURNED or sorted(prompt) != sorted(cached):
        return False
    joint = _SYMMETRIC | {"with"} if is_mutual else _SYMMETRIC
    for left in range(1, length - 1):
        if [*prompt[:left]] != [*cached[length - left :]]:
            continue
        for right in range(1, length - left):
            between = prompt[left : length - right]
            if [*cached[: length - left]] == [*prompt[length - right :], *between]:
                return joint.isdisjoint(between) or not _ORDERED.isdisjoint(between)
    return False


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
