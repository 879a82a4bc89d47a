"""Gathering of outcomes: both models answer each prompt, a bounded number of prompts at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from gateway.cli.outcomes.answer_check import score_of
from gateway.cli.outcomes.answer_comparer import VERDICT_TOKENS, AnswerComparer
from gateway.cli.outcomes.model_server import ModelAnswer, ModelServer
from gateway.cli.outcomes.prompt_file import ComparedPrompt, OutcomeFile, OutcomesError, PromptError

MAX_FAILURES: Final = 10
"""Number of prompts that fail one after the other at which gathering ends.

Once the file of outcomes has one, prompts that cannot be compared do not count. Else ten such prompts, repeated first
in each run, would keep the rest from being compared.
"""
_CHARS_PER_TOKEN: Final = 4
_MESSAGE_TOKENS: Final = 8
_INSTRUCTION_TOKENS: Final = 120

Scorer = AnswerComparer | str
"""A comparer of answers, or the name of a check."""


class ModelComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two models, and how their answers are scored."""

    small: ModelServer
    large: ModelServer
    scorer: Scorer
    max_tokens: int


class CostEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Upper bound of what gathering costs, by the role of each model."""

    num_requests: dict[str, int]
    num_prompt_tokens: dict[str, int]
    num_completion_tokens: dict[str, int]
    costs: dict[str, float | None]
    """Cost by the stated prices; None where a model has none."""


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a run."""

    num_done: int
    num_failed: int
    first_failure: str | None = None
    has_odds: bool = False
    """True if the small model's server stated log probabilities."""
    num_empty: dict[str, int] = {}
    """Number of answers without text, by the role of the model."""
    num_cut: dict[str, int] = {}
    """Number of answers that ended at the limit of tokens, by the role of the model."""


def estimated(comparison: ModelComparison, prompts: Sequence[ComparedPrompt]) -> CostEstimate:
    """Return what the prompts cost if every answer is as long as allowed."""
    tokens = sum(one.num_chars // _CHARS_PER_TOKEN + _MESSAGE_TOKENS * len(one.conversation) for one in prompts)
    num = len(prompts)
    uses = dict.fromkeys(("small", "large"), (num, tokens, num * comparison.max_tokens))
    servers = {"small": comparison.small, "large": comparison.large}
    if isinstance(comparison.scorer, AnswerComparer):
        shown = tokens + num * (2 * comparison.max_tokens + _INSTRUCTION_TOKENS)
        uses["judge"] = (2 * num, 2 * shown, 2 * num * VERDICT_TOKENS)
        servers["judge"] = comparison.scorer.server
    costs = {
        role: None
        if (prices := servers[role].prices) is None
        else (used[1] * prices.prompt + used[2] * prices.completion) / 1e6
        for role, used in uses.items()
    }
    return CostEstimate(
        num_requests={role: used[0] for role, used in uses.items()},
        num_prompt_tokens={role: used[1] for role, used in uses.items()},
        num_completion_tokens={role: used[2] for role, used in uses.items()},
        costs=costs,
    )


async def gather_outcomes(
    comparison: ModelComparison,
    prompts: Sequence[ComparedPrompt],
    file: OutcomeFile,
    *,
    concurrency: int,
    on_progress: Callable[[int], None] = lambda num: None,
    on_failure: Callable[[str], None] = lambda message: None,
) -> Gathered:
    """Append the outcomes of prompts to an open file as they come; `on_failure` gets the first failure.

    Raises:
        OutcomesError: Many prompts failed one after the other, or the file cannot be written.
    """
    run = _Run(comparison, iter(prompts), file, on_progress, on_failure)
    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(prompts))):
            group.create_task(run.work())
    if run.fatal is not None:
        raise run.fatal
    return Gathered(
        num_done=run.num_done,
        num_failed=run.num_failed,
        first_failure=run.first_failure,
        has_odds=run.has_odds,
        num_empty=dict(run.num_empty),
        num_cut=dict(run.num_cut),
    )


class _Run:
    """State that the workers of one run share."""

    def __init__(
        self,
        comparison: ModelComparison,
        prompts: Iterator[ComparedPrompt],
        file: OutcomeFile,
        on_progress: Callable[[int], None],
        on_failure: Callable[[str], None],
    ) -> None:
        self._comparison = comparison
        self._prompts = prompts
        self._file = file
        self._on_progress = on_progress
        self._on_failure = on_failure
        self.num_done = self.num_failed = self._num_in_a_row = 0
        self.first_failure: str | None = None
        self.has_odds = False
        self.num_empty: Counter[str] = Counter()
        self.num_cut: Counter[str] = Counter()
        self.fatal: OutcomesError | None = None

    async def work(self) -> None:
        """Take prompts until there are no more, or too many fail."""
        for one in self._prompts:
            if self.fatal is not None:
                return
            try:
                line = await self._line(one)
            except OutcomesError as error:
                self._note_failure(error)
                continue
            try:
                self._file.add(line)
            except OutcomesError as error:
                self.fatal = error
                return
            self.num_done += 1
            self._num_in_a_row = 0
            self._on_progress(self.num_done)

    def _note_failure(self, error: OutcomesError) -> None:
        self.num_failed += 1
        if not (isinstance(error, PromptError) and self._file.num_bytes):
            self._num_in_a_row += 1
        if self.first_failure is None:
            self.first_failure = str(error)
            self._on_failure(self.first_failure)
        if self._num_in_a_row >= MAX_FAILURES:
            hint = "; if others may succeed, put one of those first" if isinstance(error, PromptError) else ""
            self.fatal = OutcomesError(
                f"{MAX_FAILURES} prompts failed one after the other; the last one: {error}{hint}"
            )

    async def _line(self, one: ComparedPrompt) -> dict[str, Any]:
        """Return the line of one prompt, in the format of `penstock policy train --data`."""
        comparison = self._comparison
        servers = comparison.small, comparison.large
        small, large = await _both(comparison, one)
        if isinstance(comparison.scorer, AnswerComparer):
            scores = await comparison.scorer.scores(one, small.text, large.text)
        else:
            scores = score_of(comparison.scorer, small.text, one), score_of(comparison.scorer, large.text, one)
        self.has_odds = self.has_odds or bool(small.odds)
        for role, answer in (("small", small), ("large", large)):
            self.num_empty[role] += not answer.text.strip()
            self.num_cut[role] += answer.is_cut
        line: dict[str, Any] = {
            "messages": one.conversation,
            "outcomes": {server.name: score for server, score in zip(servers, scores, strict=True)},
            "tokens": {servers[0].name: small.num_tokens, servers[1].name: large.num_tokens},
        }
        if one.category:
            line["category"] = one.category
        if small.odds:
            line["logprobs"] = {servers[0].name: [round(token.logprob, 4) for token in small.odds]}
            line["margins"] = {servers[0].name: [round(token.margin, 4) for token in small.odds]}
        return line


async def _both(comparison: ModelComparison, one: ComparedPrompt) -> tuple[ModelAnswer, ModelAnswer]:
    small, large = await asyncio.gather(
        comparison.small.answer(one.conversation, max_tokens=comparison.max_tokens, wants_odds=True),
        comparison.large.answer(one.conversation, max_tokens=comparison.max_tokens),
        return_exceptions=True,
    )
    if isinstance(small, BaseException):
        raise small
    if isinstance(large, BaseException):
        raise large
    return small, large
