"""The `x-ratelimit-*` headers of a tenant."""

from __future__ import annotations

import pytest

from gateway.admission.quotas.quota_headers import duration, rate_limit_headers
from tests.gateway.admission.shared_meters import Replica, SharedMeters, Time, limited


class TestHeaders:
    async def test_they_state_where_the_limits_per_minute_stand(self, time: Time, shared: SharedMeters) -> None:
        rules = limited("{requests_per_min: 10, tokens_per_min: 1000, budget: {tokens_per_day: 9999}}")
        replica = Replica(shared, time, rules)
        await replica.routing_request(tokens=300)
        headers = dict(rate_limit_headers(replica.quota, time()))
        assert headers[b"x-ratelimit-limit-requests"] == b"10"
        assert headers[b"x-ratelimit-remaining-requests"] == b"9"
        assert headers[b"x-ratelimit-limit-tokens"] == b"1000"
        assert headers[b"x-ratelimit-remaining-tokens"] == b"700"
        assert headers[b"x-ratelimit-reset-requests"].startswith((b"60", b"61", b"1m"))
        assert len(headers) == 6

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(-1, b"0ms"), (0.012, b"12ms"), (1.0, b"1s"), (7.66, b"7.66s"), (59.999, b"60s"), (360, b"6m0s")],
    )
    def test_a_duration_reads_like_openais(self, seconds: float, text: bytes) -> None:
        assert duration(seconds) == text
