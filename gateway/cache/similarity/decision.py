"""Decision: the probability that a cache entry's answer is right for another wording, and the least that is served.

similarity, runner-up ─┐
differences ───────────┴─▶ trees ─▶ calibration ─▶ pooled ─────────┐
                                             the entry's own record ┴─▶ probability ≥ threshold(max_error_ratio)?
"""

from __future__ import annotations

import bisect
import math
from importlib import resources
from typing import Final

import msgspec

from gateway.cache.similarity.differences import Differences, compare_wordings
from gateway.cache.similarity.language import UNGUARDED
from gateway.cache.similarity.respelling import respelled
from gateway.cache.similarity.vetoes import Veto
from gateway.cache.similarity.wording import Wording, in_one_language
from routing_policies.estimation.boosted_trees import BoostedTree, logistic, sum_of_trees

FEATURES: Final = ("similarity", "margin", *(name for name in Differences.__struct_fields__ if name != "veto"))
"""The inputs of the trees, in their order."""
MIN_COMPARED: Final = 0.5
"""Least similarity of texts that are compared at all; slips of the hand lower it far."""
SAME_WORDS: Final = 0.99
"""Match probability of a text in the same words, whatever its punctuation: it needs no estimate."""
SAME_BUT_SLIPS: Final = 0.97
"""Match probability of a text in the same words, some of them misspelt."""
NEVER: Final = 1.01
"""A threshold that nothing reaches."""
_SHIPPED: Final = "decision.json"


class EntryAudits(msgspec.Struct, frozen=True, gc=False):
    """Audits of one entry's answer when it was given to others, each weighted by what it stands for."""

    num_right: float = 0.0
    num_wrong: float = 0.0


class Threshold(msgspec.Struct, frozen=True, array_like=True):
    """The least match probability that keeps the error below a bound."""

    max_error_ratio: float
    match_probability: float


class Calibration(msgspec.Struct, frozen=True):
    """A map from the trees' log odds to a probability: the sigmoid of `slope` × log odds + `shift` (Platt, 1999)."""

    slope: float = 1.0
    shift: float = 0.0


class Coefficients(msgspec.Struct, frozen=True, kw_only=True):
    """All that is fitted, and where it comes from."""

    origin: str
    """The data, how many of what; no text of it is kept."""
    encoder: str
    """The id of the encoder whose similarities these are."""
    features: tuple[str, ...]
    min_similarity: float
    """The least similarity that was fitted and is served."""
    bias: float
    trees: tuple[BoostedTree, ...]
    calibration: Calibration
    strength: float
    """The weight of an entry's pooled probability against its own record, in audits."""
    thresholds: tuple[Threshold, ...]
    """Thresholds by growing bound, so with falling probabilities."""


class MatchModel:
    """A model of the probability that a cached answer is right.

    Pure: no clock, no random source, no I/O; about 0.2 ms.
    """

    __slots__ = ("_coefficients", "_without", "calibration")

    def __init__(
        self,
        coefficients: Coefficients,
        calibration: Calibration | None = None,
        *,
        without: frozenset[Veto] = frozenset(),
    ) -> None:
        """Create a model; `without` leaves out vetoes, which only measurements do."""
        if coefficients.features != FEATURES:
            raise ValueError(f"coefficients of other features: {coefficients.features}; fit them again")
        self._coefficients = coefficients
        self._without = without
        self.calibration = calibration or coefficients.calibration

    @classmethod
    def shipped(cls, *, without: frozenset[Veto] = frozenset()) -> MatchModel:
        """Create a model with the coefficients of the package; reads one file."""
        data = resources.files("gateway.cache").joinpath("data", _SHIPPED).read_bytes()
        return cls(msgspec.json.decode(data, type=Coefficients), without=without)

    @property
    def coefficients(self) -> Coefficients:
        """Return what the model was fitted to."""
        return self._coefficients

    def with_calibration(self, calibration: Calibration) -> MatchModel:
        """Return the model recalibrated, such as for one tenant and route."""
        return MatchModel(self._coefficients, calibration, without=self._without)

    def match_probability(
        self, prompt: str, cached: str, *, similarity: float, runner_up: float | None, track: EntryAudits | None
    ) -> float:
        """Return the calibrated probability that the answer to `cached` is right for `prompt`; 0 under a veto.

        Args:
            prompt: The text of the request.
            cached: The text whose answer is cached.
            similarity: Their cosine.
            runner_up: Cosine of the next neighbour.
            track: Audits of the cache entry.
        """
        return self.probability_of(Wording.of(prompt), Wording.of(cached), similarity, runner_up, track)

    def probability_of(
        self,
        prompt: Wording,
        cached: Wording,
        similarity: float,
        runner_up: float | None,
        track: EntryAudits | None = None,
    ) -> float:
        """Return `match_probability` for texts that are taken apart already."""
        if not similarity >= MIN_COMPARED:
            return 0.0
        prompt, cached = in_one_language(prompt, cached)
        spelled = respelled(prompt, cached)
        found = compare_wordings(spelled, cached, self._without)
        if found.veto is not None:
            return 0.0
        known = same_words(prompt, spelled, cached)
        if known is not None:
            return self._with_record(known, track)
        if similarity < self._coefficients.min_similarity:
            return 0.0
        pooled = logistic(self._calibrated(row_of(found, similarity, runner_up)))
        return self._with_record(pooled if cached.language != UNGUARDED else _strict(pooled), track)

    def threshold(self, max_error_ratio: float, *, tightening: float = 0.0) -> float:
        """Return the least probability to serve; `tightening` in [0, 1] is a share of the way to serving nothing.

        Between fitted bounds the threshold is read off a line over the bound's logarithm; below the least of them
        nothing is served.
        """
        thresholds = self._coefficients.thresholds
        if not thresholds or max_error_ratio < thresholds[0].max_error_ratio:
            return NEVER
        match_probability = _between(thresholds, max_error_ratio)
        return match_probability + (1.0 - match_probability) * tightening if tightening < 1.0 else NEVER

    def _calibrated(self, row: list[float]) -> float:
        log_odds = self._coefficients.bias + sum_of_trees(self._coefficients.trees, row)
        return self.calibration.slope * log_odds + self.calibration.shift

    def _with_record(self, pooled: float, track: EntryAudits | None) -> float:
        """Return the mean of a beta distribution: the pooled probability as prior, the record as what was seen."""
        if track is None:
            return pooled
        strength = self._coefficients.strength
        return (pooled * strength + track.num_right) / (strength + track.num_right + track.num_wrong)


def same_words(prompt: Wording, spelled: Wording, cached: Wording) -> float | None:
    """Return the match probability of texts in the same words, `spelled` being the prompt respelled; else None."""
    if not cached.text or spelled.text != cached.text:
        return None
    return SAME_WORDS if spelled is prompt else SAME_BUT_SLIPS


def _strict(match_probability: float) -> float:
    """Return a probability that reaches a threshold only from half-way between that threshold and 1."""
    return max(0.0, 2 * match_probability - 1)


def row_of(found: Differences, similarity: float, runner_up: float | None) -> list[float]:
    """Return what the trees see of a pair, in the order of FEATURES."""
    margin = similarity if runner_up is None else similarity - runner_up
    return [similarity, margin, *(float(getattr(found, name)) for name in FEATURES[2:])]


def _between(thresholds: tuple[Threshold, ...], max_error_ratio: float) -> float:
    at = bisect.bisect_left(thresholds, max_error_ratio, key=lambda threshold: threshold.max_error_ratio)
    if at == len(thresholds):
        return thresholds[-1].match_probability
    above = thresholds[at]
    if above.max_error_ratio == max_error_ratio:
        return above.match_probability
    below = thresholds[at - 1]
    whole = math.log(above.max_error_ratio / below.max_error_ratio)
    share = math.log(max_error_ratio / below.max_error_ratio) / whole
    return below.match_probability + (above.match_probability - below.match_probability) * share
