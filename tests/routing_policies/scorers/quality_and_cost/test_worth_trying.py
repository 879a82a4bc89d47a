"""The scorer that skips a cascade's first candidate for prompts beyond it."""

from __future__ import annotations

from routing_policies.scorers.quality_and_cost.worth_trying import WorthTrying
from routing_policies.views import Attempt
from tests.routing_policies.views import live


def test_candidates_at_or_above_the_limit_are_equal_and_those_below_get_nothing() -> None:
    views = [live("a", quality=0.3), live("b", quality=0.9), live("c", quality=0.299)]
    assert WorthTrying(0.3).scores(views) == [1.0, 1.0, 0.0]


def test_the_cause_states_whether_the_prompt_was_known() -> None:
    known, unknown = live("a", quality=0.1), live("b", quality=0.9, is_known_prompt=False)
    assert WorthTrying(0.3).cause(known, Attempt()) == "tried_first"
    assert WorthTrying(0.3).cause(unknown, Attempt()) == "unknown_prompt"
