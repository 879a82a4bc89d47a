"""Checks of an answer against right answers: exact, contains, regex, number."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final

from gateway.cli.outcomes.prompt_file import ComparedPrompt, OutcomesError, PromptError
from gateway.cli.outcomes.written_number import last_numbers

MAX_ANSWER_CHARS: Final = 20_000
"""Number of characters of an answer, from its end, that a check reads."""
MAX_PATTERN_S: Final = 0.5
"""Longest search for a pattern in an answer; one with nested repeats could take for ever."""
_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Characters of scripts that write words, or what belongs to them, without spaces between."""
_NO_WORD_BEFORE: Final = rf"(?<![^\W{_UNSPACED}])(?<!\d[.,])"
_NO_WORD_AFTER: Final = rf"(?![^\W{_UNSPACED}]|[.,]\d)"
_SPACE: Final = re.compile(r"\s+")
_MARKS: Final = " .,:;!?\"'`*"
_TOLERANCE: Final = 1e-6

Check = Callable[[str, str], bool]
"""Function of an answer and a right answer."""


def score_of(check: str, answer: str, one: ComparedPrompt) -> float:
    """Return 1 if the check accepts the answer for any of the prompt's right answers, else 0.

    Raises:
        PromptError: A pattern takes too long.
    """
    return float(any(CHECKS[check](answer[-MAX_ANSWER_CHARS:], right) for right in one.answers))


def require_answers(check: str, prompts: list[ComparedPrompt]) -> None:
    """Raise OutcomesError where a prompt has no right answer, or one that the check cannot use."""
    for number, one in enumerate(prompts, 1):
        if not one.answers:
            raise OutcomesError(f"prompt {number} has no `answer`, which --check {check} needs; or give --judge")
        for right in one.answers:
            if check == "number" and not last_numbers(right):
                raise OutcomesError(f"prompt {number}: `answer` {right!r} is no number")
            if check in ("exact", "contains") and not _plain(right):
                raise OutcomesError(f"prompt {number}: `answer` {right!r} has nothing to compare with")
            if check == "regex":
                try:
                    re.compile(right)
                except re.error as error:
                    raise OutcomesError(f"prompt {number}: `answer` {right!r} is no pattern: {error}") from None


def _is_exact(answer: str, right: str) -> bool:
    return _plain(answer) == _plain(right)


def _contains(answer: str, right: str) -> bool:
    pattern = f"{_NO_WORD_BEFORE}{re.escape(_plain(right))}{_NO_WORD_AFTER}"
    return re.search(pattern, _plain(answer)) is not None


def _matches(answer: str, right: str) -> bool:
    try:
        with _time_limit(MAX_PATTERN_S):
            return re.search(right, answer) is not None
    except TimeoutError:
        raise PromptError(
            f"the pattern {right!r} takes more than {MAX_PATTERN_S} s on an answer; write it without nested repeats"
        ) from None


@contextmanager
def _time_limit(limit_s: float) -> Iterator[None]:
    """Raise TimeoutError in the main thread after the limit; a search for a pattern heeds signals."""

    def expire(_: int, __: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _is_number(answer: str, right: str) -> bool:
    """Return whether the last number of the answer is the right one, in any notation."""
    return any(
        math.isclose(found, wanted, rel_tol=_TOLERANCE, abs_tol=1e-9)
        for found in last_numbers(answer)
        for wanted in last_numbers(right)
    )


def _plain(text: str) -> str:
    return _SPACE.sub(" ", text).strip(_MARKS).casefold()


CHECKS: Final[Mapping[str, Check]] = {
    "exact": _is_exact,
    "contains": _contains,
    "regex": _matches,
    "number": _is_number,
}
