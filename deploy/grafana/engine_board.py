"""What is on the engine's dashboard."""

from __future__ import annotations

from deploy.grafana.panels import Dashboard, Panel
from deploy.grafana.queries import gauge, mean, named, quantile, rate, ratio

ENGINE = Dashboard(
    uid="penstock-engine",
    title="Penstock / Engine",
    panels=[
        Panel(
            title="Queue, prefill, decode: mean",
            queries=[
                named(mean("engine_queue_seconds", "instance"), "{{instance}} queue"),
                named(mean("engine_prefill_seconds", "instance"), "{{instance}} prefill"),
                named(mean("engine_decode_seconds", "instance"), "{{instance}} decode"),
            ],
            help="Which phase of the engine takes the time.",
            unit="s",
            width=12,
        ),
        Panel(
            title="First token by lane, p95",
            queries=[quantile(0.95, "engine_ttft_seconds", "instance", "lane")],
            help="The engine's own, from its receipt of the request.",
            unit="s",
            width=12,
        ),
        Panel(
            title="Rows and waiting sequences",
            queries=[
                named(gauge("engine_running", "instance"), "{{instance}} running"),
                named(gauge("engine_waiting", "instance"), "{{instance}} waiting"),
            ],
            help="Waiting with few running: KV blocks are short.",
        ),
        Panel(
            title="KV blocks in use",
            queries=[gauge("engine_kv_utilization", "instance", function="max")],
            help="Near 1: preemptions follow. Larger kv_memory_bytes, int8 KV, or fewer rows.",
            unit="percentunit",
            limit=0.9,
        ),
        Panel(
            title="Step, p50 and p99",
            queries=[
                quantile(0.5, "engine_step_seconds", "instance"),
                quantile(0.99, "engine_step_seconds", "instance"),
            ],
            help="A decode step bounds the gap between tokens.",
            unit="s",
        ),
        Panel(
            title="Gap between output tokens, p95",
            queries=[quantile(0.95, "engine_itl_seconds", "instance", "lane")],
            help="Grows with rows and with long prompts' chunks.",
            unit="s",
        ),
        Panel(
            title="Prefix cache hit ratio",
            queries=[
                ratio("engine_prefix_cache_hits_tokens_total", "engine_prefix_cache_queries_tokens_total", "instance")
            ],
            help="Prompt tokens that were not computed again.",
            unit="percentunit",
        ),
        Panel(
            title="Drafts accepted",
            queries=[
                ratio("engine_speculation_accepted_tokens_total", "engine_speculation_drafted_tokens_total", "instance")
            ],
            help="Low: speculation does not pay here.",
            unit="percentunit",
        ),
        Panel(
            title="Preemptions and aborts",
            queries=[
                named(rate("engine_preemptions_total", "instance"), "{{instance}} preempted"),
                named(rate("engine_aborts_total", "instance", "state"), "{{instance}} aborted in {{state}}"),
            ],
            help="A preempted sequence is computed again.",
            unit="ops",
        ),
        Panel(
            title="Tokens a second",
            queries=[
                named(rate("engine_prompt_tokens_total", "instance"), "{{instance}} prompt"),
                named(rate("engine_generation_tokens_total", "instance"), "{{instance}} generated"),
            ],
            help="What the engine computes.",
            unit="ops",
        ),
        Panel(
            title="Leaked KV blocks",
            queries=[gauge("engine_kv_leaked_blocks", "instance", function="max")],
            help="Must be 0.",
            kind="stat",
        ),
        Panel(
            title="Start-up by phase",
            queries=[gauge("engine_startup_seconds", "instance", "phase", function="max")],
            help="How long a new replica takes until it serves.",
            unit="s",
            kind="table",
        ),
    ],
)
