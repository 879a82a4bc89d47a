"""Passage tasks of the bundled models, and the same with much around them that has nothing to do with the question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from loadtests.harness.processes import ProcessFailed, Workbench

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]+\s*")
_NAME = re.compile(r"\b[A-Z][a-z]+\b")
_NO_NAMES = frozenset(["The", "On", "By", "What", "Which", "Where", "When", "Read", "Notes", "Question", "Table"])
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A held-out task."""

    text: str
    """Of the only user message: the passage and the question."""
    answer: str

    def padded(self, others: Sequence[str], num_bytes: int, rng: Random) -> str:
        """The text with sentences from elsewhere among the passage's own, until it is so long.

        None of them names anybody whom this passage names, so the right answer stays the right one.
        """
        names = _names(self.text)
        sentences = [match.group().strip() for match in _SENTENCE.finditer(self._passage)]
        foreign = [sentence for sentence in others if not names & _names(sentence)]
        missing = num_bytes - len(self.text.encode())
        while missing > 0 and foreign:
            sentence = rng.choice(foreign)
            sentences.insert(rng.randint(1, len(sentences)), sentence)
            missing -= len(sentence.encode()) + 1
        return self.text.replace(self._passage, " ".join(sentences))

    @property
    def _passage(self) -> str:
        """The longest line: layouts put the question on another."""
        return max(self.text.split("\n"), key=len)

    @property
    def sentences(self) -> list[str]:
        """Of the passage alone."""
        return [match.group().strip() for match in _SENTENCE.finditer(self._passage)]


async def held_out_passages(bench: Workbench, seed: int, samples: int) -> list[Passage]:
    """Passage tasks that the bundled models were never trained on; those with a table have no sentences and are left
    out. Raises ProcessFailed."""
    arguments = ["--seed", str(seed), "--samples", str(samples)]
    process = await bench.start("prompts", "engine.training.data.prompts", arguments)

    async def is_over() -> bool:
        return not process.is_running and bool(process.json_lines())

    await process.wait_until(is_over, _TIMEOUT_S)
    found = []
    for line in process.json_lines():
        messages = line["messages"]
        assert isinstance(messages, list)
        if line["task"] != "passage" or len(messages) != 1:
            continue
        passage = Passage(text=messages[0]["content"], answer=str(line["answer"]))
        if len(passage.sentences) >= 3:
            found.append(passage)
    if not found:
        raise ProcessFailed(f"no passages among the prompts:\n{process.tail()}")
    return found


def _names(text: str) -> set[str]:
    """Of people, towns and days."""
    return set(_NAME.findall(text)) - _NO_NAMES
