"""The seam between who decides about drafts and a model that goes on round after round in one go."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy.typing as npt
import torch

Numbers = npt.NDArray[Any]


class GuessTables(NamedTuple):
    """Where guesses come from and how often they were right; read and written in place."""

    memory: tuple[Numbers, Numbers]
    """int64: what earlier answers said, as `engine.cpu.multi_step.ngram` keeps it."""
    trials: Numbers
    """float64 [2, kinds]."""
    chances: Numbers
    """float64 [kinds]."""
    kinds: Numbers
    """int64: kinds of what is looked up, in lookup's order, and again where an answer is nearly over."""
    decay: float
    """What remains of older trials after each."""
    near_end_kinds: int
    """How far kinds are apart from those of answers that are nearly over."""
    head_kind: int
    """The first kind of what heads say where tokens are not drawn."""
    few_tokens: int
    """Of answers with so few tokens to come guesses are judged apart."""
    length_margin: float
    """How many times the tokens expected yet a row may be drafted."""


class MultiStepOrder(NamedTuple):
    """What the rounds behind a step may do; of each row, the first N rows of an array."""

    rows: Numbers
    """int64 [N, 7], as `engine.cpu.multi_step.ngram.look_ahead` reads them."""
    numbers: Numbers
    """float64 [N, 3], the same."""
    stops: Numbers
    """int64: tokens that end each row's text, row after row."""
    found: tuple[Numbers, Numbers, Numbers]
    """Tokens and kinds of the step's own guesses, int64 [N, most], and int64 [N, 2]; overwritten by each round's."""
    lengths: list[int]
    """Of each text."""
    ends_at: list[int]
    """How long each may get."""
    expected: list[int]
    """How long each is expected to get."""
    costs: tuple[float, float, float, float]
    """Seconds of a round without drafts, more with some, more for each, and the least gain that is worth it."""
    max_rounds: int
    """The step itself is the first of them."""
    max_seconds: float
    """No round is begun when so long has passed since the step itself was over."""
    guesses: bool = True
    """Whether anything is guessed; else each round says one token of each row."""


class StepTaken(NamedTuple):
    """What one of them took."""

    seconds: float
    num_drafts: int


class MultiStepReport(NamedTuple):
    """What all rounds together said; of each row."""

    token_ids: list[list[int]]
    num_drafted: list[int]
    """Drafts that were verified behind the step itself."""
    num_rounds: int
    later_s: float
    """Seconds that those behind the step itself took."""


class MultiStep(Protocol):
    """Computes rounds, with drafts and without, behind a step of rows that choose their likeliest tokens."""

    max_rows: int
    """Of a step that further rounds may follow."""

    def begin(self, tables: GuessTables) -> None:
        """Guess by these from now on."""
        ...

    def order(self, order: MultiStepOrder) -> None:
        """Follow the next step by rounds if heads look ahead within it."""
        ...

    def told(self) -> MultiStepReport | None:
        """What was said, the step's own tokens included; None where no further round followed the last step."""
        ...

    def rounds(self) -> list[StepTaken]:
        """What the last step and those that followed it took, once; none where it was not followed."""
        ...

    def states(self) -> torch.Tensor:
        """The final hidden states [N, hidden] from which each row's last token was chosen."""
        ...


@runtime_checkable
class HasMultiStep(Protocol):
    """Heads that look ahead within a step which rounds may follow."""

    rounds: MultiStep
