"""The policy of `penstock up --model` and `--small --large`: written out, so that a user can go on from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import yaml

from gateway.cli.supervisor.model_facts import ModelFacts
from gateway.cli.supervisor.served_model import Role
from routing_policies.policy.deployment import UP_RESUME_KEY

MODELS_POLICY: Final = "models.yaml"
"""Name of the written policy in the runtime directory."""
MIN_QUALITY: Final = 0.8
_BUDGET_RATIO: Final = 5 / 8
"""Share of a context that a prompt may fill before it is trimmed: room for an answer and for the estimate's error."""
_DEFAULT_CONTEXT: Final = 4096
_NEAR_DUPLICATES: Final = {
    "mode": "exact_then_semantic",
    "scope": "tenant",
    "ttl_s": 3600,
    "max_error_ratio": 0.01,
    "regenerate_window_s": 60,
}
_ENCODER: Final = {
    "id": "encoder",
    "url": "builtin:encoder",
    "model": "all-minilm-l6-v2",
    "context_tokens": 256,
    "input_modalities": ["text"],
    "limits": {"max_in_flight": 64},
}
_HEADER: Final = """\
# Written by `penstock up {flags}` at each start. To change it, copy it, and start with --policy COPY beside the flags.
# ${{runtime_dir}} is filled in with the gateway's runtime directory when the file is read.
"""
_UNKNOWN_PAIR: Final = """\
# Nothing is known of this pair yet: the small model begins every answer, and the large one takes over where the first
# tokens are not confident. The large one repeats some requests while it is idle; what these comparisons show is
# learned by `penstock policy train --from-gateway`.
"""


def written_policy(models: Mapping[Role, ModelFacts], flags: str) -> str:
    """Return the document of a policy for one model, or for a small and a large one."""
    deployments = [_deployment(role, facts) for role, facts in models.items()]
    document = {
        "schema_version": 1,
        "deployments": [*deployments, _ENCODER],
        "routes": [
            _auto(models),
            {
                "id": "embeddings",
                "match": {"models": ["embeddings"]},
                "select": {"candidates": ["encoder"]},
                "cache": {"mode": "exact", "scope": "tenant", "ttl_s": 3600},
            },
        ],
        "tests": [
            {
                "name": f"auto begins with {next(iter(models.values())).name}",
                "request": {"model": "auto", "operation": _operation(models)},
                "expect": {"route": "auto", "deployment": next(iter(models))},
            }
        ],
    }
    head = _HEADER.format(flags=flags) + (_UNKNOWN_PAIR if len(models) > 1 else "")
    return head + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def _deployment(role: Role, facts: ModelFacts) -> dict[str, Any]:
    where = facts.url or f"unix:${{runtime_dir}}/{role}.sock"
    deployment: dict[str, Any] = {"id": role, "url": where, "model": facts.name}
    if facts.context_tokens is not None:
        deployment["context_tokens"] = facts.context_tokens
    if not facts.has_chat_template:
        deployment["operations"] = ["completions"]
    elif facts.url is None:
        deployment["resume_key_env"] = UP_RESUME_KEY
    return {**deployment, "limits": {"max_in_flight": 64}}


def _auto(models: Mapping[Role, ModelFacts]) -> dict[str, Any]:
    select: dict[str, Any] = {"candidates": [*models]}
    if len(models) > 1:
        cascade = {"first_tokens": 16, "skip_below": 0.3}
        select = {"policy": "cascade", "min_quality": MIN_QUALITY, "cascade": cascade, **select}
        select["shadow"] = {"id": "large", "ratio": 0.05}
    # Many prompts at once wait for their first tokens; a client that would rather not wait states a deadline.
    timeouts = {"first_token_ms": 240_000}
    route: dict[str, Any] = {"id": "auto", "match": {"models": ["auto"]}, "select": select, "timeouts": timeouts}
    if _operation(models) != "chat":
        return {**route, "cache": {**_NEAR_DUPLICATES, "mode": "exact"}}
    context = min(facts.context_tokens or _DEFAULT_CONTEXT for facts in models.values())
    strategies = ["drop_old_turns", "extract_passages"]
    return {
        **route,
        "trim": {"budget_tokens": int(context * _BUDGET_RATIO), "strategies": strategies},
        "cache": _NEAR_DUPLICATES,
    }


def _operation(models: Mapping[Role, ModelFacts]) -> str:
    """Return what `auto` serves: chat, unless every model only continues texts."""
    return "chat" if any(facts.has_chat_template for facts in models.values()) else "completions"
