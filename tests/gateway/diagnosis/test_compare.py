"""Comparisons: by prompt length, by deployment and by tenant, and nobody who had no request."""

from __future__ import annotations

import pytest

from gateway.diagnosis.compare import compare_deployments, compare_prompts, compare_tenants
from tests.gateway.diagnosis.snapshots import NUM, Scene


def test_each_bucket_and_deployment_stands_beside_its_own_past() -> None:
    scene = Scene()
    scene.ttft, scene.tpot = 0.5, 0.02
    window = scene.window()
    (prompts,), (deployments,) = compare_prompts(window), compare_deployments(window)
    assert (prompts.key, deployments.key) == ("0-256", "large")
    for found in (prompts, deployments):
        assert found.num_requests == NUM
        assert [found.ttft_s, found.baseline_ttft_s] == pytest.approx([0.5, 0.03])
        assert [found.tpot_s, found.baseline_tpot_s] == pytest.approx([0.02, 0.01])


def test_answers_of_the_cache_are_no_deployments() -> None:
    scene = Scene()
    scene.hit_ttft = (0.01, 0.01)
    assert [found.key for found in compare_deployments(scene.window())] == ["large"]


def test_a_window_without_requests_compares_nothing() -> None:
    scene = Scene()
    scene.num = 0.0
    window = scene.window()
    assert compare_prompts(window) == compare_deployments(window) == compare_tenants(window) == ()


def test_tenants_are_ranked_by_their_share_of_all_tokens() -> None:
    scene = Scene()
    scene.tenants = {"one": 0.0, "two": 9000.0}  # and 3,000 tokens of answers to `one`
    found = compare_tenants(scene.window())
    assert {tenant.key: tenant.token_ratio for tenant in found} == pytest.approx({"two": 0.75, "one": 0.25})
    assert [tenant.key for tenant in found] == ["two", "one"]
