"""How much a new member of a group gets, by its age."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.deployments.slow_start import LEAST_SHARE, SlowStart


def member(name: str, *, is_ready: bool = True, has_free: bool = True) -> Any:
    return cast(Any, SimpleNamespace(id=name, is_ready=is_ready, limiter=SimpleNamespace(has_free=has_free)))


def group(*members: Any, duration_s: float = 30.0) -> SlowStart:
    made = SlowStart(duration_s)
    made.members = members
    return made


@pytest.mark.parametrize(("age_s", "share"), [(0.0, 0.1), (10.0, 0.4), (29.999, 1.0), (30.0, 1.0), (1e6, 1.0)])
def test_the_share_grows_from_a_tenth_to_all(age_s: float, share: float) -> None:
    made = group(member("a"))
    made.begin("a", 100.0)
    assert made.share("a", 100.0 + age_s) == pytest.approx(share, abs=1e-3)
    assert made.share("old", 100.0) == 1.0


def test_a_new_member_gets_its_share_of_draws() -> None:
    made, rng = group(member("old"), member("new")), random.Random(3)
    made.begin("new", 0.0)
    for age_s, share in ((0.0, LEAST_SHARE), (15.0, 0.55)):
        left_out = sum("new" in made.cold(age_s, lambda _: rng.random()) for _ in range(4000))
        assert 1 - left_out / 4000 == pytest.approx(share, abs=0.03)
    assert made.cold(30.0, lambda _: 0.999) == frozenset()
    assert not made.is_active


def test_members_that_all_are_new_share_evenly() -> None:
    made = group(member("a"), member("b"))
    for name in ("a", "b"):
        made.begin(name, 0.0)
    assert made.cold(3.0, lambda _: 0.999) == frozenset()


@pytest.mark.parametrize("old", [member("old", is_ready=False), member("old", has_free=False)])
def test_where_no_other_can_take_the_request_nobody_is_left_out(old: Any) -> None:
    made = group(old, member("new"))
    made.begin("new", 0.0)
    assert made.cold(0.0, lambda _: 0.999) == frozenset()


def test_without_a_duration_every_member_has_its_share_at_once() -> None:
    made = group(member("old"), member("new"), duration_s=0.0)
    made.begin("new", 0.0)
    assert (made.is_active, made.share("new", 0.0)) == (False, 1.0)
