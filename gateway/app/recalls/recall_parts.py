"""RecallParts: what remembers receivers of similar answers in one process, and notifies them, assembled and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from gateway.admin.handlers.cache import RecallCounts
from gateway.background.cache_auditor import Auditor
from gateway.cache.audit.audit_record import AuditRecord
from gateway.cache.exact.entry import CacheEntry
from gateway.cache.semantic.semantic_lookup import SemanticLookup
from gateway.config.recalls import DAY_S, HOUR_S, RecallSettings
from gateway.recalls.delivery import DeliveryEnd, DeliveryRules, RecallDelivery
from gateway.recalls.notice import RecallNotice, RecallReason, ReceivedAnswer, WrongAnswer
from gateway.recalls.recall_store import RecallStore
from gateway.recalls.recalls import Recalls, RecallSink
from gateway.recalls.store_lease import StoreLease
from gateway.recalls.webhook import RecallWebhook, WebhookSender, webhook_of
from gateway.store.base import Store
from gateway.telemetry.logs.log import LogWriter
from gateway.telemetry.metrics import GatewayMetrics
from gateway.timeline import Clock
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.http1.target import Target
from gateway.upstreams.pool import ConnectionPool, PoolLimits
from gateway.upstreams.public_addresses import PublicResolver
from gateway.upstreams.resolver import Resolver
from gateway.upstreams.tls import client_context
from gateway.util.doubling_pauses import Keep
from routing_policies.policy.document import Policy

_SPACE: Final = "recalls"
_POOL_LIMITS: Final = PoolLimits(max_connections=8)


class TenantRequest(NamedTuple):
    """A request, and the tenant that sent it."""

    tenant: str
    request_id: str


class RecallParts:
    """The parts of recalls; where the settings switch them off, nothing is remembered and nothing runs."""

    def __init__(
        self,
        rules: RecallSettings,
        store: Store,
        *,
        environment: Mapping[str, str],
        holder: str,
        log: LogWriter,
        metrics: GatewayMetrics,
        clock: Clock,
        wall: Callable[[], float],
    ) -> None:
        """Assemble the parts; the caller closes `store`.

        Args:
            rules: The settings.
            store: The store of all replicas.
            environment: Variables with the webhooks' secrets.
            holder: Name of this process among all that share the store.
            log: Log of notices and failures.
            metrics: Metrics of this process.
            clock: Monotonic seconds.
            wall: Seconds since 1970, by the store's clock.
        """
        self.is_on = rules.is_on
        self._allows_private = rules.allow_private_webhooks
        self._environment = environment
        self._log = log
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._webhooks: dict[str, RecallWebhook] = {}
        self.store = RecallStore(
            store, retention_s=rules.retention_days * DAY_S, max_answers=rules.max_answers, wall=wall
        )
        sink = RecallSink(
            count_receiver=lambda end: metrics.recall_receivers.labels(end).inc(), recalled=self._note_recalled
        )
        self.recalls = Recalls(self.store, max_answers=rules.max_answers, sink=sink)
        self._resolver = (Resolver if rules.allow_private_webhooks else PublicResolver)(clock=clock)
        self._sender = WebhookSender(self._connect, wall=wall)
        self.delivery = RecallDelivery(
            self.recalls,
            self.store,
            StoreLease(store, _SPACE, holder=holder, clock=clock),
            DeliveryRules(
                post=self._sender.send,
                webhooks=lambda: self._webhooks,
                give_up_s=rules.give_up_hours * HOUR_S,
                note_end=self._note_end,
            ),
            clock=clock,
            wall=wall,
        )

    def configure(self, policy: Policy) -> None:
        """Adopt the tenants and webhooks of the policy in force. Raises ReachError."""
        found = [
            webhook_of(tenant, self._environment, allows_private=self._allows_private) for tenant in policy.tenants
        ]
        self._webhooks = {webhook.tenant: webhook for webhook in found if webhook is not None}
        self.recalls.configure(policy)

    def follow(self, auditor: Auditor) -> None:
        """Take the similar answers that are served from now on."""
        if self.is_on:
            auditor.on_served = self._note_served

    def start(self, keep: Keep) -> None:
        """Start the tasks that write and send until they are cancelled."""
        if self.is_on:
            keep(self.recalls.run, "recalls")
            keep(self.delivery.run, "recall_delivery")

    def counts(self) -> RecallCounts:
        """Return the counts of this gateway, its workers included, since its start."""
        metrics = self._metrics
        ends = {labels[0]: int(counter.value) for labels, counter in metrics.recall_webhooks.children()}
        return RecallCounts(
            is_on=self.is_on,
            notices=int(sum(counter.value for _, counter in metrics.recalls.children())),
            delivered=ends.get("delivered", 0),
            failed=ends.get("failed", 0),
            given_up=ends.get("given_up", 0),
        )

    async def stop_sending(self) -> None:
        """Finish the webhook under way; call it before the tasks are cancelled."""
        if self.is_on:
            await self.delivery.aclose()

    async def aclose(self) -> None:
        """Write what waits, and close all connections; call it when the tasks have ended."""
        if self.is_on:
            await self.recalls.flush()
        await self._sender.aclose()
        self._resolver.close()

    def note_audit(self, record: AuditRecord) -> None:
        """Recall what an audit or a person found to be wrong; feedback comes by `note_wrong`."""
        if self.is_on and record.was_served and record.verdict == "wrong" and record.by != "feedback":
            reason: RecallReason = "review" if record.by == "admin" else "audit"
            self._note_wrong(record.entry_id, reason, TenantRequest(record.tenant, record.id), record.route)

    def note_wrong(self, request_id: str, entry: CacheEntry) -> None:
        """Recall what its own tenant reported to be wrong."""
        if self.is_on:
            self._note_wrong(entry.id, "feedback", TenantRequest(entry.tenant, request_id), entry.route)

    async def note_feedback(self, request_id: str, tenant: str) -> str | None:
        """Recall the similar answer that a tenant's request received, whichever process served it.

        Returns:
            The id of its entry; None where no such answer is remembered.
        """
        received = await self.recalls.received(request_id, tenant) if self.is_on else None
        if received is None:
            return None
        self._note_wrong(received.entry_id, "feedback", TenantRequest(tenant, request_id), received.route)
        return received.entry_id

    def _note_wrong(self, entry_id: str, reason: RecallReason, by: TenantRequest, route: str) -> None:
        now = self._wall()
        self.recalls.note_wrong(
            WrongAnswer(
                entry_id=entry_id, reason=reason, at=now, tenant=by.tenant, request_id=by.request_id, route=route
            )
        )

    def _note_served(self, request_id: str, lookup: SemanticLookup, entry: CacheEntry) -> None:
        self.recalls.note_served(
            ReceivedAnswer(
                tenant=lookup.whose.tenant,
                request_id=request_id,
                entry_id=entry.id,
                entry_tenant=entry.tenant,
                route=lookup.whose.route,
                served_at=self._wall(),
            )
        )

    def _note_recalled(self, tenant: str, notice: RecallNotice) -> None:
        self._metrics.recalls.labels(notice.reason).inc()
        self._log.event("recalled", level="warning", tenant=tenant, **_described(notice))
        self.delivery.wake()

    def _note_end(self, notice: RecallNotice, tenant: str, end: DeliveryEnd, failure: str) -> None:
        self._metrics.recall_webhooks.labels(end).inc()
        if end == "failed":
            self._log.event("recall_failed", level="warning", tenant=tenant, error=failure, **_described(notice))
        elif end == "given_up":
            self._log.event("recall_given_up", level="error", tenant=tenant, error=failure, **_described(notice))

    def _connect(self, target: Target) -> UpstreamClient:
        ssl = client_context() if target.is_tls else None
        pool = ConnectionPool(str(target), _POOL_LIMITS, self._clock)
        return UpstreamClient(target, pool, clock=self._clock, ssl=ssl, resolver=self._resolver)


def _described(notice: RecallNotice) -> dict[str, str]:
    return {"id": notice.id, "request_id": notice.request_id, "entry": notice.entry, "reason": notice.reason}
