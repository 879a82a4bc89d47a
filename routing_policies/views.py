"""Inputs of a decision: a frozen view of the deployments at one instant."""

from __future__ import annotations

from typing import Final

import msgspec


class DeploymentView(msgspec.Struct, frozen=True, gc=False):
    """One candidate at one instant, for one request.

    Code that makes many passes the fields in order, because passing them by name takes eight times as long.
    """

    id: str
    model: str
    is_ready: bool
    """True by the deployment's last probe."""
    is_ejected: bool = False
    """True if ejected for recent failures, whatever its probe reports."""
    in_flight: int = 0
    max_in_flight: int = 64
    weight: float = 1.0
    """Configured weight, relative to the other candidates of the route."""
    forecast_ttft_s: float | None = None
    """Forecast seconds of waiting for a permit, the engine's queue and prefill; None where it was not computed."""
    tpot_s: float | None = None
    """Seconds per token beside the running rows."""
    cost: float | None = None
    """Cost of this request in the operator's currency; None without a price."""
    quality: float = 1.0
    """Quality in [0, 1], higher is better: predicted for this request, else the deployment's constant."""
    is_known_prompt: bool = True
    """True if the prediction's training data had prompts like this one; otherwise the prediction is unreliable."""
    affinity_tokens: int = 0
    """Prompt tokens whose keys and values this replica probably holds; the forecast already accounts for them."""
    prompt_tokens: int = 0
    """Prompt tokens of this request; `affinity_tokens` is a part of them."""
    zone: str | None = None
    is_same_session: bool = False
    """True if the session's last request was answered here."""
    distance: int = 0
    """Place of its zone, from near to far by measured round trips; 0 for the zone to use first."""

    @property
    def is_full(self) -> bool:
        """True if every permit is in use."""
        return self.in_flight >= self.max_in_flight

    @property
    def load_ratio(self) -> float:
        """Permits in use over the limit; above 1 after the limit was lowered."""
        return self.in_flight / self.max_in_flight


class Attempt(msgspec.Struct, frozen=True):
    """Inputs of one attempt: the first, or one after others failed."""

    already_tried: frozenset[str] = frozenset()
    avoid: frozenset[str] = frozenset()
    """Candidates that would be too late; used only when no other is left."""
    ttft_slo_s: float | None = None
    """Seconds from now within which the first token is due; None without a target."""
    tpot_slo_s: float | None = None
    zone: str | None = None
    """Zone of this gateway."""
    key: int | None = None
    """Hash of the conversation or tenant, equal in every process; None where the policy does not use it."""


FIRST_ATTEMPT: Final = Attempt()
"""Attempt without earlier ones and without targets."""
