"""The worst measured error of similar answers."""

from __future__ import annotations

from gateway.admin.views.similar_error import worst_error
from gateway.cache.audit.route_stats import RouteStatsTable, TenantRoute
from tests.gateway.cache.audit.test_error_budget import sample
from tests.gateway.cache.word_encoder import NearMatchModel


def table(**wrong: int) -> RouteStatsTable:
    """Ten audits for each route, so many of them wrong."""
    made = RouteStatsTable(NearMatchModel())
    for route, count in wrong.items():
        stats = made.of(TenantRoute("shop", route))
        for number in range(100):
            stats.note_request(1000.0)
            stats.note_hit(1000.0, b"%d" % number, b"entry", 0.9)
        for number in range(10):
            stats.add(sample(number, wrong=number < count, weight=10.0))
    return made


def test_without_an_audit_nothing_is_shown() -> None:
    made = RouteStatsTable(NearMatchModel())
    assert worst_error(made) is None
    made.of(TenantRoute("shop", "main"))
    assert worst_error(made) is None


def test_the_route_with_the_highest_ratio_is_shown_with_its_interval() -> None:
    found = worst_error(table(good=0, bad=3, fair=1))
    assert found is not None
    assert (found["tenant"], found["route"], found["audits"]) == ("shop", "bad", 10)
    assert 0.0 < found["low"] < found["ratio"] < found["high"]
