"""The policies that `--model` and `--small --large` write: good by their own tests, budgets that fit the context."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.supervisor.model_facts import ModelFacts
from gateway.cli.supervisor.model_policy import written_policy
from gateway.cli.supervisor.served_model import Role
from routing_policies.advice import advice_on
from routing_policies.check import run_tests
from routing_policies.loading import load_document
from routing_policies.policy.deployment import UP_RESUME_KEY
from routing_policies.policy.document import Policy
from routing_policies.quality.predictor import Predictors


def loaded(models: dict[Role, ModelFacts], tmp_path: Path) -> tuple[Policy, list[str]]:
    """The policy, whose own tests passed, and what is advised on it."""
    text = written_policy(models, "--flags")
    policy, document = load_document(text, source="p", variables={"runtime_dir": str(tmp_path)})
    assert run_tests(policy, document, Predictors()).failures == ()
    return policy, [found.message for found in advice_on(policy, document, Predictors())]


@pytest.mark.parametrize("context", [512, 8192, 131_072])
def test_one_model_is_auto_and_prompts_are_trimmed_to_its_own_context(tmp_path: Path, context: int) -> None:
    policy, advised = loaded({"model": ModelFacts(name="org/m", context_tokens=context)}, tmp_path)
    (auto, _) = policy.routes
    assert auto.select.resolved()[0].id == "model"
    assert auto.trim.budget_tokens == context * 5 // 8
    assert auto.cache.mode == "exact_then_semantic"
    assert policy.deployments[0].url == f"unix:{tmp_path}/model.sock"
    assert policy.deployments[0].resume_key_env == UP_RESUME_KEY
    assert advised == []


def test_a_pair_is_a_cascade_that_learns_from_a_shadow_and_is_advised_on(tmp_path: Path) -> None:
    remote = ModelFacts(name="big", url="http://host:8000", context_tokens=32_768)
    policy, advised = loaded({"small": ModelFacts(name="tiny", context_tokens=2048), "large": remote}, tmp_path)
    (auto, _) = policy.routes
    assert auto.select.policy == "cascade"
    assert auto.select.shadow is not None
    assert auto.trim.budget_tokens == 1280
    assert [one.url for one in policy.deployments[:2]] == [f"unix:{tmp_path}/small.sock", "http://host:8000"]
    assert [one.resume_key_env for one in policy.deployments[:2]] == [UP_RESUME_KEY, None]
    assert "nothing is known of tiny beside big" in advised[0]


def test_a_model_without_a_chat_template_serves_completions(tmp_path: Path) -> None:
    policy, _ = loaded({"model": ModelFacts(name="base", context_tokens=2048, has_chat_template=False)}, tmp_path)
    assert policy.deployments[0].operations == ("completions",)
    assert policy.routes[0].trim.budget_tokens is None
