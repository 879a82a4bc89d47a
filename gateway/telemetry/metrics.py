"""All metrics of the gateway, and the only code that updates them from a finished request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

from gateway.telemetry.instruments import SECONDS_BUCKETS, Counter, Histogram, Instruments
from gateway.telemetry.records.record import CacheResult, RequestRecord, Usage
from gateway.telemetry.records.worth import Worth, worth_of
from gateway.telemetry.window import History
from gateway.timeline import STAGE_LABELS, Clock, Outcome, Stage
from routing_policies.policy.document import Policy, Slo

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


class GatewayMetrics:
    """Metric families of the gateway; `tenants` bounds the tenant label and follows the policy."""

    def __init__(self) -> None:
        make = Instruments("penstock_")
        self.instruments = make
        self.tenants: frozenset[str] = frozenset()
        self.targets: Mapping[str, LatencyTargets] = {}
        """Latency targets by lane; follows the policy."""
        self.worth: Worth | None = None
        """Token prices; None where the policy has none."""
        self.requests = make.counter(
            "requests_total", "Requests by how they ended.", ("route", "deployment", "outcome")
        )
        self.stages = make.histogram("stage_seconds", "Time in one stage of a request.", ("stage",))
        latency = ("deployment", "prompt_bucket", "cache")
        self.ttft = make.histogram("ttft_seconds", "Receipt to first token with content.", latency)
        self.tpot = make.histogram("tpot_seconds", "Time per output token after the first.", latency)
        self.total = make.histogram("total_seconds", "Receipt to last byte.", latency)
        self.overhead = make.histogram("overhead_seconds", "Added by the gateway, wait for a permit excluded.")
        self.shed = make.counter("shed_total", "Requests refused for load.", ("lane", "reason"))
        self.queue_depth = make.gauge("queue_depth", "Requests waiting for a permit.", ("lane",))
        self.queue_wait = make.histogram("queue_wait_seconds", "Wait for a permit.", ("lane",))
        self.concurrency_limit = make.gauge("concurrency_limit", "Permits that may be out at once.", ("deployment",))
        self.in_flight = make.gauge("in_flight", "Permits that are out.", ("deployment",))
        self.forecast_error = make.gauge(
            "ttft_forecast_error_ratio",
            "|forecast - measured| / measured of times to first token, quantile of the last 512.",
            ("deployment", "quantile"),
        )
        self.deployment_ready = make.gauge("deployment_ready", "Whether the deployment is ready.", ("deployment",))
        self.cache_lookups = make.counter("cache_lookups_total", "Cache lookups.", ("result", "reason"))
        self.embeddings = make.counter("embeddings_total", "Texts to encode, by result.", ("result",))
        self.trimmed_tokens = make.counter("trimmed_tokens_total", "Prompt tokens cut before sending.", ("strategy",))
        self.cache_entries = make.gauge("cache_entries", "Cached responses.")
        self.cache_index_entries = make.gauge("cache_index_entries", "Cached responses in the vector index.")
        whose = ("tenant", "route")
        wrong = "Wrong similar answers over all requests of the last day, from audits"
        self.cache_error_ratio = make.gauge("cache_error_ratio", f"{wrong}.", whose)
        self.cache_error_ratio_low = make.gauge("cache_error_ratio_low", f"{wrong}; lower 95 % limit.", whose)
        self.cache_error_ratio_high = make.gauge("cache_error_ratio_high", f"{wrong}; upper 95 % limit.", whose)
        self.cache_semantic_level = make.gauge(
            "cache_semantic_level", "0: open; 1 to 3: tightened; 4: closed, exact answers only.", whose
        )
        self.cache_audits = make.counter("cache_audits_total", "Similar answers compared with new ones.", ("verdict",))
        self.cache_sharing = make.counter(
            "cache_sharing_total",
            "Cache entries and notices that processes exchange, by event.",
            ("event",),
        )
        self.saved_tokens = make.counter("saved_tokens_total", "Tokens that no deployment had to handle.", ("source",))
        self.saved_cost = make.counter(
            "saved_cost_total", "Cost saved, at the price of the route's dearest candidate.", ("source",)
        )
        self.cost = make.counter("cost_total", "What answers cost, in the policy's currency.", ("deployment",))
        self.slo = make.counter(
            "slo_total", "Answers with a latency target, by whether it was met.", ("lane", "target", "result")
        )
        self.prompt_tokens = make.counter("prompt_tokens_total", "Prompt tokens reported.", ("tenant",))
        self.completion_tokens = make.counter("completion_tokens_total", "Completion tokens reported.", ("tenant",))
        labelled = ("deployment", "source", "verdict")
        self.routing_labels = make.counter("routing_labels_total", "Labels of the small model's answers.", labelled)
        compared = ("route", "deployment", "verdict")
        self.shadows = make.counter("shadows_total", "Answers held against another deployment's.", compared)
        self.decisions = make.counter("routing_decisions_total", "Routing decisions.", ("policy", "choice", "reason"))
        self.retries = make.counter("retries_total", "Second attempts, by the deployment that failed.", ("deployment",))
        self.hedges = make.counter(
            "hedges_total",
            "Second attempts beside a late first one, by deployment.",
            ("deployment", "end"),
        )
        self.hedged_tokens = make.counter(
            "hedged_prompt_tokens_total", "Prompt tokens, estimated, of attempts that lost a hedge.", ("deployment",)
        )
        self.ejections = make.counter(
            "ejections_total", "Deployments taken out for their failures.", ("deployment", "reason")
        )
        self.panics = make.counter(
            "panics_total", "Decisions that used ejected deployments because there were no others.", ("route",)
        )
        self.start_waits = make.counter(
            "start_waits_total", "Requests for which only deployments that were starting were left.", ("route", "end")
        )
        self.degraded = make.counter("degraded_total", "Requests admitted by a degradation step, by step.", ("step",))
        self.ignored_headers = make.counter(
            "ignored_headers_total", "Headers without effect: nonsense, or beyond what the key may use.", ("header",)
        )
        self.traces = make.counter("traces_total", "Traced requests, by the end of their spans.", ("end",))
        self.client_retries = make.counter("client_retries_total", "Requests that the client marked as retries.")
        self.cancelled_upstream = make.counter("cancelled_upstream_total", "Requests whose client left.", ("place",))
        self.cancel_seconds = make.histogram("cancel_seconds", "Client gone to everything released.", ("place",))
        self.policy_info = make.gauge("policy_info", "1 for the revision in force.", ("revision",))
        self.policy_reload_success = make.gauge("policy_reload_success", "Whether the last reload was taken.")
        self.quota_refused = make.counter(
            "quota_refused_total", "Requests over one of their tenant's limits.", ("tenant", "limit")
        )
        self.store_up = make.gauge("store_up", "Whether the store can be used.")
        self.store_seconds = make.histogram("store_seconds", "Time of one operation of the store.", ("operation",))
        self.store_failures = make.counter(
            "store_failures_total", "Operations of the store that failed.", ("operation", "reason")
        )
        self.loop_lag = make.gauge("event_loop_lag_seconds", "Worst delay of a timer since the last scrape.")
        self.log_dropped = make.counter("log_dropped_total", "Log lines dropped because the log could not keep up.")
        self._stage_children = [self.stages.labels(label) for label in STAGE_LABELS]
        self._overhead_child = self.overhead.labels()
        self._requests: dict[tuple[str, str, Outcome], Counter] = {}
        self._latencies: dict[tuple[str, str, CacheResult], _Latencies] = {}
        self._answers: dict[tuple[CacheResult, str, str, str], _Answers] = {}

    def follow(self, policy: Policy, revision: str) -> None:
        """Adopt the tenants, targets, prices and revision of the policy in force."""
        self.tenants = frozenset(tenant.id for tenant in policy.tenants)
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
            self.quota_refused,
        )
        histograms = (self.stages, self.ttft, self.tpot, self.total, self.overhead, self.queue_wait)
        return History(counters, histograms, prefix="penstock_", wall=wall)

    def record(self, record: RequestRecord) -> None:
        """Count one finished request; called exactly once for each."""
        outcome = record.outcome or Outcome.FAILED
        key = (record.route, record.deployment, outcome)
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
                self.cost.labels(left.deployment).inc(self.worth.cost(left.deployment, left.usage) or 0.0)
        if usage is not None:
            answers.prompt_tokens.value += usage.prompt_tokens
            answers.completion_tokens.value += usage.completion_tokens
            if outcome is Outcome.CACHED:
                source = _SAVED_BY_FLIGHT if record.cache_reason == _SAVED_BY_FLIGHT else record.cache
                self.saved_tokens.labels(source).inc(usage.prompt_tokens + usage.completion_tokens)
            if self.worth is not None:
                self._record_worth(record, usage, self.worth)
        if outcome is Outcome.COMPLETED or outcome is Outcome.CACHED:
            self._record_latencies(record, usage)

    def _record_worth(self, record: RequestRecord, usage: Usage, worth: Worth) -> None:
        cost = worth.cost(record.deployment, usage)
        dearest = worth.dearest(record.route, usage)
        if record.outcome is Outcome.CACHED:
            source = _SAVED_BY_FLIGHT if record.cache_reason == _SAVED_BY_FLIGHT else record.cache
            self.saved_cost.labels(source).inc(dearest)
        elif cost is not None:
            self.cost.labels(record.deployment).inc(cost)
            left = record.handed_over
            given_up = 0.0 if left is None else worth.cost(left.deployment, left.usage) or 0.0
            self.saved_cost.labels("routing").inc(max(dearest - cost - given_up, 0.0))
            if record.trimmed:
                cut = sum(tokens for _, tokens in record.trimmed)
                self.saved_cost.labels("trim").inc(worth.cost(record.deployment, Usage(cut, 0)) or 0.0)

    def _record_latencies(self, record: RequestRecord, usage: Usage | None) -> None:
        num_prompt = record.bytes_in // _BYTES_PER_TOKEN if usage is None else usage.prompt_tokens
        key = (record.deployment, prompt_bucket(num_prompt), record.cache)
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
