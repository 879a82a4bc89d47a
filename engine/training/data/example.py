"""One example of the training or test data, and how the two are kept apart."""

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

Split = Literal["train", "test"]
Difficulty = Literal["easy", "medium", "hard"]
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")


class ExampleMessage(TypedDict):
    """One chat message, as the OpenAI wire has it."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A conversation that ends with a user turn, and the one right answer to it."""

    messages: tuple[ExampleMessage, ...]
    answer: str
    task: str
    difficulty: Difficulty
    form: str = ""
    """Row of the task's table of forms that it was made from, for a task that has such a table."""

    @property
    def prompt(self) -> str:
        """Content of the last user turn."""
        return self.messages[-1]["content"]


@dataclass(frozen=True, slots=True)
class Frames:
    """Ways to say one thing; the test wordings are never used for training."""

    train: tuple[str, ...]
    test: tuple[str, ...]

    def pick(self, rng: random.Random, split: Split) -> str:
        """A random wording of the split."""
        return rng.choice(self.train if split == "train" else self.test)


def user(content: str) -> ExampleMessage:
    """A user message."""
    return {"role": "user", "content": content}


def assistant(content: str) -> ExampleMessage:
    """An assistant message."""
    return {"role": "assistant", "content": content}


def is_held_out(*key: object) -> bool:
    """Whether operands or names belong to the test split (one key in twenty)."""
    return zlib.crc32(repr(key).encode()) % 20 == 0


def other_than(rng: random.Random, pool: Sequence[str], used: set[str]) -> str:
    """A member of the pool that is not used yet; marks it as used."""
    while (choice := rng.choice(pool)) in used:
        continue
    used.add(choice)
    return choice
