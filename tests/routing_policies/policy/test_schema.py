"""The JSON Schema that editors get."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from routing_policies.policy.document import (
    AbsolutePath,
    EnvironmentName,
    HeaderName,
    Id,
    ModelName,
    Policy,
    Sha256Hex,
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


@pytest.mark.parametrize("kind", [Id, ModelName, HeaderName, Sha256Hex, EnvironmentName, AbsolutePath])
def test_no_pattern_lets_a_final_line_feed_pass(kind: Any) -> None:
    good = {Sha256Hex: "0" * 64, EnvironmentName: "KEY", AbsolutePath: "/ca.pem"}.get(kind, "abc")
    assert msgspec.convert(good, kind) == good
    for bad in (good + "\n", good + "\r", good + "\r\n"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(bad, kind)
