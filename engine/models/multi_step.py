"""Interface between the speculation controller and a model that computes several steps in one call."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

Numbers = npt.NDArray[Any]
NUM_REACHED = 48
"""Number of tokens for which a sequence requests blocks where steps may follow one another."""


class DraftTables(NamedTuple):
    """Sources of draft tokens and how often they were right; read and written in place."""

    memory: tuple[Numbers, Numbers]
    """int64 keys and values: n-grams of earlier answers, in the format of `engine.cpu.multi_step.ngram`."""
    trials: Numbers
    """TRIALS records (`engine.cpu.multi_step.draft_records`), one of each kind of draft token."""
    acceptance_rates: Numbers
    """float64 [kinds]: acceptance rate of each kind."""
    kinds: Numbers
    """int64: kinds of the draft tokens of lookup, in lookup's order."""
    decay: float
    """Factor on the weight of older trials at each new one."""
    head_kind: int
    """First kind of the heads' predictions where tokens are chosen greedily."""


class MultiStepOrder(NamedTuple):
    """Permission and inputs for the steps behind the first; row i of an array belongs to sequence i of the step."""

    rows: Numbers
    """DRAFT_ROW records [N] (`engine.cpu.multi_step.draft_records`)."""
    stops: Numbers
    """int64: tokens that end each sequence's text, sequence after sequence."""
    found: tuple[Numbers, Numbers, Numbers]
    """Tokens and kinds of the step's draft tokens, int64 [N, most], and DRAFT_END records; overwritten by each step."""
    lengths: list[int]
    """Length of each text, in tokens."""
    ends_at: list[int]
    """Maximum length of each text, in tokens."""
    drafts_until: list[int]
    """Length of each text up to which draft tokens are made for it."""
    costs: tuple[float, float, float, float]
    """Seconds of a step without drafts, more with some, more for each, and the least gain that is worth it."""
    max_steps: int
    """Maximum number of steps, the first one included."""
    max_seconds: float
    """Seconds since the end of the first step after which no further step begins."""
    is_speculative: bool = True
    """True if draft tokens are made; otherwise each step computes one token of each sequence."""


class StepTaken(NamedTuple):
    """The time and the draft tokens of one of several steps."""

    seconds: float
    num_drafts: int


class MultiStepReport(NamedTuple):
    """Output of several steps together, sequence by sequence."""

    token_ids: list[list[int]]
    num_drafted: list[int]
    """Number of draft tokens of each sequence that were verified behind the first step."""
    steps: list[StepTaken]
    predicted: list[tuple[int, int]]
    """Accepted and verified draft tokens of each sequence's prediction, the first step's included."""


class MultiStep(Protocol):
    """Computation of steps, with draft tokens and without, behind a step whose sequences are chosen greedily."""

    max_num_seqs: int
    """Maximum number of sequences of a step that others may follow."""

    def begin(self, tables: DraftTables) -> None:
        """Take draft tokens from these tables from now on."""
        ...

    def order(self, order: MultiStepOrder) -> None:
        """Request further steps behind the next step, provided that its call also chooses its tokens."""
        ...

    def report(self) -> MultiStepReport | None:
        """Return the output of all steps, the first one included, once; None where no step followed the last one."""
        ...
