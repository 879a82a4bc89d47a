"""Many candidates: a few are looked at, the holder of the conversation among them."""

from __future__ import annotations

import random

from gateway.routing.shortlist import MANY
from routing_policies.estimation.estimators import Price
from tests.gateway.routing.test_live_routing import NOBODY, Scene, conversation


def test_of_many_candidates_a_few_are_checked_and_every_score_of_those_is_stored() -> None:
    scene = Scene(50)
    decision = scene.planned.decide(NOBODY, random.Random(1), scene.routing_request())
    assert len(decision.scores) == 2
    assert decision.deployment in decision.scores


def test_of_many_candidates_the_holder_is_always_checked() -> None:
    scene = Scene(50)
    first = conversation("a long story " * 400)
    home = scene.pick(scene.routing_request(first))
    assert [scene.pick(scene.routing_request(first)) for _ in range(20)] == [home] * 20


def test_of_many_candidates_those_that_are_out_are_passed_over() -> None:
    scene = Scene(MANY + 4)
    for number in range(MANY + 3):
        scene.made.deployments[f"d{number}"].is_ready = False
    assert {scene.pick(scene.routing_request()) for _ in range(20)} == {f"d{MANY + 3}"}


def test_load_spreads_over_many_candidates() -> None:
    scene = Scene(20)
    counts = dict.fromkeys(scene.made.deployments, 0)
    for _ in range(2000):
        name = scene.pick(scene.routing_request(tokens=500))
        counts[name] += 1
        scene.made.deployments[name].forecast.note_sent(scene.now, Price(500, 500, 100))
    assert max(counts.values()) <= 110
    assert min(counts.values()) >= 90
