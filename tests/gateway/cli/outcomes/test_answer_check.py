"""Checks of answers: what each accepts, and right answers that it cannot use."""

from __future__ import annotations

import pytest

from gateway.cli.main import CHECK_NAMES
from gateway.cli.outcomes.answer_check import CHECKS, require_answers, score_of
from gateway.cli.outcomes.prompt_file import ComparedPrompt, OutcomesError


@pytest.mark.parametrize(
    ("check", "answer", "right", "score"),
    [
        ("exact", "  Paris. ", "paris", 1.0),
        ("exact", "It is Paris.", "paris", 0.0),
        ("contains", "It is **Paris**, of course.", "Paris", 1.0),
        ("contains", "Parisian", "Paris", 0.0),
        ("regex", "So the answer is (B).", r"answer is \(?B\b", 1.0),
        ("regex", "So the answer is (C).", r"answer is \(?B\b", 0.0),
        ("number", "3 boxes of 4 make 1,200.0 grams", "1200", 1.0),
        ("number", "12, and not 13", "12", 0.0),
        ("number", "minus: -4", "−4", 1.0),
        ("number", "none", "4", 0.0),
        ("number", "It costs 1 234,50 €.", "1,234.5", 1.0),
        ("number", "0.75", "3/4", 1.0),
        ("contains", "答えは東京です", "東京", 1.0),
        ("contains", "수도는 서울입니다", "서울", 1.0),
        ("contains", "about 3.5 or 1,000", "5", 0.0),
        ("contains", "about 3.5 or 1,000", "1", 0.0),
        ("contains", "There are 5.", "5", 1.0),
    ],
)
def test_a_check_accepts_what_is_right(check: str, answer: str, right: str, score: float) -> None:
    assert score_of(check, answer, ComparedPrompt(prompt="q", answer=right)) == score


def test_any_of_several_right_answers_will_do() -> None:
    assert score_of("exact", "UK", ComparedPrompt(prompt="q", answer=("Britain", "UK"))) == 1.0


@pytest.mark.parametrize(
    ("check", "answer", "message"),
    [
        ("exact", (), "prompt 1 has no `answer`"),
        ("number", "many", "is no number"),
        ("regex", "(", "is no pattern"),
        ("contains", "*", "nothing to compare with"),
        ("exact", "", "nothing to compare with"),
    ],
)
def test_unusable_right_answers_are_reported_before_any_request(
    check: str, answer: str | tuple[str, ...], message: str
) -> None:
    with pytest.raises(OutcomesError, match=message):
        require_answers(check, [ComparedPrompt(prompt="q", answer=answer)])


def test_the_flag_has_every_check() -> None:
    assert set(CHECK_NAMES) == CHECKS.keys()


def test_a_pattern_that_takes_for_ever_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.outcomes.answer_check.MAX_PATTERN_S", 0.05)
    with pytest.raises(OutcomesError, match="without nested repeats"):
        score_of("regex", "a" * 60 + "!", ComparedPrompt(prompt="q", answer="(a+)+$"))
