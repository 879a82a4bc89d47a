"""A LiteLLM configuration becomes a policy that is good, and what it cannot state is given."""

from __future__ import annotations

import json

import pytest

from routing_policies.loading import load_policy
from routing_policies.policy.importing import ImportFailed, import_litellm

CONFIG = """
model_list:
  - model_name: gpt-4o
    litellm_params: {model: openai/gpt-4o, api_key: os.environ/OPENAI_KEY, rpm: 60, weight: 2,
                     input_cost_per_token: 0.0000025, output_cost_per_token: 0.00001}
  - model_name: gpt-4o
    litellm_params: {model: openai/my-gpt, api_base: "http://10.0.0.5:8000/v1", api_key: sk-in-the-file}
  - model_name: local
    litellm_params: {model: hosted_vllm/llama, api_base: "http://vllm:8000", timeout: 5}
  - model_name: claude
    litellm_params: {model: anthropic/claude-x, api_key: os.environ/ANTHROPIC_API_KEY}
router_settings:
  routing_strategy: least-busy
  model_group_alias: {fast: local}
  fallbacks: [{gpt-4o: [local, claude]}]
  redis_host: localhost
litellm_settings: {drop_params: true}
"""


def test_what_can_be_stated_here_is_taken_over() -> None:
    found = import_litellm(CONFIG)
    policy = load_policy(json.dumps(found.document), source="policy")
    assert [(item.id, item.model, item.url) for item in policy.deployments] == [
        ("gpt-4o-1", "gpt-4o", "https://api.openai.com/v1"),
        ("gpt-4o-2", "my-gpt", "http://10.0.0.5:8000/v1"),
        ("local-1", "llama", "http://vllm:8000"),
    ]
    first = policy.deployments[0]
    assert first.auth is not None
    assert first.auth.bearer_env == "OPENAI_KEY"
    assert first.cost_per_mtok is not None
    assert (first.cost_per_mtok.prompt, first.cost_per_mtok.completion) == (2.5, 10.0)
    gpt, local = policy.routes
    assert (gpt.select.policy, gpt.select.fallback) == ("least_in_flight", ("local",))
    assert local.match.models == ("local", "fast")
    assert local.timeouts.total_ms == 5000


def test_weights_are_stored_where_the_choice_is_by_weight() -> None:
    found = import_litellm(CONFIG.replace("least-busy", "simple-shuffle"))
    route = load_policy(json.dumps(found.document), source="policy").routes[0]
    assert [candidate.weight for candidate in route.select.resolved()] == [2.0, 1.0]


def test_what_cannot_be_stated_is_reported_and_no_secret_is_copied() -> None:
    found = import_litellm(CONFIG)
    notified = "\n".join(found.notes)
    for part in ("rpm", "a key stands in the file", "anthropic does not speak", "redis_host", "litellm_settings"):
        assert part in notified
    assert "sk-in-the-file" not in notified + json.dumps(found.document)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "model_list: 7", "model_list: [", "a: &a [x]\nmodel_list: [*a, *a]", "model_list: [{model_name: x}]"],
)
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(ImportFailed):
        import_litellm(text)
