"""ReplayReport: how a replayed answer compares with its record, and which changes change it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from gateway.replay.answer_text import Difference
from gateway.telemetry.records.model_state import NOTHING_STATED, ModelState

Factor = Literal["trimming", "cache", "routing", "policy", "quantization", "model", "engine", "prompt"]
FACTORS: Final[tuple[Factor, ...]] = (
    *("trimming", "cache", "routing", "policy", "quantization", "model", "engine", "prompt"),
)
"""Factors in the order in which they are changed."""
FactorVerdict = Literal["same", "no_effect", "changes", "unknown"]
"""`same`: it is as it was. `no_effect`: it differs, and the text does not. `unknown`: it cannot be compared."""
Compared = Literal["deployment", "origin", "stored", "nothing"]
"""What the record was compared with.

- `deployment`: a new answer of the recorded deployment.
- `origin`: a new answer to the request that made the cached response.
- `stored`: the cached response as the cache has it now.
- `nothing`: none of these is there.
"""


class FactorReport(msgspec.Struct, frozen=True, kw_only=True):
    """One factor then and now, and whether its change alone, behind the earlier ones, changes the text."""

    factor: Factor
    then: str
    now: str
    verdict: FactorVerdict
    note: str = ""
    difference: Difference | None = None


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """A replay of one recorded answer."""

    id: str
    at: float
    """Time of the record, in seconds since 1970."""
    model: str
    route: str
    policy: str
    deployment: str
    cache: str
    seed: int | None
    num_bytes: int
    """Bytes of the recorded text."""
    state: ModelState = NOTHING_STATED
    """Model of the recorded answer."""
    compared: Compared
    replayed_by: str = ""
    """Deployment that gave the new answer."""
    state_now: ModelState = NOTHING_STATED
    is_equal: bool | None
    """True if both texts have the same bytes; None where they cannot be compared."""
    difference: Difference | None = None
    summary: str
    factors: tuple[FactorReport, ...] = ()
    """Factors in their order; empty without a search."""
    first: Factor | None = None
    """First factor whose change changes the text."""
    also: tuple[Factor, ...] = ()
    """Later factors whose changes change it too."""
