"""TtftModel and TpotModel: latencies of a deployment, learned from measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import Final

_RIDGE: Final = 2.0
"""Weight of the prior, in samples."""
_SWEEPS: Final = 3
_OUTLIER_RATIO: Final = 3.0
"""Maximum ratio of a target to its prediction; larger targets are clamped, because one hiccup is not a new speed."""
_TINY: Final = 1e-9
_MAX_WEIGHT: Final = 1e9
_OTHER_MACHINE: Final = math.log(3.0)
"""Mean log ratio to the prior beyond which it was meant for another machine."""


class NonNegativeRegression:
    """Linear model, target = Σ coefficient·feature, whose errors count in proportion to the target.

    An error of 10 % weighs the same for small and large targets. Samples fade by `decay` each. The coefficients start
    at `prior` and stay near it where the samples carry little information. Coordinate descent solves from the last
    solution, every `refit_every` samples.

    A machine far slower or faster than the prior is that much so in every coefficient: the first samples find the
    factor. Else features that are rare or small would stay at a prior meant for another machine.
    """

    __slots__ = (
        "_decay",
        "_gram",
        "_log_factor",
        "_moments",
        "_num_samples",
        "_prior",
        "_refit_every",
        "_ridge",
        "_weight",
        "terms",
    )

    def __init__(self, prior: Sequence[float], scales: Sequence[float], *, decay: float, refit_every: int = 4) -> None:
        """Create the model; `scales` is a usual size of each feature, so that the prior binds all of them equally."""
        num = len(prior)
        self._decay = decay
        self._refit_every = refit_every
        self._prior = list(prior)
        unit = max(sum(term * scale for term, scale in zip(prior, scales, strict=True)), _TINY)
        self._ridge = [_RIDGE * (scale / unit) ** 2 for scale in scales]
        self._gram = [[0.0] * num for _ in range(num)]
        self._moments = [0.0] * num
        self._weight = 1.0
        """Weight of the last sample, relative to which earlier ones fade."""
        self._num_samples = 0
        self._log_factor = 0.0
        """Mean log ratio of the first targets to what the prior predicts."""
        self.terms = list(prior)
        """The coefficients; the list stays the same one."""

    @property
    def num_samples(self) -> int:
        """Number of samples observed in all."""
        return self._num_samples

    def predict(self, features: Sequence[float]) -> float:
        """Return the expected target."""
        # Takes a third of a loop's time, and runs several times a request.
        total: float = sum(map(mul, self.terms, features))
        return total

    def observe(self, features: Sequence[float], target: float, predicted: float | None = None) -> None:
        """Update the coefficients from one sample, `target` > 0; `predicted` saves a call of `predict`."""
        if predicted is None:
            predicted = self.predict(features)
        if self._num_samples >= _MIN_SAMPLES:
            if target > _OUTLIER_RATIO * predicted:
                target = _OUTLIER_RATIO * predicted
        else:
            by_prior: float = sum(map(mul, self._prior, features))
            log = math.log(max(target, _TINY) / max(by_prior, _TINY))
            self._log_factor += (log - self._log_factor) / (self._num_samples + 1)
        size = target if target > predicted else predicted
        unit = 1.0 / (size if size > _TINY else _TINY)
        gram, moments = self._gram, self._moments
        # Instead of fading every sum, new samples weigh more: a feature that is 0 then costs nothing.
        weight = self._weight = self._weight / self._decay
        aim = target * unit
        scaled: list[tuple[int, float]] = []
        for row, feature in enumerate(features):
            if not feature:
                continue
            right = feature * unit
            scaled.append((row, right))
            left = weight * right
            moments[row] += left * aim
            line = gram[row]
            for column, other in scaled:
                line[column] += left * other
        if weight > _MAX_WEIGHT:
            self._bring_back()
        self._num_samples += 1
        if self._num_samples % self._refit_every == 0 or self._num_samples < _MIN_SAMPLES:
            self._refit()

    def _refit(self) -> None:
        terms, gram, moments, prior, weight = self.terms, self._gram, self._moments, self._prior, self._weight
        factor = math.exp(self._log_factor) if abs(self._log_factor) > _OTHER_MACHINE else 1.0
        known: list[tuple[int, list[float], float, float, float]] = []
        for row, line in enumerate(gram):
            own = line[row]
            if not own:  # the feature was never there: its term stays what it was
                continue
            for other in known:  # only one half of the symmetric sums is up to date
                other[1][row] = line[other[0]]
            held = weight * self._ridge[row] / factor**2
            known.append((row, line, own, own + held, moments[row] + held * factor * prior[row]))
        for _ in range(_SWEEPS):
            for row, line, own, whole, wanted in known:
                found = (wanted - sum(map(mul, line, terms)) + own * terms[row]) / whole
                terms[row] = found if found > 0.0 else 0.0

    def _bring_back(self) -> None:
        """Rescale the sums before they overflow."""
        weight = self._weight
        self._moments = [moment / weight for moment in self._moments]
        self._gram = [[cell / weight for cell in line] for line in self._gram]
        self._weight = 1.0


_MIN_SAMPLES: Final = 16


_GAIN_STEP: Final = 0.12
_MAX_LOG_RATIO: Final = math.log(4.0)
_MAX_LOG_GAIN: Final = math.log(100.0)
_GAIN_DECAY_S: Final = 10.0
_NOISE: Final = 0.2
"""Mean log ratio that is applied by half; a handful of measurements reaches it at random."""
_FRESH_S: Final = 1.0
"""Seconds after a measurement without decay."""
_FIRST_ERROR: Final = 0.5
_ERROR_STEP: Final = 0.05
_ERROR_FLOOR: Final = 0.003
_TINY_S: Final = 1e-6


class SpeedGain:
    """Factor by which a machine is currently slower than its model.

    The model learns over hundreds of requests, the gain over a handful. Small differences are left to the model. The
    gain decays over `decay_s` seconds without measurements, so a slow deployment is tried again.
    """

    __slots__ = ("_at", "_decay_s", "_factor", "_log")

    def __init__(self, *, decay_s: float = _GAIN_DECAY_S) -> None:
        self._decay_s = decay_s
        self._log = 0.0
        self._factor = 1.0
        """Factor for `_log`, after shrinkage of small values."""
        self._at = -math.inf

    def observe(self, now: float, ratio: float) -> None:
        """Record `ratio`: the measurement over the model's value without the gain."""
        log = self._log_at(now)
        surprise = math.log(ratio if ratio > 1e-6 else 1e-6) - log
        self._log = _within(_MAX_LOG_GAIN, log + _GAIN_STEP * _within(_MAX_LOG_RATIO, surprise))
        self._factor = _believed(self._log)
        self._at = now

    def value(self, now: float) -> float:
        """Return the factor."""
        return self._factor if now - self._at <= _FRESH_S else _believed(self._log_at(now))

    def _log_at(self, now: float) -> float:
        idle_s = now - self._at
        return self._log * math.exp(-idle_s / self._decay_s) if idle_s > _FRESH_S and self._log else self._log


def _within(bound: float, value: float) -> float:
    """Clamp the value to [-bound, bound]."""
    if value > bound:
        return bound
    return value if value > -bound else -bound


def _believed(log: float) -> float:
    fourth = (log / _NOISE) ** 4
    return math.exp(log * fourth / (fourth + 1.0))


class TtftModel:
    """TTFT in seconds as a non-negative sum over features, times the machine's current slowness."""

    __slots__ = ("_regression", "error", "gain", "terms")

    def __init__(
        self, prior: Sequence[float], scales: Sequence[float], *, gain: SpeedGain | None = None, decay: float = 0.995
    ) -> None:
        """Create a model with its prior terms.

        Args:
            prior: Initial seconds per unit of each feature.
            scales: Usual size of each feature.
            gain: Gain to share between models of one machine.
            decay: Weight of past samples per new one.
        """
        self._regression = NonNegativeRegression(prior, scales, decay=decay)
        self.terms: Sequence[float] = self._regression.terms
        """Learned seconds per unit of each feature; the regression changes the list in place."""
        self.gain = gain or SpeedGain()
        """Factor of the sum over the terms."""
        self.error = _FIRST_ERROR
        """Recent mean of |log(forecast / measured)|."""

    def predict_s(self, now: float, features: Sequence[float]) -> float:
        """Return the forecast in seconds."""
        plain_s: float = sum(map(mul, self.terms, features))
        return plain_s * self.gain.value(now)

    def observe(self, now: float, features: Sequence[float], seconds: float) -> None:
        """Record a TTFT measured for a request with these features."""
        plain_s = self._regression.predict(features)
        if plain_s > 0.0:
            ratio = (seconds if seconds > _TINY_S else _TINY_S) / (plain_s * self.gain.value(now))
            self.error += _ERROR_STEP * (abs(_within(_MAX_LOG_RATIO, math.log(ratio))) - self.error)
            self.gain.observe(now, seconds / plain_s)
        self._regression.observe(features, seconds, plain_s)


def blended(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Combine two forecasts, each with its recent error, with far more weight on the better one.

    Both err on the same requests, so averaging them equally would gain little.
    """
    (first_s, error), (second_s, other_error) = first, second
    ours, theirs = 1.0 / (error * error + _ERROR_FLOOR) ** 2, 1.0 / (other_error * other_error + _ERROR_FLOOR) ** 2
    return (first_s * ours + second_s * theirs) / (ours + theirs)


class TpotModel:
    """Seconds per output token as a function of the rows that run together."""

    __slots__ = ("_regression", "gain", "terms")

    _PRIOR: Final = (0.02, 0.0003)

    def __init__(self) -> None:
        self._regression = NonNegativeRegression(self._PRIOR, (1.0, 16.0), decay=0.99)
        self.terms: Sequence[float] = self._regression.terms
        """Seconds per token, and per additional row; changed in place."""
        self.gain = SpeedGain()

    def predict_s(self, now: float, rows: float) -> float:
        """Return the seconds per token with `rows` rows, the request's own included."""
        first, each = self.terms
        return (first + each * rows) * self.gain.value(now)

    def plain_s(self, rows: float) -> float:
        """Return the seconds per token with `rows` rows at the machine's usual speed."""
        first, each = self.terms
        return first + each * rows

    def observe(self, now: float, rows: float, seconds: float) -> None:
        """Record an answer that took `seconds` per token while about `rows` ran."""
        features = (1.0, rows)
        plain_s = self._regression.predict(features)
        if plain_s > 0.0:
            self.gain.observe(now, seconds / plain_s)
        self._regression.observe(features, seconds, plain_s)
