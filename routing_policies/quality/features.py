"""Features: a prompt as numbers and as the set of its words, at a cost of microseconds.

Counts are squashed into [0, 1], only the end of a text is read, and a word counts once however often it stands there.
Lengths grow by a twelfth with each doubling. So a preamble moves a prediction by its few words and its length alone.
"""

from __future__ import annotations

import re
from itertools import pairwise
from math import log2
from typing import Final, NamedTuple

from routing_policies.quality.cues import CUES, cues_in
from routing_policies.quality.prompt import EARLIER_CHARS, TAIL_CHARS, Prompt

NUMBERS: Final = (
    *("chars", "all_chars", "turns", "system", "tools", "earlier_chars", "lines", "words", "sentences", "last_words"),
    *("numbers", "longest_number", "digits", "decimals", "operators", "questions", "commas", "colons", "quotes"),
    *("code", "capitals", "foreign", "word_chars", "repeats", "options", "singles"),
    *("listed", "named", "echoed", "distance", "largest", "second", "carries", "earlier_largest", *CUES),
)
"""Names of the numbers in `Features`, in order."""
LENGTH: Final = NUMBERS.index("all_chars")
NUM_BOUNDED: Final = NUMBERS.index("named")
"""Number of leading numbers that the novelty guard bounds; a kind of work absent from training is no novelty."""

_UNSPACED: Final = "\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u9fff"
"""Letters of Chinese and Japanese, which write no spaces: each counts as a word, else a sentence would be one."""
_TOKEN: Final = re.compile(rf"\d+(?:[.,]\d+)*|[{_UNSPACED}]|[^\W\d_{_UNSPACED}]+|[-+*/=^%×÷<>]")
_SENTENCE_END: Final = re.compile(r"[.!?:](?=\s)|\n")
_OPTION: Final = re.compile(r"(?:^|\n)[^\S\n]*\(?[A-J][).]\s")
_CODE: Final = frozenset("{}[]();")
_MARKS: Final = ".,:;!?\"'()"
MAX_QUESTION_WORDS: Final = 24
"""Maximum number of words of the last sentence that are searched for in the text before it."""
CONTEXT_CHARS: Final = 8192
"""Number of characters before the last sentence that are searched."""
MAX_FIGURES: Final = 3
MAX_DIGITS: Final = 6
_VALUE_STEPS: Final = 48
_SUBTRACTING: Final = CUES.index("subtracting")
_SQUASH: Final = tuple(min(log2(1 + number) / 12, 1.0) for number in range(4097))


class Features(NamedTuple):
    """The input of a prediction."""

    numbers: list[float]
    words: set[str]
    """Words, pairs of neighbours, and numbers by their shape; those of the previous message are marked."""
    shapes: list[str]
    """Words alone, in their order in the text."""


def features_of(prompt: Prompt) -> Features:
    """Return the features of one prompt; they depend on nothing else."""
    tail = prompt.text[-TAIL_CHARS:]
    tokens = _TOKEN.findall(tail)
    shapes = _shapes(tokens)
    words = set(shapes)
    cues = cues_in(words)
    words.update([f"{first} {second}" for first, second in pairwise(shapes)])
    if shapes:
        figures = _figures(shapes)
        words.add(figures)
        words.update([f"{kind} {figures}" for kind, is_present in zip(CUES, cues, strict=True) if is_present])
    if prompt.earlier:
        words.update([f"before {shape}" for shape in _shapes(_TOKEN.findall(prompt.earlier[-EARLIER_CHARS:]))])
    return Features([*_numbers(prompt, tail, tokens), *_sum_of(prompt, tokens, cues), *cues], words, shapes)


def _numbers(prompt: Prompt, tail: str, tokens: list[str]) -> list[float]:
    figures = [token for token in tokens if token[0].isdigit()]
    words = [token for token in tokens if token[0].isalpha()]
    ends = [found.end() for found in _SENTENCE_END.finditer(tail.rstrip())]
    last = tail[ends[-1] :] if ends else tail
    num_words = len(words) or 1
    lengths = [len(word) for word in words]
    return [
        _length(len(prompt.text)),
        _length(prompt.num_chars),
        _squash(16 * prompt.num_turns),
        float(prompt.has_system),
        float(prompt.has_tools),
        _length(len(prompt.earlier)),
        _squash(16 * tail.count("\n")),
        _squash(16 * len(words)),
        _squash(16 * len(ends)),
        _squash(16 * len(last.split())),
        _squash(64 * len(figures)),
        min(max(map(len, figures), default=0) / 8, 1.0),
        _squash(32 * sum(map(len, figures))),
        _squash(64 * sum("." in figure for figure in figures)) if figures else 0.0,
        _squash(64 * (len(tokens) - len(words) - len(figures))),
        _squash(256 * tail.count("?")),
        _squash(64 * tail.count(",")),
        _squash(256 * tail.count(":")),
        _squash(64 * (tail.count('"') + tail.count("'"))),
        0.0 if _CODE.isdisjoint(tail) else _squash(64 * sum(map(tail.count, _CODE))),
        sum([word[0].isupper() for word in words]) / num_words,
        0.0 if tail.isascii() else 1.0 - len(tail.encode("ascii", "ignore")) / len(tail),
        min(sum(lengths) / num_words / 12, 1.0),
        1.0 - len(set(words)) / num_words,
        _squash(256 * len(_OPTION.findall(tail))) if ")" in tail or "." in tail else 0.0,
        _squash(64 * lengths.count(1)),
        _squash(16 * len(tail.rpartition(":")[2].split())) if ":" in tail else 0.0,
        *_needle(prompt.text, last),
    ]


def _needle(text: str, last: str) -> tuple[float, float, float]:
    """Return the shares of the last sentence's names and other long words that stand before it, and their distance."""
    end = len(text) - len(last)
    start = max(end - CONTEXT_CHARS, 0)
    question_words = [word.strip(_MARKS) for word in last.split()[1 : MAX_QUESTION_WORDS + 1]]
    names = [word for word in question_words if word[:1].isupper()]
    others = [word for word in question_words if len(word) > 3 and word.islower()]
    if end <= start or not question_words:
        return (0.25 if names else 0.0), 0.0, 0.0
    places = [text.rfind(name, start, end) for name in names]
    found = [place for place in places if place >= 0]
    echoed = sum([text.find(word, start, end) >= 0 for word in others]) / (len(others) or 1)
    named = 0.25 + 0.75 * len(found) / len(names) if names else 0.0
    return named, echoed, _squash(end - min(found)) if found else 0.0


def _sum_of(prompt: Prompt, tokens: list[str], cues: list[float]) -> tuple[float, float, float, float]:
    """Return the two largest of a few whole numbers, whether a sum of two carries, and the largest before."""
    before = _TOKEN.findall(prompt.earlier[-EARLIER_CHARS:]) if prompt.earlier else ()
    earlier = _about(max([_value(token) for token in before], default=0))
    values = [_value(token) for token in tokens if token[0].isdigit()]
    if not 0 < len(values) <= MAX_FIGURES:
        return 0.0, 0.0, 0.0, earlier
    largest, second = sorted((*values, 0), reverse=True)[:2]
    return _about(largest), _about(second), _carries(values, is_less=cues[_SUBTRACTING] > 0.0), earlier


def _about(value: int) -> float:
    """Return the number squashed and rounded to a tenth, because figures may be stored where texts may not."""
    return round(_squash(value) * _VALUE_STEPS) / _VALUE_STEPS


def _carries(values: list[int], *, is_less: bool) -> float:
    if len(values) != 2:
        return 0.0
    first, second = values[0] % 10, values[1] % 10
    return float(first < second) if is_less else float(first + second >= 10)


def _value(token: str) -> int:
    """Return a whole number, as far as that counts; 0 for anything else."""
    return int(token) if token.isdecimal() and len(token) <= MAX_DIGITS else 0


def _figures(shapes: list[str]) -> str:
    """Return the last few figures together, whatever stands between them."""
    return " ".join(["all", *[shape for shape in shapes if shape[0] == "<" and len(shape) > 1][-MAX_FIGURES:]])


def _squash(count: int) -> float:
    """Return 0 for none, then slowly up to 1 at 4,096."""
    return _SQUASH[count] if count < 4096 else 1.0


def _length(num_chars: int) -> float:
    """Return 0 for no characters, 1 for 4,096, and a twelfth more for each doubling, so that long texts differ."""
    return _SQUASH[num_chars] if num_chars < 4096 else log2(1 + num_chars) / 12


def _shapes(tokens: list[str]) -> list[str]:
    return [_shape(token) if token[0].isdigit() else token.lower() for token in tokens]


def _shape(figure: str) -> str:
    whole, _, fraction = figure.replace(",", ".").partition(".")
    return f"<{min(len(whole), 6)}.{min(len(fraction), 3)}>" if fraction else f"<{min(len(whole), 6)}>"
