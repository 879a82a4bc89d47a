"""CascadeThreshold: the confidence from which a small model's answer goes on, proven by labels of its answers.

A label is a confidence, and whether the small model's answer was as good as the large one's. Answers that were handed
over count too, once they were compared. Ten candidates divide the labels by confidence. The threshold is the lowest one
above which the share of good answers is proven to reach the stated quality.

    confidence    0 ────────────┼───────────────── 1
    labels          x x . x x x │ . . x . . . . . .          . good   x lost
                     hand over  │ go on: lower bound of the share of good answers >= min_quality

The bounds are confidence sequences, which may be examined with every new label. Each of the ten candidates has a tenth
of the error probability.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from routing_policies.estimation.confidence import ratio_bounds

MIN_LABELS: Final = 60
"""Labels below which the default stays in force."""
ERROR_PROBABILITY: Final = 0.1
"""Probability that a proven threshold does not keep the stated quality."""
NEVER: Final = 1.01
"""Threshold above every confidence: the large model answers."""
_NUM_CANDIDATES: Final = 10
_ALPHA: Final = ERROR_PROBABILITY / _NUM_CANDIDATES
_LEAST_CHANGE: Final = 0.01
"""Difference of thresholds below which the one in force stays."""
_MAX_WANTED: Final = 256

ThresholdState = Literal["default", "proven", "refuted"]
"""Origin of a threshold.

- `default`: `min_quality` itself, because the labels are too few or prove nothing.
- `proven`: the labels prove that the answers above it are good enough.
- `refuted`: they prove that those above the default are not. The lowest candidate whose answers were good enough so far
  is in force, or none.
"""


class AnswerLabel(NamedTuple):
    """One answer of the small model."""

    confidence: float
    is_good: bool


class CascadeThreshold(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold and what it rests on."""

    state: ThresholdState
    confidence: float
    num_labels: int
    """Labels that were considered."""
    num_above: int = 0
    """Labels at or above the threshold."""
    num_good: int = 0
    """Good ones among them."""
    since: float = 0.0
    """Time of the last change, in seconds since 1970; 0 without one."""

    @property
    def share_low(self) -> float:
        """Return the lower bound of the share of good answers above the threshold."""
        return ratio_bounds(self.num_good, self.num_above, _ALPHA).low


def threshold_of(labels: Sequence[AnswerLabel], min_quality: float) -> CascadeThreshold:
    """Return the threshold that the labels of one pair give; the default one is `min_quality`."""
    ordered = sorted(labels, reverse=True)
    default = _at(ordered, min_quality, "default")
    if len(ordered) < MIN_LABELS:
        return default
    candidates = [_at(ordered, confidence, "proven") for confidence in _candidates(ordered)]
    for candidate in candidates:  # from the lowest
        if candidate.share_low >= min_quality:
            return candidate
    if default.num_above and ratio_bounds(default.num_good, default.num_above, _ALPHA).high < min_quality:
        return _refuted(candidates, default, min_quality)
    return default


def _candidates(ordered: Sequence[AnswerLabel]) -> list[float]:
    """Return the confidences that divide the labels into equal parts, lowest first."""
    last = len(ordered) - 1
    places = [last - last * number // _NUM_CANDIDATES for number in range(_NUM_CANDIDATES)]
    return sorted({ordered[place].confidence for place in places})


def _at(ordered: Sequence[AnswerLabel], confidence: float, state: ThresholdState) -> CascadeThreshold:
    above = [label.is_good for label in ordered if label.confidence >= confidence]
    return CascadeThreshold(
        state=state, confidence=confidence, num_labels=len(ordered), num_above=len(above), num_good=sum(above)
    )


def _refuted(candidates: Sequence[CascadeThreshold], default: CascadeThreshold, min_quality: float) -> CascadeThreshold:
    for candidate in candidates:
        if candidate.confidence > default.confidence and candidate.num_good >= min_quality * candidate.num_above:
            return msgspec.structs.replace(candidate, state="refuted")
    return CascadeThreshold(state="refuted", confidence=NEVER, num_labels=default.num_labels)


class CascadeThresholds:
    """Thresholds in force by pair of models and stated quality; routes read them, the learner replaces them."""

    __slots__ = ("_in_force",)

    def __init__(self) -> None:
        """Start with defaults."""
        self._in_force: dict[tuple[tuple[str, str], float], CascadeThreshold] = {}

    def __iter__(self) -> Iterator[tuple[tuple[str, str], float, CascadeThreshold]]:
        return iter([(pair, min_quality, found) for (pair, min_quality), found in self._in_force.items()])

    def want(self, pair: tuple[str, str], min_quality: float) -> None:
        """Have a threshold for a route from now on."""
        if (pair, min_quality) not in self._in_force and len(self._in_force) < _MAX_WANTED:
            self._in_force[pair, min_quality] = threshold_of((), min_quality)

    def confidence(self, pair: tuple[str, str], min_quality: float) -> float:
        """Return the confidence from which an answer goes on."""
        found = self._in_force.get((pair, min_quality))
        return min_quality if found is None else found.confidence

    def qualities(self, pair: tuple[str, str]) -> list[float]:
        """Return the stated qualities that routes want of a pair."""
        return [min_quality for known, min_quality in self._in_force if known == pair]

    def update(
        self, pair: tuple[str, str], found: Mapping[float, CascadeThreshold], now: float
    ) -> list[tuple[float, CascadeThreshold]]:
        """Put new thresholds of a pair in force, by quality; return those that differ, with their qualities.

        A small difference leaves the confidence in force unchanged.
        """
        changed = []
        for min_quality, threshold in found.items():
            before = self._in_force[pair, min_quality]
            if threshold.state != before.state or abs(threshold.confidence - before.confidence) >= _LEAST_CHANGE:
                after = msgspec.structs.replace(threshold, since=now)
                changed.append((min_quality, after))
            else:
                after = msgspec.structs.replace(threshold, confidence=before.confidence, since=before.since)
            self._in_force[pair, min_quality] = after
        return changed
