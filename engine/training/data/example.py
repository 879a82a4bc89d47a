"""Example of the training or test data, and the rule that separates the two splits."""

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

Split = Literal["train", "test"]
Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")


class ExampleMessage(TypedDict):
    """One chat message in the OpenAI API's form."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Conversation that ends with a user message, and its one right answer."""

    messages: tuple[ExampleMessage, ...]
    answer: str
    task: str
    difficulty: Difficulty
    form: str = ""
    """Row of the task's table of forms; empty for a task without such a table."""

    @property
    def prompt(self) -> str:
        """Content of the last user message."""
        return self.messages[-1]["content"]


@dataclass(frozen=True, slots=True)
class Frames:
    """Wordings of one request; the test wordings are never used for training."""

    train: tuple[str, ...]
    test: tuple[str, ...]

    def pick(self, rng: random.Random, split: Split) -> str:
        """Return a random wording of the split."""
        return rng.choice(self.train if split == "train" else self.test)


def user(content: str) -> ExampleMessage:
    """Return a user message."""
    return {"role": "user", "content": content}


def assistant(content: str) -> ExampleMessage:
    """Return an assistant message."""
    return {"role": "assistant", "content": content}


def is_held_out(*key: object) -> bool:
    """Return whether operands or names belong to the test split (one key in twenty)."""
    return zlib.crc32(repr(key).encode()) % 20 == 0


def other_than(rng: random.Random, pool: Sequence[str], used: set[str]) -> str:
    """Return an unused member of the pool, and mark it as used."""
    while (choice := rng.choice(pool)) in used:
        continue
    used.add(choice)
    return choice
