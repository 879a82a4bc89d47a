"""All metrics of the engine, in base units; histograms span 0.1 ms to 120 s."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.frontend.core_client.link import CoreLink
from engine.protocol import AbortState, Counters, Lane, Phase, Ready, StageTimes, StepReport

BUCKETS_S = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1,
    0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0,
)  # fmt: skip
ABORT_STATES: tuple[AbortState, ...] = ("queued", "prefill", "decode", "grammar", "preempted")

PromptBucket = Literal["0-256", "256-1k", "1k-4k", "4k-16k", "16k+"]
_PROMPT_BUCKETS: tuple[tuple[int, PromptBucket], ...] = (
    (256, "0-256"),
    (1024, "256-1k"),
    (4096, "1k-4k"),
    (16384, "4k-16k"),
)


def prompt_bucket(num_tokens: int) -> PromptBucket:
    """Return the label for a prompt length; an upper end belongs to the lower bucket."""
    return next((name for limit, name in _PROMPT_BUCKETS if num_tokens <= limit), "16k+")


class EngineMetrics:
    """Metric registry with one method for each event; an observer of the link."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._ttft = self._by_request("ttft_seconds", "Request received to first token with content sent.")
        self._itl = self._by_request("itl_seconds", "Gap between output tokens; k tokens at once are k gaps of gap/k.")
        self._chunk_gap = self._by_request("chunk_gap_seconds", "Gap between outputs, however many tokens they have.")
        self._tpot = self._by_request("tpot_seconds", "(last - first token) / (tokens - 1) of one sequence.")
        self._e2e = self._by_request("e2e_seconds", "Request received to last byte sent.")
        self._queue = self._by_request("queue_seconds", "Time a sequence waited for its first step.")
        self._prefill = self._by_request("prefill_seconds", "First step to first token of a sequence.")
        self._decode = self._by_request("decode_seconds", "First to last token of a sequence.")
        self._detokenize = self._histogram("detokenize_seconds", "Tokens to text, summed over one request.")
        self._stage_counts = Counter(
            "engine_stage_counts",
            "What the stages of sequences did: prefill chunks, cached, drafted and accepted tokens, preemptions.",
            ("prompt_bucket", "lane", "kind"),
            registry=self.registry,
        )
        self._step = self._histogram("step_seconds", "Duration of a step of the core.")
        self._abort_to_free = self._histogram(
            "abort_to_free_seconds", "Abort received by the core to blocks free.", ("state",)
        )
        self._aborts = Counter("engine_aborts", "Aborts carried out.", ("state",), registry=self.registry)
        self._startup = Gauge(
            "engine_startup_seconds", "Duration of a phase of start-up.", ("phase",), registry=self.registry
        )
        for state in ABORT_STATES:
            self._aborts.labels(state)
            self._abort_to_free.labels(state)
        self._totals_before = Counters()
        self._num_steps = 0

    def expose_core(self, link: CoreLink) -> None:
        """Register the metrics that are read from the link at every scrape."""
        self.registry.register(_CoreCollector(link, lambda: self._totals_before))

    def phase_ended(self, phase: Phase) -> None:
        """Record the duration of a start-up phase of the core."""
        self._startup.labels(phase.name).set(phase.seconds)

    def stepped(self, report: StepReport) -> None:
        """Record the step time of a report; a report without a new step is skipped."""
        if report.counters.steps > self._num_steps:
            self._step.observe(report.load.step_s)
        self._num_steps = report.counters.steps

    def aborted(self, state: AbortState, seconds: float) -> None:
        """Count an abort and record its time to free blocks."""
        self._aborts.labels(state).inc()
        self._abort_to_free.labels(state).observe(seconds)

    def core_lost(self, last: Counters) -> None:
        """Add the lost core's totals to the base of the next core's."""
        self._totals_before = _sum(self._totals_before, last)
        self._num_steps = 0

    def for_request(self, num_prompt_tokens: int, lane: Lane) -> RequestMetrics:
        """Return the histograms of one request with their labels resolved."""
        labels = (prompt_bucket(num_prompt_tokens), lane)
        return RequestMetrics(self, labels)

    def _by_request(self, name: str, text: str) -> Histogram:
        return self._histogram(name, text, ("prompt_bucket", "lane"))

    def _histogram(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Histogram:
        return Histogram(f"engine_{name}", text, labels, buckets=BUCKETS_S, registry=self.registry)


class RequestMetrics:
    """Histograms of one request."""

    def __init__(self, metrics: EngineMetrics, labels: tuple[str, str]) -> None:
        self._metrics = metrics
        self._labels = labels
        self._itl = metrics._itl.labels(*labels)
        self._chunk_gap = metrics._chunk_gap.labels(*labels)

    def first_token(self, seconds: float) -> None:
        """Record the time from receipt to the first content sent."""
        self._metrics._ttft.labels(*self._labels).observe(seconds)

    def gap(self, seconds: float, num_tokens: int) -> None:
        """Record an output of `num_tokens` tokens that came `seconds` after the one before."""
        self._chunk_gap.observe(seconds)
        for _ in range(num_tokens):
            self._itl.observe(seconds / num_tokens)

    def pace(self, tpot_s: float) -> None:
        """Record one sequence's mean time per output token."""
        self._metrics._tpot.labels(*self._labels).observe(tpot_s)

    def stages(self, stages: StageTimes) -> None:
        """Record one sequence's time in each stage of the core."""
        self._metrics._queue.labels(*self._labels).observe(stages.queue_s)
        self._metrics._prefill.labels(*self._labels).observe(stages.prefill_s)
        self._metrics._decode.labels(*self._labels).observe(stages.decode_s)
        counts = (
            ("prefill_chunks", stages.num_prefill_chunks),
            ("cached_tokens", stages.num_cached_tokens),
            ("drafted_tokens", stages.num_drafted_tokens),
            ("accepted_tokens", stages.num_accepted_tokens),
            ("preemptions", stages.num_preemptions),
            ("accepted_prediction_tokens", stages.num_accepted_prediction_tokens),
            ("rejected_prediction_tokens", stages.num_rejected_prediction_tokens),
        )
        for kind, count in counts:
            self._metrics._stage_counts.labels(*self._labels, kind).inc(count)

    def completed(self, seconds: float, detokenize_s: float) -> None:
        """Record the end-to-end latency and the detokenization time of a complete answer."""
        self._metrics._e2e.labels(*self._labels).observe(seconds)
        self._metrics._detokenize.observe(detokenize_s)


class _CoreCollector(Collector):
    """Collector of the gauges and totals that the core last reported."""

    def __init__(self, link: CoreLink, totals_before: Callable[[], Counters]) -> None:
        self._link = link
        self._totals_before = totals_before

    def collect(self) -> Iterator[Metric]:
        """Yield the link's state as metrics."""
        load = self._link.load
        used = load.num_blocks_total - load.num_blocks_free
        gauges = (
            ("running", "Sequences in the step.", load.num_running),
            ("waiting", "Sequences that wait.", load.num_waiting),
            ("kv_blocks_total", "KV blocks of the pool.", load.num_blocks_total),
            ("kv_blocks_free", "KV blocks that no sequence uses, cached ones included.", load.num_blocks_free),
            ("kv_blocks_cached", "Unused KV blocks that hold a reusable prefix.", load.num_blocks_cached),
            (
                "kv_utilization",
                "Share of KV blocks in use.",
                used / load.num_blocks_total if load.num_blocks_total else 0,
            ),
            ("kv_leaked_blocks", "KV blocks neither free nor owned; must be 0.", load.num_blocks_leaked),
            (
                "speculation_enabled",
                "1 when steps may verify drafted tokens.",
                self._link.ready is not None and self._link.ready.speculates,
            ),
            ("ready", "1 when requests are served.", self._link.state == "ready"),
            ("lora_adapters", "Adapters that requests may name.", len(self._link.adapters.names)),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"engine_{name}", text, float(value))
        yield _cpu_kernels(self._link.ready)
        totals = _sum(self._totals_before(), self._link.counters)
        counters = (
            ("prompt_tokens", "Prompt tokens of sequences.", totals.prompt_tokens),
            ("generation_tokens", "Tokens generated.", totals.generation_tokens),
            ("prefix_cache_queries_tokens", "Prompt tokens looked up in the prefix cache.", totals.prefix_query_tokens),
            ("prefix_cache_hits_tokens", "Prompt tokens found in the prefix cache.", totals.prefix_hit_tokens),
            ("speculation_drafted_tokens", "Tokens drafted.", totals.drafted_tokens),
            ("speculation_accepted_tokens", "Drafted tokens that were right.", totals.accepted_tokens),
            ("preemptions", "Sequences preempted and recomputed.", totals.preemptions),
            ("steps", "Steps of the core.", totals.steps),
            ("lora_steps", "Steps with sequences that use adapters.", totals.adapter_steps),
        )
        for name, text, value in counters:
            yield CounterMetricFamily(f"engine_{name}", text, float(value))


def _cpu_kernels(ready: Ready | None) -> GaugeMetricFamily:
    """Return the metric that tells how a CPU computes steps; it has no sample on a GPU or before the core is ready."""
    labels = ("steps", "reason", "products", "kv_dtype", "threads", "resumes")
    info = GaugeMetricFamily("engine_cpu_kernels_info", "1 for the way a CPU computes steps.", labels=labels)
    if ready is not None and ready.cpu_kernels is not None:
        kernels = ready.cpu_kernels
        of_pool = (kernels.kv_dtype, str(kernels.num_threads), "exact" if kernels.resumes_exactly else "close")
        info.add_metric((kernels.steps, kernels.reason, kernels.products, *of_pool), 1.0)
    return info


def _sum(left: Counters, right: Counters) -> Counters:
    return Counters(**{name: getattr(left, name) + getattr(right, name) for name in Counters.__struct_fields__})
