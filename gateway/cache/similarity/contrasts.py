"""Contrasts: two texts with the same topic about another time, duty, quantity, role or reason of it.

Words of grammar vary freely between wordings of one question. They count where they stand against others of their
class, and where nothing else differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from gateway.cache.grammar.language_guards import GUARDS, LanguageGuards
from gateway.cache.grammar.lexicon import AMOUNTS
from gateway.cache.grammar.word_lists import (
    CLASS_WORDS,
    HELPING_VERBS,
    PARTICIPLES,
    PAST_FORMS,
    PERSONS,
    RELATIONS,
    words_of,
)
from gateway.cache.similarity.comparison import Comparison
from gateway.cache.similarity.language import ENGLISH_NAME
from gateway.cache.similarity.wording import Word, Wording

_QUESTION_WORDS: Final = words_of("how why when where who")
_QUESTIONS: Final = _QUESTION_WORDS | {"whether", "how much"}
"""Kinds of questions of which no two have one answer; `what` may stand for any of them."""
_FREE_BESIDE_WHETHER: Final = words_of("how why when where do does did a an the much many so very really")
"""Words that a question with a question word may have more than the same one that asks for yes or no."""
_WH: Final = ("what", "who")
_IN_ANY_ORDER: Final = words_of("distanc between differenc versus vs and or")
"""Stems beside which the order of signs does not matter."""
_SPEAKERS: Final = words_of("i we you")
_OTHERS: Final = words_of("he she they")
_JOINTS: Final = words_of("and or")
_TRUTH: Final = words_of("true false")
_BE: Final = words_of("is are am was were")
_ANY_BE: Final = _BE | words_of("be been being")
_UNDERGOING: Final = _ANY_BE | words_of("get gets got getting gotten")
_GET: Final = "get"
_ENDING_A_HELPER: Final = words_of(
    "have has had ve that who which what to do does did can could will would by of for in"
)
"""Words behind which a participle belongs to no form of `be` before them."""
_OF_ITSELF: Final = words_of("start begin end stop open close releas form chang develop grow evolv prepar marri mean")
"""Stems of verbs that mean the same of a thing and of what is done to it: `how do I get started`."""
_DO: Final = words_of("do does did")
_ARTICLES: Final = words_of("a an the")
_NOW_OR_COMING: Final = frozenset({"present", "future"})
_FRAME: Final = CLASS_WORDS | {"not"}
"""Words that leave a topic what it is; denials are counted elsewhere, whether contracted or not."""
_DIFFER: Final = "differ"
"""Beginning of the words that compare two things."""
_COMPARING: Final = words_of("from between to than")
"""Relations that mean the same behind these."""
_SINGLE: Final = words_of("a an one")
_OF_THEM: Final = words_of("of the my your our his her its their these those")
_LESS: Final = words_of("less fewer")
MAX_COMPARED: Final = 4
"""Distance of the two words of `as much milk as`."""
_HELPERS: Final = words_of("is are am was were be been has have had will would can could should must may might")


def has_other_code(found: Comparison) -> bool:
    """Return whether a sign, a letter's case or the order of signs differs in what is code."""
    if _has_other_joint(found):
        return True
    stems = {word.stem for word in found.prompt.words}
    return found.prompt.code.differ_from(found.cached.code, in_any_order=not stems.isdisjoint(_IN_ANY_ORDER))


def _has_other_joint(found: Comparison) -> bool:
    """Return whether `and` stands between the same two operands as `or` in the other text."""
    if not found.prompt.code.is_about_code and _TRUTH.isdisjoint(word.text for word in found.prompt.words):
        return False
    joints = [
        {
            (before.stem, after.stem, joint.text)
            for before, joint, after in zip(text.words, text.words[1:], text.words[2:], strict=False)
            if joint.text in _JOINTS
        }
        for text in (found.prompt, found.cached)
    ]
    return any((*ends, other) in joints[1] for *ends, joint in joints[0] for other in _JOINTS - {joint})


def has_other_modality(found: Comparison) -> bool:
    """Return whether one text is about what must be and the other about what may, can or should be."""
    prompt, cached = found.prompt.grammar, found.cached.grammar
    return prompt.has_other_modality(cached, is_same_frame=_is_same_frame(found))


def has_other_tense(found: Comparison) -> bool:
    """Return whether nothing but the time differs: `did`, `does`, `will`, `has`; or the ending of a verb."""
    if not _is_same_frame(found) or (_is_failing(found.prompt) and _is_failing(found.cached)):
        return False
    if found.prompt.grammar.has_other_tense(found.cached.grammar):
        return True
    if found.prompt.question == found.cached.question == "whether" and _is_under_way(found.prompt) != _is_under_way(
        found.cached
    ):
        return True
    pasts = [_finite_pasts(text) for text in (found.prompt, found.cached)]
    bare_forms = [_bare_forms(text) for text in (found.cached, found.prompt)]
    return any(not past.isdisjoint(bare) for past, bare in zip(pasts, bare_forms, strict=True))


def has_other_quantity(found: Comparison) -> bool:
    """Return whether the texts are about all, most, some or few, or about another one in an order."""
    if found.prompt.grammar.has_other_quantity(found.cached.grammar):
        return True
    (all_ours, one_of_ours), (all_theirs, one_of_theirs) = _counted(found.prompt), _counted(found.cached)
    if (not all_theirs and all_ours & one_of_theirs) or (not all_ours and all_theirs & one_of_ours):
        return True
    ours, theirs = _comparing(found.prompt), _comparing(found.cached)
    if ours == theirs or not ours or not theirs:
        return False
    shared = _things(found.prompt) & _things(found.cached)
    is_turned = _in_order(found.prompt, shared) != _in_order(found.cached, shared)
    return "as" in (ours, theirs) or not is_turned  # `x is harder than y`, `y is less hard than x`


def _counted(text: Wording) -> tuple[set[str], set[str]]:
    """Return the stems of what a text is about all of, and of what it is about one of: `all rows`, `a row`."""
    every, single = set[str](), set[str]()
    for at, word in enumerate(text.words[:-1]):
        counted = every if word.text == "all" else single if word.text in _SINGLE else None
        if counted is not None:
            behind = next((behind for behind in text.words[at + 1 :] if behind.text not in _OF_THEM), None)
            if behind is not None and behind.rarity:
                counted.add(behind.stem)
    return every, single


def _comparing(text: Wording) -> str:
    """Return how a text compares: `more` than, `less` than, `as` hard as; empty where it does not, or does both."""
    words = [word.text for word in text.words]
    places = [at for at, word in enumerate(words) if word == "as"]
    is_equal = any(1 < second - first <= MAX_COMPARED for first, second in pairwise(places))
    if is_equal == ("than" in words):
        return ""
    return "as" if is_equal else "more" if _LESS.isdisjoint(words) else "less"


def has_other_question(found: Comparison) -> bool:
    """Return whether nothing but the question word differs: `how`, `why`, `when`."""
    guards = GUARDS.get(found.prompt.language)
    if guards is not None:
        return _has_other_question_word(found, guards)
    both = (*found.only_prompt, *found.only_cached)
    if any(word.rarity and word.text not in AMOUNTS for word in both):
        return False
    kinds = {_family(found.prompt.question), _family(found.cached.question)}
    if len(kinds) < 2:
        return False
    if kinds <= _QUESTION_WORDS:
        return True
    if any(kind in kinds and kind != _family(text.question) for text in found[:2] for kind in _question_words_of(text)):
        return False
    if kinds == {"who", "what"}:
        return not any(_is_what_it_is(text) for text in found[:2])
    if "whether" in kinds:
        is_same = all(word.text in _FREE_BESIDE_WHETHER or word.text in AMOUNTS for word in both)
        if not is_same or any(_is_of_degree(text) for text in found[:2]):
            return False
    return kinds <= _QUESTIONS


def _is_of_degree(text: Wording) -> bool:
    """Return whether a text asks how much something is the case: `how safe is it`, which `is it safe` asks too."""
    at = next((at for at, word in enumerate(text.words) if word.text == "how"), None)
    return at is not None and any(word.rarity > 0 and word.text not in AMOUNTS for word in text.words[at + 1 : at + 2])


def _family(question: str) -> str:
    """Return the kind of a question; all quantities are one."""
    return "how much" if question.startswith("how ") else question


def _question_words_of(text: Wording) -> set[str]:
    """Return all question words of a text; it may have two, as `who or what`."""
    free = _family(text.question).partition(" ")[0]
    return {word.stem for word in text.words if not word.rarity and word.stem != free}


def _is_what_it_is(text: Wording) -> bool:
    """Return whether the question word is followed by a form of `be`; `who is X` may be `what is X`."""
    if any(word.stem == "which" for word in text.words):
        return True
    at = next((at for at, word in enumerate(text.words) if word.text.startswith(_WH)), None)
    if at is None or text.words[at].text.endswith("'s"):
        return True
    return any(word.text in _ANY_BE for word in text.words[at + 1 : at + 2])


def _has_other_question_word(found: Comparison, guards: LanguageGuards) -> bool:
    """Return whether nothing but the question word differs, or one text asks for yes or no."""
    ours, theirs = guards.kinds_in(found.prompt.text), guards.kinds_in(found.cached.text)
    if ours == theirs:
        return False
    parts = {part for phrase in guards.question_words for part in phrase.split()}
    if any(word.rarity and word.text not in parts for word in (*found.only_prompt, *found.only_cached)):
        return False
    return all(kinds or "?" in text.source for kinds, text in ((ours, found.prompt), (theirs, found.cached)))


def has_other_role(found: Comparison) -> bool:
    """Return whether who does it in one text is whom it is done to in the other: `taught by Ada`, `taught Ada`."""
    guards = GUARDS.get(found.prompt.language)
    if guards is not None:
        return guards.has_whom(found.prompt.text) != guards.has_whom(found.cached.text)
    if any(_is_undergone(*_deed(passive), active) for passive, _, active in found.sides):
        return True
    return found.prompt.language == ENGLISH_NAME and _is_done_to_it(found)


def _is_done_to_it(found: Comparison) -> bool:
    """Return whether one text is about who does it and the other about whom it is done to: `eat`, `are eaten`.

    In the passive of an equal question the thing stands elsewhere: `how is cheese made`, `how do you make cheese`.
    """
    if any(word.rarity and word.stem != _GET for word in (*found.only_prompt, *found.only_cached)):
        return False
    if _in_order_but_get(found.prompt) != _in_order_but_get(found.cached):
        return False
    persons = [{word.text for word in text.words if word.text in PERSONS} for text in (found.prompt, found.cached)]
    return (persons[1] <= persons[0] and _undergoes(found.prompt, found.cached)) or (
        persons[0] <= persons[1] and _undergoes(found.cached, found.prompt)
    )


def _undergoes(passive: Wording, active: Wording) -> bool:
    """Return whether what one text is about does in the other what is done to it here: `get hired`, `hire`."""
    doing = {word.stem for word in active.words if word.rarity and not _is_participle(word)}
    is_helped = False
    for word in passive.words:
        text = word.text.rpartition("'")[2] if "'" in word.text else word.text
        if text in _UNDERGOING:
            is_helped = True
        elif is_helped and word.rarity and _is_participle(word):
            return word.stem in doing and word.stem not in _OF_ITSELF
        elif text in _ENDING_A_HELPER:
            is_helped = False
    return False


def _in_order_but_get(text: Wording) -> list[str]:
    return [word.stem for word in text.words if word.rarity and word.stem != _GET]


def _is_participle(word: Word) -> bool:
    return word.text in PARTICIPLES or word.text in PAST_FORMS or (len(word.text) > 4 and word.text.endswith("ed"))


def _deed(passive: Wording) -> tuple[str, str]:
    """Return the stems of what is done and of who does it, as in `is taught by Ada`; empty where nothing is."""
    words = passive.words
    by = next((at for at, word in enumerate(words) if word.text == "by"), 0)
    agent = next((word.stem for word in words[by + 1 :] if word.rarity), "")
    if not by or not agent:
        return "", ""
    verb = words[by - 1]
    if not _is_participle(verb) or _ANY_BE.isdisjoint(word.text for word in words[:by]):
        return "", ""
    return verb.stem, agent


def _is_undergone(deed: str, agent: str, active: Wording) -> bool:
    """Return whether a text without `by` has a deed as a verb before whoever does it in another text."""
    stems = [word.stem for word in active.words]
    if not deed or "by" in stems or deed not in stems or agent not in stems:
        return False
    at = stems.index(deed)
    is_noun = active.words[at].text.endswith("ing") or (at > 0 and stems[at - 1] in _ARTICLES)
    return not is_noun and at < stems.index(agent)


def has_other_place(found: Comparison) -> bool:
    """Return whether nothing but where, when or for whom differs: `inside`, `while`; `should I`, `should they`."""
    only_prompt, only_cached = found.only_prompt, found.only_cached
    guards = GUARDS.get(found.prompt.language)
    if guards is not None and found.contrasts_in_one_place(guards.relate_otherwise):
        return True
    if any(word.rarity == 1.0 and word.text not in RELATIONS for word in (*only_prompt, *only_cached)):
        return False
    relate = _relate_otherwise
    if all(any(word.stem.startswith(_DIFFER) for word in text.words) for text in (found.prompt, found.cached)):
        relate = _relate_but_to_compare
    if found.contrasts_in_one_place(relate):
        return True
    if not found.prompt.question == found.cached.question == "whether":
        return False
    ours, theirs = ({word.text for word in words} for words in (only_prompt, only_cached))
    return any(one & _SPEAKERS and other & _OTHERS for one, other in ((ours, theirs), (theirs, ours)))


def _relate_otherwise(one: str, other: str) -> bool:
    if one not in RELATIONS or other not in RELATIONS:
        return False
    groups = zip(RELATIONS[one], RELATIONS[other], strict=True)
    return any(ours and theirs and ours != theirs for ours, theirs in groups)


def _relate_but_to_compare(one: str, other: str) -> bool:
    return not {one, other} <= _COMPARING and _relate_otherwise(one, other)


def by_person(words: Sequence[Word], stems: Sequence[str]) -> list[str]:
    """Return stems in which a person and a helping verb have one form: `I` for `me`, `do` for `does`."""
    return [
        stem if word.rarity else PERSONS.get(stem, HELPING_VERBS.get(stem, stem))
        for word, stem in zip(words, stems, strict=True)
    ]


def _is_same_frame(found: Comparison) -> bool:
    """Return whether no word of weight differs."""
    both = (*found.only_prompt, *found.only_cached)
    return not any(word.rarity == 1.0 and word.text not in _FRAME for word in both)


def _is_failing(text: Wording) -> bool:
    """Return whether something is not done, now or in general: `the lamp won't light`, `why does it not light`."""
    return text.num_negations > 0 and text.question in ("why", "") and text.grammar.tenses <= _NOW_OR_COMING


def _is_under_way(text: Wording) -> bool:
    """Return whether something is being done, as in `is it being built`, or `has it been growing`."""
    words = [word.text for word in text.words]
    if any(first == "been" and second.endswith("ing") for first, second in pairwise(words)):
        return True
    return "being" in words and words[0] in _BE


def _finite_pasts(text: Wording) -> set[str]:
    """Return the stems of words such as `owned` and `won` that no helping verb stands before."""
    found = set()
    for word in text.words:
        if word.text in _HELPERS or word.text in _DO:
            break
        is_regular = len(word.text) > 4 and word.text.endswith("ed") and not word.stem[0].isdigit()
        if word.rarity and (is_regular or word.text in PAST_FORMS):
            found.add(word.stem)
    return found


def _bare_forms(text: Wording) -> set[str]:
    return {word.stem for word in text.words if not word.text.endswith(("ed", "ing")) and word.text not in PAST_FORMS}


def _things(text: Wording) -> set[str]:
    return {word.stem for word in text.words if word.rarity}


def _in_order(text: Wording, shared: set[str]) -> list[str]:
    return [word.stem for word in text.words if word.stem in shared]
