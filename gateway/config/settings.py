"""Process settings as typed values: one class for each section of `penstock.toml`, each checked by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

from gateway.config.addresses import is_loopback, is_socket, socket_problem
from gateway.config.checks import ConfigError, require_address, require_range, require_tls_pair
from gateway.config.discovery import DiscoverySettings
from gateway.config.recalls import RecallSettings
from gateway.config.telemetry import TelemetrySettings
from gateway.http.address import inherited_descriptors
from gateway.http.limits import EdgeLimits
from gateway.store.address import StoreAddress, parse_store

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
DEFAULT_STORE: Final = "store.sqlite3"
ANSWERS_SUFFIX: Final = ".answers"
_LONGEST_SOCKET: Final = "small.sock"
"""The longest name of a bundled engine's socket in `runtime_dir`."""


def bundled_policy_path() -> Path:
    """Return the policy that is used when none is named: the two bundled models."""
    return Path(str(files("routing_policies") / "presets" / "bundled.yaml"))


def first_run_policy_path() -> Path:
    """Return the policy of `penstock up` where a real model is installed: that model, and the bundled two as a shop."""
    return Path(str(files("routing_policies") / "presets" / "first-run.yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingsSettings:
    """`[process.embeddings]`: the encoder of deployments whose URL is `builtin:encoder`."""

    model: str = ""
    """Folder of a sentence-transformers model, or name of an installed package with one; empty: all-MiniLM-L6-v2.

    BERT and RoBERTa models are served, pooled by the mean or the first token.
    """
    precision: Literal["fp32", "int8"] = "fp32"
    """Precision of the weights: `int8` takes less time and memory, and changes similarities by less than a hundredth.
    """
    threads: int = 1
    """Threads that encode."""

    def __post_init__(self) -> None:
        """Reject values no type can; ConfigError starts with the key."""
        require_range("threads", self.threads, 1, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """`[process]`: where this process runs, and how it ends."""

    runtime_dir: Path = field(default_factory=lambda: Path("run").absolute())
    """Sockets and the pid file; `${runtime_dir}` in the policy."""
    zone: str = ""
    """Zone of this gateway, in the words of the deployments' `zone`; empty: near all of them."""
    memory_limit_mb: int | None = None
    """Above it new requests are refused, near it the least urgent ones; None is 90 % of the control group's limit."""
    drain_notice_s: float = 0.0
    """Time after SIGTERM in which requests are still served; `/readyz` is 503, answers have `connection: close`."""
    drain_timeout_s: float = 30.0
    """Longest time for requests under way to finish after the process gets SIGTERM."""
    workers: int | None = None
    """Processes that serve the public listener together; 1: one process serves both listeners.

    None: one for each core, at most 8, and fewer where the memory limit leaves less than 256 MiB for each; below
    `penstock up` one for each core beyond two.
    """
    embeddings: EmbeddingsSettings = field(default_factory=EmbeddingsSettings)
    discovery: DiscoverySettings = field(default_factory=DiscoverySettings)

    def __post_init__(self) -> None:
        """Reject values no type can; ConfigError starts with the key."""
        if self.workers is not None:
            require_range("workers", self.workers, 1, 64)
        if self.memory_limit_mb is not None and self.memory_limit_mb < 64:
            raise ConfigError(f"memory_limit_mb: expected 64 or more, got {self.memory_limit_mb}")
        require_range("drain_notice_s", self.drain_notice_s, 0.0, 600.0)
        require_range("drain_timeout_s", self.drain_timeout_s, 0.0, 3600.0)

    @property
    def recording_dir(self) -> Path:
        """Return the folder of recorded requests."""
        return self.runtime_dir / "recorded"

    @property
    def answers_dir(self) -> Path:
        """Return the folder of recorded answers."""
        return self.recording_dir / "answers"

    @property
    def policy_variables(self) -> dict[str, str]:
        """Values of each `${name}` in the policy."""
        return {"runtime_dir": str(self.runtime_dir)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicSettings:
    """`[public]`: the listener that clients talk to."""

    listen: str = "127.0.0.1:8080"
    """`host:port` (port 0: any free one), `[v6]:port`, `unix:/path`, or `fd:N` for a listening socket that the parent
    process holds."""
    shared: bool = False
    """True if other gateway processes may listen on `listen` too, each with its own queue (SO_REUSEPORT)."""
    cors_origins: str = ""
    """Origins of web pages that may call this listener from a browser (CORS), separated by commas, such as
    `https://chat.example.com`; `*`: any; empty: none."""
    tls_cert: Path | None = None
    """PEM file with the certificate of this listener and those of its issuers; None: plain HTTP. A changed file is in
    force within seconds, for new connections."""
    tls_key: Path | None = None
    """PEM file with the key of `tls_cert`, without a passphrase."""

    def __post_init__(self) -> None:
        """Reject an address that cannot be bound and origins that no browser sends; ConfigError starts with the key."""
        require_address(self.listen)
        require_tls_pair(self.listen, self.tls_cert, self.tls_key)
        for origin in self.origins:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    f"cors_origins: expected origins such as https://chat.example.com (scheme, host in lower case, "
                    f"port unless it is the scheme's own, no path), got {origin!r}"
                )

    @property
    def tls_files(self) -> tuple[Path, Path] | None:
        """Return the files of certificate and key; None for plain HTTP."""
        return None if self.tls_cert is None or self.tls_key is None else (self.tls_cert, self.tls_key)

    @property
    def origins(self) -> tuple[str, ...]:
        """Return the members of `cors_origins`."""
        return tuple(origin for part in self.cors_origins.split(",") if (origin := part.strip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """`[admin.oidc]`: an identity provider that admins may log in with."""

    issuer: str = ""
    """URL of the provider, such as `https://login.example.com`; empty: none."""
    client_id: str = ""
    """Client ID of this gateway at the provider."""
    client_secret_env: str = ""
    """The variable that holds the client's secret; empty for a public client."""
    redirect_url: str = ""
    """`/admin/api/oidc/callback` of the admin listener, as browsers reach it."""

    def __post_init__(self) -> None:
        """Reject a provider without what it needs; ConfigError starts with the key."""
        if self.issuer and not (self.client_id and self.redirect_url):
            raise ConfigError("issuer: needs client_id and redirect_url, too")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings:
    """`[admin]`: the listener for operators: metrics, admin pages."""

    listen: str = "127.0.0.1:8081"
    """Address of the listener, in the forms of `public.listen`."""
    allow_remote: bool = False
    """True if other machines may reach `listen`, directly or through a proxy. Every endpoint except probes then needs a
    login or a token, from this machine too.
    """
    token_file: Path | None = None
    """File with a token of 32 characters or more that may do everything at this listener, such as a mounted Secret;
    None: `admin.token` in `runtime_dir`, made at start."""
    metrics_token_file: Path | None = None
    """File with a token that reads `/metrics` of this listener and nothing else."""
    tls_cert: Path | None = None
    """PEM file with the certificate of this listener, as `public.tls_cert`; None: plain HTTP."""
    tls_key: Path | None = None
    """PEM file with the key of `tls_cert`, without a passphrase."""
    oidc: OidcSettings = field(default_factory=OidcSettings)

    def __post_init__(self) -> None:
        """Reject an address that cannot be bound, or that others reach unasked; ConfigError starts with the key."""
        require_address(self.listen)
        require_tls_pair(self.listen, self.tls_cert, self.tls_key)
        if not (is_loopback(self.listen) or self.allow_remote):
            raise ConfigError(
                f"listen: {self.listen} is open to other machines, and the admin listener has no key of its own; "
                "listen on 127.0.0.1, or set allow_remote = true in [admin]: all but probes then takes a login or a "
                "token"
            )

    @property
    def tls_files(self) -> tuple[Path, Path] | None:
        """Return the files of certificate and key; None for plain HTTP."""
        return None if self.tls_cert is None or self.tls_key is None else (self.tls_cert, self.tls_key)

    @property
    def is_socket(self) -> bool:
        """Return whether operators come through a Unix socket, which only this machine's users reach."""
        return is_socket(self.listen)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """`[policy]`: where the policy is stored, and what is trained for it."""

    document: Path = field(default_factory=bundled_policy_path)
    """The policy document; watched, and taken again within a second of a change."""
    source: Literal["file", "store"] | None = None
    """Place of the policy: `file` is the document above, watched; `store` is the newest revision in the store.

    The admin API changes the policy in the store; an empty store begins with the document above. None: `store` without
    a document of one's own, else `file`.
    """
    poll_s: float = 0.25
    """Interval between two reads of the policy file."""
    max_revisions: int = 1000
    """Revisions of the policy that the store remembers; of more the oldest go."""
    quality_dir: Path | None = None
    """Folder with `*.json` of `penstock policy train`, read at start; None: only what comes with the package."""
    label_retention_days: float = 30.0
    """Time for which labels of small models from audits, shadows and feedback are used for training: figures and
    hashes, no text.
    """

    def __post_init__(self) -> None:
        """Reject values no type can; ConfigError starts with the key."""
        require_range("poll_s", self.poll_s, 0.05, 60.0)
        require_range("max_revisions", self.max_revisions, 10, 1_000_000)
        if not 0.0 < self.label_retention_days <= 3_660.0:
            raise ConfigError(f"label_retention_days: expected more than 0, to 3660, got {self.label_retention_days:g}")

    @property
    def is_bundled(self) -> bool:
        """Return whether the policy is one that comes with the package for settings that name none."""
        return self.document in (bundled_policy_path(), first_run_policy_path())

    @property
    def is_in_store(self) -> bool:
        """Return whether the store's newest revision is the policy."""
        return self.source == "store" or (self.source is None and self.is_bundled)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """`[store]`: what replicas share: quotas and more."""

    address: str = ""
    """`embedded:PATH` (the default, in `runtime_dir`), `redis://host:port/0`,
    `redis+sentinel://host:port,host:port/service` or `redis+cluster://host:port`; `rediss` for TLS."""
    ca_file: Path | None = None
    """PEM certificates of the authorities that a `rediss` store is verified against; None: the system's."""
    timeout_s: float = 0.03
    """Longest time for one operation of the store before the gateway goes on without it."""

    def __post_init__(self) -> None:
        """Reject values no type can; ConfigError starts with the key."""
        try:
            parse_store(self.address or "embedded:store", ca_file=self.ca_file)
        except ValueError as error:
            raise ConfigError(f"address: {error}") from None  # the value may hold a password
        require_range("timeout_s", self.timeout_s, 0.005, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """`[cache]`: memory for cached responses, and their encoder; the policy determines which are cached."""

    encoder: str = ""
    """Folder or name of a sentence-transformers model for the semantic tier; empty: the packaged all-MiniLM-L6-v2.

    Or a Python function `module:function` that returns a row of numbers for each of a list of texts.
    Others run in a process of their own. A folder with `onnx/model.onnx` that pools by the mean or the first token
    needs nothing else, any other model `pip install 'penstock[encoders]'`.
    """
    max_mb: int = 64
    """Memory of one process for cached responses."""
    shared: bool | None = None
    """True if gateways with the same store share cached responses, false if they stay in memory alone.

    None: they are shared where the store is a Redis; else only later starts of this gateway find them.
    """
    recalls: RecallSettings = field(default_factory=RecallSettings)

    def __post_init__(self) -> None:
        """Reject values no type can; ConfigError starts with the key."""
        require_range("max_mb", self.max_mb, 1, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Settings of one gateway process. A field is a section of `penstock.toml`, a field of a section a key in it.

    The variable of a key is `PENSTOCK_` and its path in upper case: `listen` in `[public]` is
    `PENSTOCK_PUBLIC_LISTEN`, `max_bytes` in `[edge.body]` is `PENSTOCK_EDGE_BODY_MAX_BYTES`.
    """

    process: ProcessSettings = field(default_factory=ProcessSettings)
    public: PublicSettings = field(default_factory=PublicSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    edge: EdgeLimits = field(default_factory=EdgeLimits)
    policy: PolicySettings = field(default_factory=PolicySettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)

    def __post_init__(self) -> None:
        """Reject sections that do not go together; ConfigError starts with the key's path."""
        folder = self.process.runtime_dir
        if self.policy.is_bundled and (problem := socket_problem(str(folder / _LONGEST_SOCKET))):
            raise ConfigError(f"process.runtime_dir: the engines' sockets are in {folder}: {problem}")
        if self.public.listen == self.admin.listen and not self.public.listen.endswith(":0"):
            raise ConfigError(f"admin.listen: {self.admin.listen} is also public.listen; choose another port")

    @property
    def inherited_descriptors(self) -> tuple[int, ...]:
        """Numbers of the listening sockets that the parent process handed over."""
        return (*inherited_descriptors(self.public.listen), *inherited_descriptors(self.admin.listen))

    @property
    def store_address(self) -> StoreAddress:
        """Return the address of the store."""
        address = self.store.address or f"embedded:{self.process.runtime_dir / DEFAULT_STORE}"
        return parse_store(address, ca_file=self.store.ca_file)

    @property
    def shares_cache(self) -> bool:
        """Return whether other gateways find cached responses."""
        return self.store_address.kind != "embedded" if self.cache.shared is None else self.cache.shared

    @property
    def answers_address(self) -> StoreAddress:
        """Return the address of cached responses: beside an embedded store, so that nothing else waits for its file."""
        address = self.store_address
        if address.kind != "embedded" or address.path is None:
            return address
        return replace(address, path=address.path.with_name(address.path.name + ANSWERS_SUFFIX))
