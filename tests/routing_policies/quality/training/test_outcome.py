"""Outcomes of a prompt's two answers."""

from __future__ import annotations

from routing_policies.quality.confidence import TokenOdds
from routing_policies.quality.features import features_of
from routing_policies.quality.prompt import Prompt
from routing_policies.quality.training.outcome import outcome_of


def test_scores_between_right_and_wrong_count_by_what_was_lost() -> None:
    requested = Prompt("a")
    assert outcome_of(requested, 0.25, 0.75).good == 0.5
    assert outcome_of(requested, 0.75, 0.25).good == 1.0


def test_an_outcome_holds_what_can_be_learned_of_the_prompt() -> None:
    text = "Please, add 17 and 45. " + "x" * 500
    odds = (TokenOdds(-0.1, 2.0),)
    found = outcome_of(Prompt(text), 0.0, 1.0, category="sums", odds=odds, num_tokens=3)
    assert found.opening == "please add"
    assert found.features == features_of(Prompt(text))
    assert (found.category, found.odds, found.num_tokens, found.lost, found.good) == ("sums", odds, 3, 1.0, 0.0)
