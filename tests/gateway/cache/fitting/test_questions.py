"""Questions of known groups, read from their files."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.cache.fitting.questions import INTENTS, PAIRS, QUESTIONS, read_intents, read_questions


def write(path: Path, names: Sequence[str], *rows: Sequence[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    with gzip.open(path, "wt", newline="", encoding="utf-8") as lines:
        csv.writer(lines).writerows([names, *rows])


def test_questions_that_were_compared_are_held_out_together_through_any_chain(tmp_path: Path) -> None:
    texts = ["How?", "Why, and when?", "Where?", "Who?"]
    write(
        tmp_path / QUESTIONS, ["qid", "text", "cluster"], *([f"q{i}", text, str(i % 2)] for i, text in enumerate(texts))
    )
    write(tmp_path / PAIRS, ["qid_a", "qid_b"], ["q0", "q1"], ["q2", "q1"])
    found = read_questions(tmp_path)
    assert list(found.texts) == texts
    assert len(found) == 4
    assert found.question_groups.tolist() == [0, 1, 0, 1]
    first, second, third, alone = found.components.tolist()
    assert first == second == third != alone


def test_each_question_outside_of_all_intents_is_a_meaning_of_its_own(tmp_path: Path) -> None:
    rows = [
        ["Pay my bill", "pay", "train"],
        ["What is love", "oos", "oos_train"],
        ["Settle the bill", "pay", "test"],
        ["Who am I", "oos", "oos_test"],
    ]
    write(tmp_path / INTENTS, ["text", "intent", "split"], *rows)
    groups = read_intents(tmp_path).question_groups.tolist()
    assert groups[0] == groups[2]
    assert len(set(groups)) == 3


def test_a_folder_without_the_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_questions(tmp_path)
