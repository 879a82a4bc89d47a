"""Registry of the dialects that deployments can speak, by their names in the policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.dialects.messages.upstream.dialect import AnthropicDialect
from gateway.dialects.responses.upstream.responses_upstream import ResponsesUpstream
from gateway.dialects.upstream_dialect import UpstreamDialect
from gateway.upstreams.reach import ReachError
from routing_policies.policy.deployment import Deployment

CHAT_DIALECT: Final = "openai"
"""Name of chat completions, which need no translation."""

_DIALECTS: Final[Mapping[str, UpstreamDialect]] = {
    dialect.name: dialect for dialect in (AnthropicDialect(), ResponsesUpstream())
}


def upstream_dialect_of(deployment: Deployment) -> UpstreamDialect | None:
    """Return the translation to the deployment's dialect, or None for chat completions.

    Raises:
        ReachError: This version cannot speak the dialect.
    """
    if deployment.dialect == CHAT_DIALECT:
        return None
    dialect = _DIALECTS.get(deployment.dialect)
    if dialect is None:
        known = ", ".join((CHAT_DIALECT, *_DIALECTS))
        raise ReachError(
            f"deployments.{deployment.id}.dialect: this version cannot speak {deployment.dialect}; it speaks {known}"
        )
    return dialect
