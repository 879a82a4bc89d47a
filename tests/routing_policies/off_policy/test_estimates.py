"""The mean outcome of a policy that never ran: estimates near the truth, and intervals that hold at every time."""

from __future__ import annotations

import numpy as np
import pytest

from loadtests.routing.exploring_log import ExploringLog, exploring_log, misses
from routing_policies.off_policy.estimates import (
    ALPHA,
    NOTHING_SEEN,
    PolicyEstimate,
    Series,
    estimate,
    estimate_difference,
    weigh,
)

RUNS, NUM, WARM = 150, 500, 50


@pytest.mark.parametrize("drifts", [False, True], ids=["steady", "drifting"])
@pytest.mark.parametrize("ratio", [0.05, 0.3])
def test_the_stated_coverage_holds_at_every_stopping_time(ratio: float, drifts: bool) -> None:
    """A miss is an interval that excludes the mean so far after any request of a run."""
    missed = [misses(exploring_log(seed, NUM, ratio=ratio, drifts=drifts), WARM) for seed in range(RUNS)]
    for num_missed in map(sum, zip(*missed, strict=True)):
        assert num_missed <= ALPHA * RUNS


def evaluated(log: ExploringLog) -> PolicyEstimate:
    return estimate(log.series, WARM)


def test_both_estimates_come_near_the_truth_and_the_model_narrows_the_interval() -> None:
    log = exploring_log(3, 20_000, ratio=0.1)
    found, truth = evaluated(log), float(log.truths[WARM:].mean())
    for side in (found.propensity, found.doubly_robust):
        assert side.value == pytest.approx(truth, abs=0.03)
        assert side.low < truth < side.high
    narrow = found.doubly_robust.high - found.doubly_robust.low
    assert narrow < 0.75 * (found.propensity.high - found.propensity.low)
    assert found.unseen == 0.0
    assert 300 < found.num_effective < 3_000
    first, last = found.widths[4], found.widths[-1]
    assert last.doubly_robust[1] - last.doubly_robust[0] < first.doubly_robust[1] - first.doubly_robust[0]
    assert last.n == found.num_requests == 20_000 - WARM


def test_a_plain_average_of_the_log_would_be_wrong() -> None:
    log = exploring_log(3, 20_000, ratio=0.1)
    truth = float(log.truths[WARM:].mean())
    assert abs(sum(log.outcomes) / len(log.outcomes) - truth) > 0.1


def test_without_overlap_the_interval_is_everything() -> None:
    never = [weigh("small", (), {"small": 1.0}, {"large": 1.0}) for _ in range(400)]
    found = estimate(Series(never, [1.0] * 400), WARM)
    assert found.unseen == 1.0
    assert found.propensity.value is found.doubly_robust.value is None
    assert (found.propensity.low, found.propensity.high) == (0.0, 1.0)
    assert (found.doubly_robust.low, found.doubly_robust.high) == (0.0, 1.0)
    assert found.num_effective == 0.0


def test_what_the_log_lacks_is_the_stated_bias_and_within_the_interval() -> None:
    """A third of the requests has no choice; their outcomes could be all 0 or all 1."""
    log = exploring_log(5, 9_000, ratio=0.4)
    cut = [NOTHING_SEEN if place % 3 == 0 else choice for place, choice in enumerate(log.choices)]
    found = estimate(Series(cut, log.outcomes), WARM)
    assert found.unseen == pytest.approx(1 / 3, abs=0.01)
    for side in (found.propensity, found.doubly_robust):
        for theirs in (0.0, 1.0):
            truths = [theirs if place % 3 == 0 else truth for place, truth in enumerate(log.truths)]
            assert side.low <= sum(truths[WARM:]) / (len(truths) - WARM) <= side.high


def test_clipped_weights_state_what_they_cut_off() -> None:
    choice = weigh("large", (), {"small": 0.9999, "large": 0.0001}, {"large": 1.0}, max_weight=1_000.0)
    assert choice.weight == pytest.approx(1_000.0)
    assert choice.seen == pytest.approx(0.1)
    whole = weigh("large", (), {"small": 0.99, "large": 0.01}, {"large": 1.0})
    assert whole.weight == pytest.approx(100.0)
    assert whole.seen == pytest.approx(1.0)


def test_outcomes_that_are_not_known_count_as_both() -> None:
    known = [weigh("a", (), {"a": 1.0}, {"a": 1.0})] * 2_000
    lowest = [float(place % 4 == 0) for place in range(2_000)]
    highest = [float(place % 4 < 2) for place in range(2_000)]
    found = estimate(Series(known, lowest, highest), WARM)
    assert found.propensity.low < 0.25 < 0.5 < found.propensity.high
    assert found.doubly_robust.low < 0.25 < 0.5 < found.doubly_robust.high


def test_results_are_in_the_unit_of_the_outcome() -> None:
    log = exploring_log(2, 2_000)
    plain, scaled = evaluated(log), estimate(log.series, WARM, scale=40.0)
    assert plain.propensity.value is not None
    assert scaled.propensity.value == pytest.approx(40 * plain.propensity.value)
    assert scaled.doubly_robust.high == pytest.approx(40 * plain.doubly_robust.high)


def test_a_small_change_has_a_difference_far_narrower_than_the_two_intervals_apart() -> None:
    """The evaluated policy sends every fiftieth request elsewhere, and all others as the one that ran."""
    log = exploring_log(4, 8_000, ratio=0.3)
    is_changed = np.arange(8_000) % 50 == 0
    choices = [one if changed else ran for one, ran, changed in zip(log.choices, log.ran, is_changed, strict=True)]
    new = Series(choices, log.outcomes)
    truth = float(np.where(is_changed, log.truths - log.ran_truths, 0.0)[WARM:].mean())
    gap, apart = estimate_difference(new, log.ran_series, WARM), [estimate(one, WARM) for one in (new, log.ran_series)]
    for name in ("propensity", "doubly_robust"):
        side = getattr(gap, name)
        assert side.low < truth < side.high
        assert side.value == pytest.approx(truth, abs=0.01)
        assert side.high - side.low < 0.4 * sum(getattr(one, name).high - getattr(one, name).low for one in apart)


def test_a_policy_does_not_differ_from_itself() -> None:
    log = exploring_log(5, 2_000)
    gap = estimate_difference(log.ran_series, log.ran_series, WARM, scale=40.0)
    assert gap.propensity.value == gap.doubly_robust.value == 0.0
    for side in (gap.propensity, gap.doubly_robust):
        assert side.low < 0.0 < side.high
        assert side.high - side.low < 0.05 * 40.0


def test_a_difference_includes_what_the_records_lack_of_either_policy() -> None:
    log = exploring_log(6, 9_000, ratio=0.4)
    cut = Series([NOTHING_SEEN if place % 3 == 0 else choice for place, choice in enumerate(log.choices)], log.outcomes)
    for one, other, sign in ((cut, log.ran_series, 1.0), (log.ran_series, cut, -1.0)):
        gap = estimate_difference(one, other, WARM)
        for side in (gap.propensity, gap.doubly_robust):
            for theirs in (0.0, 1.0):
                truths = [theirs if place % 3 == 0 else truth for place, truth in enumerate(log.truths)]
                truth = sign * float((truths - log.ran_truths)[WARM:].mean())
                assert side.low <= truth <= side.high
