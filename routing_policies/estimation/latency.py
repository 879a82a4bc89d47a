"""TtftModel and TpotModel: latencies of a deployment, learned from measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import Final

from routing_policies.estimation.regression import NonNegativeRegression

_GAIN_STEP: Final = 0.12
_MAX_LOG_RATIO: Final = math.log(4.0)
_MAX_LOG_GAIN: Final = math.log(100.0)
_GAIN_DECAY_S: Final = 10.0
_NOISE: Final = 0.2
"""Mean log ratio that is applied by half; a handful of measurements reaches it by chance."""
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
        """Learn from `ratio`: the measurement over the model's value without the gain."""
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
        """Learn from a TTFT measured for a request with these features."""
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
        """Learn from an answer that took `seconds` per token while about `rows` ran."""
        features = (1.0, rows)
        plain_s = self._regression.predict(features)
        if plain_s > 0.0:
            self.gain.observe(now, seconds / plain_s)
        self._regression.observe(features, seconds, plain_s)
