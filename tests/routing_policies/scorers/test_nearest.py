"""Nearest: the place of a zone decides, whatever else is known."""

from __future__ import annotations

import random

from routing_policies.profile import profile_for
from routing_policies.scorers.nearest import Nearest
from routing_policies.views import FIRST_ATTEMPT
from tests.routing_policies.views import live


def test_nearer_zones_score_higher() -> None:
    views = [live("far", distance=2), live("near", distance=0), live("next", distance=1)]
    assert Nearest().scores(views) == [1 / 3, 1.0, 0.5]


def test_in_the_nearest_zone_that_can_serve_the_emptiest_is_taken() -> None:
    profile, rng = profile_for("nearest_first"), random.Random(1)
    views = [
        live("busy", distance=0, in_flight=9, max_in_flight=10),
        live("calm", distance=0, in_flight=2, max_in_flight=10),
        live("idle", distance=1, in_flight=0, max_in_flight=10),
    ]
    assert profile.decide(views, FIRST_ATTEMPT, rng).deployment == "calm"
    full = [live("a", distance=0, in_flight=10, max_in_flight=10), live("b", distance=0, is_ejected=True), views[2]]
    assert profile.decide(full, FIRST_ATTEMPT, rng).deployment == "idle"
