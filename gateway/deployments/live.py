"""LiveDeployment: live state of a deployment, read by routing and used by forwarding; it outlives policy revisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from gateway.chat.operation import CHAT, Operation
from gateway.deployments.forecast import DeploymentForecast
from gateway.deployments.health.health import DeploymentHealth
from gateway.deployments.health.round_trip import RoundTrip
from gateway.deployments.health.second_attempts import RecentDelays, RetryBudget
from gateway.deployments.seq_bound import SequenceBound
from gateway.deployments.slow_start import SlowStart
from gateway.deployments.starting import StartProgress, StartReport
from gateway.dialects.upstream_dialect import UpstreamDialect
from gateway.limits.limiter import Limiter
from gateway.upstreams.client import UpstreamClient
from gateway.upstreams.reach import UpstreamHeaders, UpstreamReach
from routing_policies.estimation.coverage import TtftBounds
from routing_policies.estimation.estimators import PeakEwma
from routing_policies.operations import input_modalities_of, operations_of
from routing_policies.policy.deployment import Deployment
from routing_policies.policy.members import group_of
from routing_policies.policy.values import PlainAsStream, PredictionUse

_RETIRE_POLL_S: Final = 0.1
_LONGEST_DECAY_S: Final = 60.0
RETRIES_RATIO: Final = 0.2
"""Retries that a deployment may receive per first attempt, beyond the reserve of its retry budget."""


class LiveDeployment:
    """One deployment with its connections, permits, forecast and health."""

    __slots__ = (
        "__weakref__",
        "_base_path",
        "_headers",
        "adapters",
        "chat_path",
        "client",
        "context_tokens",
        "continuation",
        "description",
        "dialect",
        "first_bytes",
        "fixed_headers",
        "forecast",
        "group",
        "has_left",
        "has_load_feed",
        "health",
        "id",
        "input_modalities",
        "is_bare",
        "is_draining",
        "is_ready",
        "limiter",
        "model",
        "moves",
        "operations",
        "plain_as_stream",
        "prediction",
        "proxy",
        "reads_cache_salt",
        "refuses_streams",
        "retries",
        "root_path",
        "round_trip",
        "seq_bound",
        "slow_start",
        "starting",
        "tls",
        "ttft_bounds",
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
        dialect: UpstreamDialect | None = None,
    ) -> None:
        self.id, self.model = deployment.id, deployment.model
        self.group = group_of(deployment.id)
        """Id of the policy's deployment: that of a member's group, else its own."""
        self.adapters: frozenset[str] = frozenset()
        """Names of the adapters that its engine reports."""
        self.url, self.tls, self.proxy = deployment.url, deployment.tls, deployment.proxy
        self._base_path = b"" if reach.target.base_path else b"/v1"
        """Path after the URL; a URL with a path is the base of the whole API."""
        self.root_path = reach.target.base_path.removesuffix("/v1").encode("ascii")
        """Path of the server's root, below which servers such as vLLM have endpoints beside those of the API."""
        self.chat_path = self.path_of(CHAT.path)
        self.dialect = dialect
        """Translation of requests and answers; None for chat completions."""
        self.describe(deployment)
        self.is_bare = not reach.target.base_path and not reach.target.is_builtin
        """True if the URL is the server's root, where an engine also serves its own endpoints."""
        self._headers = reach.headers
        self.fixed_headers: dict[tuple[bytes, bytes], tuple[tuple[bytes, bytes], ...]] = {}
        """Headers common to many requests, by accepted type and priority; built once."""
        self.client, self.limiter = client, limiter
        self.forecast = DeploymentForecast(client.pulse)
        """Forecast of its latencies, fed by forwarding and by the engine's load report."""
        self.health = health
        self.round_trip = RoundTrip()
        """Round trip of its probes."""
        self.first_bytes = RecentDelays()
        """Recent delays to the first byte of streams, by which a late one is recognised."""
        self.whole_answers = PeakEwma(decay_s=_LONGEST_DECAY_S)
        """Duration of the longest recent response that was no stream."""
        self.has_load_feed = False
        """True once it sent its load as Penstock's engine does."""
        self.refuses_streams = False
        """True once it refused a stream requested behind such a response; no further one is requested."""
        self.retries = RetryBudget(ratio=RETRIES_RATIO)
        """Budget of retries of other deployments' requests, so failover never floods this one."""
        self.ttft_bounds: TtftBounds | None = None
        """Bounds of the time to first token that quotes state; None until a policy with quotes sends a request."""
        self.seq_bound = SequenceBound()
        """Schedule for recomputing the limiter's bound on rows."""
        self.starting = StartProgress()
        """Progress of its start while it is not ready."""
        self.is_ready = False
        """True by the last probe or failed connect; False while draining."""
        self.is_draining = False
        """True if operators admit no new requests there; those in flight end normally, or go on elsewhere."""
        self.has_left = False
        """True while its source does not list it; it gets no new requests; those in flight end or go on elsewhere."""
        self.moves: set[Callable[[], None]] = set()
        """Moves of the streams that could go on at another deployment; each is called when no more requests come."""
        self.slow_start: SlowStart | None = None
        """Warm-up of its group's members; None for a deployment with a URL of its own."""

    def path_of(self, endpoint: bytes) -> bytes:
        """Return the path of an endpoint after the URL, such as `/chat/completions`."""
        return self._base_path + endpoint

    def describe(self, deployment: Deployment) -> None:
        """Take from a revision what the model and its server can do, and how the policy uses them."""
        self.operations = operations_of(deployment)
        """Names of the operations that it serves."""
        self.input_modalities = input_modalities_of(deployment)
        """Kinds of content that its model reads; None where they are unknown."""
        self.context_tokens = deployment.context_tokens
        """Context length in tokens; None when unknown."""
        self.continuation = deployment.continuation
        """Way in which its server continues a last message of the assistant; None where it does not."""
        self.description = deployment.description
        """What its model knows and cannot do; empty where the policy does not state it."""
        self.plain_as_stream: PlainAsStream = deployment.plain_as_stream
        """Condition for requesting a stream behind a response that is none."""
        self.prediction: PredictionUse = deployment.prediction
        """Use of predictions by the policy."""
        self.reads_cache_salt = self.dialect is None and deployment.prefix_salt == "body"
        """True if its server reads the salt of a tenant's prefixes from the body."""

    def note_adapters(self, names: Iterable[str]) -> None:
        """Adopt the adapters that its load feed reports."""
        if self.adapters != (found := frozenset(names)):
            self.adapters = found

    def model_with(self, adapter: str | None) -> str:
        """Return the name by which its engine knows the model, with an adapter if one is given."""
        return self.model if adapter is None else f"{self.model}:{adapter}"

    def serves_operation(self, operation: Operation) -> bool:
        """Return whether the deployment, in its dialect, serves an operation."""
        has_endpoint = self.dialect is None or self.dialect.path(operation) is not None
        return has_endpoint and operation.name in self.operations

    @property
    def headers(self) -> UpstreamHeaders:
        """Headers that the policy adds to every request, the gateway's credentials included."""
        return self._headers

    @headers.setter
    def headers(self, headers: UpstreamHeaders) -> None:
        if headers != self._headers:
            self._headers = headers
            self.fixed_headers.clear()

    @property
    def may_be_ready(self) -> bool:
        """Return whether a good probe makes it ready."""
        return not (self.is_draining or self.has_left)

    def depart(self, *, has_left: bool) -> None:
        """Stop sending new requests to a member that its source no longer lists, or resume after the next probe."""
        self.has_left = has_left
        self.is_ready = self.is_ready and not has_left

    def begin_warm_up(self, now: float) -> None:
        """Let a new process there get its share of the requests slowly, where it is a member of a group."""
        if self.slow_start is not None:
            self.slow_start.begin(self.id, now)

    def warm_up_share(self, now: float) -> float:
        """Return the share of what an old member of its group gets; 1 where it has none."""
        return 1.0 if self.slow_start is None else self.slow_start.share(self.id, now)

    @property
    def is_busy(self) -> bool:
        """Return whether a request of this process holds a permit or waits for one.

        Other processes retire their own state of the deployment, and a successor of the same id shares the counts.
        """
        return bool(self.limiter.own_in_flight or self.limiter.own_waiting)

    def drain(self, *, is_draining: bool) -> None:
        """Stop sending new requests there, or resume after the next successful probe."""
        self.is_draining = is_draining
        self.is_ready = self.is_ready and not is_draining
        if is_draining:
            self.move_streams()

    def move_streams(self) -> None:
        """Let streams that can go on elsewhere do so now; the others end here."""
        for move in tuple(self.moves):
            move()

    @property
    def takes_drafts(self) -> bool:
        """True if near misses of the cache may go to it as predictions."""
        if self.dialect is not None or self.prediction == "off":
            return False
        return self.has_load_feed or self.prediction == "on"

    def note_stated(self, now: float, state: str) -> None:
        """Adopt the state that its load feed reports; one that restarts receives no further requests."""
        self.has_load_feed = True
        report = StartReport(state)
        if self.is_ready and report.is_coming:
            self.is_ready = False
            self.starting.note_waiting(now, report)

    def ready_in_s(self, now: float) -> float | None:
        """Return the forecast seconds until it is ready; None when it is ready or nothing indicates that it will be."""
        return None if self.is_ready or not self.may_be_ready else self.starting.left_s(now)

    @property
    def in_flight(self) -> int:
        """Number of requests that hold a permit."""
        return self.limiter.in_flight

    def serves(self, deployment: Deployment) -> bool:
        """Return whether this state continues under a new revision's entry: same address, way, model and dialect."""
        dialect = "openai" if self.dialect is None else self.dialect.name
        known = (self.url, self.tls, self.proxy, self.model, dialect)
        return known == (deployment.url, deployment.tls, deployment.proxy, deployment.model, deployment.dialect)

    async def retire(self) -> None:
        """Close its connections after its last request has ended; for a deployment that left the policy."""
        while self.is_busy:
            await asyncio.sleep(_RETIRE_POLL_S)
        await self.client.aclose()
