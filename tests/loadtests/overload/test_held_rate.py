"""A capacity is searched for, and is what one engine really answers in time."""

from __future__ import annotations

import pytest

from loadtests.clients.chat_streams import Slo
from loadtests.engines.modelled_engine import EngineShape
from loadtests.overload.held_rate import highest_held
from loadtests.simulation.simulated_overload import find_capacity


@pytest.mark.parametrize("start", [3.0, 80.0, 900.0])
async def test_the_highest_rate_that_is_held_is_found_from_any_start(start: float) -> None:
    requested: list[float] = []

    async def is_held(rate_per_s: float) -> bool:
        requested.append(rate_per_s)
        return rate_per_s <= 100.0

    found = await highest_held(is_held, start)
    assert found <= 100.0
    assert found in requested
    assert min(rate for rate in requested if rate > 100.0) <= found * 1.6


async def test_where_every_rate_is_held_there_is_no_capacity() -> None:
    async def is_held(rate_per_s: float) -> bool:
        return True

    with pytest.raises(ValueError, match="every rate"):
        await highest_held(is_held, 10.0)


def test_an_engine_with_half_the_rows_and_twice_the_step_has_less_than_half_the_capacity() -> None:
    slo = Slo(ttft_s=0.5, tpot_s=0.1)
    small = find_capacity(EngineShape(max_num_seqs=4, step_fixed_ms=40.0), slo, seed=1)
    large = find_capacity(EngineShape(max_num_seqs=8, step_fixed_ms=20.0), slo, seed=1)
    assert 0.0 < small < 0.5 * large
    assert find_capacity(EngineShape(max_num_seqs=4, step_fixed_ms=40.0), slo, seed=1) == small
