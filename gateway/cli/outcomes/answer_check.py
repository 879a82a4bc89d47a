"""Checks of an answer against right answers: exact, contains, regex, number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from gateway.cli.outcomes.prompt_file import ComparedPrompt, OutcomesError

MAX_ANSWER_CHARS: Final = 20_000
"""Number of characters of an answer, from its end, that a check reads."""
_NUMBER: Final = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_SPACE: Final = re.compile(r"\s+")
_MARKS: Final = " .,:;!?\"'`*"
_TOLERANCE: Final = 1e-6

Check = Callable[[str, str], bool]
"""Function of an answer and a right answer."""


def score_of(check: str, answer: str, one: ComparedPrompt) -> float:
    """Return 1 if the check accepts the answer for any of the prompt's right answers, else 0."""
    return float(any(CHECKS[check](answer[-MAX_ANSWER_CHARS:], right) for right in one.answers))


def require_answers(check: str, prompts: list[ComparedPrompt]) -> None:
    """Raise OutcomesError where a prompt has no right answer, or one that the check cannot use."""
    for number, one in enumerate(prompts, 1):
        if not one.answers:
            raise OutcomesError(f"prompt {number} has no `answer`, which --check {check} needs; or give --judge")
        for right in one.answers:
            if check == "number" and _last_number(right) is None:
                raise OutcomesError(f"prompt {number}: `answer` {right!r} is no number")
            if check == "regex":
                try:
                    re.compile(right)
                except re.error as error:
                    raise OutcomesError(f"prompt {number}: `answer` {right!r} is no pattern: {error}") from None


def _is_exact(answer: str, right: str) -> bool:
    return _plain(answer) == _plain(right)


def _contains(answer: str, right: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(_plain(right))}(?!\w)", _plain(answer)) is not None


def _matches(answer: str, right: str) -> bool:
    return re.search(right, answer) is not None


def _is_number(answer: str, right: str) -> bool:
    """Return whether the last number of the answer is the right one; digits may be grouped."""
    found, wanted = _last_number(answer), _last_number(right)
    return found is not None and wanted is not None and math.isclose(found, wanted, rel_tol=_TOLERANCE, abs_tol=1e-9)


def _plain(text: str) -> str:
    return _SPACE.sub(" ", text).strip(_MARKS).casefold()


def _last_number(text: str) -> float | None:
    found = _NUMBER.findall(text)
    return float(found[-1].replace(",", "").replace("−", "-")) if found else None


CHECKS: Final[Mapping[str, Check]] = {
    "exact": _is_exact,
    "contains": _contains,
    "regex": _matches,
    "number": _is_number,
}
