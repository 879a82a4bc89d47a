"""The form of single values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from routing_policies.policy.values import AbsolutePath, EnvironmentName, HeaderName, Id, ModelName, Sha256Hex


@pytest.mark.parametrize("kind", [Id, ModelName, HeaderName, Sha256Hex, EnvironmentName, AbsolutePath])
def test_no_pattern_lets_a_final_line_feed_pass(kind: Any) -> None:
    good = {Sha256Hex: "0" * 64, EnvironmentName: "KEY", AbsolutePath: "/ca.pem"}.get(kind, "abc")
    assert msgspec.convert(good, kind) == good
    for bad in (good + "\n", good + "\r", good + "\r\n"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(bad, kind)
