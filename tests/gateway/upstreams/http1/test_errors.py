"""Errors between the gateway and an upstream: where each came up, and whether a retry is safe."""

from __future__ import annotations

from gateway.upstreams.http1.errors import ConnectError, UpstreamError


def test_every_error_names_the_place_and_whether_to_resend() -> None:
    error: UpstreamError = ConnectError("refused")
    assert (error.phase.value, error.response_started, error.request_sent, error.is_safe_to_resend) == (
        "connect",
        False,
        False,
        True,
    )
