"""GatewayMetrics: names, labels, buckets, and one count for each request."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.metrics import GatewayMetrics, prompt_bucket
from gateway.telemetry.records.record import RequestPhase, RequestRecord, Usage
from gateway.timeline import Outcome, Stage

CONTRACT = {
    "requests": {"route", "deployment", "outcome"},
    "stage_seconds": {"stage"},
    "ttft_seconds": {"deployment", "prompt_bucket", "cache"},
    "tpot_seconds": {"deployment", "prompt_bucket", "cache"},
    "total_seconds": {"deployment", "prompt_bucket", "cache"},
    "overhead_seconds": set(),
    "shed": {"lane", "reason"},
    "queue_wait_seconds": {"lane"},
    "cache_lookups": {"result", "reason"},
    "prompt_tokens": {"tenant"},
    "completion_tokens": {"tenant"},
    "cancelled_upstream": {"place"},
    "cancel_seconds": {"place"},
}


def finished(outcome: Outcome = Outcome.COMPLETED) -> RequestRecord:
    record = RequestRecord("req_1", 0.0)
    for stage in Stage:
        record.timeline.mark(stage, 0.001 * (stage + 1))
    record.route, record.deployment, record.lane, record.tenant = "main", "small", "batch", "support"
    record.outcome, record.stream = outcome, True
    record.timeline.first_token_at = 0.005
    record.usage = Usage(300, 6)
    record.shed_reason = "queue_full"
    record.place = RequestPhase.DECODE
    record.gone_at = 0.009
    return record


def samples(metrics: GatewayMetrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.instruments.render().decode())
        for sample in family.samples
    }


def test_names_and_labels_are_the_contracts() -> None:
    metrics = GatewayMetrics()
    for outcome in Outcome:
        metrics.record(finished(outcome))
    found = {
        family.name: {label for sample in family.samples for label in sample.labels} - {"le"}
        for family in text_string_to_metric_families(metrics.instruments.render().decode())
    }

    for name, labels in CONTRACT.items():
        assert found[f"penstock_{name}"] == labels, name


def test_every_request_is_counted_once_under_its_outcome() -> None:
    metrics = GatewayMetrics()
    for outcome in Outcome:
        metrics.record(finished(outcome))
    found = samples(metrics)

    for outcome in Outcome:
        labels = frozenset({("route", "main"), ("deployment", "small"), ("outcome", outcome.value)})
        assert found["penstock_requests_total", labels] == 1


def test_latencies_count_answers_only() -> None:
    metrics = GatewayMetrics()
    for outcome in Outcome:
        metrics.record(finished(outcome))
    labels = frozenset({("deployment", "small"), ("prompt_bucket", "256-1k"), ("cache", "bypass")})

    assert samples(metrics)["penstock_ttft_seconds_count", labels] == 2  # completed, cached
    assert samples(metrics)["penstock_ttft_seconds_sum", labels] == pytest.approx(0.010)
    assert samples(metrics)["penstock_tpot_seconds_sum", labels] == pytest.approx(2 * (0.010 - 0.005) / 5)


def test_tenants_that_are_not_configured_share_one_label() -> None:
    metrics = GatewayMetrics()
    metrics.tenants = frozenset({"support"})
    for tenant in ("support", "x", "y"):
        record = finished()
        record.tenant = tenant
        metrics.record(record)
    found = samples(metrics)

    assert found["penstock_prompt_tokens_total", frozenset({("tenant", "support")})] == 300
    assert found["penstock_prompt_tokens_total", frozenset({("tenant", "other")})] == 600


def test_a_request_that_never_got_far_is_still_counted() -> None:
    metrics = GatewayMetrics()
    record = RequestRecord("req_1", 0.0)
    record.outcome = Outcome.REJECTED
    metrics.record(record)

    labels = frozenset({("route", ""), ("deployment", ""), ("outcome", "rejected")})
    assert samples(metrics)["penstock_requests_total", labels] == 1


@pytest.mark.parametrize(
    ("tokens", "label"),
    [
        (0, "0-256"),
        (255, "0-256"),
        (256, "256-1k"),
        (4095, "1k-4k"),
        (16383, "4k-16k"),
        (16384, "16k+"),
        (10**9, "16k+"),
    ],
)
def test_prompt_buckets(tokens: int, label: str) -> None:
    assert prompt_bucket(tokens) == label
