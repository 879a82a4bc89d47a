"""The wire's tables of metrics: every name with exactly its labels, and no label value outside its closed set."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import get_args
from urllib.parse import urlsplit

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from gateway.embedding.embedder import EmbedResult
from tests.e2e.conftest import Stack
from tests.e2e.engine import engine_client
from tests.e2e.raw import chat, request, send_raw

pytestmark = pytest.mark.e2e

GATEWAY: dict[str, set[str]] = {
    "requests_total": {"route", "deployment", "outcome"},
    "stage_seconds": {"stage"},
    "ttft_seconds": {"deployment", "prompt_bucket", "cache"},
    "tpot_seconds": {"deployment", "prompt_bucket", "cache"},
    "total_seconds": {"deployment", "prompt_bucket", "cache"},
    "overhead_seconds": set(),
    "shed_total": {"lane", "reason"},
    "queue_depth": {"lane"},
    "queue_wait_seconds": {"lane"},
    "concurrency_limit": {"deployment"},
    "in_flight": {"deployment"},
    "cache_lookups_total": {"result", "reason"},
    "prompt_tokens_total": {"tenant"},
    "completion_tokens_total": {"tenant"},
    "routing_decisions_total": {"policy", "choice", "reason"},
    "cancelled_upstream_total": {"place"},
    "cancel_seconds": {"place"},
    "policy_info": {"revision"},
    "policy_reload_success": set(),
    "event_loop_lag_seconds": set(),
    "store_up": set(),
    "store_seconds": {"operation"},
}
GATEWAY_UNTOUCHED = {"retries_total", "hedges_total", "hedged_prompt_tokens_total", "ejections_total", "panics_total"}
"""There once something fails; nothing does here."""

_BY_REQUEST = {"prompt_bucket", "lane"}
ENGINE: dict[str, set[str]] = {
    "ttft_seconds": _BY_REQUEST,
    "itl_seconds": _BY_REQUEST,
    "chunk_gap_seconds": _BY_REQUEST,
    "tpot_seconds": _BY_REQUEST,
    "e2e_seconds": _BY_REQUEST,
    "queue_seconds": _BY_REQUEST,
    "prefill_seconds": _BY_REQUEST,
    "decode_seconds": _BY_REQUEST,
    "detokenize_seconds": set(),
    "step_seconds": set(),
    "running": set(),
    "waiting": set(),
    "kv_blocks_total": set(),
    "kv_blocks_free": set(),
    "kv_blocks_cached": set(),
    "kv_utilization": set(),
    "kv_leaked_blocks": set(),
    "prefix_cache_queries_tokens_total": set(),
    "prefix_cache_hits_tokens_total": set(),
    "speculation_drafted_tokens_total": set(),
    "speculation_accepted_tokens_total": set(),
    "speculation_enabled": set(),
    "preemptions_total": set(),
    "aborts_total": {"state"},
    "abort_to_free_seconds": {"state"},
    "prompt_tokens_total": set(),
    "generation_tokens_total": set(),
    "startup_seconds": {"phase"},
}

_BUCKETS = {"0-256", "256-1k", "1k-4k", "4k-16k", "16k+"}
_ENDS = {"completed", "cached", "shed", "rejected", "cancelled", "upstream_failed", "upstream_timeout", "failed"}
_STAGES = {"read", "admit", "trim", "embed", "cache", "route", "queue", "connect", "upstream_first_byte", "relay"}
GATEWAY_VALUES: dict[str, set[str]] = {
    "route": {"", "auto", "implied-direct"},
    "deployment": {"", "small", "large", "cache", "encoder"},
    "outcome": _ENDS,
    "stage": _STAGES,
    "prompt_bucket": _BUCKETS,
    "cache": {"hit_exact", "hit_semantic", "miss", "bypass"},
    "result": {"hit_exact", "hit_semantic", "miss", "bypass", *get_args(EmbedResult)},
    "lane": {"", "interactive", "interactive-long", "batch"},
    "tenant": {"dev"},
    "place": {"queued", "connecting", "prefill", "decode"},
    "choice": {"small", "large"},
    "policy": {"first_available", "least_in_flight", "cascade"},
}
SHED_REASONS = {"queue_full", "deadline", "slo_unreachable", "tenant_share", "overload", "draining"}
ENGINE_VALUES: dict[str, set[str]] = {
    "prompt_bucket": _BUCKETS,
    "lane": {"interactive", "long", "batch"},
    "state": {"queued", "prefill", "decode", "grammar", "preempted"},
    "phase": {"import", "weights", "kv_pool", "warm_up"},
}


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> dict[str, Metric]:
    """The gateway's metrics after one request of every kind that this policy can give."""
    for stream in (False, True):
        send_raw(stack.url, request(chat(stream=stream, max_tokens=8)))
    send_raw(stack.url, request(chat(model="nobody")))
    send_raw(stack.url, request(chat(), headers={"x-stainless-timeout": "0.000001"}))
    leave(stack)
    deadline = time.monotonic() + 30
    while True:
        found = scraped(httpx.get(f"{stack.admin_url}/metrics", timeout=30.0).text, "penstock_")
        if found["cancelled_upstream_total"].samples:
            return found
        assert time.monotonic() < deadline, "the client that left was not counted"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def engine(stack: Stack) -> dict[str, Metric]:
    """The small engine's metrics after an answer and a client that left."""
    own = chat(model="penstock-small", stream=True, max_tokens=8)
    with engine_client(stack) as client:
        assert client.post("/v1/chat/completions", json=own).status_code == 200
        before = scraped(client.get("/metrics").text, "engine_")
        deadline = time.monotonic() + 30
        with client.stream(
            "POST", "/v1/chat/completions", json=own | {"max_tokens": 2000, "min_tokens": 1000}
        ) as response:
            next(response.iter_bytes())
        while True:
            found = scraped(client.get("/metrics").text, "engine_")
            if total(found["aborts_total"]) > total(before["aborts_total"]):
                return found
            assert time.monotonic() < deadline, "the client that left was not counted"
            time.sleep(0.05)


def leave(stack: Stack) -> None:
    """Begin a long stream and go."""
    where = urlsplit(stack.url)
    assert where.hostname is not None
    assert where.port is not None
    with socket.create_connection((where.hostname, where.port), 30) as connection:
        connection.sendall(
            request(chat(stream=True, max_tokens=2000, min_tokens=1000), headers={"connection": "keep-alive"})
        )
        assert connection.recv(1024).startswith(b"HTTP/1.1 200")


def scraped(text: str, prefix: str) -> dict[str, Metric]:
    """Families by name without prefix, a counter's with its `_total`."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.name.startswith(prefix), family.name
        assert family.documentation, f"{family.name} has no help text"
        found[family.name.removeprefix(prefix) + ("_total" if family.type == "counter" else "")] = family
    return found


def total(family: Metric) -> float:
    return sum(sample.value for sample in family.samples if sample.name.endswith("_total"))


def assert_labels(family: Metric, labels: set[str]) -> None:
    """Samples there are, and each has exactly these labels."""
    samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
    assert samples, f"{family.name} has no samples"
    for sample in samples:
        assert sample.labels.keys() - {"le"} == labels, sample


def assert_closed(families: Mapping[str, Metric], allowed: Mapping[str, set[str]]) -> None:
    """No label has a value outside its set."""
    for family in families.values():
        for sample in family.samples:
            for label, value in sample.labels.items():
                assert value in allowed.get(label, {value}), sample


def assert_range(families: Mapping[str, Metric]) -> None:
    """Every histogram reaches from 0.1 ms to 120 s, in seconds by its name."""
    for name, family in families.items():
        bounds = {float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels}
        assert (family.type == "histogram") == name.endswith("_seconds") or family.type == "gauge"
        assert not bounds or {min(bounds), max(bounds - {float("inf")})} == {0.0001, 120.0}


@pytest.mark.parametrize("name", GATEWAY)
def test_the_gateway_has_every_metric_with_exactly_its_labels(gateway: dict[str, Metric], name: str) -> None:
    assert_labels(gateway[name], GATEWAY[name])


def test_the_gateways_label_sets_are_closed(gateway: dict[str, Metric]) -> None:
    assert_closed(gateway, GATEWAY_VALUES)
    assert {sample.labels["reason"] for sample in gateway["shed_total"].samples} <= SHED_REASONS
    stages = {sample.labels["stage"] for sample in gateway["stage_seconds"].samples}
    assert stages == _STAGES
    assert gateway.keys() >= GATEWAY_UNTOUCHED
    assert_range(gateway)


@pytest.mark.parametrize("name", ENGINE)
def test_the_engine_has_every_metric_with_exactly_its_labels(engine: dict[str, Metric], name: str) -> None:
    assert_labels(engine[name], ENGINE[name])


def test_the_engines_label_sets_are_closed(engine: dict[str, Metric]) -> None:
    assert_closed(engine, ENGINE_VALUES)
    assert_range(engine)


def test_an_idle_engine_has_leaked_nothing(engine: dict[str, Metric]) -> None:
    assert engine["kv_leaked_blocks"].samples[0].value == 0
    assert engine["kv_blocks_total"].samples[0].value > 0
    assert 0 <= engine["kv_utilization"].samples[0].value <= 1


def test_requests_are_counted_by_how_they_ended(gateway: dict[str, Metric]) -> None:
    ends = {sample.labels["outcome"] for sample in gateway["requests_total"].samples}
    assert {"completed", "rejected", "shed", "cancelled"} <= ends
    assert "failed" not in ends
