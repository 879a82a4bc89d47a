"""Settings of recalls."""

from __future__ import annotations

import pytest

from gateway.config.checks import ConfigError
from gateway.config.recalls import RecallSettings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention_days", -1.0),
        ("retention_days", 91.0),
        ("max_answers", 99),
        ("max_answers", 50_001),
        ("give_up_hours", 0.0),
        ("give_up_hours", 721.0),
    ],
)
def test_values_that_cannot_be_are_refused_by_key(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: "):
        RecallSettings(**{key: value})  # type: ignore[arg-type]


def test_recalls_are_on_unless_nothing_is_to_be_remembered() -> None:
    assert RecallSettings().is_on
    assert not RecallSettings().allow_private_webhooks
    assert not RecallSettings(retention_days=0.0).is_on
