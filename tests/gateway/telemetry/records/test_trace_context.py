"""Trace contexts as clients send them."""

from __future__ import annotations

import pytest

from gateway.telemetry.records.trace_context import parse_traceparent
from tests.gateway.telemetry.tracing.test_tracing import SPAN, TRACE


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-" + b"0" * 16 + b"-01",
        b"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        b"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
    ],
)
def test_what_is_no_traceparent_begins_a_new_trace(value: bytes | None) -> None:
    assert parse_traceparent(value) is None


def test_a_later_version_with_more_fields_is_understood() -> None:
    found = parse_traceparent(f"01-{TRACE}-{SPAN}-03-more".encode())
    assert found is not None
    assert (found.trace_id, found.is_sampled) == (TRACE, True)
