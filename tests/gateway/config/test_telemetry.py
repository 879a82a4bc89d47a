"""Settings of log, traces and recordings."""

from __future__ import annotations

import pytest

from gateway.config.checks import ConfigError
from gateway.config.telemetry import LogSettings, RecorderSettings, TraceSettings


def test_fields_to_omit_are_a_list_with_any_spacing() -> None:
    assert LogSettings(omit=" tenant, model ,,").omitted == {"tenant", "model"}
    assert LogSettings().omitted == frozenset()


def test_a_field_that_the_log_needs_cannot_be_omitted() -> None:
    with pytest.raises(ConfigError, match="omit: outcome, status: cannot be left out; expected some of client_"):
        LogSettings(omit="tenant,status,outcome")


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan")])
def test_a_share_is_between_none_and_all(ratio: float) -> None:
    for section in (LogSettings, TraceSettings):
        section(sample_ratio=0.0)
        section(sample_ratio=1.0)
        with pytest.raises(ConfigError, match="sample_ratio"):
            section(sample_ratio=ratio)


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "ftp://host/v1", "http://", "http://host/a b"])
def test_traces_are_posted_to_a_url(url: str) -> None:
    TraceSettings(otlp_endpoint="https://collector:4318")
    with pytest.raises(ConfigError, match="expected a URL"):
        TraceSettings(otlp_endpoint=url)


def test_a_recording_has_a_size_and_an_age() -> None:
    RecorderSettings(retention_h=8784.0)
    for settings in ({"max_mb": 0}, {"retention_h": 0.0}, {"retention_h": 8785.0}):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            RecorderSettings(**settings)
