"""Forecast of a step's duration by linear models fitted online. Pure; durations are arguments."""

from __future__ import annotations

from dataclasses import dataclass

from engine.forecast.linear_fit import LinearFit
from engine.protocol import StepTimeTerms

_NUM_TERMS = 6
_DECODE_TERMS = (0, 1, 3)
"""Indices of the terms that a step without prompts can have."""
_SURPRISE = 1.5
"""Ratio of measured to predicted time above which a step with prompts is learned at once."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """Properties of a step that determine its duration."""

    num_decode_seqs: int
    """Number of sequences with one token."""
    num_prefill_tokens: int
    """Number of tokens of all other sequences."""
    num_context_tokens: int
    """Number of attended positions, summed over sequences."""
    num_attended_pairs: int = 0
    """Number of chunk tokens times the positions of their sequence, summed over chunks: attention's work."""
    num_chunks: int = 0
    """Number of sequences with several tokens."""


class StepTimeModel:
    """Linear model of a step's duration with terms that are never negative.

    The duration is base + a·decode sequences + b·prefill tokens + c·context tokens + d·pairs + e·chunks.

    Errors count relative to the step's duration, so that short steps are fitted as well as long ones. Old steps fade by
    `decay` per step. Those with prompts fade by its square, but only when another step with prompts comes, so that the
    cost of chunks stays known. A step far longer than predicted (a hiccup of the machine) counts as at most
    `outlier_ratio` times the prediction.

    Decode-only steps are predicted from a fit of their own as long as enough of them are fresh. Chunks are measured
    against them, and one line through all steps is off by a tenth there.
    """

    def __init__(
        self, *, decay: float = 0.995, min_steps: int = 8, outlier_ratio: float = 4.0, refit_every: int = 8
    ) -> None:
        self._decay = decay
        self._min_steps = min_steps
        self._outlier_ratio = outlier_ratio
        self._refit_every = refit_every
        self._prompt_steps = LinearFit(_NUM_TERMS)
        self._decode_fit = LinearFit(len(_DECODE_TERMS))
        self._fit = LinearFit(_NUM_TERMS)
        self._knows_decode = False
        self._num_steps = 0

    @property
    def is_fitted(self) -> bool:
        """True once enough steps were observed for `predict` to be meaningful."""
        return self._num_steps >= self._min_steps

    def observe(self, shape: StepShape, seconds: float) -> None:
        """Add one step."""
        predicted = self.predict(shape)
        if predicted > 0.0:
            seconds = min(seconds, self._outlier_ratio * predicted)
        unit_s = max(predicted, 0.25 * seconds, _TINY_S)
        features = [feature / unit_s for feature in _features(shape)]
        target = seconds / unit_s
        self._decode_fit.fade(self._decay)
        is_surprise = False
        if shape.num_prefill_tokens:
            self._prompt_steps.fade(self._decay**2)
            self._prompt_steps.observe(features, target)
            # The next chunk would exceed its target by as much.
            is_surprise = self.is_fitted and seconds > _SURPRISE * predicted
        else:
            self._decode_fit.observe([features[term] for term in _DECODE_TERMS], target)
        self._num_steps += 1
        if is_surprise or self._num_steps == self._min_steps or self._num_steps % self._refit_every == 0:
            self._solve()

    def fit(self) -> None:
        """Fit to all steps so far, however few."""
        if self._num_steps:
            self._solve()
            self._num_steps = max(self._num_steps, self._min_steps)

    def predict(self, shape: StepShape) -> float:
        """Return the expected seconds of a step; 0 until fitted."""
        features = _features(shape)
        if self._knows_decode and not shape.num_prefill_tokens and not shape.num_chunks:
            return self._decode_fit.predict([features[term] for term in _DECODE_TERMS])
        return self._fit.predict(features)

    def terms(self) -> StepTimeTerms | None:
        """Return the coefficients in seconds per unit of each feature; None until fitted."""
        if not self.is_fitted:
            return None
        fixed, row, prefill_token, kv_token, pair, chunk = (
            term / scale for term, scale in zip(self._fit.terms, _SCALES, strict=True)
        )
        return StepTimeTerms(
            fixed_s=fixed, row_s=row, prefill_token_s=prefill_token, kv_token_s=kv_token, pair_s=pair, chunk_s=chunk
        )

    def largest_chunk(
        self, target_s: float, num_decode_seqs: int, num_context_tokens: int, num_prefill_context: int = 0
    ) -> int | None:
        """Return the largest number of prefill tokens beside the decoding sequences in a step of at most `target_s`.

        Args:
            target_s: Limit of the step's duration.
            num_decode_seqs: Decoding sequences in the step.
            num_context_tokens: Attended positions of all sequences, the one with the chunk included.
            num_prefill_context: Positions that the chunk attends to.

        Returns:
            The number of tokens; None if no bound is known.
        """
        per_token = self._fit.terms[2] / _SCALES[2] + self._fit.terms[4] / _SCALES[4] * num_prefill_context
        if not self.is_fitted or per_token <= 0.0:
            return None
        without = self.predict(StepShape(num_decode_seqs, 0, num_context_tokens, num_chunks=1))
        return max(0, int((target_s - without) / per_token))

    def _solve(self) -> None:
        self._fit = self._prompt_steps.plus(self._decode_fit, _DECODE_TERMS)
        self._fit.solve()
        self._knows_decode = self._decode_fit.weight >= self._min_steps
        if self._knows_decode:
            self._decode_fit.solve()


# Features are scaled to about 1, so that one ridge suits all of them.
_SCALES = (1.0, 16.0, 256.0, 4096.0, 1048576.0, 1.0)
_TINY_S = 1e-6


def _features(shape: StepShape) -> tuple[float, ...]:
    return (
        1.0,
        shape.num_decode_seqs / _SCALES[1],
        shape.num_prefill_tokens / _SCALES[2],
        shape.num_context_tokens / _SCALES[3],
        shape.num_attended_pairs / _SCALES[4],
        shape.num_chunks / _SCALES[5],
    )
