"""Late first tokens without waiting: the prompt's work in the gateway, in the engine and between the two."""

from __future__ import annotations

import pytest

from gateway.diagnosis.budget import budget_before, budget_now
from gateway.diagnosis.finding import Finding
from gateway.diagnosis.policy_lines import place_of
from gateway.diagnosis.prefilling import (
    KV_FULL_RATIO,
    explain_cold_start,
    explain_path,
    explain_prefill,
    explain_preprocessing,
    prefix_hits,
    prefix_hits_before,
)
from tests.gateway.diagnosis.snapshots import Scene
from tests.gateway.diagnosis.test_diagnose import POLICY

QUERIES, HITS = "engine_prefix_cache_queries_tokens_total", "engine_prefix_cache_hits_tokens_total"


def explained(scene: Scene) -> Finding:
    window = scene.window()
    return explain_prefill(window, place_of(window, POLICY), budget_now(window), budget_before(window))


def prepared(scene: Scene) -> Finding:
    window = scene.window()
    return explain_preprocessing(place_of(window, POLICY), budget_now(window), budget_before(window))


def test_the_part_of_the_preprocessing_that_grew_most_is_the_cause() -> None:
    reading, embedding, tokenizing = Scene(), Scene(), Scene(ttft=0.222)
    reading.ttft, reading.stages["read"] = 0.13, 0.1
    embedding.ttft, embedding.stages["embed"] = 0.13, 0.1
    tokenizing.ttft = 0.23
    assert [prepared(scene).cause for scene in (reading, embedding, tokenizing)] == [
        "prompt_size",
        "encoder",
        "tokenizer",
    ]


@pytest.mark.parametrize(("used", "cause"), [(KV_FULL_RATIO, "kv_headroom"), (KV_FULL_RATIO - 0.01, "slow_prefill")])
def test_full_kv_memory_comes_before_everything_else(used: float, cause: str) -> None:
    scene = Scene(prefill=0.2)
    scene.gauges["engine_kv_utilization"] = used
    finding = explained(scene)
    assert finding.cause == cause
    if cause == "kv_headroom":
        assert finding.policy_path == "deployments.large.limits.max_in_flight"


@pytest.mark.parametrize(("hits", "cause"), [(300.0, "prefix_misses"), (700.0, "slow_prefill")])
def test_prompts_that_are_no_longer_found_are_computed_again(hits: float, cause: str) -> None:
    scene = Scene(prefill=0.2)
    scene.before = {QUERIES: 1000.0, HITS: 800.0}
    scene.counted = {QUERIES: 1000.0, HITS: hits}
    window = scene.window()
    assert prefix_hits_before(window) == pytest.approx(0.8)
    assert prefix_hits(window) == pytest.approx(hits / 1000)
    assert explained(scene).cause == cause


def test_without_lookups_there_is_no_share_of_hits() -> None:
    window = Scene().window()
    assert prefix_hits(window) is None
    assert prefix_hits_before(window) is None


def test_longer_prompts_are_reported_from_slower_computation() -> None:
    longer, slower = Scene(prefill=0.2), Scene(prefill=0.2)
    longer.prompt_tokens = 30.0
    assert explained(longer).cause == "long_prompts"
    assert explained(slower).cause == "slow_prefill"


def test_a_lane_of_their_own_is_advised_only_where_short_prompts_exist() -> None:
    scene = Scene(prefill=0.2)
    scene.prompt_tokens = 30.0  # of the bucket 0-256: others are short
    assert "a lane of their own" in explained(scene).lever


def test_time_that_nobody_spent_is_the_paths_and_an_engine_without_metrics_is_reported() -> None:
    scene = Scene()
    scene.ttft, scene.has_engine = 0.5, False
    window = scene.window()
    finding = explain_path(window, place_of(window, POLICY), budget_now(window), budget_before(window))
    assert finding.stage == "network"
    assert "gives no metrics" in finding.summary


def test_an_engine_that_started_is_named() -> None:
    scene = Scene()
    scene.is_new = True
    window = scene.window()
    finding = explain_cold_start(window, place_of(window, POLICY), budget_now(window), budget_before(window))
    assert finding.summary.startswith("large started in these 10 s")
    assert finding.policy_path == "routes.all.select.fallback"
