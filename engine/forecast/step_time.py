"""How long a step takes: linear models fitted online. Pure; durations are arguments."""

from __future__ import annotations

from dataclasses import dataclass

from engine.forecast.linear_fit import LinearFit
from engine.protocol import StepTimeTerms

_NUM_TERMS = 6
_DECODE_TERMS = (0, 1, 3)
"""Those that a step without prompts can have."""
_SURPRISE = 1.5
"""A step with prompts that takes so many times as long as was predicted is learnt from at once."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """What makes a step cost time."""

    num_decode_rows: int
    """Rows with one token."""
    num_prefill_tokens: int
    """Tokens of all other rows."""
    num_context_tokens: int
    """Positions attended to, summed over rows."""
    num_attended_pairs: int = 0
    """Chunk tokens times the positions that each chunk reaches, summed over chunks: attention's work in them."""
    num_chunks: int = 0
    """Rows with several tokens."""


class StepTimeModel:
    """seconds = base + a·decode rows + b·prefill tokens + c·context tokens + d·pairs + e·chunks, no term negative.

    Errors count in proportion to the step, so that short steps are known as well as long ones. Old steps fade by
    `decay` per step, those with prompts by twice as much, but only when another one comes: after minutes without any it
    is still known what a chunk costs. A step that took far longer than predicted (a hiccup of the machine) counts as
    `outlier_ratio` times the prediction at most.

    Steps that only decode are predicted from their like, as long as enough of these are fresh: chunks are measured
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
        """Whether enough steps were seen for `predict` to mean something."""
        return self._num_steps >= self._min_steps

    def observe(self, shape: StepShape, seconds: float) -> None:
        """Learn from one step."""
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
            # The next chunk would be as much too large.
            is_surprise = self.is_fitted and seconds > _SURPRISE * predicted
        else:
            self._decode_fit.observe([features[term] for term in _DECODE_TERMS], target)
        self._num_steps += 1
        if is_surprise or self._num_steps == self._min_steps or self._num_steps % self._refit_every == 0:
            self._solve()

    def fit(self) -> None:
        """Take in all steps seen so far, however few."""
        if self._num_steps:
            self._solve()
            self._num_steps = max(self._num_steps, self._min_steps)

    def predict(self, shape: StepShape) -> float:
        """Expected seconds of such a step; 0 until fitted."""
        features = _features(shape)
        if self._knows_decode and not shape.num_prefill_tokens and not shape.num_chunks:
            return self._decode_fit.predict([features[term] for term in _DECODE_TERMS])
        return self._fit.predict(features)

    def terms(self) -> StepTimeTerms | None:
        """The model in seconds for one unit of each feature; None until fitted."""
        if not self.is_fitted:
            return None
        fixed, row, prefill_token, kv_token, pair, chunk = (
            term / scale for term, scale in zip(self._fit.terms, _SCALES, strict=True)
        )
        return StepTimeTerms(
            fixed_s=fixed, row_s=row, prefill_token_s=prefill_token, kv_token_s=kv_token, pair_s=pair, chunk_s=chunk
        )

    def largest_chunk(
        self, target_s: float, num_decode_rows: int, num_context_tokens: int, num_prefill_context: int = 0
    ) -> int | None:
        """Most prefill tokens beside the decode rows in a step of at most `target_s`; None: no bound is known.

        `num_context_tokens` covers all rows, the one with the chunk included, which reaches `num_prefill_context`.
        """
        per_token = self._fit.terms[2] / _SCALES[2] + self._fit.terms[4] / _SCALES[4] * num_prefill_context
        if not self.is_fitted or per_token <= 0.0:
            return None
        without = self.predict(StepShape(num_decode_rows, 0, num_context_tokens, num_chunks=1))
        return max(0, int((target_s - without) / per_token))

    def _solve(self) -> None:
        self._fit = self._prompt_steps.plus(self._decode_fit, _DECODE_TERMS)
        self._fit.solve()
        self._knows_decode = self._decode_fit.weight >= self._min_steps
        if self._knows_decode:
            self._decode_fit.solve()


# Features are brought near 1 so that one ridge suits all of them.
_SCALES = (1.0, 16.0, 256.0, 4096.0, 1048576.0, 1.0)
_TINY_S = 1e-6


def _features(shape: StepShape) -> tuple[float, ...]:
    return (
        1.0,
        shape.num_decode_rows / _SCALES[1],
        shape.num_prefill_tokens / _SCALES[2],
        shape.num_context_tokens / _SCALES[3],
        shape.num_attended_pairs / _SCALES[4],
        shape.num_chunks / _SCALES[5],
    )
