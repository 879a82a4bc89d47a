"""Finding for an encoder that is too slow: cache hits come late or are lost.

A lookup either delays the answer or races the deployment:

    lookup waits for the vector      encode ────────▶ search ▶ hit          late by the encoder
    lookup beside the deployment     encode ────────────────▶ search ▶ …
                                     deployment ─────▶ first token          the hit is lost: `late`
    no lookup, as it would be late   deployment ─────▶ first token          the hit is lost: `skipped`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from gateway.diagnosis.finding import Finding, FindingEvidence
from gateway.diagnosis.late import GREW, LEAST_S, MIN_BASELINE, MIN_REQUESTS, is_late
from gateway.diagnosis.policy_lines import PolicyLines
from gateway.diagnosis.window import Window

_LOST: Final = ("late", "no_vector", "skipped")
_LOOKUP_STAGES: Final = ("similar", "unguarded", "alone", "doubtful", "closed", "failed", *_LOST)
_LOST_RATIO: Final = 0.1
"""Share of lookups by which late ones must grow and hits must fall before hits count as lost."""
_ITS_PART: Final = 0.5
"""Share of the hits' delay that the encoder must account for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookups:
    """Semantic cache lookups by outcome."""

    num: float
    num_hits: float
    num_lost: float

    @classmethod
    def of(cls, counted: Callable[..., float]) -> Self:
        """Return the lookups inside the window or before it, depending on `counted`."""
        by_reason = {reason: counted("penstock_cache_lookups_total", reason=reason) for reason in _LOOKUP_STAGES}
        return cls(
            num=sum(by_reason.values()),
            num_hits=by_reason["similar"] + by_reason["unguarded"],
            num_lost=sum(by_reason[reason] for reason in _LOST),
        )

    @property
    def hit_ratio(self) -> float:
        """Share of lookups that hit; 0 without lookups."""
        return self.num_hits / self.num if self.num else 0.0

    @property
    def lost_ratio(self) -> float:
        """Share of lookups that were or would have been late, or that had no vector; 0 without lookups."""
        return self.num_lost / self.num if self.num else 0.0


def find_slow_encoder(window: Window, place: PolicyLines) -> Finding | None:
    """Return the finding for a slow encoder, or None where the encoder is not the cause."""
    now, before = Lookups.of(window.counted), Lookups.of(window.counted_before)
    hits, hits_before = (
        spread("penstock_ttft_seconds", cache="hit_semantic") for spread in (window.spread, window.spread_before)
    )
    embed, embed_before = (
        spread("penstock_stage_seconds", stage="embed") for spread in (window.spread, window.spread_before)
    )
    by_hits_s, by_encoder_s = hits.mean - hits_before.mean, embed.mean - embed_before.mean
    are_late = is_late(hits, hits_before, None, LEAST_S) and by_encoder_s >= _ITS_PART * by_hits_s
    # Faster deployments win cache races too. A vector that comes after the whole answer leaves no timing.
    is_slower = embed.mean > GREW * embed_before.mean or embed.count < now.num_lost / 2
    if not (are_late or (is_slower and _are_lost(now, before))):
        return None
    late = FindingEvidence("first token of similar answers, mean", hits.mean, hits_before.mean, "baseline")
    return Finding(
        stage="preprocessing",
        cause="encoder",
        summary="Turning prompts into vectors takes so long that similar answers come late, or not at all.",
        evidence=(
            FindingEvidence("encoder, mean", embed.mean, embed_before.mean, "baseline"),
            FindingEvidence("lookups that came too late", now.lost_ratio, before.lost_ratio, "baseline", "ratio"),
            FindingEvidence("lookups with a similar answer", now.hit_ratio, before.hit_ratio, "baseline", "ratio"),
            *((late,) if hits.count else ()),
        ),
        lever="Give the encoder a core, or take the semantic tier off the routes that gain least from it.",
        policy_path=place.route_path("cache.mode"),
    )


def _are_lost(now: Lookups, before: Lookups) -> bool:
    are_enough = now.num >= MIN_REQUESTS and before.num >= MIN_BASELINE
    are_more = now.lost_ratio - before.lost_ratio >= _LOST_RATIO
    return are_enough and are_more and before.hit_ratio - now.hit_ratio >= _LOST_RATIO
