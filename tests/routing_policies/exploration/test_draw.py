"""Random choices of a route that explores: their shares, their recorded probabilities, and their repetition."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing_policies.decision import Decision
from routing_policies.exploration.draw import mixed, own_propensities, propensities_of, with_exploration
from routing_policies.policy.selection import Explore
from routing_policies.profile import profile_for
from routing_policies.views import FIRST_ATTEMPT, DeploymentView

NUM = 20_000


def decision(
    *names: str, policy: str = "first_available", weights: tuple[float, ...] = (), busy: tuple[int, ...] = ()
) -> Decision:
    """The policy's own choice among ready candidates."""
    each = zip(names, weights or (1.0,) * len(names), busy or (0,) * len(names), strict=True)
    views = [
        DeploymentView(id=name, model="m", is_ready=True, weight=weight, in_flight=taken)
        for name, weight, taken in each
    ]
    return profile_for(policy).decide(views, FIRST_ATTEMPT, random.Random(4))  # type: ignore[arg-type]


def drawn(made: Decision, rule: Explore, num: int = NUM, *names: str) -> Counter[str]:
    """How often each deployment is chosen over many requests."""
    admissible = names or tuple(made.totals)
    picks = (with_exploration(made, rule, admissible, f"req_{n:024x}", is_bound=False) for n in range(num))
    return Counter(str(pick.deployment) for pick in picks)


def test_each_candidate_is_chosen_as_often_as_its_recorded_probability_states() -> None:
    made = decision("small", "large", "third")
    rule = Explore(ratio=0.3, weights={"large": 4.0})
    first = with_exploration(made, rule, ("small", "large", "third"), "req_1", is_bound=False)
    shares = propensities_of(first)
    assert shares == pytest.approx({"small": 0.7 + 0.3 / 6, "large": 0.3 * 4 / 6, "third": 0.3 / 6})
    counts = drawn(made, rule)
    for name, share in shares.items():
        assert counts[name] / NUM == pytest.approx(share, abs=0.01)


def test_the_draw_can_be_repeated_from_the_id_and_differs_between_ids() -> None:
    made, rule = decision("small", "large"), Explore(ratio=0.5)
    ids = [f"req_{n:024x}" for n in range(200)]
    once = [with_exploration(made, rule, ("small", "large"), one, is_bound=False) for one in ids]
    again = [with_exploration(made, rule, ("small", "large"), one, is_bound=False) for one in ids]
    assert [one.exploration for one in once] == [one.exploration for one in again]
    assert len({one.deployment for one in once}) == 2


def test_a_drawn_request_states_who_was_preferred_and_with_which_probability() -> None:
    made, rule = decision("small", "large"), Explore(ratio=0.5)
    all_of_them = [with_exploration(made, rule, ("small", "large"), f"r{n}", is_bound=False) for n in range(100)]
    moved = next(one for one in all_of_them if one.deployment == "large")
    assert moved.exploration is not None
    assert (moved.cause, moved.exploration.result, moved.exploration.preferred) == ("explored", "explored", "small")
    assert moved.exploration.probability == pytest.approx(0.25)
    stayed = next(one for one in all_of_them if one.exploration and one.exploration.result == "preferred")
    assert stayed.exploration is not None
    assert (stayed.deployment, stayed.cause) == ("small", "first")
    assert stayed.exploration.probability == pytest.approx(0.75)


def test_a_bound_request_and_a_lone_candidate_are_never_drawn() -> None:
    made, rule = decision("small", "large"), Explore(ratio=0.5)
    for n in range(200):
        bound = with_exploration(made, rule, ("small", "large"), f"r{n}", is_bound=True)
        alone = with_exploration(made, rule, ("small",), f"r{n}", is_bound=False)
        nobody = with_exploration(made, rule, (), f"r{n}", is_bound=False)
        for one, result in ((bound, "bound"), (alone, "alone"), (nobody, "alone")):
            assert one.deployment == "small"
            assert one.exploration is not None
            assert (one.exploration.result, one.exploration.propensities) == (result, {"small": 1.0})


def test_a_groups_members_are_one_candidate_and_its_best_member_takes_the_request() -> None:
    made = decision("small", "pool@a", "pool@b", policy="least_in_flight", busy=(0, 20, 5))
    counts = drawn(made, Explore(ratio=0.5))
    assert set(counts) == {"small", "pool@b"}
    assert counts["pool@b"] / NUM == pytest.approx(0.25, abs=0.02)
    one = with_exploration(made, Explore(ratio=0.5), tuple(made.totals), "r1", is_bound=False)
    assert propensities_of(one) == pytest.approx({"small": 0.75, "pool": 0.25})
    full = drawn(made, Explore(ratio=0.5), 500, "small", "pool@a")
    assert set(full) == {"small", "pool@a"}


def test_a_choice_by_weight_keeps_its_own_shares_beside_the_draw() -> None:
    made = decision("small", "large", policy="weighted", weights=(3.0, 1.0))
    assert own_propensities(made) == pytest.approx({"small": 0.75, "large": 0.25})
    made = with_exploration(made, Explore(ratio=0.4), ("small", "large"), "r1", is_bound=False)
    assert propensities_of(made) == pytest.approx({"small": 0.6 * 0.75 + 0.2, "large": 0.6 * 0.25 + 0.2})


def test_without_exploration_the_choice_is_certain() -> None:
    assert propensities_of(decision("small", "large")) == {"small": 1.0}


@given(
    st.sets(st.sampled_from("abcdef"), min_size=1).map(sorted),
    st.floats(0.001, 0.5),
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0.01, 100.0), min_size=1),
)
def test_probabilities_add_up_to_one(names: list[str], ratio: float, weights: dict[str, float]) -> None:
    base = {name: 1.0 / len(names) for name in names}
    assert sum(mixed(base, ratio, weights).values()) == pytest.approx(1.0)
