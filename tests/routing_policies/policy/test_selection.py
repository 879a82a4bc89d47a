"""Choices and the settings that belong to them."""

from __future__ import annotations

import pytest

from routing_policies.policy.selection import Candidate, Select
from routing_policies.policy.values import SelectPolicy


@pytest.mark.parametrize(
    ("policy", "setting"),
    [
        ("quality_then_latency", "min_quality"),
        ("cost_cap", "max_request_cost"),
        ("canary", "canary"),
    ],
)
def test_a_policy_and_its_setting_belong_together(policy: SelectPolicy, setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        Select(candidates=(Candidate(id="a"),), policy=policy)
    with pytest.raises(ValueError, match="sticky_by"):
        Select(candidates=("a",), sticky_by="tenant")


def test_a_kind_of_work_is_reported_only_where_something_is_predicted() -> None:
    assert Select(candidates=("small", "large"), policy="cascade", min_quality=0.9, kind="sums").kind == "sums"
    with pytest.raises(ValueError, match="kind belongs to"):
        Select(candidates=("small", "large"), kind="sums")


def test_a_bare_id_is_a_candidate_of_weight_one() -> None:
    both = Select(candidates=("a", Candidate(id="b", weight=3.0)), policy="weighted")
    assert both.resolved() == (Candidate(id="a", weight=1.0), Candidate(id="b", weight=3.0))
