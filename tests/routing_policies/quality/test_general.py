"""The general head: numbers alone, in the order of the features."""

from __future__ import annotations

from routing_policies.quality.features import LENGTH, NUMBERS
from routing_policies.quality.general import GeneralHead
from tests.routing_policies.quality.test_head import features


def test_only_leading_numbers_count_and_no_word_does() -> None:
    weights = tuple(-1.0 if place == LENGTH else 0.0 for place in range(len(NUMBERS) - 5))
    head = GeneralHead(bias=0.5, weights=weights)
    one = features("whatever")
    assert head.log_odds(one) == 0.5 - one.numbers[LENGTH]
    longer = one._replace(numbers=[*one.numbers[:LENGTH], 1.0, *one.numbers[LENGTH + 1 :]])
    assert head.log_odds(longer) == -0.5
