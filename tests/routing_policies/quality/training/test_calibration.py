"""Calibration: scores become log odds of what was observed, in the same order."""

from __future__ import annotations

import numpy as np
import pytest

from routing_policies.quality.training.calibration import calibrated, calibration_error, probabilities_of


def test_overconfident_scores_are_scaled_to_what_is_observed() -> None:
    rng = np.random.default_rng(1)
    log_odds = rng.normal(size=4000)
    good = (rng.random(4000) < probabilities_of(log_odds)).astype(np.float64)
    scale, bias = calibrated(5.0 * log_odds + 2.0, good, np.ones(4000))
    assert scale == pytest.approx(0.2, abs=0.02)
    assert bias == pytest.approx(-0.4, abs=0.1)
    assert calibration_error(probabilities_of(scale * (5.0 * log_odds + 2.0) + bias), good) < 0.03
    assert calibration_error(probabilities_of(5.0 * log_odds + 2.0), good) > 0.15


@pytest.mark.parametrize("sign", [0.0, -1.0])
def test_scores_without_evidence_keep_their_order_and_state_the_mean(sign: float) -> None:
    scores = np.linspace(-1.0, 1.0, 400)
    good = np.where(sign * scores + np.tile([0.5, -0.5], 200) > 0.0, 1.0, 0.0)
    scale, bias = calibrated(scores, good, np.ones(400))
    assert scale > 0.0
    assert probabilities_of(scale * scores + bias).mean() == pytest.approx(good.mean(), abs=0.01)
