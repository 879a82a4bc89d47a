"""The mean time before the first token, by stage: what is measured, and what only the rest can explain."""

from __future__ import annotations

import pytest

from gateway.diagnosis.budget import budget_before, budget_now, first_tokens
from tests.gateway.diagnosis.snapshots import NUM, Scene


def test_the_parts_of_a_healthy_request_are_its_stages() -> None:
    budget = budget_before(Scene().window())
    assert [budget.num_requests, budget.ttft_s] == pytest.approx([NUM, 0.03])
    assert budget.read_s == pytest.approx(0.001)
    assert budget.engine_queue_s == pytest.approx(0.001)
    assert budget.prefill_s == pytest.approx(0.02)
    assert budget.front_s == pytest.approx(0.022 - 0.001 - 0.02), "what the engine took before its queue"
    assert budget.path_s == pytest.approx(0.03 - 0.001 - 0.022), "what neither side accounts for"


def test_the_window_and_its_past_are_two_budgets() -> None:
    scene = Scene()
    scene.ttft, scene.stages["queue"] = 0.53, 0.5
    window = scene.window()
    assert budget_now(window).wait_s == pytest.approx(0.5)
    assert budget_before(window).wait_s == 0.0
    assert budget_now(window).path_s == pytest.approx(budget_before(window).path_s), "waiting here is no time there"


def test_a_vector_that_is_made_beside_the_deployment_delays_nothing() -> None:
    scene = Scene()
    scene.stages["embed"] = 0.2  # longer than the whole first token took
    assert budget_now(scene.window()).embed_s == pytest.approx(0.0, abs=1e-9)


def test_a_vector_that_the_request_waits_for_counts_as_work_on_the_prompt() -> None:
    scene = Scene()
    scene.ttft, scene.stages["embed"] = 0.13, 0.1
    budget = budget_now(scene.window())
    assert budget.embed_s == pytest.approx(0.1)
    assert budget.preprocessing_s == pytest.approx(0.001 + 0.1 + 0.001)


def test_similar_answers_are_no_first_tokens_of_deployments() -> None:
    scene = Scene()
    scene.hit_ttft = (0.001, 0.001)
    assert first_tokens(scene.window().spread).mean == pytest.approx(0.03)
