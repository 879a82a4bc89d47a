"""Lanes share a step by weight: none is shut out, none wastes what another could use."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Lane
from engine.scheduler.lanes import LANES, WEIGHTS, LaneShares

_MANY = 1_000_000


@pytest.mark.parametrize(
    ("budget", "demands", "grants"),
    [
        (120, {"interactive": _MANY, "long": _MANY, "batch": _MANY}, (80, 30, 10)),
        (120, {"long": _MANY}, (0, 120, 0)),
        (120, {"interactive": 50, "long": _MANY}, (50, 70, 0)),
        (120, {"interactive": 50, "long": _MANY, "batch": _MANY}, (50, 53, 17)),
        (120, {"interactive": 5, "long": 6, "batch": 7}, (5, 6, 7)),
        (120, {}, (0, 0, 0)),
        (0, {"interactive": 5}, (0, 0, 0)),
    ],
)
def test_shares_follow_weights_and_demands(budget: int, demands: dict[Lane, int], grants: tuple[int, int, int]) -> None:
    found = LaneShares().split(budget, demands)
    assert tuple(found[lane] for lane in LANES) == grants


def test_a_short_prompt_has_its_share_at_once_whatever_came_before() -> None:
    shares = LaneShares()
    for _ in range(100):
        shares.split(512, {"long": _MANY, "batch": _MANY})
    assert shares.split(512, {"interactive": 300, "long": _MANY, "batch": _MANY})["interactive"] == 300


def test_with_one_token_a_step_every_lane_gets_its_part_in_the_long_run() -> None:
    shares = LaneShares()
    got: Counter[Lane] = Counter()
    for _ in range(1200):
        got.update(shares.split(1, dict.fromkeys(LANES, _MANY)))
    assert {lane: got[lane] for lane in LANES} == {lane: 100 * WEIGHTS[lane] for lane in LANES}


def test_rows_go_round_by_weight() -> None:
    shares = LaneShares()
    got = Counter(shares.next_turn(LANES) for _ in range(120))
    assert got == {lane: 10 * WEIGHTS[lane] for lane in LANES}
    assert shares.next_turn(["batch"]) == "batch"


def test_a_lane_that_waited_for_nothing_saved_no_turns_up() -> None:
    shares = LaneShares()
    for _ in range(50):
        shares.next_turn(["batch"])
    assert Counter(shares.next_turn(LANES) for _ in range(12)) == WEIGHTS


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 600),
            st.dictionaries(st.sampled_from(LANES), st.integers(0, 5000), max_size=3),
        ),
        max_size=30,
    )
)
def test_a_split_is_whole_and_gives_nobody_more_than_it_wants(steps: list[tuple[int, dict[Lane, int]]]) -> None:
    shares = LaneShares()
    for budget, demands in steps:
        grants = shares.split(budget, demands)
        assert sum(grants.values()) == min(budget, sum(demands.values()))
        active = sum(WEIGHTS[lane] for lane in LANES if demands.get(lane, 0))
        for lane in LANES:
            want = demands.get(lane, 0)
            assert 0 <= grants[lane] <= want
            if want:
                assert grants[lane] >= min(want, budget * WEIGHTS[lane] // active)
