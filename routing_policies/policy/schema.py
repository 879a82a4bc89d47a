"""JSON Schema of policies."""

from __future__ import annotations

from typing import Any

import msgspec

from routing_policies.policy.document import Policy


def schema_of_policies() -> dict[str, Any]:
    """Return a JSON Schema (2020-12) for editors; loading also checks references."""
    body = msgspec.json.schema(Policy)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Penstock policy", **body}
