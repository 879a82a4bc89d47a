"""All metrics of the gateway, and the only code that updates them from a finished request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

from gateway.access.api_keys import DEV_TENANT
from gateway.telemetry.families import MetricFamilies
from gateway.telemetry.instruments import SECONDS_BUCKETS, Counter, Histogram
from gateway.telemetry.records.record import CacheResult, RequestRecord, Usage
from gateway.telemetry.records.worth import Worth, worth_of
from gateway.telemetry.window import History
from gateway.timeline import STAGE_LABELS, Clock, Outcome, Stage
from routing_policies.policy.document import Policy, Slo
from routing_policies.policy.members import SEPARATOR

OTHER = "other"
"""Label of tenants that are not configured."""

PROMPT_BUCKETS: tuple[tuple[int, str], ...] = ((256, "0-256"), (1024, "256-1k"), (4096, "1k-4k"), (16384, "4k-16k"))
LAST_PROMPT_BUCKET = "16k+"
_BYTES_PER_TOKEN = 4
"""Estimate for the prompt bucket, where the upstream reports no usage."""

FORECAST_ERROR_SHARES = (0.5, 0.9)

_SAVED_BY_FLIGHT = "shared"
"""Source of savings from an identical request in flight; the other sources are cache results and `trim`."""

_ADMIT, _TRIM, _CACHE, _ROUTE = (int(stage) for stage in (Stage.ADMIT, Stage.TRIM, Stage.CACHE, Stage.ROUTE))


class LatencyTargets(NamedTuple):
    """Latency targets of a lane, in seconds; None for no target."""

    ttft_s: float | None
    tpot_s: float | None


def prompt_bucket(prompt_tokens: int) -> str:
    """Return the label of the bucket that holds `prompt_tokens`."""
    for bound, label in PROMPT_BUCKETS:
        if prompt_tokens < bound:
            return label
    return LAST_PROMPT_BUCKET


def _label(deployment: str) -> str:
    """Return the label of a deployment: the group's id for a member, so that the policy bounds the labels."""
    return deployment.partition(SEPARATOR)[0]


class _Latencies:
    """The three latency histograms of one deployment, prompt bucket and cache result."""

    __slots__ = ("total", "tpot", "ttft")

    def __init__(self, ttft: Histogram, tpot: Histogram, total: Histogram) -> None:
        self.ttft = ttft
        self.tpot = tpot
        self.total = total


class _Answers:
    """Metrics of a request for which a deployment was chosen, with their labels resolved."""

    __slots__ = ("completion_tokens", "lookups", "prompt_tokens", "queue_wait")

    def __init__(self, metrics: GatewayMetrics, cache: tuple[CacheResult, str], lane: str, tenant: str) -> None:
        self.lookups = metrics.cache_lookups.labels(*cache)
        self.queue_wait = metrics.queue_wait.labels(lane)
        self.prompt_tokens = metrics.prompt_tokens.labels(tenant)
        self.completion_tokens = metrics.completion_tokens.labels(tenant)


class GatewayMetrics(MetricFamilies):
    """Metrics of the gateway; `tenants` bounds the tenant label and follows the policy."""

    def __init__(self) -> None:
        super().__init__()
        self.tenants: frozenset[str] = frozenset()
        self.targets: Mapping[str, LatencyTargets] = {}
        """Latency targets by lane; follows the policy."""
        self.worth: Worth | None = None
        """Token prices; None where the policy has none."""
        self._stage_children = [self.stages.labels(label) for label in STAGE_LABELS]
        self._overhead_child = self.overhead.labels()
        self._requests: dict[tuple[str, str, Outcome], Counter] = {}
        self._latencies: dict[tuple[str, str, CacheResult], _Latencies] = {}
        self._answers: dict[tuple[CacheResult, str, str, str], _Answers] = {}

    def follow(self, policy: Policy, revision: str) -> None:
        """Adopt the tenants, targets, prices and revision of the policy in force."""
        self.tenants = frozenset((DEV_TENANT, *(tenant.id for tenant in policy.tenants)))
        self.targets = {lane.id: _targets(lane.slo) for lane in policy.lanes if lane.slo is not None}
        self.worth = worth_of(policy)
        self.policy_info.clear()
        self.policy_info.labels(revision).set(1)

    def history(self, wall: Clock) -> History:
        """Return a history of the families that the admin page and the diagnosis read over time."""
        counters = (
            *(self.requests, self.shed, self.cache_lookups, self.saved_tokens, self.saved_cost, self.cost, self.slo),
            *(self.prompt_tokens, self.completion_tokens, self.trimmed_tokens, self.degraded, self.decisions),
            *(self.retries, self.hedges, self.ejections, self.client_retries, self.panics, self.cancelled_upstream),
            *(self.quota_refused, self.rejected, self.cut_short_tokens, self.resumed_streams),
        )
        histograms = (self.stages, self.ttft, self.tpot, self.total, self.overhead, self.queue_wait)
        return History(counters, histograms, prefix="penstock_", wall=wall)

    def record(self, record: RequestRecord) -> None:
        """Count one finished request; called exactly once for each."""
        outcome = record.outcome or Outcome.FAILED
        key = (record.route, _label(record.deployment), outcome)
        counter = self._requests.get(key)
        if counter is None:
            counter = self._requests[key] = self.requests.labels(*key)
        counter.value += 1.0
        for child, seconds in zip(self._stage_children, record.timeline.spent, strict=True):
            if seconds is not None:  # Histogram.observe inlined, because it runs ten times a request
                child.counts[bisect_left(SECONDS_BUCKETS, seconds)] += 1
                child.total += seconds
        if record.is_retry:
            self.client_retries.labels().inc()
        for step in record.degraded:
            self.degraded.labels(step).inc()
        for header in record.ignored_headers:
            self.ignored_headers.labels(header).inc()
        for strategy, tokens in record.trimmed:
            self.trimmed_tokens.labels(strategy).inc(tokens)
        if record.trimmed and outcome is Outcome.COMPLETED:
            self.saved_tokens.labels("trim").inc(sum(tokens for _, tokens in record.trimmed))
        if outcome is Outcome.SHED:
            self.shed.labels(record.lane, record.shed_reason or OTHER).inc()
        elif outcome is Outcome.REJECTED:
            self.rejected.labels(str(record.status)).inc()
        elif outcome is Outcome.CANCELLED and record.place is not None:
            self.cancelled_upstream.labels(record.place).inc()
            if record.gone_at is not None:
                self.cancel_seconds.labels(record.place).observe(record.timeline.last_at - record.gone_at)
        if record.deployment:
            self._record_answer(record, outcome)

    def _record_answer(self, record: RequestRecord, outcome: Outcome) -> None:
        """Count the metrics of a request for which a deployment was chosen."""
        spent, usage = record.timeline.spent, record.usage
        tenant = record.tenant if record.tenant in self.tenants else OTHER
        key = (record.cache, record.cache_reason, record.lane, tenant)
        answers = self._answers.get(key)
        if answers is None:
            answers = self._answers[key] = _Answers(self, key[:2], record.lane, tenant)
        answers.lookups.value += 1.0
        queued_s = spent[Stage.QUEUE]
        if queued_s is not None:
            answers.queue_wait.observe(queued_s)
        own_s = (spent[_ADMIT] or 0.0) + (spent[_TRIM] or 0.0) + (spent[_CACHE] or 0.0) + (spent[_ROUTE] or 0.0)
        self._overhead_child.observe(own_s)
        if record.handed_over is not None:
            answers.prompt_tokens.value += record.handed_over.usage.prompt_tokens
            answers.completion_tokens.value += record.handed_over.usage.completion_tokens
            if self.worth is not None:
                left = record.handed_over
                self.cost.labels(_label(left.deployment)).inc(self.worth.cost(left.deployment, left.usage) or 0.0)
        if record.drafted:
            self.drafts.labels(record.route).inc()
        if usage is not None:
            if usage.predicted_tokens is not None and outcome is not Outcome.CACHED:
                self._record_prediction(record, *usage.predicted_tokens)
            answers.prompt_tokens.value += usage.prompt_tokens
            answers.completion_tokens.value += usage.completion_tokens
            if outcome is Outcome.CACHED:
                source = _SAVED_BY_FLIGHT if record.cache_reason == _SAVED_BY_FLIGHT else record.cache
                family = self.cut_short_tokens if record.was_sent else self.saved_tokens
                family.labels(source).inc(usage.prompt_tokens + usage.completion_tokens)
            if self.worth is not None:
                self._record_worth(record, usage, self.worth)
        if outcome is Outcome.COMPLETED or outcome is Outcome.CACHED:
            self._record_latencies(record, usage)

    def _record_prediction(self, record: RequestRecord, num_accepted: int, num_rejected: int) -> None:
        source = "near_miss" if record.drafted else "client"
        self.prediction_tokens.labels(source, "accepted").inc(num_accepted)
        self.prediction_tokens.labels(source, "rejected").inc(num_rejected)

    def _record_worth(self, record: RequestRecord, usage: Usage, worth: Worth) -> None:
        cost = worth.cost(record.deployment, usage)
        dearest = worth.dearest(record.route, usage)
        if record.outcome is Outcome.CACHED:
            if record.was_sent:
                return
            source = _SAVED_BY_FLIGHT if record.cache_reason == _SAVED_BY_FLIGHT else record.cache
            self.saved_cost.labels(source).inc(dearest)
        elif cost is not None:
            self.cost.labels(_label(record.deployment)).inc(cost)
            left = record.handed_over
            given_up = 0.0 if left is None else worth.cost(left.deployment, left.usage) or 0.0
            self.saved_cost.labels("routing").inc(max(dearest - cost - given_up, 0.0))
            if record.trimmed:
                cut = sum(tokens for _, tokens in record.trimmed)
                self.saved_cost.labels("trim").inc(worth.cost(record.deployment, Usage(cut, 0)) or 0.0)

    def _record_latencies(self, record: RequestRecord, usage: Usage | None) -> None:
        num_prompt = record.bytes_in // _BYTES_PER_TOKEN if usage is None else usage.prompt_tokens
        key = (_label(record.deployment), prompt_bucket(num_prompt), record.cache)
        latencies = self._latencies.get(key)
        if latencies is None:
            latencies = self._latencies[key] = _Latencies(
                self.ttft.labels(*key), self.tpot.labels(*key), self.total.labels(*key)
            )
        timeline = record.timeline
        latencies.total.observe(timeline.total_s())
        first_at = timeline.first_token_at
        if first_at is None:
            return
        latencies.ttft.observe(first_at - timeline.started_at)
        num_output = record.num_chunks if usage is None else usage.completion_tokens
        if num_output > 1 and record.stream:
            tpot_s = (timeline.last_at - first_at) / (num_output - 1)
            latencies.tpot.observe(tpot_s)
        else:
            tpot_s = None
        if (targets := self.targets.get(record.lane)) is not None:
            self._observe_target(record.lane, "ttft", first_at - timeline.started_at, targets.ttft_s)
            self._observe_target(record.lane, "tpot", tpot_s, targets.tpot_s)

    def _observe_target(self, lane: str, target: str, seconds: float | None, bound_s: float | None) -> None:
        if seconds is not None and bound_s is not None:
            self.slo.labels(lane, target, "met" if seconds <= bound_s else "missed").inc()


def _targets(slo: Slo) -> LatencyTargets:
    return LatencyTargets(slo.ttft_p95_ms / 1000, None if slo.tpot_p95_ms is None else slo.tpot_p95_ms / 1000)
