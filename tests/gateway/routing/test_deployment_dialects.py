"""A deployment's dialect is known by its name in the policy, or refused with the names that are."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.routing.deployment_dialects import upstream_dialect_of
from routing_policies.policy.deployment import Deployment


def deployment(**fields: Any) -> Deployment:
    """Return a deployment with the fields that matter here."""
    return Deployment(id="d", url="http://127.0.0.1:1", model="m", **fields)


def test_chat_completions_need_no_translation() -> None:
    assert upstream_dialect_of(deployment()) is None
    assert upstream_dialect_of(deployment(dialect="openai")) is None


@pytest.mark.parametrize("name", ["anthropic", "responses"])
def test_a_deployment_of_another_api_has_its_translation(name: str) -> None:
    dialect = upstream_dialect_of(deployment(dialect=name))
    assert dialect is not None
    assert dialect.name == name
