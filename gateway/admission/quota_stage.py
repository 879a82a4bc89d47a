"""QuotaStage: reserves a request's part of its tenant's quota, and settles it at the end."""

from __future__ import annotations

from gateway.admission.quotas.quotas import Quotas
from gateway.admission.quotas.reservation import Reservation
from gateway.admission.quotas.tenant_quota import TenantQuota
from gateway.chat.request import ChatRequest
from gateway.deployments.price import Pricer
from gateway.errors import QuotaExceeded
from gateway.request_context import RequestContext
from gateway.routing.planned_route import PlannedRoute
from gateway.timeline import Clock


class QuotaStage:
    """Quota stage that reserves by the request's price; `by_tenant` has only the limited tenants."""

    __slots__ = ("_clock", "_pricer", "_quotas", "by_tenant")

    def __init__(self, quotas: Quotas, pricer: Pricer, clock: Clock) -> None:
        self._quotas = quotas
        self._pricer = pricer
        self._clock = clock
        self.by_tenant = quotas.by_tenant

    async def reserve(
        self, ctx: RequestContext, quota: TenantQuota, request: ChatRequest, planned: PlannedRoute
    ) -> None:
        """Take what the request is expected to use out of its tenant's quota; raises QuotaExceeded."""
        ctx.quota = quota
        price = ctx.price = self._pricer.price(request, tenant=ctx.record.tenant, route=planned.route.id)
        nano = self._quotas.price_of(price, planned.deployment_ids)
        tokens, nano = quota.bounded(price.prompt_tokens, price.output_tokens, nano)
        now = self._clock()
        ctx.reservation = quota.try_reserve(tokens, nano, now) or await quota.reserve(tokens, nano, now)

    def settle(self, ctx: RequestContext, reservation: Reservation) -> None:
        """Charge what a request used in place of what it reserved."""
        self._quotas.settle(reservation, ctx.record, ctx.price)

    def count_refusal(self, ctx: RequestContext, error: QuotaExceeded) -> None:
        """Count a request that its tenant's quota refused."""
        self._quotas.count_refusal(ctx.record.tenant, error.limit)
