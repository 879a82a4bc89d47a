"""The policy document as frozen values: what an operator writes, with the unit in every number's name.

`loading.load_policy` makes these from YAML; nothing else should. What the schema knows but this version does
not act on is refused there, by `availability`, so that a value found here is a value that works.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

SCHEMA_VERSION = 1

# In Python `$` also matches before a final line feed; the look-ahead says what JSON Schema means by it.
Id = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}(?!\n)$",
        description="1 to 64 of a-z, 0-9, dot, underscore and hyphen, starting with a letter or digit",
    ),
]
"""Names an item of a list; also a header value and a metric label, hence the small alphabet."""
ModelName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}(?!\n)$",
        description="1 to 128 of letters, digits and . _ : / @ -, starting with a letter or digit",
    ),
]
HeaderName = Annotated[
    str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}(?!\n)$", description="a header's name in lower case")
]
Sha256Hex = Annotated[
    str,
    Meta(
        pattern=r"^[0-9a-f]{64}(?!\n)$",
        description="the sha256 of the whole key as 64 lower-case hex digits (penstock keys new prints it)",
    ),
]
EnvironmentName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Z_][A-Z0-9_]{0,63}(?!\n)$",
        description="the name of an environment variable, 1 to 64 of A-Z, 0-9 and underscore; never the secret itself",
        extra={"is_secret": True},
    ),
]
"""Where a secret is found. Errors do not repeat what was written: it may be the secret, pasted into the wrong place."""
AbsolutePath = Annotated[str, Meta(pattern=r"^/[^\x00\r\n]*(?!\n)$", description="an absolute path")]
Milliseconds = Annotated[int, Meta(ge=1, le=3_600_000)]
Seconds = Annotated[int, Meta(ge=1, le=31_536_000)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Concurrency = Annotated[int, Meta(ge=1, le=100_000)]
QueueLength = Annotated[int, Meta(ge=0, le=1_000_000)]
Ratio = Annotated[float, Meta(ge=0.0, le=1.0)]
HedgeRatio = Annotated[float, Meta(gt=0.0, le=0.1)]
Temperature = Annotated[float, Meta(ge=0.0, le=2.0)]
Weight = Annotated[float, Meta(gt=0.0, le=1_000_000.0)]
Price = Annotated[float, Meta(ge=0.0, le=1_000_000.0)]

TokenBudget = Annotated[int, Meta(ge=1, le=1_000_000_000_000_000)]
Money = Annotated[float, Meta(gt=0.0, le=1_000_000.0)]

OnStoreLoss = Literal["allow", "refuse"]
SelectPolicy = Literal[
    "first_available",
    "weighted",
    "least_in_flight",
    "latency_first",
    "least_cost_within_slo",
    "scored",
    "quality_then_latency",
    "cost_cap",
    "sticky",
    "canary",
    "cascade",
]
ScorerName = Literal[
    "affinity", "cost", "headroom", "latency", "order", "pace", "quality", "session", "zone"
]  # fmt: skip
TrimStrategy = Literal["minify", "dedupe", "cap_tool_outputs", "drop_old_turns", "extract_passages", "downscale_images"]
StickyBy = Literal["conversation", "tenant"]
CacheMode = Literal["off", "exact", "exact_then_semantic"]
CacheScope = Literal["user", "tenant", "shared"]
CacheHistory = Literal["exact", "standalone"]
OverloadStep = Literal["trim", "small_model", "max_tokens", "stale_cache", "shed"]
EnginePriority = Literal["interactive", "batch"]
PlainAsStream = Literal["suspected", "always", "never"]
NoRouteCode = Literal["model_not_found", "model_not_allowed"]


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of everything in the document."""


class CostPerMtok(_Strict, frozen=True, kw_only=True):
    """Price of a million tokens, in whatever currency the operator counts in; reported, never acted on."""

    prompt: Price
    completion: Price


class DeploymentLimits(_Strict, frozen=True, kw_only=True):
    """What one deployment may be given at once, by one gateway worker."""

    max_in_flight: Concurrency = 64


class UpstreamAuth(_Strict, frozen=True, kw_only=True):
    """What the gateway presents to a deployment; a client's own key never goes there."""

    bearer_env: EnvironmentName
    """The variable of the gateway's process that holds the key sent as `authorization: Bearer`."""


class UpstreamTls(_Strict, frozen=True, kw_only=True):
    """How a deployment behind `https://` is verified; that it is verified is not a setting."""

    ca_file: AbsolutePath
    """PEM certificates of the authorities to trust, in place of the system's."""


class Deployment(_Strict, frozen=True, kw_only=True):
    """What the router picks: a model behind a URL."""

    id: Id
    url: str
    """`unix:/absolute/path.sock`, `http://host[:port][/base]` or `https://…`.

    Without a path the API is under `/v1`; a path is the API's base as OpenAI's libraries have it, `/v1` included.
    """
    model: ModelName
    """The name sent upstream, and one a client may ask for."""
    context_tokens: Count | None = None
    """Prompt and answer together; a prompt that surely exceeds it everywhere is refused before it is sent."""
    cost_per_mtok: CostPerMtok | None = None
    limits: DeploymentLimits = DeploymentLimits()
    auth: UpstreamAuth | None = None
    tls: UpstreamTls | None = None
    zone: Id | None = None
    """Where it runs; a gateway whose process setting `zone` says the same is near it. None: near everybody."""
    quality: Ratio = 1.0
    """How good its answers are, for the scorer `quality`."""
    plain_as_stream: PlainAsStream = "suspected"
    """When a stream is asked for behind a plain answer, so that a stall is seen before the answer's end: where the
    deployment is suspected to have stalled, always or never."""


class Slo(_Strict, frozen=True, kw_only=True):
    """Latency targets of a lane."""

    ttft_p95_ms: Milliseconds
    tpot_p95_ms: Milliseconds | None = None


class Lane(_Strict, frozen=True, kw_only=True):
    """A class of traffic."""

    id: Id
    weight: Weight = 1.0
    """Share of the capacity under contention, relative to the other lanes."""
    slo: Slo | None = None
    max_queue: QueueLength | None = None
    on_overload: tuple[OverloadStep, ...] = ("shed",)
    """What is tried, in this order, with a request that would miss the lane's target; without `shed` it is served
    late."""
    degraded_max_tokens: Count = 256
    """What the step `max_tokens` cuts an answer to."""
    max_prompt_tokens: Count | None = None
    """Longer prompts go to the lane `longer`."""
    longer: Id | None = None
    priority: EnginePriority | None = None
    """What upstreams are told; None is `batch` for the lane of that name, else `interactive`."""

    def __post_init__(self) -> None:
        if (self.max_prompt_tokens is None) != (self.longer is None):
            raise ValueError("max_prompt_tokens and longer belong together: prompts above the one go to the other")

    @property
    def engine_priority(self) -> EnginePriority:
        """What upstreams are told."""
        return self.priority or ("batch" if self.id == "batch" else "interactive")


DEFAULT_LANES = (
    Lane(id="interactive", weight=8.0, max_prompt_tokens=2048, longer="interactive-long"),
    Lane(id="interactive-long", weight=4.0),
    Lane(id="batch"),
)
"""Of a policy that names none: what a person waits for, the same with a long prompt, and the rest."""


class TenantKey(_Strict, frozen=True, kw_only=True):
    """One API key, known by its hash only."""

    id: Id
    sha256: Sha256Hex


class TenantBudget(_Strict, frozen=True, kw_only=True):
    """What a tenant may use in a calendar day or month (UTC); None is no limit."""

    tokens_per_day: TokenBudget | None = None
    tokens_per_month: TokenBudget | None = None
    cost_per_day: Money | None = None
    """In the currency of `cost_per_mtok`, which every deployment then needs."""
    cost_per_month: Money | None = None
    on_store_loss: OnStoreLoss | None = None
    """None: as the tenant's other limits."""


class TenantLimits(_Strict, frozen=True, kw_only=True):
    """Quota of one tenant over all gateway processes that share a store; None is no limit."""

    requests_per_min: Count | None = None
    """In any sixty seconds, wherever they begin."""
    tokens_per_min: Count | None = None
    """Prompt and answer together: an estimate is held when the request comes, what was used is counted at its end."""
    max_in_flight: Concurrency | None = None
    """Requests under way at once."""
    budget: TenantBudget = TenantBudget()
    on_store_loss: OnStoreLoss = "allow"
    """Without the store: `allow` goes on within this process' even share of each limit, `refuse` answers 429."""


class Tenant(_Strict, frozen=True, kw_only=True):
    """A quota identity: who a key belongs to and what it may use."""

    id: Id
    keys: tuple[TenantKey, ...] = ()
    models: tuple[ModelName, ...] | None = None
    """Names this tenant may ask for; None is every name."""
    lanes: tuple[Id, ...] | None = None
    """Lanes this tenant may use, the first being its default; None is every lane."""
    limits: TenantLimits = TenantLimits()
    flags: dict[Id, Annotated[int, Meta(ge=0, le=100)]] = {}
    """`canary`: percent of the tenant's traffic that may be part of a canary, whatever the canary asks for; 0: none."""


class Match(_Strict, frozen=True, kw_only=True):
    """Which requests a route takes; every condition given must hold."""

    models: Annotated[tuple[ModelName, ...], Meta(min_length=1)] = ("auto",)
    tenants: tuple[Id, ...] | None = None
    """None is every tenant, and requests without one."""
    headers: dict[HeaderName, str] = {}
    """Request headers that must be present with exactly this value."""
    when: str | None = None
    """A condition in CEL, such as `request.turns <= 2 && tenant in ["shop"]`: of `request.model`, `.turns`,
    `.prompt_bytes`, `.has_tools`, `.has_images`, `.stream`, `.text` (of the last message, its first 2,000 characters),
    `tenant` and `headers["name"]`."""


class Trim(_Strict, frozen=True, kw_only=True):
    """How prompts are shortened."""

    budget_tokens: Count | None = None
    strategies: tuple[TrimStrategy, ...] = ()
    max_image_side_px: Annotated[int, Meta(ge=64, le=16_384)] = 1024
    """What `downscale_images` scales the longer side of an image to."""


class Cache(_Strict, frozen=True, kw_only=True):
    """Which answers may be reused, and for whom."""

    mode: CacheMode = "off"
    scope: CacheScope = "tenant"
    ttl_s: Seconds = 3600
    max_error_ratio: Ratio = 0.01
    """Of all requests of a tenant on the route, those that may get a wrong answer from the semantic tier."""
    audit_ratio: Ratio = 0.02
    """Of the answers that the semantic tier gives, those that are also asked upstream to see whether they are right."""
    max_temperature: Temperature = 1.0
    """Requests above it get exact answers only; one that names none counts as 1."""
    history: CacheHistory = "exact"
    """`exact`: similar questions share answers only after equal conversations. `standalone`: also after others, where
    the question by its words depends on none."""
    auditor: Id | None = None
    """A deployment that is asked whether two answers in other words say the same; None: the encoder decides alone."""
    review_texts: bool = False
    """Whether records of audits keep the texts of what was asked and answered, for whoever reviews them."""


class Candidate(_Strict, frozen=True, kw_only=True):
    """A deployment a route may choose; written as its bare id when the weight is 1."""

    id: Id
    weight: Weight = 1.0


class Hedge(_Strict, frozen=True, kw_only=True):
    """A second deployment is asked when the first is slower than it usually is; the answer that begins first wins."""

    max_ratio: HedgeRatio = 0.02
    """Share of the route's requests that may be asked twice."""
    max_load_ratio: Ratio = 0.5
    """Nothing is asked twice while more than this share of the permits of either deployment is taken."""


class Canary(_Strict, frozen=True, kw_only=True):
    """The candidate that some of the conversations are given to; the same ones as long as the ratio does not fall."""

    id: Id
    ratio: Ratio = 0.05


class Cascade(_Strict, frozen=True, kw_only=True):
    """The first candidate answers, and hands over to the second when its first tokens are not sure enough."""

    first_tokens: Annotated[int, Meta(ge=1, le=64)] = 16
    """After as many it is decided, most often after fewer."""
    skip_below: Ratio = 0.3
    """Of the chance by the prompt alone: below it the first candidate is not asked at all."""


class Shadow(_Strict, frozen=True, kw_only=True):
    """A deployment that is asked some of the requests once more, after their answers, while it is not busy; what it
    says is compared and never sent."""

    id: Id
    ratio: Ratio = 0.02
    max_in_flight: Concurrency = 2


class Select(_Strict, frozen=True, kw_only=True):
    """How a route chooses among its candidates."""

    candidates: Annotated[tuple[Id | Candidate, ...], Meta(min_length=1)]
    policy: SelectPolicy = "first_available"
    """`first_available`: in the order written. `weighted`: at random by weight. `least_in_flight`: the emptiest.
    `latency_first`: the first token soonest. `least_cost_within_slo`: the cheapest of those that are forecast to keep
    the lane's targets, else the fastest. `scored`: by `weights`. `quality_then_latency`: of those that are forecast to
    keep the targets the cheapest whose quality reaches `min_quality`. `cost_cap`: the best whose price for this request
    stays within `max_request_cost`, else the cheapest. `sticky`: the same for all requests of a conversation, or of a
    tenant. `canary`: a share of the conversations to one candidate, the others in the order written.
    `cascade`: the first of two, and the second where the first one's own tokens do not promise `min_quality`."""
    weights: dict[ScorerName, Weight] = {}
    """How much each scorer counts with policy `scored`."""
    min_quality: Ratio | None = None
    """How sure it must be that an answer is good enough, with policies `quality_then_latency` and `cascade`."""
    kind: Annotated[str, Meta(max_length=64)] = ""
    """What kind of work this route's prompts are, as the data names it that a predictor was trained on. With policies
    `quality_then_latency` and `cascade`, and predictors that use the embedding."""
    max_request_cost: Money | None = None
    """In the currency of `cost_per_mtok`, with policy `cost_cap`."""
    sticky_by: StickyBy | None = None
    """What stays in one place with policy `sticky`; None: conversations."""
    canary: Canary | None = None
    cascade: Cascade | None = None
    shadow: Shadow | None = None
    fallback: tuple[Id, ...] = ()
    """Routes or deployments whose turn it is, in this order, when no candidate is fit to answer."""
    hedge: Hedge | None = None

    def __post_init__(self) -> None:
        if (self.policy == "scored") != bool(self.weights):
            raise ValueError("policy scored and weights belong together: the one chooses by the other")
        if (self.policy in ("quality_then_latency", "cascade")) != (self.min_quality is not None):
            raise ValueError("min_quality belongs to the policies quality_then_latency and cascade, which choose by it")
        if self.kind and self.min_quality is None:
            raise ValueError("kind belongs to the policies quality_then_latency and cascade, which predict by it")
        if self.cascade is not None and self.policy != "cascade":
            raise ValueError("cascade has an effect with policy cascade only")
        self._check("cost_cap", "max_request_cost")
        self._check("canary", "canary")
        if self.sticky_by is not None and self.policy != "sticky":
            raise ValueError("sticky_by has an effect with policy sticky only")

    def _check(self, policy: SelectPolicy, setting: str) -> None:
        if (self.policy == policy) != (getattr(self, setting) is not None):
            raise ValueError(f"policy {policy} and {setting} belong together: the one chooses by the other")

    def resolved(self) -> tuple[Candidate, ...]:
        """The candidates in the order written, bare ids given weight 1."""
        return tuple(Candidate(id=item) if isinstance(item, str) else item for item in self.candidates)


class Timeouts(_Strict, frozen=True, kw_only=True):
    """How long each stage upstream may take."""

    connect_ms: Milliseconds = 1_000
    first_token_ms: Milliseconds = 30_000
    inter_token_ms: Milliseconds = 10_000
    total_ms: Milliseconds = 300_000

    def __post_init__(self) -> None:
        for name in ("connect_ms", "first_token_ms", "inter_token_ms"):
            if getattr(self, name) > self.total_ms:
                raise ValueError(f"{name} ({getattr(self, name)}) is longer than total_ms ({self.total_ms})")


class Route(_Strict, frozen=True, kw_only=True):
    """What happens to the requests it matches. Routes are tried in the order written; the first match wins."""

    id: Id
    select: Select
    match: Match = Match()
    trim: Trim = Trim()
    cache: Cache = Cache()
    timeouts: Timeouts = Timeouts()


class GivenDeployment(_Strict, frozen=True, kw_only=True):
    """State a test assumes for one deployment; what it does not say is ready and idle."""

    ready: bool = True
    in_flight: Annotated[int, Meta(ge=0, le=100_000)] = 0
    forecast_ttft_ms: Milliseconds | None = None
    """Time to the first token for the request of the test, queues included."""
    tpot_ms: Milliseconds | None = None
    cached_tokens: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    """Of the test's prompt, what it holds."""
    same_session: bool = False
    """It answered the conversation's last request."""
    quality: Ratio | None = None
    """How good its answer to the test's request is taken to be; None: as it is predicted from the request's text, or
    without one, or without coefficients for the pair, as the deployment says."""


class TestRequest(_Strict, frozen=True, kw_only=True):
    """The request of a test."""

    __test__ = False  # for pytest: not a test class

    model: ModelName = "auto"
    tenant: Id | None = None
    text: str = ""
    turns: Count = 1
    has_tools: bool = False
    has_images: bool = False
    stream: bool = False
    headers: dict[HeaderName, str] = {}
    lane: Id | None = None
    """Whose targets hold; None is the tenant's first, or the policy's."""
    prompt_tokens: Count = 1_000
    output_tokens: Count = 250
    zone: Id | None = None
    """Where the gateway runs."""
    conversation: Annotated[str, Meta(max_length=512)] = ""
    """What tells the conversation apart, for the policies that keep one in its place."""


class Expectation(_Strict, frozen=True, kw_only=True):
    """What a test expects; what it does not name is not compared."""

    route: Id | None = None
    candidates: tuple[Id, ...] | None = None
    """Deployments that may answer, in the order the route lists them."""
    deployment: Id | None = None
    """The one that is chosen."""
    error: NoRouteCode | None = None

    def __post_init__(self) -> None:
        if not self._named():
            raise ValueError("expects nothing; name at least one of route, candidates, deployment, error")
        if self.error is not None and len(self._named()) > 1:
            raise ValueError("a request that ends in an error has no route, candidates or deployment")

    def _named(self) -> list[str]:
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]


class PolicyTest(_Strict, frozen=True, kw_only=True):
    """One example of what the policy must do; run by `penstock policy check`."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    request: TestRequest = TestRequest()
    given: dict[Id, GivenDeployment] = {}
    expect: Expectation


class Policy(_Strict, frozen=True, kw_only=True):
    """The whole document."""

    schema_version: Literal[1]
    deployments: Annotated[tuple[Deployment, ...], Meta(min_length=1)]
    lanes: tuple[Lane, ...] = DEFAULT_LANES
    tenants: tuple[Tenant, ...] = ()
    routes: tuple[Route, ...] = ()
    tests: tuple[PolicyTest, ...] = ()

    @property
    def has_keys(self) -> bool:
        """Whether any tenant can authenticate; without keys the gateway serves loopback clients only."""
        return any(tenant.keys for tenant in self.tenants)
