"""The JSON Schema that editors get."""

from __future__ import annotations

from routing_policies.policy.document import (
    Policy,
)
from routing_policies.policy.schema import schema_of_policies


def test_the_schema_names_every_key_and_allows_no_other() -> None:
    schema = schema_of_policies()
    body = schema["$defs"]["Policy"]
    assert set(body["properties"]) == set(Policy.__struct_fields__)
    assert body["required"] == ["schema_version", "deployments"]
    objects = [part for part in schema["$defs"].values() if part.get("type") == "object"]
    assert objects
    assert all(part["additionalProperties"] is False for part in objects)
