"""Select: the choice among a route's candidates, with what each way of choosing needs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from routing_policies.policy.values import (
    Concurrency,
    DocumentPart,
    ExploreRatio,
    HedgeRatio,
    Id,
    Money,
    Ratio,
    ScorerName,
    SelectPolicy,
    StickyBy,
    Weight,
)


class Candidate(DocumentPart, frozen=True, kw_only=True):
    """A deployment that a route may choose; written as its bare id when the weight is 1."""

    id: Id
    weight: Weight = 1.0


class Hedge(DocumentPart, frozen=True, kw_only=True):
    """A second attempt at another deployment when the first is slower than usual; the answer that begins first wins."""

    max_ratio: HedgeRatio = 0.02
    """Share of the route's requests that may get a second attempt."""
    max_load_ratio: Ratio = 0.5
    """Share of either deployment's permits in use above which no second attempt starts."""


class Canary(DocumentPart, frozen=True, kw_only=True):
    """The candidate that takes a share of the conversations; they stay with it as long as the ratio does not fall."""

    id: Id
    ratio: Ratio = 0.05


class Cascade(DocumentPart, frozen=True, kw_only=True):
    """The first candidate answers, and hands over to the second when its first tokens are not confident enough."""

    first_tokens: Annotated[int, Meta(ge=1, le=64)] = 16
    """Number of tokens after which the hand-over is decided, mostly after fewer."""
    skip_below: Ratio = 0.3
    """Predicted quality, from the prompt alone, below which the first candidate is skipped."""
    calibrate: bool = True
    """Whether labels of the first candidate's answers may move the confidence that `min_quality` stands for."""


class Shadow(DocumentPart, frozen=True, kw_only=True):
    """A deployment that repeats some requests after their answers, while it is idle.

    Its answers are compared, never sent.
    """

    id: Id
    ratio: Ratio = 0.02
    max_in_flight: Concurrency = 2


class Explore(DocumentPart, frozen=True, kw_only=True):
    """A share of the requests that go to a candidate at random, so that records can evaluate policies never tried.

    Only candidates that pass every filter, have a free permit and hold the prompt's context are drawn.
    """

    ratio: ExploreRatio = 0.02
    """Share of the requests that are drawn; a drawn request may still get the candidate that the policy prefers."""
    weights: dict[Id, Weight] = msgspec.field(default_factory=dict)
    """Weight of a candidate in the draw, relative to the others; 1 where it is not named."""
    sessions: bool = False
    """True to draw also requests that are bound to a deployment by their conversation or by its cached prefix."""


class Select(DocumentPart, frozen=True, kw_only=True):
    """Choice among a route's candidates."""

    candidates: Annotated[tuple[Id | Candidate, ...], Meta(min_length=1)]
    policy: SelectPolicy = "first_available"
    """Rule of the choice.

    - `first_available`: the first in the order written.
    - `weighted`: at random by weight.
    - `least_in_flight`: the one with the largest share of free permits.
    - `latency_first`: the one with the earliest first token.
    - `least_cost_within_slo`: the cheapest that is forecast to meet the lane's targets, else the fastest.
    - `scored`: the best by `weights`.
    - `quality_then_latency`: the cheapest that is forecast to meet the targets and reaches `min_quality`.
    - `cost_cap`: the best whose price for this request is within `max_request_cost`, else the cheapest.
    - `nearest_first`: the emptiest in the nearest `zone` by measured round trip that can serve.
    - `sticky`: the same for all requests of a conversation, or of a tenant.
    - `canary`: one candidate for a share of the conversations, the others in the order written.
    - `cascade`: the first of two, and the second where the first one's own tokens predict less than `min_quality`.
    """
    weights: dict[ScorerName, Weight] = msgspec.field(default_factory=dict)
    """Weight of each scorer, with policy `scored`."""
    min_quality: Ratio | None = None
    """Least probability that an answer is good enough, with policies `quality_then_latency` and `cascade`."""
    kind: Annotated[str, Meta(max_length=64)] = ""
    """Kind of work of this route's prompts, as named in the predictor's training data.

    It applies to policies `quality_then_latency` and `cascade`, and to predictors that use the embedding.
    """
    max_request_cost: Money | None = None
    """Largest price of a request in the currency of `cost_per_mtok`, with policy `cost_cap`."""
    sticky_by: StickyBy | None = None
    """Unit that stays at one candidate, with policy `sticky`; None means conversations."""
    canary: Canary | None = None
    cascade: Cascade | None = None
    shadow: Shadow | None = None
    explore: Explore | None = None
    fallback: tuple[Id, ...] = ()
    """Routes or deployments to try, in this order, when no candidate can serve."""
    hedge: Hedge | None = None

    def __post_init__(self) -> None:
        if (self.policy == "scored") != bool(self.weights):
            raise ValueError("policy scored and weights belong together: the one chooses by the other")
        if (self.policy in ("quality_then_latency", "cascade")) != (self.min_quality is not None):
            raise ValueError("min_quality belongs to the policies quality_then_latency and cascade, which choose by it")
        if self.kind and self.min_quality is None:
            raise ValueError("kind belongs to the policies quality_then_latency and cascade, which predict by it")
        if self.cascade is not None and self.policy != "cascade":
            raise ValueError("cascade has an effect with policy cascade only")
        self._check("cost_cap", "max_request_cost")
        self._check("canary", "canary")
        if self.sticky_by is not None and self.policy != "sticky":
            raise ValueError("sticky_by has an effect with policy sticky only")

    def _check(self, policy: SelectPolicy, setting: str) -> None:
        if (self.policy == policy) != (getattr(self, setting) is not None):
            raise ValueError(f"policy {policy} and {setting} belong together: the one chooses by the other")

    def resolved(self) -> tuple[Candidate, ...]:
        """Return the candidates in the order written, bare ids with weight 1."""
        return tuple(Candidate(id=item) if isinstance(item, str) else item for item in self.candidates)
