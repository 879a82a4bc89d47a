"""The scorer that sends a share of the conversations to one candidate."""

from __future__ import annotations

from routing_policies.scorers.canary import CanaryShare
from routing_policies.share import stable_key
from routing_policies.views import Attempt
from tests.routing_policies.views import live

TWO = [live("old"), live("new")]


def sides(ratio: float, candidate: str = "new") -> list[bool]:
    scorer = CanaryShare(candidate, ratio)
    keys = [stable_key("t", str(number)) for number in range(2000)]
    return [scorer.scores(TWO, Attempt(key=key))[1] == 1.0 for key in keys]


def test_a_conversation_is_on_one_side_and_the_others_score_nothing() -> None:
    assert CanaryShare("new", 1.0).scores(TWO, Attempt(key=7)) == [0.0, 1.0]
    assert CanaryShare("new", 0.0).scores(TWO, Attempt(key=7)) == [1.0, 0.0]


def test_the_share_is_the_ratio_and_a_larger_one_holds_the_smaller() -> None:
    few, more = sides(0.1), sides(0.3)
    assert 150 < sum(few) < 250
    assert 540 < sum(more) < 660
    assert all(larger for smaller, larger in zip(few, more, strict=True) if smaller)


def test_without_a_conversation_the_request_stays_with_the_others() -> None:
    assert CanaryShare("new", 1.0).scores(TWO, Attempt()) == [1.0, 0.0]


def test_the_cause_is_the_side_that_answers_not_the_side_that_was_meant() -> None:
    scorer = CanaryShare("new", 0.0)
    assert [scorer.cause(view, Attempt(key=7)) for view in TWO] == ["stable", "canary"]
