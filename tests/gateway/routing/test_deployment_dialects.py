"""A deployment's dialect is known by its name in the policy, or refused with the names that are."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.routing.deployment_dialects import upstream_dialect_of
from gateway.upstreams.reach import ReachError
from routing_policies.policy.document import Deployment


def deployment(**fields: Any) -> Deployment:
    """Return a deployment with the fields that matter here."""
    return Deployment(id="d", url="http://127.0.0.1:1", model="m", **fields)


def test_chat_completions_need_no_translation() -> None:
    assert upstream_dialect_of(deployment()) is None
    assert upstream_dialect_of(deployment(dialect="openai")) is None


def test_a_dialect_that_nothing_speaks_is_refused_with_those_that_are_spoken() -> None:
    with pytest.raises(
        ReachError, match=r"deployments\.d\.dialect: this version cannot speak anthropic; it speaks openai"
    ):
        upstream_dialect_of(deployment(dialect="anthropic"))
