"""What a greedy tenant or a flood of long prompts does to the others, in virtual time."""

from __future__ import annotations

import pytest

from loadtests.clients.chat_streams import Slo
from loadtests.engines.modelled_engine import EngineShape
from loadtests.simulation.simulated_troubles import Fares, fares, trouble_of

SLO = Slo(ttft_s=0.5, tpot_s=0.03)
SHAPE = EngineShape()


def fares_in(name: str, *, is_silent: bool = False) -> Fares:
    return fares(trouble_of(name, SHAPE, SLO, 45.0, 20.0, 1), SHAPE, SLO, 1, is_silent=is_silent)


def test_light_tenants_hardly_notice_a_greedy_one() -> None:
    found = fares_in("greedy")
    assert found.goodput >= 0.99, found.note
    assert found.ttft_p99_ratio <= 1.3, found.note


@pytest.mark.parametrize("is_silent", [False, True])
def test_short_requests_are_good_in_a_flood_of_long_ones(is_silent: bool) -> None:
    found = fares_in("flood", is_silent=is_silent)
    assert found.goodput >= 0.99, found.note
    assert found.ttft_p99_ratio <= 1.5, found.note
