"""The live state of deployments: what the router looks at and the forwarder uses; it outlives policy revisions."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.deployments.forecast import DeploymentForecast
from gateway.deployments.health.health import DeploymentHealth
from gateway.deployments.health.second_attempts import RecentDelays, RetryBudget
from gateway.deployments.row_bound import RowBound
from gateway.deployments.starting import StartProgress, StartReport
from gateway.limits.limiter import Limiter
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.reach import UpstreamReach
from routing_policies.estimation.estimators import PeakEwma
from routing_policies.policy.document import Deployment, PlainAsStream

_RETIRE_POLL_S: Final = 0.1
_LONGEST_DECAY_S: Final = 60.0
RETRIES_RATIO: Final = 0.2
"""Retries that a deployment may get for each first attempt it gets, beyond the purse's reserve."""


class LiveDeployment:
    """One deployment with its connections, its permits and whether it is ready."""

    __slots__ = (
        "__weakref__",
        "authorization",
        "chat_path",
        "client",
        "context_tokens",
        "first_bytes",
        "fixed_headers",
        "forecast",
        "health",
        "id",
        "is_bare",
        "is_draining",
        "is_ready",
        "limiter",
        "model",
        "plain_as_stream",
        "refuses_streams",
        "retries",
        "row_bound",
        "starting",
        "tls",
        "url",
        "whole_answers",
    )

    def __init__(
        self,
        deployment: Deployment,
        reach: UpstreamReach,
        client: UpstreamClient,
        limiter: Limiter,
        health: DeploymentHealth,
    ) -> None:
        self.id = deployment.id
        self.model = deployment.model
        self.url = deployment.url
        self.tls = deployment.tls
        self.chat_path = b"/chat/completions" if reach.target.base_path else b"/v1/chat/completions"
        """What follows the URL; a URL with a path is the API's whole base."""
        self.is_bare = not reach.target.base_path
        """The URL is the server's root, where an engine has its own pages too."""
        self.authorization = reach.authorization
        """The header's value, None where the deployment wants none; a secret."""
        self.fixed_headers: dict[tuple[bytes, bytes], tuple[tuple[bytes, bytes], ...]] = {}
        """By what is accepted and by priority: headers that many requests have in common, put together once."""
        self.context_tokens = deployment.context_tokens
        """None: not known."""
        self.client = client
        self.limiter = limiter
        self.forecast = DeploymentForecast(client.pulse)
        """How long it will take; fed by whoever sends and by the engine's own report."""
        self.health = health
        """What its answers so far say about it."""
        self.first_bytes = RecentDelays()
        """How long streams took to begin lately: what is late is judged by it."""
        self.whole_answers = PeakEwma(decay_s=_LONGEST_DECAY_S)
        """How long the longest of the recent plain answers took, whole."""
        self.plain_as_stream: PlainAsStream = deployment.plain_as_stream
        """When a stream is asked for behind a plain answer."""
        self.refuses_streams = False
        """It once refused a stream that was asked for behind a plain answer: it is not asked for one again."""
        self.retries = RetryBudget(ratio=RETRIES_RATIO)
        """How many second attempts of others' requests it may be given, so that failover never floods it."""
        self.row_bound = RowBound()
        """When the limiter's bound on rows is worked out again."""
        self.starting = StartProgress()
        """How far its start is, while it is not ready."""
        self.is_ready = False
        """As the last probe, or the last failed connect, left it; False while it is drained."""
        self.is_draining = False
        """Operators want no new requests sent there; those under way end as they would."""

    @property
    def credentials(self) -> tuple[tuple[bytes, bytes], ...]:
        """The header that proves who we are to the deployment, if it wants one; a secret."""
        return () if self.authorization is None else ((b"authorization", self.authorization),)

    def drain(self, *, is_draining: bool) -> None:
        """Send nothing new there, or again from the next good probe on."""
        self.is_draining = is_draining
        self.is_ready = self.is_ready and not is_draining

    def note_said(self, now: float, state: str) -> None:
        """What it says of itself without being asked: one that starts anew is not sent anything from now on."""
        said = StartReport(state)
        if self.is_ready and said.is_coming:
            self.is_ready = False
            self.starting.note_waiting(now, said)

    def ready_in_s(self, now: float) -> float | None:
        """Seconds until it is forecast to be ready; None when it is, or when nothing says that it will be."""
        return None if self.is_ready or self.is_draining else self.starting.left_s(now)

    @property
    def in_flight(self) -> int:
        """Requests that hold a permit now."""
        return self.limiter.in_flight

    def serves(self, deployment: Deployment) -> bool:
        """Whether this live state can go on under a new revision's entry: same address and model."""
        return (self.url, self.tls, self.model) == (deployment.url, deployment.tls, deployment.model)

    async def retire(self) -> None:
        """Close its connections once its last request has ended; for one that left the policy."""
        while self.limiter.in_flight or self.limiter.num_waiting:
            await asyncio.sleep(_RETIRE_POLL_S)
        await self.client.aclose()
