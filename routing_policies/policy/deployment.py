"""Deployment: a model at a URL or at members that come and go, with its credentials, limits and price."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from routing_policies.policy.values import (
    AbsolutePath,
    BasePath,
    Concurrency,
    Continuation,
    Count,
    Description,
    DialectName,
    DocumentPart,
    EnvironmentName,
    HeaderName,
    HeaderText,
    HostName,
    Id,
    KubernetesService,
    MemberCount,
    Modality,
    ModelName,
    OperationName,
    PlainAsStream,
    Port,
    PortName,
    PredictionUse,
    PrefixSalt,
    Price,
    Ratio,
    SlowStartSeconds,
)

UP_RESUME_KEY = "UP_RESUME_KEY"
"""Environment variable in which `penstock up` gives its engines and its gateway a key for `resume_key_env`."""

MemberScheme = Literal["http", "https"]
MEMBER_SOURCES: tuple[str, ...] = ("dns", "srv", "kubernetes", "list", "ray")
MemberSourceKey = tuple[str, str, int | str | None]
"""Kind and name of a source of members, and the port."""

BUILTIN_ENCODER = "builtin:encoder"
"""URL of the gateway's own encoder."""


class CostPerMtok(DocumentPart, frozen=True, kw_only=True):
    """Price of a million tokens, in the operator's currency."""

    prompt: Price
    completion: Price


class DeploymentLimits(DocumentPart, frozen=True, kw_only=True):
    """Limits of one deployment, for all gateway workers of one machine together."""

    max_in_flight: Concurrency = 64


class UpstreamAuth(DocumentPart, frozen=True, kw_only=True):
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


class HeaderFromEnv(DocumentPart, frozen=True, kw_only=True):
    """Secret value of a header."""

    value_env: EnvironmentName
    """Environment variable of the gateway's process with the value."""


class ProxyFromEnv(DocumentPart, frozen=True, kw_only=True):
    """Forward proxy whose URL holds a password."""

    url_env: EnvironmentName
    """Environment variable of the gateway's process with the URL, `http://user:password@host:port`."""


class UpstreamTls(DocumentPart, frozen=True, kw_only=True):
    """Verification of a deployment behind `https://`; it cannot be disabled."""

    ca_file: AbsolutePath
    """PEM certificates of the authorities to trust, in place of the system's."""


class Discover(DocumentPart, frozen=True, kw_only=True):
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


class Deployment(DocumentPart, frozen=True, kw_only=True):
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
    headers: dict[HeaderName, HeaderText | HeaderFromEnv] = msgspec.field(default_factory=dict)
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
    prefix_salt: PrefixSalt = "header"
    """Place of the salt by which its server keeps the prefix caches of tenants apart.

    Penstock's engine reads a header. `body` also sends the field `cache_salt`, which vLLM reads. Other servers may
    refuse a field that they do not know.
    """
