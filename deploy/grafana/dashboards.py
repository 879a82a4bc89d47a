"""What is on each dashboard. The overview is read first; the others answer the question it raises."""

from __future__ import annotations

from deploy.grafana.engine_board import ENGINE
from deploy.grafana.panels import Dashboard, Panel, Query
from deploy.grafana.queries import gauge, mean, named, quantile, quantiles, rate, ratio
from deploy.grafana.tenant_board import TENANTS

_HITS = 'result=~"hit_exact|hit_semantic"'

OVERVIEW = Dashboard(
    uid="penstock-overview",
    title="Penstock / Overview",
    panels=[
        Panel(
            title="Requests by how they ended",
            queries=[rate("penstock_requests_total", "outcome")],
            help="Shed and upstream failures here lead to the dashboards Shedding and Engine.",
            unit="reqps",
            is_stacked=True,
            width=12,
        ),
        Panel(
            title="First token, all requests",
            queries=quantiles("penstock_ttft_seconds"),
            help="Rising: see Latency for the stage, then run penstock diagnose.",
            unit="s",
            width=12,
        ),
        Panel(
            title="Availability, 1 h",
            queries=[Query("1 - penstock:availability_errors:ratio_rate1h", "served")],
            help="Served of all requests that were ours to serve.",
            unit="percentunit",
            kind="stat",
            width=6,
        ),
        Panel(
            title="First tokens in time, 1 h",
            queries=[Query("1 - penstock:ttft_errors:ratio_rate1h", "in time")],
            help="Prompts up to 1k tokens whose first token came within a second.",
            unit="percentunit",
            kind="stat",
            width=6,
        ),
        Panel(
            title="Targets met by lane",
            queries=[ratio("penstock_slo_total", "penstock_slo_total", "lane", "target", where='result="met"')],
            help="Of answers in lanes with a target; what was refused is not in it.",
            unit="percentunit",
            kind="stat",
            width=6,
        ),
        Panel(
            title="Cache hits",
            queries=[ratio("penstock_cache_lookups_total", "penstock_cache_lookups_total", where=_HITS)],
            help="Share of lookups that were answered without a deployment.",
            unit="percentunit",
            kind="stat",
            width=6,
        ),
        Panel(
            title="Deployments ready",
            queries=[gauge("penstock_deployment_ready", "deployment", function="max")],
            help="0: the deployment does not answer its probe, or is drained.",
            kind="stat",
            width=6,
        ),
        Panel(
            title="Wait for a permit, p95",
            queries=[quantile(0.95, "penstock_queue_wait_seconds", "lane")],
            help="Rising waits: more capacity, lower limits per tenant, or an earlier step of the ladder.",
            unit="s",
        ),
        Panel(
            title="In flight against the limit",
            queries=[
                named(gauge("penstock_in_flight", "deployment"), "{{deployment}} in flight"),
                named(gauge("penstock_concurrency_limit", "deployment"), "{{deployment}} limit"),
            ],
            help="At the limit with low engine load: raise max_in_flight.",
        ),
        Panel(
            title="Tokens a second",
            queries=[
                named(rate("penstock_prompt_tokens_total"), "prompt"),
                named(rate("penstock_completion_tokens_total"), "completion"),
                named(rate("penstock_saved_tokens_total", "source"), "saved by {{source}}"),
            ],
            help="What engines did, and what they did not have to.",
            unit="ops",
        ),
        Panel(
            title="Event loop lag",
            queries=[gauge("penstock_event_loop_lag_seconds", function="max")],
            help="Above 50 ms something holds the loop: fewer requests a process, more processes.",
            unit="s",
            limit=0.05,
        ),
        Panel(
            title="Added by the gateway",
            queries=quantiles("penstock_overhead_seconds"),
            help="Time of our own stages; the wait for a permit is not in it.",
            unit="s",
        ),
        Panel(
            title="Store and policy",
            queries=[
                named(gauge("penstock_store_up", function="min"), "store up"),
                named(gauge("penstock_policy_reload_success", function="min"), "policy taken"),
            ],
            help="0 for the store: each process enforces limits alone. 0 for the policy: the newest one was refused.",
        ),
    ],
)

LATENCY = Dashboard(
    uid="penstock-latency",
    title="Penstock / Latency by stage and prompt length",
    panels=[
        Panel(
            title="Mean time by stage",
            queries=[mean("penstock_stage_seconds", "stage")],
            help="The stage that grew is where to look.",
            unit="s",
            is_stacked=True,
            width=12,
        ),
        Panel(
            title="p95 by stage",
            queries=[quantile(0.95, "penstock_stage_seconds", "stage")],
            help="Means hide the few that wait long.",
            unit="s",
            width=12,
        ),
        *(
            Panel(
                title=f"First token by prompt length, p{share * 100:g}",
                queries=[quantile(share, "penstock_ttft_seconds", "prompt_bucket", where='cache=~"miss|bypass"')],
                help="Long prompts alone: prefill. All lengths: queue or cold start.",
                unit="s",
            )
            for share in (0.5, 0.95, 0.99)
        ),
        Panel(
            title="First token by deployment, p95",
            queries=[quantile(0.95, "penstock_ttft_seconds", "deployment")],
            help="One deployment alone: look at its engine.",
            unit="s",
        ),
        Panel(
            title="Time per output token by deployment, p95",
            queries=[quantile(0.95, "penstock_tpot_seconds", "deployment")],
            help="Slow decode: rows, preemption, speculation.",
            unit="s",
        ),
        Panel(
            title="Forecast of the first token: relative error",
            queries=[gauge("penstock_ttft_forecast_error_ratio", "deployment", "quantile", function="max")],
            help="A forecast that is off makes refusals and routing worse.",
            unit="percentunit",
        ),
        Panel(
            title="Whole answer by prompt length, p95",
            queries=[quantile(0.95, "penstock_total_seconds", "prompt_bucket")],
            help="Follows the length of answers more than anything else.",
            unit="s",
        ),
        Panel(
            title="Client gone to everything released, p99",
            queries=[quantile(0.99, "penstock_cancel_seconds", "place")],
            help="What a client that left still holds.",
            unit="s",
        ),
        Panel(
            title="Clients that left",
            queries=[rate("penstock_cancelled_upstream_total", "place")],
            help="Queued or prefill: they gave up waiting.",
            unit="reqps",
        ),
    ],
)

CACHE = Dashboard(
    uid="penstock-cache",
    title="Penstock / Cache and trimming",
    panels=[
        Panel(
            title="Lookups by result and reason",
            queries=[rate("penstock_cache_lookups_total", "result", "reason")],
            help="`bypass` with reason `policy`: the route's cache is off.",
            unit="ops",
            is_stacked=True,
            width=12,
        ),
        Panel(
            title="Hit ratio",
            queries=[
                named(
                    ratio(
                        "penstock_cache_lookups_total",
                        "penstock_cache_lookups_total",
                        where=f'result="{result}"',
                        of='result!="bypass"',
                    ),
                    result,
                )
                for result in ("hit_exact", "hit_semantic")
            ],
            help="Of the lookups that policy and client allowed.",
            unit="percentunit",
            width=12,
        ),
        Panel(
            title="Wrong answers among semantic hits, by audit",
            queries=[
                named(gauge("penstock_cache_error_ratio", function="max"), "estimate"),
                named(gauge("penstock_cache_error_ratio_low", function="max"), "lower 95 % limit"),
                named(gauge("penstock_cache_error_ratio_high", function="max"), "upper 95 % limit"),
            ],
            help="Beside the route's max_error_ratio. Above it the tier tightens by itself.",
            unit="percentunit",
        ),
        Panel(
            title="Cache entries",
            queries=[
                named(gauge("penstock_cache_entries", function="max"), "cached"),
                named(gauge("penstock_cache_index_waiting", function="max"), "waiting to be indexed"),
            ],
            help="Flat at the top: cache.max_mb is reached. Waiting: the encoder is busy.",
        ),
        Panel(
            title="News between processes",
            queries=[rate("penstock_cache_sharing_total", "event")],
            help="Cache entries and notices that replicas exchange through the store.",
            unit="ops",
        ),
        Panel(
            title="Tokens saved",
            queries=[
                named(rate("penstock_saved_tokens_total", "source"), "{{source}}"),
                named(rate("penstock_cut_short_tokens_total", "source"), "{{source}}, begun and cancelled"),
            ],
            help="Work that no deployment was sent, and work that one began.",
            unit="ops",
            is_stacked=True,
        ),
        Panel(
            title="Tokens trimmed by strategy",
            queries=[rate("penstock_trimmed_tokens_total", "strategy")],
            help="Prompt tokens cut before sending.",
            unit="ops",
            is_stacked=True,
        ),
        Panel(
            title="First token with and without the cache, p95",
            queries=[quantile(0.95, "penstock_ttft_seconds", "cache")],
            help="What a hit saves the client; what a miss costs shows beside `bypass`.",
            unit="s",
        ),
    ],
)

SHEDDING = Dashboard(
    uid="penstock-shedding",
    title="Penstock / Queues and shedding",
    panels=[
        Panel(
            title="Refused by lane and reason",
            queries=[rate("penstock_shed_total", "lane", "reason")],
            help="queue_full: capacity. slo_unreachable, deadline: the forecast. tenant_share: one tenant's own load.",
            unit="reqps",
            is_stacked=True,
            width=12,
        ),
        Panel(
            title="Failed by deployment and outcome",
            queries=[
                rate(
                    "penstock_requests_total",
                    "deployment",
                    "outcome",
                    where='outcome=~"upstream_failed|upstream_timeout|failed"',
                )
            ],
            help="One deployment: its own log. All of them: the network, keys, or the policy; run penstock diagnose.",
            unit="reqps",
            is_stacked=True,
            width=12,
        ),
        Panel(
            title="Degraded by step",
            queries=[rate("penstock_degraded_total", "step")],
            help="The ladder's steps, taken before anything is refused.",
            unit="reqps",
            is_stacked=True,
            width=12,
        ),
        Panel(
            title="Queue depth by lane",
            queries=[gauge("penstock_queue_depth", "lane")],
            help="Bounded by the lane's max_queue.",
        ),
        Panel(
            title="Wait for a permit by lane, p50 and p95",
            queries=[
                quantile(0.5, "penstock_queue_wait_seconds", "lane"),
                quantile(0.95, "penstock_queue_wait_seconds", "lane"),
            ],
            help="The number KEDA scales on.",
            unit="s",
        ),
        Panel(
            title="Concurrency limit by deployment",
            queries=[gauge("penstock_concurrency_limit", "deployment")],
            help="A limit that falls follows first tokens that come late.",
        ),
        Panel(
            title="Retries of clients",
            queries=[named(rate("penstock_client_retries_total"), "marked as retries")],
            help="A rising share is a retry storm; retries are refused first.",
            unit="reqps",
        ),
        Panel(
            title="Our own second attempts",
            queries=[
                named(rate("penstock_retries_total", "deployment"), "retry, {{deployment}} failed"),
                named(rate("penstock_hedges_total", "deployment", "end"), "hedge to {{deployment}}, {{end}}"),
            ],
            help="Bounded by budgets.",
            unit="reqps",
        ),
        Panel(
            title="Deployments taken out",
            queries=[
                named(rate("penstock_ejections_total", "deployment", "reason"), "{{deployment}}: {{reason}}"),
                named(rate("penstock_panics_total", "route"), "panic on {{route}}"),
            ],
            help="A panic used deployments that were out because there was no other.",
            unit="ops",
        ),
    ],
)

DASHBOARDS = (OVERVIEW, LATENCY, CACHE, SHEDDING, ENGINE, TENANTS)
