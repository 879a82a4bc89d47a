"""The policy document as frozen values, with the unit in every number's name.

Only `loading.load_policy` makes these, from YAML. Loading rejects settings that this version does not act on (see
`availability`), so every value here has an effect.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

SCHEMA_VERSION = 1

# In Python `$` also matches before a final line feed; the look-ahead gives it JSON Schema's meaning.
Id = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}(?!\n)$",
        description="1 to 64 of a-z, 0-9, dot, underscore and hyphen, starting with a letter or digit",
    ),
]
"""Name of an item of a list; also a header value and a metric label, hence the small alphabet."""
Description = Annotated[str, Meta(max_length=300)]
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
HeaderText = Annotated[
    str,
    Meta(
        pattern=r"^[\x21-\x7e](?:[\x20-\x7e]{0,1022}[\x21-\x7e])?(?!\n)$",
        description="1 to 1,024 printable ASCII characters without spaces around them",
    ),
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
"""Name of the environment variable with a secret.

Errors do not repeat the value, because it may be the secret itself, pasted into the wrong place.
"""
HostName = Annotated[
    str,
    Meta(
        pattern=r"^(?=.{1,253}(?!\n)$)[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?(?!\n)$",
        description="a host name of letters, digits and . _ -",
    ),
]
KubernetesService = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?!\n)$",
        description="namespace/name of a Kubernetes Service",
    ),
]
WebhookUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://[\x21-\x7e]{1,1000}(?!\n)$",
        description="a URL such as https://shop.example.com/hooks, without a user, query or fragment",
    ),
]
Port = Annotated[int, Meta(ge=1, le=65_535)]
PortName = Annotated[
    str, Meta(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?(?!\n)$", description="a port's name in the Service")
]
BasePath = Annotated[
    str, Meta(pattern=r"^(?:|(?:/[A-Za-z0-9._~-]+)+)(?!\n)$", description="empty, or a path such as /v1")
]
SlowStartSeconds = Annotated[int, Meta(ge=0, le=3_600)]
MemberCount = Annotated[int, Meta(ge=1, le=1_024)]
AbsolutePath = Annotated[str, Meta(pattern=r"^/[^\x00\r\n]*(?!\n)$", description="an absolute path")]
Milliseconds = Annotated[int, Meta(ge=1, le=3_600_000)]
Seconds = Annotated[int, Meta(ge=1, le=31_536_000)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Concurrency = Annotated[int, Meta(ge=1, le=100_000)]
Turns = Annotated[int, Meta(ge=0, le=1_000_000_000)]
QueueLength = Annotated[int, Meta(ge=0, le=1_000_000)]
Ratio = Annotated[float, Meta(ge=0.0, le=1.0)]
HedgeRatio = Annotated[float, Meta(gt=0.0, le=0.1)]
ExploreRatio = Annotated[float, Meta(gt=0.0, le=0.5)]
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
    "nearest_first",
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
TimeDependentRule = Literal["bypass", "reuse"]
PersonalRule = Literal["bypass", "per_user"]
OverloadStep = Literal["trim", "small_model", "max_tokens", "stale_cache", "shed"]
EnginePriority = Literal["interactive", "batch"]
PlainAsStream = Literal["suspected", "always", "never"]
PredictionUse = Literal["auto", "on", "off"]
DialectName = Literal["openai", "responses", "anthropic"]
ImageRule = Literal["any", "inline_only"]
UnknownFields = Literal["pass", "reject"]
ResumeRule = Literal["off", "exact", "best_effort"]
Continuation = Literal["continue_final_message", "trailing_message"]
NoRouteCode = Literal["model_not_found", "model_not_allowed", "unsupported_operation"]
OperationName = Literal["chat", "completions", "embeddings"]
Modality = Literal["text", "image", "audio", "video", "file"]

KEYLESS_TENANT = "dev"
"""Tenant of requests without a key, where none is required."""
UP_RESUME_KEY = "UP_RESUME_KEY"
"""Environment variable in which `penstock up` gives its engines and its gateway a key for `resume_key_env`."""

MemberScheme = Literal["http", "https"]
MEMBER_SOURCES: tuple[str, ...] = ("dns", "srv", "kubernetes", "list", "ray")
MemberSourceKey = tuple[str, str, int | str | None]
"""Kind and name of a source of members, and the port."""

BUILTIN_ENCODER = "builtin:encoder"
"""URL of the gateway's own encoder."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of everything in the document."""


class CostPerMtok(_Strict, frozen=True, kw_only=True):
    """Price of a million tokens, in the operator's currency."""

    prompt: Price
    completion: Price


class DeploymentLimits(_Strict, frozen=True, kw_only=True):
    """Limits of one deployment, for each gateway worker."""

    max_in_flight: Concurrency = 64


class UpstreamAuth(_Strict, frozen=True, kw_only=True):
    """Credentials of the gateway at a deployment; a client's own key is never sent there."""

    bearer_env: EnvironmentName | None = None
    """Environment variable of the gateway's process with the key, which is sent as `authorization: Bearer`."""
    header: HeaderName | None = None
    """Header that carries the key as it is, such as `api-key` or `x-api-key`, in place of `bearer_env`."""
    value_env: EnvironmentName | None = None
    """Environment variable of the gateway's process with the value of `header`."""

    def __post_init__(self) -> None:
        if (self.header is None) != (self.value_env is None) or (self.header is None) == (self.bearer_env is None):
            raise ValueError("give either bearer_env, or header and value_env")


class HeaderFromEnv(_Strict, frozen=True, kw_only=True):
    """Secret value of a header."""

    value_env: EnvironmentName
    """Environment variable of the gateway's process with the value."""


class ProxyFromEnv(_Strict, frozen=True, kw_only=True):
    """Forward proxy whose URL holds a password."""

    url_env: EnvironmentName
    """Environment variable of the gateway's process with the URL, `http://user:password@host:port`."""


class UpstreamTls(_Strict, frozen=True, kw_only=True):
    """Verification of a deployment behind `https://`; it cannot be disabled."""

    ca_file: AbsolutePath
    """PEM certificates of the authorities to trust, in place of the system's."""


class Discover(_Strict, frozen=True, kw_only=True):
    """Where a deployment's members come from; exactly one of `dns`, `srv`, `kubernetes`, `list` and `ray`."""

    dns: HostName | None = None
    """Host name whose A records are the members, else its AAAA records; it is resolved anew when their TTL ends."""
    srv: HostName | None = None
    """Host name of SRV records, such as `_http._tcp.engine.example.svc`, which also name the ports."""
    kubernetes: KubernetesService | None = None
    """Kubernetes Service, `namespace/name`; its ready endpoints are the members."""
    list: Id | None = None
    """Name of a list in the store, which `PUT /admin/api/members/{list}` writes."""
    ray: str | None = None
    """URL of a Ray cluster's dashboard, such as `http://ray-head:8265`; its healthy Serve proxies are the members."""
    port: Port | None = None
    """Port of the members, with `dns` and `kubernetes`; None with `kubernetes` means the Service's only port."""
    port_name: PortName | None = None
    """Name of the port in the Service, with `kubernetes`, in place of `port`."""
    scheme: MemberScheme = "http"
    """Scheme of the members' URLs."""
    path: BasePath = ""
    """Base path of the members' API, as at the end of a deployment's `url`."""
    tls_name: HostName | None = None
    """Name in the members' certificates; None means that of `dns`, and the address with any other source."""
    slow_start_s: SlowStartSeconds = 30
    """Seconds in which a new member's share of the requests grows from a tenth to all of it; 0 for none."""
    max_members: MemberCount = 64
    """Largest number of members; further ones are left out, and the admin page says so."""

    def __post_init__(self) -> None:
        given = [name for name in MEMBER_SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"give exactly one of {', '.join(MEMBER_SOURCES)}; this has {found}")
        if self.dns is not None and self.port is None:
            raise ValueError("dns needs port, because address records name none")
        if self.port is not None and given[0] not in ("dns", "kubernetes"):
            raise ValueError(f"port has no effect with {given[0]}, which states the members' ports itself")
        if self.port_name is not None and (self.kubernetes is None or self.port is not None):
            raise ValueError("port_name belongs to kubernetes, in place of port")
        if self.tls_name is not None and self.scheme != "https":
            raise ValueError("tls_name has an effect with scheme https only")

    @property
    def source(self) -> MemberSourceKey:
        """Kind and name of the source, and the port; equal ones are looked up once."""
        kind = next(name for name in MEMBER_SOURCES if getattr(self, name) is not None)
        return kind, str(getattr(self, kind)), self.port_name or self.port


class Deployment(_Strict, frozen=True, kw_only=True):
    """A model at a URL, or at the members of a group that come and go; the router can pick each of them."""

    id: Id
    url: str = ""
    """URL: `unix:/absolute/path.sock`, `http://host[:port][/base]` or `https://…`.

    Without a path the API is under `/v1`. A path is the API's base, `/v1` included, as in OpenAI's libraries.
    `builtin:encoder` is the gateway's own encoder, which serves embeddings.
    """
    discover: Discover | None = None
    """Source of the deployment's members, in place of `url`; each takes over all the other settings."""
    model: ModelName
    """Model name sent upstream; clients may request it too."""
    description: Description = ""
    """Knowledge and limits of the model, for `GET /v1/models` and the admin page."""
    dialect: DialectName = "openai"
    """API that it speaks: chat completions, OpenAI's Responses, or Anthropic's Messages.

    Clients of any API of the gateway are served by every dialect.
    """
    context_tokens: Count | None = None
    """Context length in tokens, prompt and answer together.

    A prompt that surely exceeds it at every candidate is rejected before it is sent.
    """
    operations: Annotated[tuple[OperationName, ...], Meta(min_length=1)] | None = None
    """Operations that it serves: `chat`, `completions`, `embeddings`.

    None means chat and completions, and embeddings for `builtin:encoder`. A model of embeddings elsewhere needs
    `[embeddings]`.
    """
    input_modalities: Annotated[tuple[Modality, ...], Meta(min_length=1)] | None = None
    """Kinds of content that the model reads, for `GET /v1/models`; None means unknown."""
    cost_per_mtok: CostPerMtok | None = None
    limits: DeploymentLimits = DeploymentLimits()
    auth: UpstreamAuth | None = None
    headers: dict[HeaderName, HeaderText | HeaderFromEnv] = {}
    """Headers of every request to it, beside the gateway's own: a text, or `value_env` for a secret."""
    proxy: str | ProxyFromEnv | None = None
    """Forward proxy to it: `http://host:port`, `url_env` for a URL with a password, or `none` for a direct connection.

    None means that of the environment: `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`.
    """
    tls: UpstreamTls | None = None
    zone: Id | None = None
    """Zone that it runs in; None means near every gateway.

    A gateway with the same `zone` in its process settings is near it.
    """
    quality: Ratio = 1.0
    """Quality of its answers, for the scorer `quality`."""
    plain_as_stream: PlainAsStream = "suspected"
    """Condition for requesting a stream behind a response without one, so that a stall shows before its end.

    It applies where the deployment is suspected to have stalled, always or never.
    """
    resume_key_env: EnvironmentName | None = None
    """Environment variable with the key that its engine has by `--resume-key-env`, for routes with `resume`."""
    prediction: PredictionUse = "auto"
    """Use of `prediction`, an answer that the model may confirm instead of writing it.

    `auto` passes a client's own on, and sends near misses of the cache to Penstock's engine only. `on` sends them here,
    too. `off` removes the field, for servers that refuse it.
    """
    continuation: Continuation | None = None
    """Way in which its server continues a last message of the assistant, for routes with `resume: best_effort`.

    `continue_final_message` is a field of vLLM and SGLang; `trailing_message` needs no field, as with llama.cpp's
    `llama-server`. None means that it does not.
    """


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


class TenantKey(_Strict, frozen=True, kw_only=True):
    """One API key, stored as its hash only."""

    id: Id
    sha256: Sha256Hex


class TenantBudget(_Strict, frozen=True, kw_only=True):
    """Usage allowed to a tenant in a calendar day or month (UTC); None means no limit."""

    tokens_per_day: TokenBudget | None = None
    tokens_per_month: TokenBudget | None = None
    cost_per_day: Money | None = None
    """Cost in the currency of `cost_per_mtok`, which every deployment must then have."""
    cost_per_month: Money | None = None
    on_store_loss: OnStoreLoss | None = None
    """Behaviour without the store; None means that of the tenant's other limits."""


class TenantLimits(_Strict, frozen=True, kw_only=True):
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


class TenantWebhook(_Strict, frozen=True, kw_only=True):
    """Receiver of a tenant's recall notices."""

    url: WebhookUrl
    secret_env: EnvironmentName
    """Environment variable with the secret that signs them: `whsec_` and base64, or 16 characters or more."""


class Tenant(_Strict, frozen=True, kw_only=True):
    """The owner of API keys, to whom limits and bills apply."""

    id: Id
    keys: tuple[TenantKey, ...] = ()
    models: tuple[ModelName, ...] | None = None
    """Model names that the tenant may request; None means every name."""
    lanes: tuple[Id, ...] | None = None
    """Lanes that the tenant may use, the first being its default; None means every lane."""
    limits: TenantLimits = TenantLimits()
    flags: dict[Id, Annotated[int, Meta(ge=0, le=100)]] = {}
    """Feature flags; `canary` is the largest percentage of the tenant's traffic on any canary trial, 0 for none."""
    recall_webhook: TenantWebhook | None = None
    """Receiver of notices about similar answers that proved wrong; None: notices are only read at `/v1/recalls`."""


class Match(_Strict, frozen=True, kw_only=True):
    """Requests that a route takes; every condition given must hold."""

    models: Annotated[tuple[ModelName, ...], Meta(min_length=1)] = ("auto",)
    tenants: tuple[Id, ...] | None = None
    """Tenants of the route; None means every tenant, and requests without one."""
    headers: dict[HeaderName, str] = {}
    """Request headers that must be present with exactly this value."""
    when: str | None = None
    """Condition in CEL, such as `request.turns <= 2 && tenant in ["shop"]`.

    It reads `request.model`, `.turns`, `.prompt_bytes`, `.has_tools`, `.has_images`, `.stream`, `tenant` and
    `headers["name"]`, and `request.text`: the first 2,000 characters of the last message.
    """


class Trim(_Strict, frozen=True, kw_only=True):
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


class Cache(_Strict, frozen=True, kw_only=True):
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


class Candidate(_Strict, frozen=True, kw_only=True):
    """A deployment that a route may choose; written as its bare id when the weight is 1."""

    id: Id
    weight: Weight = 1.0


class Hedge(_Strict, frozen=True, kw_only=True):
    """A second attempt at another deployment when the first is slower than usual; the answer that begins first wins."""

    max_ratio: HedgeRatio = 0.02
    """Share of the route's requests that may get a second attempt."""
    max_load_ratio: Ratio = 0.5
    """Share of either deployment's permits in use above which no second attempt starts."""


class Canary(_Strict, frozen=True, kw_only=True):
    """The candidate that takes a share of the conversations; they stay with it as long as the ratio does not fall."""

    id: Id
    ratio: Ratio = 0.05


class Cascade(_Strict, frozen=True, kw_only=True):
    """The first candidate answers, and hands over to the second when its first tokens are not confident enough."""

    first_tokens: Annotated[int, Meta(ge=1, le=64)] = 16
    """Number of tokens after which the hand-over is decided, mostly after fewer."""
    skip_below: Ratio = 0.3
    """Predicted quality, from the prompt alone, below which the first candidate is skipped."""
    calibrate: bool = True
    """Whether labels of the first candidate's answers may move the confidence that `min_quality` stands for."""


class Shadow(_Strict, frozen=True, kw_only=True):
    """A deployment that repeats some requests after their answers, while it is idle.

    Its answers are compared, never sent.
    """

    id: Id
    ratio: Ratio = 0.02
    max_in_flight: Concurrency = 2


class Explore(_Strict, frozen=True, kw_only=True):
    """A share of the requests that go to a candidate at random, so that records can evaluate policies never tried.

    Only candidates that pass every filter, have a free permit and hold the prompt's context are drawn.
    """

    ratio: ExploreRatio = 0.02
    """Share of the requests that are drawn; a drawn request may still get the candidate that the policy prefers."""
    weights: dict[Id, Weight] = {}
    """Weight of a candidate in the draw, relative to the others; 1 where it is not named."""
    sessions: bool = False
    """True to draw also requests that are bound to a deployment by their conversation or by its cached prefix."""


class Select(_Strict, frozen=True, kw_only=True):
    """Choice among a route's candidates."""

    candidates: Annotated[tuple[Id | Candidate, ...], Meta(min_length=1)]
    policy: SelectPolicy = "first_available"
    """Rule of the choice.

    - `first_available`: the first in the order written.
    - `weighted`: at random by weight.
    - `least_in_flight`: the one with the largest share of free permits.
    - `latency_first`: the one with the earliest first token.
    - `least_cost_within_slo`: the cheapest that is forecast to meet the lane's targets, else the fastest.
    - `scored`: the best by `weights`.
    - `quality_then_latency`: the cheapest that is forecast to meet the targets and reaches `min_quality`.
    - `cost_cap`: the best whose price for this request is within `max_request_cost`, else the cheapest.
    - `nearest_first`: the emptiest in the nearest `zone` by measured round trip that can serve.
    - `sticky`: the same for all requests of a conversation, or of a tenant.
    - `canary`: one candidate for a share of the conversations, the others in the order written.
    - `cascade`: the first of two, and the second where the first one's own tokens predict less than `min_quality`.
    """
    weights: dict[ScorerName, Weight] = {}
    """Weight of each scorer, with policy `scored`."""
    min_quality: Ratio | None = None
    """Least probability that an answer is good enough, with policies `quality_then_latency` and `cascade`."""
    kind: Annotated[str, Meta(max_length=64)] = ""
    """Kind of work of this route's prompts, as named in the predictor's training data.

    It applies to policies `quality_then_latency` and `cascade`, and to predictors that use the embedding.
    """
    max_request_cost: Money | None = None
    """Largest price of a request in the currency of `cost_per_mtok`, with policy `cost_cap`."""
    sticky_by: StickyBy | None = None
    """Unit that stays at one candidate, with policy `sticky`; None means conversations."""
    canary: Canary | None = None
    cascade: Cascade | None = None
    shadow: Shadow | None = None
    explore: Explore | None = None
    fallback: tuple[Id, ...] = ()
    """Routes or deployments to try, in this order, when no candidate can serve."""
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
        """Return the candidates in the order written, bare ids with weight 1."""
        return tuple(Candidate(id=item) if isinstance(item, str) else item for item in self.candidates)


class Timeouts(_Strict, frozen=True, kw_only=True):
    """Time limits of the stages upstream."""

    connect_ms: Milliseconds = 1_000
    first_token_ms: Milliseconds = 30_000
    inter_token_ms: Milliseconds = 10_000
    total_ms: Milliseconds = 300_000

    def __post_init__(self) -> None:
        for name in ("connect_ms", "first_token_ms", "inter_token_ms"):
            if getattr(self, name) > self.total_ms:
                raise ValueError(f"{name} ({getattr(self, name)}) is longer than total_ms ({self.total_ms})")


class Route(_Strict, frozen=True, kw_only=True):
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


class StoredResponses(_Strict, frozen=True, kw_only=True):
    """Responses of `/v1/responses` that are kept for later requests of the same tenant."""

    store: bool = False
    """True to keep the responses of clients that do not send `store: false`.

    Clients may then refer to them with `previous_response_id`, read them and delete them.
    """
    ttl_s: Seconds = 86_400


class Quotes(_Strict, frozen=True, kw_only=True):
    """Quotes of `POST /v1/quote`: what a request would get now, and a permit that is reserved for it."""

    coverage: Annotated[float, Meta(ge=0.5, le=0.99)] = 0.95
    """Share of the requests whose first token comes within the quoted bound, unless a quote states another."""
    hold_ms: Annotated[int, Meta(ge=100, le=30_000)] = 5_000
    """Time for which a quote holds its permit, and within which it can be sent back."""
    max_held: Annotated[int, Meta(ge=0, le=1_000)] = 4
    """Permits that one tenant's quotes hold at once in a gateway process; 0: quotes reserve nothing.

    All tenants' quotes together hold at most a quarter of a deployment's permits.
    """


class GivenDeployment(_Strict, frozen=True, kw_only=True):
    """State that a test assumes for one deployment; by default it is ready and idle."""

    ready: bool = True
    in_flight: Annotated[int, Meta(ge=0, le=100_000)] = 0
    forecast_ttft_ms: Milliseconds | None = None
    """Time to first token for the test's request, queues included."""
    tpot_ms: Milliseconds | None = None
    cached_tokens: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    """Tokens of the test's prompt in its KV cache."""
    same_session: bool = False
    """True if it answered the conversation's last request."""
    quality: Ratio | None = None
    """Quality of its answer to the test's request.

    None means the prediction from the request's text. Without a text or coefficients for the pair, it means the
    deployment's `quality`.
    """


class TestRequest(_Strict, frozen=True, kw_only=True):
    """The request of a test."""

    __test__ = False  # for pytest: not a test class

    model: ModelName = "auto"
    operation: OperationName = "chat"
    tenant: Id | None = None
    text: str = ""
    turns: Turns = 1
    prompt_bytes: Count | None = None
    """Size of the prompt; None means that of `text`."""
    has_tools: bool = False
    has_images: bool = False
    stream: bool = False
    headers: dict[HeaderName, str] = {}
    lane: Id | None = None
    """Lane whose targets apply; None means the tenant's first, or the policy's."""
    prompt_tokens: Count = 1_000
    output_tokens: Count = 250
    zone: Id | None = None
    """Zone of the gateway."""
    conversation: Annotated[str, Meta(max_length=512)] = ""
    """Identity of the conversation, for the policies that keep one at a candidate."""


class Expectation(_Strict, frozen=True, kw_only=True):
    """Expected result of a test; absent members are not compared."""

    route: Id | None = None
    candidates: tuple[Id, ...] | None = None
    """Deployments that may answer, in the order of the route."""
    deployment: Id | None = None
    """Deployment that is chosen."""
    error: NoRouteCode | None = None

    def __post_init__(self) -> None:
        if not self._named():
            raise ValueError("expects nothing; name at least one of route, candidates, deployment, error")
        if self.error is not None and len(self._named()) > 1:
            raise ValueError("a request that ends in an error has no route, candidates or deployment")

    def _named(self) -> list[str]:
        return [name for name in self.__struct_fields__ if getattr(self, name) is not None]


class PolicyTest(_Strict, frozen=True, kw_only=True):
    """An example of what the policy must do; run by `penstock policy check`."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    request: TestRequest = TestRequest()
    given: dict[Id, GivenDeployment] = {}
    expect: Expectation


SessionPlace = Annotated[
    str,
    Meta(
        pattern=r"^(?:field:(?:prompt_cache_key|user)|header:[a-z0-9][a-z0-9_-]{0,63})(?!\n)$",
        description="field:prompt_cache_key, field:user, or header: and a header's name in lower case",
    ),
]
DEFAULT_SESSION_PLACES = (
    *("field:prompt_cache_key", "header:x-session-id", "header:x-session-affinity"),
    *("header:x-claude-code-session-id", "header:session_id", "header:session-id", "header:x-opencode-session"),
    *("header:x-kilocode-taskid", "header:x-conversation-id", "header:conversation_id", "field:user"),
)
"""Places where clients and coding agents name the session of a request."""


class Policy(_Strict, frozen=True, kw_only=True):
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
