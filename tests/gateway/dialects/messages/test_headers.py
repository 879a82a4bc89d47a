"""Headers of the Messages API and of the gateway, each in place of the other."""

from __future__ import annotations

import pytest

from gateway.dialects.messages.headers import betas_of, in_own_names, with_authorization


def test_an_api_key_is_a_bearer_key() -> None:
    assert (b"authorization", b"Bearer k") in with_authorization([(b"x-api-key", b" k ")])
    both = [(b"x-api-key", b"k"), (b"authorization", b"Bearer other")]
    assert list(with_authorization(both)) == both


def test_two_api_keys_are_two_keys() -> None:
    found = with_authorization([(b"x-api-key", b"a"), (b"x-api-key", b"b")])
    assert [name for name, _ in found].count(b"authorization") == 2


@pytest.mark.parametrize(
    ("sent", "betas"),
    [
        ([], []),
        ([(b"anthropic-beta", b"a, b")], ["a", "b"]),
        ([(b"anthropic-beta", b"a"), (b"anthropic-beta", b"b,,")], ["a", "b"]),
        ([(b"anthropic-beta", b"x" * 5000)], []),
    ],
)
def test_betas(sent: list[tuple[bytes, bytes]], betas: list[str]) -> None:
    assert betas_of(sent) == betas


@pytest.mark.parametrize(
    ("duration", "instant"),
    [(b"12ms", b"2026-01-01T00:00:00Z"), (b"7.66s", b"2026-01-01T00:00:07Z"), (b"6m0s", b"2026-01-01T00:06:00Z")],
)
def test_limits_and_the_request_id(duration: bytes, instant: bytes) -> None:
    sent = [
        (b"content-type", b"application/json"),
        (b"x-request-id", b"req_1"),
        (b"x-ratelimit-limit-tokens", b"100"),
        (b"x-ratelimit-reset-requests", duration),
    ]
    assert in_own_names(sent, lambda: 1_767_225_600.0) == [
        (b"content-type", b"application/json"),
        (b"x-request-id", b"req_1"),
        (b"request-id", b"req_1"),
        (b"anthropic-ratelimit-tokens-limit", b"100"),
        (b"anthropic-ratelimit-requests-reset", instant),
    ]
