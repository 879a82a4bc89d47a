"""The seam between the controller of speculation and a model that computes several steps in one call."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

Numbers = npt.NDArray[Any]


class DraftTables(NamedTuple):
    """Sources of draft tokens and how often they were right; read and written in place."""

    memory: tuple[Numbers, Numbers]
    """int64: what earlier answers said, as `engine.cpu.multi_step.ngram` keeps it."""
    trials: Numbers
    """float64 [2, kinds]."""
    chances: Numbers
    """float64 [kinds]."""
    kinds: Numbers
    """int64: kinds of what is looked up, in lookup's order."""
    decay: float
    """What remains of older trials after each."""
    head_kind: int
    """The first kind of what heads say where tokens are not drawn."""


class MultiStepOrder(NamedTuple):
    """Leave for the steps behind the first; of each row, the first N rows of an array."""

    rows: Numbers
    """int64 [N, 6], as `engine.cpu.multi_step.ngram.look_ahead` reads them."""
    numbers: Numbers
    """float64 [N, 3], the same."""
    stops: Numbers
    """int64: tokens that end each row's text, row after row."""
    found: tuple[Numbers, Numbers, Numbers]
    """Tokens and kinds of the step's draft tokens, int64 [N, most], and int64 [N, 2]; overwritten by each step."""
    lengths: list[int]
    """Of each text."""
    ends_at: list[int]
    """How long each may get."""
    drafts_until: list[int]
    """Up to which length draft tokens are made for it."""
    costs: tuple[float, float, float, float]
    """Seconds of a step without drafts, more with some, more for each, and the least gain that is worth it."""
    max_steps: int
    """The first step included."""
    max_seconds: float
    """No step is begun when so long has passed since the first one was over."""
    guesses: bool = True
    """Whether anything is drafted; else each step says one token of each row."""


class StepTaken(NamedTuple):
    """The time and the draft tokens of one of several steps."""

    seconds: float
    num_drafts: int


class MultiStepReport(NamedTuple):
    """The tokens of several steps together; of each row."""

    token_ids: list[list[int]]
    num_drafted: list[int]
    """Draft tokens that were verified behind the first step."""
    steps: list[StepTaken]


class MultiStep(Protocol):
    """Computes steps, with draft tokens and without, behind one whose rows choose their likeliest tokens."""

    max_rows: int
    """Of a step that others may follow."""

    def begin(self, tables: DraftTables) -> None:
        """Draft by these from now on."""
        ...

    def order(self, order: MultiStepOrder) -> None:
        """Follow the next step by others if its tokens are chosen within the call that computes it."""
        ...

    def report(self) -> MultiStepReport | None:
        """Return what was said, the first step's tokens included, once; None where no step followed the last one."""
        ...
