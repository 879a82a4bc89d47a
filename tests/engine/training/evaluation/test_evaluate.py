"""Accuracy by task, difficulty and model."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from engine.training.data.example import Example, user
from engine.training.evaluation.evaluate import grade, percent, summary, table


def test_the_report_counts_per_task_difficulty_and_model() -> None:
    marks = {("support", "easy"): [True, True, True, False], ("support", "hard"): [False, True]}
    results = {"penstock-large": marks}
    assert percent(marks) == 66.7  # type: ignore[arg-type]
    assert percent(marks, "hard") == 50.0  # type: ignore[arg-type]
    assert "| support | easy | 75.0 |" in table(results)  # type: ignore[arg-type]
    figures = json.loads(json.dumps(summary(results, 2, 1)))  # type: ignore[arg-type]
    assert (figures["large_overall"], figures["large_hard"]) == (66.7, 50.0)


class Parrot:
    """Answers with the prompt's last word."""

    def answers(self, examples: Sequence[Example]) -> list[str]:
        return [example.prompt.split()[-1] for example in examples]


def test_answers_are_graded_by_cell_and_only_some_wrong_ones_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    examples = [
        Example(messages=(user(f"say {word}"),), answer="yes", task="echo", difficulty="easy")
        for word in ("yes", "no", "never", "Yes.")
    ]
    marks = grade(Parrot(), examples, num_failures=1)
    assert marks == {("echo", "easy"): [True, False, False, True]}
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 1
    assert "'no', not 'yes'" in shown[0]


def test_no_answers_of_a_difficulty_are_no_percentage() -> None:
    assert percent({("echo", "easy"): [True]}, "hard") == 0.0
