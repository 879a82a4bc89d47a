"""The policy document as frozen values, with the unit in every number's name.

Only `loading.load_policy` makes these, from YAML. Loading rejects settings that this version does not act on (see
`availability`), so every value here has an effect.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from routing_policies.policy.deployment import Deployment
from routing_policies.policy.policy_tests import PolicyTest
from routing_policies.policy.selection import Select
from routing_policies.policy.values import (
    CacheHistory,
    CacheMode,
    CacheScope,
    Concurrency,
    Count,
    Description,
    DocumentPart,
    EnginePriority,
    EnvironmentName,
    HeaderName,
    Id,
    ImageRule,
    Milliseconds,
    ModelName,
    Money,
    OnStoreLoss,
    OverloadStep,
    PersonalRule,
    QueueLength,
    Ratio,
    ResumeRule,
    Seconds,
    SessionPlace,
    Sha256Hex,
    Temperature,
    TimeDependentRule,
    TokenBudget,
    TrimStrategy,
    UnknownFields,
    WebhookUrl,
    Weight,
)

SCHEMA_VERSION = 1

KEYLESS_TENANT = "dev"
"""Tenant of requests without a key, where none is required."""


class Slo(DocumentPart, frozen=True, kw_only=True):
    """Latency targets of a lane."""

    ttft_p95_ms: Milliseconds
    tpot_p95_ms: Milliseconds | None = None


class Lane(DocumentPart, frozen=True, kw_only=True):
    """A class of traffic."""

    id: Id
    weight: Weight = 1.0
    """Share of the capacity under contention, relative to the other lanes."""
    slo: Slo | None = None
    max_queue: QueueLength | None = None
    on_overload: tuple[OverloadStep, ...] = ("shed",)
    """Degradation ladder: steps tried in order for a request that would miss the lane's target.

    Without `shed` the request is served late.
    """
    degraded_max_tokens: Count = 256
    """Length in tokens to which the step `max_tokens` limits an answer."""
    max_prompt_tokens: Count | None = None
    """Prompt length above which requests go to the lane `longer`."""
    longer: Id | None = None
    priority: EnginePriority | None = None
    """Priority sent upstream; None means `batch` for the lane of that name, else `interactive`."""

    def __post_init__(self) -> None:
        if (self.max_prompt_tokens is None) != (self.longer is None):
            raise ValueError("max_prompt_tokens and longer belong together: prompts above the one go to the other")

    @property
    def engine_priority(self) -> EnginePriority:
        """Priority sent upstream."""
        return self.priority or ("batch" if self.id == "batch" else "interactive")


DEFAULT_LANES = (
    Lane(id="interactive", weight=8.0, max_prompt_tokens=2048, longer="interactive-long"),
    Lane(id="interactive-long", weight=4.0),
    Lane(id="batch"),
)
"""Lanes of a policy without any: interactive requests, those with a long prompt, and batch."""


class TenantKey(DocumentPart, frozen=True, kw_only=True):
    """One API key, stored as its hash only."""

    id: Id
    sha256: Sha256Hex


class TenantBudget(DocumentPart, frozen=True, kw_only=True):
    """Usage allowed to a tenant in a calendar day or month (UTC); None means no limit."""

    tokens_per_day: TokenBudget | None = None
    tokens_per_month: TokenBudget | None = None
    cost_per_day: Money | None = None
    """Cost in the currency of `cost_per_mtok`, which every deployment must then have."""
    cost_per_month: Money | None = None
    on_store_loss: OnStoreLoss | None = None
    """Behaviour without the store; None means that of the tenant's other limits."""


class TenantLimits(DocumentPart, frozen=True, kw_only=True):
    """Quotas of one tenant over all gateway processes that share a store; None means no limit."""

    requests_per_min: Count | None = None
    """Requests in any window of sixty seconds."""
    tokens_per_min: Count | None = None
    """Prompt and answer tokens; an estimate is reserved on arrival, and the usage is counted at the end."""
    max_in_flight: Concurrency | None = None
    """Requests in flight at once."""
    budget: TenantBudget = TenantBudget()
    on_store_loss: OnStoreLoss = "allow"
    """Behaviour without the store.

    `allow` continues within this process' even share of each limit; `refuse` returns 429.
    """


class TenantWebhook(DocumentPart, frozen=True, kw_only=True):
    """Receiver of a tenant's recall notices."""

    url: WebhookUrl
    secret_env: EnvironmentName
    """Environment variable with the secret that signs them: `whsec_` and base64, or 16 characters or more."""


class Tenant(DocumentPart, frozen=True, kw_only=True):
    """The owner of API keys, to whom limits and bills apply."""

    id: Id
    keys: tuple[TenantKey, ...] = ()
    models: tuple[ModelName, ...] | None = None
    """Model names that the tenant may request; None means every name."""
    lanes: tuple[Id, ...] | None = None
    """Lanes that the tenant may use, the first being its default; None means every lane."""
    limits: TenantLimits = TenantLimits()
    flags: dict[Id, Annotated[int, Meta(ge=0, le=100)]] = msgspec.field(default_factory=dict)
    """Feature flags; `canary` is the largest percentage of the tenant's traffic on any canary trial, 0 for none."""
    recall_webhook: TenantWebhook | None = None
    """Receiver of notices about similar answers that proved wrong; None: notices are only read at `/v1/recalls`."""


class Match(DocumentPart, frozen=True, kw_only=True):
    """Requests that a route takes; every condition given must hold."""

    models: Annotated[tuple[ModelName, ...], Meta(min_length=1)] = ("auto",)
    tenants: tuple[Id, ...] | None = None
    """Tenants of the route; None means every tenant, and requests without one."""
    headers: dict[HeaderName, str] = msgspec.field(default_factory=dict)
    """Request headers that must be present with exactly this value."""
    when: str | None = None
    """Condition in CEL, such as `request.turns <= 2 && tenant in ["shop"]`.

    It reads `request.model`, `.turns`, `.prompt_bytes`, `.has_tools`, `.has_images`, `.stream`, `tenant` and
    `headers["name"]`, and `request.text`: the first 2,000 characters of the last message.
    """


class Trim(DocumentPart, frozen=True, kw_only=True):
    """Shortening of prompts."""

    budget_tokens: Count | None = None
    strategies: tuple[TrimStrategy, ...] = ()
    max_image_side_px: Annotated[int, Meta(ge=64, le=16_384)] = 1024
    """Length in pixels to which `downscale_images` scales the longer side of an image."""
    similarity_wait_ms: Annotated[int, Meta(ge=0, le=10_000)] = 300
    """Longest wait in milliseconds for the encoder to compare passages with the question, for `extract_passages`.

    Words alone decide where it takes longer, and with 0.
    """
    client_may_turn_off: bool = True
    """True if `x-penstock-trim: off` on a request turns trimming off, under overload too."""


class Cache(DocumentPart, frozen=True, kw_only=True):
    """Responses that may be reused, and by whom."""

    mode: CacheMode = "off"
    scope: CacheScope = "tenant"
    ttl_s: Seconds = 3600
    max_error_ratio: Ratio = 0.01
    """Error budget: the share of a tenant's requests on the route that may get a wrong semantic hit."""
    audit_ratio: Ratio = 0.02
    """Share of semantic hits that are audited against a fresh answer."""
    draft_threshold: Ratio | None = None
    """Match probability from which a response that is not served goes to the deployment as a prediction.

    The model confirms it or writes its own answer, which is the same with it and without. None sends none.
    """
    max_temperature: Temperature = 1.0
    """Temperature above which requests get exact hits only; a request without one counts as 1."""
    history: CacheHistory = "exact"
    """Conversations before similar prompts that may share responses.

    `exact` requires equal conversations. `standalone` also allows others, where the prompt's words depend on none of
    them.
    """
    time_dependent: TimeDependentRule = "bypass"
    """Questions whose answer changes with the time, such as "What time is it now?".

    `bypass` neither serves nor stores a response to them; `reuse` treats them like others until `ttl_s`, in both tiers.
    Under the scope `user` they are reused.
    """
    personal: PersonalRule = "bypass"
    """Questions about who sends them, such as "What is my balance?", which never cross users.

    `bypass` neither serves nor stores a response to them; `per_user` keeps responses apart by the request's `user`, and
    bypasses without one. Under the scope `user` all responses are kept apart so.
    """
    auditor: Id | None = None
    """Deployment that decides in audits whether answers agree that rules cannot compare.

    None: the encoder decides, only where they are nearly equal or about different things.
    """
    review_texts: bool = False
    """True to keep the texts of prompts and answers in audit records, for reviewers."""
    regenerate_window_s: Annotated[int, Meta(ge=0, le=3600)] = 0
    """Seconds in which an equal conversation of the same user asks for a new response ("Regenerate"), as with
    `cache-control: no-cache`; 0 for never.

    The user is named by `user` or by a session header; without either nothing is such a request, nor is a retry.
    """


class Timeouts(DocumentPart, frozen=True, kw_only=True):
    """Time limits of the stages upstream."""

    connect_ms: Milliseconds = 1_000
    first_token_ms: Milliseconds = 30_000
    inter_token_ms: Milliseconds = 10_000
    total_ms: Milliseconds = 300_000

    def __post_init__(self) -> None:
        for name in ("connect_ms", "first_token_ms", "inter_token_ms"):
            if getattr(self, name) > self.total_ms:
                raise ValueError(f"{name} ({getattr(self, name)}) is longer than total_ms ({self.total_ms})")


class Route(DocumentPart, frozen=True, kw_only=True):
    """Handling of the requests that it matches; routes are tried in the order written, and the first match wins."""

    id: Id
    select: Select
    description: Description = ""
    """What answers under this route's model names, for `GET /v1/models`."""
    match: Match = Match()
    trim: Trim = Trim()
    cache: Cache = Cache()
    timeouts: Timeouts = Timeouts()
    images: ImageRule = "any"
    """Images that requests may have.

    `any` passes https addresses on, which the gateway never fetches; `inline_only` refuses all but `data:` URLs.
    """
    unknown_fields: UnknownFields = "pass"
    """Fields that are not in the field table, at any depth.

    `pass` sends them on as they were written; `reject` refuses the request and names the field.
    """
    resume: ResumeRule = "off"
    """Continuation of a stream whose deployment fails before its end: `off` ends it with an error.

    `exact` continues it at another deployment of the same engine, model and prompt, with the tokens that the first one
    would have sent. `best_effort` also takes engines that cannot state that their numbers are the same, such as those
    on GPUs, and greedy plain text of other servers with `continuation`. Engines of Penstock need `resume_key_env`.
    """


class StoredResponses(DocumentPart, frozen=True, kw_only=True):
    """Responses of `/v1/responses` that are kept for later requests of the same tenant."""

    store: bool = False
    """True to keep the responses of clients that do not send `store: false`.

    Clients may then refer to them with `previous_response_id`, read them and delete them.
    """
    ttl_s: Seconds = 86_400


class Quotes(DocumentPart, frozen=True, kw_only=True):
    """Quotes of `POST /v1/quote`: what a request would get now, and a permit that is reserved for it."""

    coverage: Annotated[float, Meta(ge=0.5, le=0.99)] = 0.95
    """Share of the requests whose first token comes within the quoted bound, unless a quote states another."""
    hold_ms: Annotated[int, Meta(ge=100, le=30_000)] = 5_000
    """Time for which a quote holds its permit, and within which it can be sent back."""
    max_held: Annotated[int, Meta(ge=0, le=1_000)] = 4
    """Permits that one tenant's quotes hold at once in a gateway process; 0: quotes reserve nothing.

    All tenants' quotes together hold at most a quarter of a deployment's permits.
    """


DEFAULT_SESSION_PLACES = (
    *("field:prompt_cache_key", "header:x-session-id", "header:x-session-affinity"),
    *("header:x-claude-code-session-id", "header:session_id", "header:session-id", "header:x-opencode-session"),
    *("header:x-kilocode-taskid", "header:x-conversation-id", "header:conversation_id", "field:user"),
)
"""Places where clients and coding agents name the session of a request."""


class Policy(DocumentPart, frozen=True, kw_only=True):
    """The whole document."""

    schema_version: Literal[1]
    deployments: Annotated[tuple[Deployment, ...], Meta(min_length=1)]
    lanes: tuple[Lane, ...] = DEFAULT_LANES
    tenants: tuple[Tenant, ...] = ()
    routes: tuple[Route, ...] = ()
    total: tuple[ModelName, ...] = ()
    """Model names that must be total: every request for them takes a written route that serves it.

    That holds for all tenants that may name them. A document for which it does not hold is refused, with a request.
    """
    tests: tuple[PolicyTest, ...] = ()
    session_places: tuple[SessionPlace, ...] = DEFAULT_SESSION_PLACES
    """Places where a request names its session, the first with a value counts.

    The scorer `session` and the policy `sticky` keep a session at the deployment that holds its prefix.
    """
    responses: StoredResponses = StoredResponses()
    quotes: Quotes | None = None
    """Quotes for requests; None: `POST /v1/quote` does not exist, and no request is measured for it."""

    @property
    def has_keys(self) -> bool:
        """True if any tenant has a key; without keys the gateway serves loopback clients only."""
        return any(tenant.keys for tenant in self.tenants)
