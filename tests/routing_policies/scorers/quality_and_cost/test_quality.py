"""The scorer by quality."""

from __future__ import annotations

from routing_policies.scorers.quality_and_cost.quality import QualityScore
from tests.routing_policies.views import live


def test_quality_is_absolute_not_relative_to_the_best() -> None:
    assert QualityScore().scores([live("a", quality=0.9), live("b", quality=0.3)]) == [0.9, 0.3]
    assert QualityScore().scores([live("b", quality=0.3)]) == [0.3]


def test_a_candidate_of_which_nothing_is_predicted_counts_as_good() -> None:
    assert QualityScore().scores([live("a"), live("b", quality=0.0)]) == [1.0, 0.0]
