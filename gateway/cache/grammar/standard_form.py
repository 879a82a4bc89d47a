"""Standard form: one spelling for words that are written in several ways, and no courtesies around a question.

British spellings become American ones, `U.S.` becomes `US`, `2nd` becomes `second`, `3 p.m.` becomes `3 pm`, and `what
is the height of` becomes `how tall is`. A greeting, a request such as `could you tell me` and thanks change no answer,
so they are left out. The words are in `gateway/cache/data/grammar.toml`.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.cache.grammar.spelling import with_case_of
from gateway.cache.grammar.vocabulary import ranks
from gateway.cache.grammar.word_lists import (
    BRITISH,
    EVERYWHERE_IN_S,
    GREETINGS,
    JOINED,
    MAKERS,
    MEASURES,
    OPENINGS,
    REQUESTS,
    TASK_REQUESTS,
    TASKS,
    THANKS,
)

_WORD: Final = re.compile(r"(?<![\w.$@#/\\`-])[A-Za-z]+(?:-[A-Za-z]+)?(?![\w`(/\\@])|(?<![\w.$])[12](?:st|nd)\b")
_INITIALS: Final = re.compile(r"(?<![\w.])(?:(?:[A-Z]\.){2,}|[A-Z]\.[A-Z]|u\.[sk]\.)(?![\w.])")
_E_WORD: Final = re.compile(r"\b([eE])[ -](mail|commerce|book|bike|reader)(?=s?\b)")
_NATION: Final = re.compile(r"\b(?:united states of america|united states|united kingdom)\b", re.IGNORECASE)
_ISE: Final = re.compile(r"([a-z]{2,}[iy]s)(?:e|ed|es|ing|er|ers|ation|ations)")
_WHOLE: Final = {"can't": "can not", "cannot": "can not", "won't": "will not", "shan't": "shall not"}
"""Contractions that leave no word of their own, and their words."""
_NOT: Final = re.compile(rf"(?<![\w`])(?:{'|'.join(_WHOLE)})(?![\w`'])", re.IGNORECASE)
_MIN_BRITISH: Final = 4
"""Least letters of a British spelling."""
_BRITISH: Final = {
    begun: [british for british in BRITISH if british.startswith(begun)]
    for begun in {british[:_MIN_BRITISH] for british in BRITISH}
}
"""British spellings by their first letters."""
_MIN_LEFT: Final = 3
"""Least number of words that a courtesy may leave."""


def _any_of(phrases: tuple[str, ...]) -> str:
    return "|".join(re.escape(phrase).replace(r"\ ", " +") for phrase in sorted(phrases, key=len, reverse=True))


_MONTHS: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_DIGIT: Final = re.compile(r"\d")
_DAY: Final = re.compile(rf"\b({_MONTHS}\.? )(\d{{1,2}})(?:st|nd|rd|th)\b", re.IGNORECASE)
_DAY_BEFORE: Final = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th) (?:of )?(?={_MONTHS}\b)", re.IGNORECASE)
_DEGREES: Final = re.compile(r"(?<=\d)\s?°\s?([CF])\b", re.IGNORECASE)
_HALF_OF_DAY: Final = re.compile(r"(?<=\d)\s?([aApP])\.?[mM]\b(?:\.(?! [A-Z]))?")
_MEASURE: Final = re.compile(rf"^\s*what(?:'s|( is| was)) the ({_any_of(tuple(MEASURES))}) of (?=\w)", re.IGNORECASE)
_MAKER: Final = re.compile(rf"^\s*who(?:'s| is| was) the ({_any_of(tuple(MAKERS))}) of (?=\w)", re.IGNORECASE)
_GREETING: Final = re.compile(
    rf"\s*(?:(?:{_any_of(GREETINGS)})\s*[,!.:-][\s,!.:-]*|please +(?=\w)"
    rf"|(?:hi|hello|hey) +(?=(?:{_any_of(OPENINGS)})\b))",
    re.IGNORECASE,
)
_REQUEST: Final = re.compile(rf"\s*(?:{_any_of(REQUESTS)})[\s,:-]+(?=\w)", re.IGNORECASE)
_TASK: Final = re.compile(
    rf"\s*(?:{_any_of(TASK_REQUESTS)}) +(?=(?:(?:an?|the|some|\d+|[a-z]+) +)?(?:\w+ +)?(?:{_any_of(TASKS)})\b)",
    re.IGNORECASE,
)
_THANKS: Final = re.compile(rf"(?<![\s,.!?-])[\s,.!?-]+(?:{_any_of(THANKS)})[\s.!]*(?=\?|$)", re.IGNORECASE)


def standard_form(text: str) -> str:
    """Return a text in normal form with standard spellings and without courtesies; a second time changes nothing."""
    if "." in text:
        text = _INITIALS.sub(lambda found: found.group().replace(".", "").upper(), text)
    text = _NATION.sub(_initials, _E_WORD.sub(r"\1\2", text))
    if _DIGIT.search(text) is not None:
        text = _DAY.sub(r"\1\2", _DAY_BEFORE.sub(r"\1 ", text))
        text = _DEGREES.sub(_degrees, _HALF_OF_DAY.sub(lambda found: f" {found[1].lower()}m", text))
    text = _NOT.sub(lambda found: with_case_of(found.group(), _WHOLE[found.group().lower()]), text)
    text = _MAKER.sub(_made, _MEASURE.sub(_measured, _without_courtesies(text)))
    return _WORD.sub(lambda found: _standard_word(found.group()), text)


def _degrees(found: re.Match[str]) -> str:
    return " degrees Celsius" if found[1] in "cC" else " degrees Fahrenheit"


def _measured(found: re.Match[str]) -> str:
    """Return `how tall is` for `what is the height of`."""
    is_or_was = (found[1] or " is").lower()
    return f"How {MEASURES[found[2].lower()]}{is_or_was} "


def _made(found: re.Match[str]) -> str:
    """Return `who wrote` for `who is the author of`."""
    return f"Who {MAKERS[found[1].lower()]} "


def _initials(nation: re.Match[str]) -> str:
    return "UK" if nation.group().lower().endswith("kingdom") else "US"


def _without_courtesies(text: str) -> str:
    bare = _THANKS.sub("", text)
    while True:
        found = _GREETING.match(bare) or _REQUEST.match(bare) or _TASK.match(bare)
        if found is None:
            break
        bare = bare[found.end() :]
    return bare if len(bare.split()) >= _MIN_LEFT else text


def _standard_word(word: str) -> str:
    if "-" in word and word.lower() not in JOINED:
        return "-".join(map(_standard_word, word.split("-")))
    other = _standard(word.lower())
    if other is None:
        return word
    if word.isupper() and len(word) > 1:
        return other.upper()
    return other.capitalize() if word[0].isupper() else other


def _standard(word: str) -> str | None:
    """Return the standard spelling of a lower-case word, or None where it is the word itself."""
    if word in JOINED:
        return JOINED[word]
    if len(word) < _MIN_BRITISH:
        return None
    for british in _BRITISH.get(word[:_MIN_BRITISH], ()):
        if word.startswith(british):
            return BRITISH[british] + word[len(british) :]
    verb = _ISE.fullmatch(word) if "is" in word or "ys" in word else None
    if verb is None or verb[1] in EVERYWHERE_IN_S:
        return None
    american = verb[1][:-1] + "z" + word[len(verb[1]) :]
    return american if american in ranks() or word not in ranks() else None
