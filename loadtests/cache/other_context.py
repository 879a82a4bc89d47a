"""Equal and similar questions in other conversations, where the policy takes questions that stand alone out of theirs.

CANARD's follow-ups come with what a person wrote who saw the conversation before them: two are the same question when
those rewritings are equal. A similar answer of another conversation is wrong otherwise.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.cache.fitting.questions import Questions
from gateway.cache.fitting.stream import Played, play
from gateway.cache.similarity.decision import MatchModel
from gateway.cache.similarity.standalone import is_standalone

CONTEXTS: Final = "cache/context_canard_dev.jsonl.gz"
_words: Final = re.compile(r"\w+").findall


class _Row(msgspec.Struct):
    d: str
    n: int
    q: str
    rewrite: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Questions in conversations; equal meaning: they were rewritten to the same. A component is a conversation."""

    questions: Questions
    is_first: NDArray[np.bool_]

    @property
    def standing_alone(self) -> NDArray[np.bool_]:
        """Which may leave their conversation."""
        return np.array([is_standalone(text) for text in self.questions.texts])

    @property
    def equal_elsewhere(self) -> NDArray[np.bool_]:
        """Which follow-ups are, word for word, sent elsewhere and mean something else there."""
        groups_of: dict[str, set[int]] = {}
        for text, group in zip(self.questions.texts, self.questions.question_groups.tolist(), strict=True):
            groups_of.setdefault(_normal(text), set()).add(group)
        return np.array([len(groups_of[_normal(text)]) > 1 for text in self.questions.texts]) & ~self.is_first


def read_conversations(data: Path) -> Conversations:
    """CANARD's development part. Raises FileNotFoundError where it is missing."""
    with gzip.open(data / CONTEXTS, "rt", encoding="utf-8") as lines:
        rows = [msgspec.json.decode(line, type=_Row) for line in lines]
    question_groups: dict[str, int] = {}
    conversations: dict[str, int] = {}
    return Conversations(
        questions=Questions(
            texts=[row.q for row in rows],
            question_groups=np.array(
                [question_groups.setdefault(_normal(row.rewrite), len(question_groups)) for row in rows]
            ),
            components=np.array([conversations.setdefault(row.d, len(conversations)) for row in rows]),
        ),
        is_first=np.array([row.n == 1 for row in rows]),
    )


def play_alone(found: Conversations, vectors: NDArray[np.float32], model: MatchModel, threshold: float) -> Played:
    """Those that stand alone, one after another into one context; the others meet nothing of other conversations."""
    places = np.flatnonzero(found.standing_alone)
    alone = Questions(
        texts=[found.questions.texts[place] for place in places.tolist()],
        question_groups=found.questions.question_groups[places],
        components=found.questions.components[places],
    )
    return play(alone, vectors[places], model, threshold)


def _normal(text: str) -> str:
    return " ".join(_words(text.casefold()))
