"""What is on the dashboard of tenants and routes."""

from __future__ import annotations

from deploy.grafana.panels import Dashboard, Panel
from deploy.grafana.queries import rate, ratio

_SERVED = 'outcome=~"completed|cached"'

TENANTS = Dashboard(
    uid="penstock-tenants",
    title="Penstock / Tenants and routes",
    panels=[
        Panel(
            title="Prompt tokens by tenant",
            queries=[rate("penstock_prompt_tokens_total", "tenant")],
            help="Tenants that are not in the policy count as `other`.",
            unit="ops",
            is_stacked=True,
            width=12,
        ),
        Panel(
            title="Completion tokens by tenant",
            queries=[rate("penstock_completion_tokens_total", "tenant")],
            help="What the tenant's answers took.",
            unit="ops",
            is_stacked=True,
            width=12,
        ),
        Panel(
            title="Refused for a tenant's own limit",
            queries=[rate("penstock_quota_refused_total", "tenant", "limit")],
            help="Raise the limit, or talk to the tenant.",
            unit="reqps",
        ),
        Panel(
            title="Requests by route",
            queries=[rate("penstock_requests_total", "route")],
            help="Which routes are used.",
            unit="reqps",
        ),
        Panel(
            title="Served ratio by route",
            queries=[ratio("penstock_requests_total", "penstock_requests_total", "route", where=_SERVED)],
            help="Rejected requests count as not served here.",
            unit="percentunit",
        ),
        Panel(
            title="Choices of routing",
            queries=[rate("penstock_routing_decisions_total", "policy", "choice", "reason")],
            help="Who was chosen, and why.",
            unit="ops",
        ),
        Panel(
            title="Headers without effect",
            queries=[rate("penstock_ignored_headers_total", "header")],
            help="A client asks for what its key may not use, or writes nonsense.",
            unit="ops",
        ),
    ],
)
