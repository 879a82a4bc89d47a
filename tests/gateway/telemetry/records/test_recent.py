"""RecentRequests: the last finished requests, explained without what anybody stated in them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from gateway.telemetry.records.recent import RecentRequests
from gateway.telemetry.records.record import CacheResult, Neighbourhood, RequestRecord, Usage
from gateway.timeline import Outcome, Stage
from routing_policies.decision import Decision
from routing_policies.views import DeploymentView


class Notifications(NamedTuple):
    """What a decision was made by."""

    scores: dict[str, dict[str, float]]
    totals: dict[str, float]
    qualities: Mapping[str, float] = MappingProxyType({})
    quality_threshold: float | None = None
    views: tuple[DeploymentView, ...] = ()


def finished(number: int, **fields: object) -> RequestRecord:
    record = RequestRecord(f"req_{number}", 10.0)
    for stage in (Stage.READ, Stage.ADMIT, Stage.UPSTREAM_FIRST_BYTE, Stage.RELAY):
        record.timeline.mark(stage, record.timeline.last_at + 0.25)
    record.outcome, record.status, record.stream = Outcome.COMPLETED, 200, True
    record.timeline.first_token_at = 10.75
    record.usage = Usage(120, 5, 64)
    for name, value in fields.items():
        setattr(record, name, value)
    return record


@pytest.fixture
def recent() -> RecentRequests:
    return RecentRequests(clock=lambda: 20.0, wall=lambda: 1000.0, capacity=4)


def test_newest_come_first_and_the_oldest_are_forgotten(recent: RecentRequests) -> None:
    for number in range(6):
        recent.note(finished(number))
    assert [one.id for one in recent.newest()] == ["req_5", "req_4", "req_3", "req_2"]
    assert recent.num_seen == 6


def test_only_what_finished_since_is_reported_again(recent: RecentRequests) -> None:
    recent.note(finished(1))
    recent.note(finished(2))
    seen = recent.num_seen
    recent.note(finished(3))
    assert [one.id for one in recent.newest(after=seen)] == ["req_3"]
    assert recent.newest(after=recent.num_seen) == []


def test_filters_must_all_hold(recent: RecentRequests) -> None:
    recent.note(finished(1, tenant="support", cache=CacheResult.HIT_EXACT))
    recent.note(finished(2, tenant="support"))
    recent.note(finished(3, tenant="sales", cache=CacheResult.HIT_EXACT))
    found = recent.newest(where={"tenant": "support", "cache": "hit_exact"})
    assert [one.id for one in found] == ["req_1"]


def test_instants_are_reported_in_wall_time(recent: RecentRequests) -> None:
    recent.note(finished(1))
    assert recent.newest()[0].at == 990.0


def test_a_request_is_explained_stage_by_stage_with_its_decision_and_neighbour(recent: RecentRequests) -> None:
    decision = Decision(
        deployment="large",
        policy="scored",
        dropped={"spare": "not_ready"},
        ranked=Notifications({"large": {"latency": 0.8}, "small": {"latency": 0.25}}, {"large": 0.8, "small": 0.25}),
    )
    near = Neighbourhood(
        entry_id="req_0", similarity=0.93, match_probability=0.9, threshold=0.99, served=False, why="chance"
    )
    recent.note(finished(1, decisions=(decision,), neighbour=near, trimmed=(("minify", 12),)))
    notified = recent.find("req_1")
    assert notified is not None
    assert [(stage.stage, stage.ms) for stage in notified.stages] == [
        *(("read", 250.0), ("admit", 250.0)),
        *(("upstream_first_byte", 250.0), ("relay", 250.0)),
    ]
    assert sum(stage.ms for stage in notified.stages) == notified.total_ms
    assert notified.decisions[0].totals == {"large": 0.8, "small": 0.25}
    assert notified.decisions[0].dropped == {"spare": "not_ready"}
    assert notified.neighbour == near
    assert (notified.ttft_ms, notified.tpot_ms, notified.cached_tokens, notified.trimmed) == (
        750.0,
        62.5,
        64,
        {"minify": 12},
    )


def test_the_clients_own_id_finds_it_as_well(recent: RecentRequests) -> None:
    recent.note(finished(1, client_request_id="ticket-7"))
    found = recent.find("ticket-7")
    assert found is not None
    assert found.id == "req_1"
    assert recent.find("req_9") is None


def test_a_name_as_long_as_a_body_is_not_left_whole(recent: RecentRequests) -> None:
    recent.note(finished(1, model="m" * 1_000_000, client_request_id="c" * 30_000))
    ((_, record),) = recent._numbered()
    assert len(record.model) == 256
    assert len(record.client_request_id or "") == 256


def test_what_an_upstream_stated_is_shown_without_secrets_and_control_characters(recent: RecentRequests) -> None:
    recent.note(finished(1, detail="refused: authorization: Bearer abc \x1b[2J"))
    found = recent.find("req_1")
    assert found is not None
    assert found.detail is not None
    assert "abc" not in found.detail
    assert "\x1b" not in found.detail


def test_one_tenants_flood_evicts_no_record_of_another(recent: RecentRequests) -> None:
    recent.note(finished(0, tenant="calm"))
    for number in range(1, 100):
        recent.note(finished(number, tenant="flood"))
    assert [one.id for one in recent.newest()] == ["req_99", "req_98", "req_97", "req_0"]
    assert [one.seq for one in recent.newest()] == [100, 99, 98, 1]
    assert [one.id for one in recent.newest(after=1)] == ["req_99", "req_98", "req_97"]
    assert recent.find("req_0") is not None
