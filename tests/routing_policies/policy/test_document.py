"""The settings that belong together, and values that cannot be changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from routing_policies.policy.document import (
    AbsolutePath,
    Candidate,
    Deployment,
    EnvironmentName,
    Expectation,
    HeaderName,
    Id,
    Lane,
    ModelName,
    Policy,
    Select,
    SelectPolicy,
    Sha256Hex,
    Tenant,
    TenantKey,
    Timeouts,
)
from tests.routing_policies.documents import policy


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


def test_a_stage_cannot_take_longer_than_the_whole() -> None:
    assert Timeouts(total_ms=30_000).first_token_ms == 30_000
    with pytest.raises(ValueError, match=r"first_token_ms \(30000\) is longer than total_ms \(29999\)"):
        Timeouts(total_ms=29_999)


def test_the_limit_of_a_lane_and_the_lane_for_longer_prompts_belong_together() -> None:
    for given in ({"max_prompt_tokens": 9}, {"longer": "b"}):
        with pytest.raises(ValueError, match="belong together"):
            Lane(id="a", **given)


@pytest.mark.parametrize(
    ("lane", "priority"),
    [
        (Lane(id="chat"), "interactive"),
        (Lane(id="batch"), "batch"),
        (Lane(id="batch", priority="interactive"), "interactive"),
        (Lane(id="night", priority="batch"), "batch"),
    ],
)
def test_the_lane_named_batch_is_batch_by_default(lane: Lane, priority: str) -> None:
    assert lane.engine_priority == priority


def test_an_expectation_names_something_and_an_error_stands_alone() -> None:
    assert Expectation(error="model_not_found").error == "model_not_found"
    with pytest.raises(ValueError, match="expects nothing"):
        Expectation()
    with pytest.raises(ValueError, match="no route, candidates or deployment"):
        Expectation(error="model_not_found", deployment="a")


def test_a_bare_id_is_a_candidate_of_weight_one() -> None:
    both = Select(candidates=("a", Candidate(id="b", weight=3.0)), policy="weighted")
    assert both.resolved() == (Candidate(id="a", weight=1.0), Candidate(id="b", weight=3.0))


def test_a_policy_has_keys_when_any_tenant_has_one() -> None:
    tenants = (Tenant(id="a"), Tenant(id="b", keys=(TenantKey(id="k", sha256="0" * 64),)))
    here = (Deployment(id="d", url="http://d", model="m"),)
    assert not Policy(schema_version=1, deployments=here, tenants=tenants[:1]).has_keys
    assert Policy(schema_version=1, deployments=here, tenants=tenants).has_keys


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        policy().schema_version = 1  # type: ignore[misc]


@pytest.mark.parametrize("kind", [Id, ModelName, HeaderName, Sha256Hex, EnvironmentName, AbsolutePath])
def test_no_pattern_lets_a_final_line_feed_pass(kind: Any) -> None:
    good = {Sha256Hex: "0" * 64, EnvironmentName: "KEY", AbsolutePath: "/ca.pem"}.get(kind, "abc")
    assert msgspec.convert(good, kind) == good
    for bad in (good + "\n", good + "\r", good + "\r\n"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(bad, kind)
