"""RoundTrip: the quickest of the latest probes."""

from __future__ import annotations

from gateway.deployments.health.round_trip import NUM_PROBES, RoundTrip


def test_the_quickest_of_the_latest_probes_counts() -> None:
    way = RoundTrip()
    assert way.seconds is None
    for seconds in (0.4, 0.02, 0.3):
        way.note(seconds)
    assert way.seconds == 0.02
    for _ in range(NUM_PROBES):
        way.note(0.1)  # the way has changed
    assert way.seconds == 0.1
