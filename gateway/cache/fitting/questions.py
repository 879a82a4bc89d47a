"""Questions with known equivalence, as a stream in the order of their first appearance."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

QUESTIONS = "cache/qqp_calibration_questions.csv.gz"
PAIRS = "cache/qqp_calibration_pairs.csv.gz"
INTENTS = "cache/intent_clinc150.csv.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Questions by group and component. Equal group: the same answer is right.

    Equal component: an annotator compared them, so both are held out together.
    """

    texts: Sequence[str]
    question_groups: NDArray[np.int64]
    components: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.texts)


def read_questions(data: Path) -> Questions:
    """Read the QQP calibration questions. Raises FileNotFoundError where the folder has none."""
    rows = _rows(data / QUESTIONS)
    place = {row["qid"]: number for number, row in enumerate(rows)}
    parents = list(range(len(rows)))
    for pair in _rows(data / PAIRS):
        parents[_root(parents, place[pair["qid_a"]])] = _root(parents, place[pair["qid_b"]])
    return Questions(
        texts=[row["text"] for row in rows],
        question_groups=np.array([int(row["cluster"]) for row in rows]),
        components=np.array([_root(parents, number) for number in range(len(rows))]),
    )


def read_intents(data: Path) -> Questions:
    """Read CLINC150 in its order: one group an intent, and one for each question outside of all of them."""
    rows = _rows(data / INTENTS)
    names = {name: number for number, name in enumerate(sorted({row["intent"] for row in rows}))}
    question_groups = [
        len(names) + number if row["split"].startswith("oos") else names[row["intent"]]
        for number, row in enumerate(rows)
    ]
    return Questions(
        texts=[row["text"] for row in rows],
        question_groups=np.array(question_groups),
        components=np.array(question_groups),
    )


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def _root(parents: list[int], number: int) -> int:
    while parents[number] != number:
        parents[number] = parents[parents[number]]
        number = parents[number]
    return number
