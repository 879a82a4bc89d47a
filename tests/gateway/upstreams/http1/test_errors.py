"""Errors between the gateway and an upstream: where each came up."""

from __future__ import annotations

from gateway.upstreams.http1.errors import ConnectError, ExchangePhase, UpstreamError


def test_a_refused_connection_came_before_the_request() -> None:
    error: UpstreamError = ConnectError("refused")
    assert (error.phase, error.response_started) == (ExchangePhase.CONNECT, False)
