"""What a decision may look at: one moment's state of the deployments, frozen."""

from __future__ import annotations

from typing import Final

import msgspec


class DeploymentView(msgspec.Struct, frozen=True, gc=False):
    """One candidate as it is now, for one request. Where it is made for each of them its fields are given in order: by
    name they take eight times as long."""

    id: str
    model: str
    is_ready: bool
    """It said so itself when last probed."""
    is_ejected: bool = False
    """Taken out for its recent failures, whatever it says."""
    in_flight: int = 0
    max_in_flight: int = 64
    weight: float = 1.0
    """Configured share, relative to the other candidates of the route."""
    forecast_ttft_s: float | None = None
    """Wait for a permit, queue in the engine and prefill, for this request; None where nobody worked it out."""
    tpot_s: float | None = None
    """Seconds a token beside the rows that run now."""
    cost: float | None = None
    """Of this request, in the operator's currency; None where the policy gives no price."""
    quality: float = 1.0
    """In [0, 1], higher is better: what is predicted of this request, else a constant of the deployment."""
    is_known_prompt: bool = True
    """False: nothing like this prompt was seen when the prediction was learned, so it is not to be relied on."""
    affinity_tokens: int = 0
    """Prompt tokens whose keys and values this replica probably holds; the forecast has them subtracted already."""
    prompt_tokens: int = 0
    """Of this request; what `affinity_tokens` is a part of."""
    zone: str | None = None
    is_same_session: bool = False
    """The last request of this session was answered here."""

    @property
    def is_full(self) -> bool:
        """Whether every permit is taken."""
        return self.in_flight >= self.max_in_flight

    @property
    def load_ratio(self) -> float:
        """Permits taken over permits there are; above 1 after a limit was lowered."""
        return self.in_flight / self.max_in_flight


class Attempt(msgspec.Struct, frozen=True):
    """What the decision is for: the first try, or one after others failed."""

    already_tried: frozenset[str] = frozenset()
    avoid: frozenset[str] = frozenset()
    """Those that would answer too late; to be asked only when nobody else is left."""
    ttft_slo_s: float | None = None
    """Seconds from now within which the first token is wanted; None: no target."""
    tpot_slo_s: float | None = None
    zone: str | None = None
    """Where this gateway runs."""
    key: int | None = None
    """Tells the conversation or the tenant apart, the same in every process; None where nothing depends on it."""


FIRST_ATTEMPT: Final = Attempt()
"""Nobody was tried, nothing is demanded."""
