"""Process settings: `penstock.toml`, then `PENSTOCK_*`, then flags; read once, strictly."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, get_type_hints

import msgspec

from gateway.http.address import inherited_addresses, inherited_descriptors
from gateway.http.limits import EdgeLimits
from gateway.store.address import StoreAddress, parse_store
from gateway.telemetry.records.record import OMITTABLE
from routing_policies.policy.document import Policy
from routing_policies.policy.references import MAX_UNIX_PATH_BYTES

DEFAULT_FILE = "penstock.toml"
ENV_PREFIX = "PENSTOCK_"
EMBEDDED = "embedded:"
DEFAULT_STORE = "store.sqlite3"
ANSWERS_SUFFIX = ".answers"
CONFIG_ENV = "PENSTOCK_CONFIG"
MAX_CONFIG_BYTES = 256 * 1024
_LONGEST_SOCKET = "small.sock"
"""In `runtime_dir`: of a bundled engine."""

LogLevel = Literal["debug", "info", "warning", "error"]

# A Kubernetes Service called "penstock" puts these into every pod's environment; they are not ours.
_SERVICE_LINK = re.compile(r"PENSTOCK_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT\w*|PORT(?:_\d+_(?:TCP|UDP|SCTP)\w*)?)")


class ConfigError(ValueError):
    """A process setting is wrong; the message names its file and key, or its variable, and the remedy."""


def bundled_policy_path() -> Path:
    """The policy that is used when none is named: the two bundled models."""
    return Path(str(files("routing_policies") / "presets" / "bundled.yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Settings of one gateway process. Every key of `penstock.toml` is a field here or, under `[edge]`, of EdgeLimits.

    The variable of a key is `PENSTOCK_` and its name in upper case, such as `PENSTOCK_PUBLIC_LISTEN` or
    `PENSTOCK_EDGE_MAX_BODY_BYTES`.
    """

    public_listen: str = "127.0.0.1:8080"
    """`host:port` (port 0: any free one), `[v6]:port`, `unix:/path`, or `fd:N` for a listening socket that the parent
    process holds; what clients talk to."""
    public_shared: bool = False
    """Whether other gateway processes may listen on `public_listen` too, each with its own queue (SO_REUSEPORT)."""
    admin_listen: str = "127.0.0.1:8081"
    """The same for operators: metrics, admin pages."""
    admin_allow_remote: bool = False
    """Whether other machines may reach `admin_listen`, directly or through a proxy. All but probes then takes a login
    or a token, whoever asks."""
    admin_token_file: Path | None = None
    """File with a token of 32 characters or more that may do everything at the admin listener, such as a mounted
    Secret; None: `admin.token` in `runtime_dir`, made at start."""
    metrics_token_file: Path | None = None
    """The same for a token that reads `/metrics` of the admin listener and nothing else."""
    oidc_issuer: str = ""
    """Identity provider that admins may log in with, such as `https://login.example.com`; empty: none."""
    oidc_client_id: str = ""
    """As the provider knows this gateway."""
    oidc_client_secret_env: str = ""
    """The variable that holds the client's secret; empty for a public client."""
    oidc_redirect_url: str = ""
    """`/admin/api/oidc/callback` of the admin listener, as browsers reach it."""
    policy: Path = field(default_factory=bundled_policy_path)
    """The policy document; watched, and taken again within a second of a change."""
    policy_source: Literal["file", "store"] | None = None
    """Where the policy is kept: `file` is the document above, watched; `store` is the newest revision in the store,
    changed by the admin API, the document above being what an empty store begins with. None: `store` without a document
    of one's own, else `file`."""
    max_revisions: int = 1000
    """Revisions of the policy that the store remembers; of more the oldest go."""
    runtime_dir: Path = field(default_factory=lambda: Path("run").absolute())
    """Sockets and the pid file; `${runtime_dir}` in the policy."""
    store: str = ""
    """What replicas share: quotas and more. `embedded:PATH` (the default, in `runtime_dir`), `redis://host:port/0`,
    `redis+sentinel://host:port,host:port/service` or `redis+cluster://host:port`; `rediss` for TLS."""
    store_ca_file: Path | None = None
    """PEM certificates of the authorities that a `rediss` store is verified against; None: the system's."""
    store_timeout_s: float = 0.03
    """How long one operation of the store may take before the gateway goes on without it."""
    recorder: Literal["off", "features", "text"] = "off"
    """Whether requests are recorded for `penstock policy plan`, in `runtime_dir`/recorded: `features` keeps
    sizes, flags and salted digests, `text` also the beginning of each last message."""
    recorder_max_mb: int = 256
    """Of one machine's recording; the oldest goes first."""
    recorder_retention_h: float = 24.0
    """How long a recorded request is kept."""
    drain_notice_s: float = 0.0
    """How long everybody is still served after SIGTERM while `/readyz` says 503 and answers say `connection: close`."""
    zone: str = ""
    """Where this gateway runs, as `zone` of deployments says it; empty: near all of them."""
    drain_timeout_s: float = 30.0
    """How long requests under way may take to finish once the process is asked to stop."""
    policy_poll_s: float = 0.25
    """How often the policy file is looked at."""
    quality_dir: Path | None = None
    """Folder with `*.json` of `penstock policy train`, read at start; None: only what comes with the package."""
    label_retention_days: float = 30.0
    """How long what audits, shadows and feedback said of a small model is learned from: figures and hashes, no text."""
    cache_max_mb: int = 64
    """Memory for answers that are kept; which are, the policy says."""
    cache_shared: bool | None = None
    """Whether gateways with the same store share kept answers; None: where it is a Redis, else only later starts of
    this one find them; false: they are kept in memory alone."""
    memory_limit_mb: int | None = None
    """Above it new requests are refused, near it the least urgent ones; None is 90 % of the control group's limit."""
    log_level: LogLevel = "info"
    log_sample_ratio: float = 1.0
    """Share of the answered requests that get a line in the log; what was refused or failed always does."""
    log_omit: str = ""
    """What a request's line leaves out, comma-separated: of client_request_id, detail, model, tenant."""
    otlp_endpoint: str = ""
    """Where spans are posted in OTLP's JSON, such as `http://127.0.0.1:4318/v1/traces`; empty: no tracing."""
    trace_sample_ratio: float = 0.1
    """Share of the traced requests among those whose caller sent no `traceparent`; else the caller decides."""
    edge: EdgeLimits = field(default_factory=EdgeLimits)

    def __post_init__(self) -> None:
        """Reject values no type can; ConfigError names the key."""
        for key in ("public_listen", "admin_listen"):
            problem = _address_problem(getattr(self, key))
            if problem:
                raise ConfigError(f"{key}: {problem}")
        if self.has_bundled_policy and (problem := _socket_problem(str(self.runtime_dir / _LONGEST_SOCKET))):
            raise ConfigError(f"runtime_dir: the engines' sockets are in {self.runtime_dir}: {problem}")
        if self.public_listen == self.admin_listen and not self.public_listen.endswith(":0"):
            raise ConfigError(f"admin_listen: {self.admin_listen} is also public_listen; choose another port")
        if not (is_loopback(self.admin_listen) or self.admin_allow_remote):
            raise ConfigError(
                f"admin_listen: {self.admin_listen} is open to other machines, and the admin listener has no key of "
                "its own; listen on 127.0.0.1, or set admin_allow_remote = true: all but probes then takes a login or "
                "a token"
            )
        try:
            parse_store(self.store or "embedded:store", ca_file=self.store_ca_file)
        except ValueError as error:
            raise ConfigError(f"store: {error}") from None  # the value may hold a password
        if not 0.005 <= self.store_timeout_s <= 5.0:
            raise ConfigError(f"store_timeout_s: expected 0.005 to 5, got {self.store_timeout_s:g}")
        if self.oidc_issuer and not (self.oidc_client_id and self.oidc_redirect_url):
            raise ConfigError("oidc_issuer: needs oidc_client_id and oidc_redirect_url, too")
        if not 1 <= self.recorder_max_mb <= 100_000:
            raise ConfigError(f"recorder_max_mb: expected 1 to 100000, got {self.recorder_max_mb}")
        if not 10 <= self.max_revisions <= 1_000_000:
            raise ConfigError(f"max_revisions: expected 10 to 1000000, got {self.max_revisions}")
        if not 0.0 < self.label_retention_days <= 3_660.0:
            raise ConfigError(f"label_retention_days: expected more than 0, to 3660, got {self.label_retention_days:g}")
        if not 0.0 < self.recorder_retention_h <= 8_784.0:
            raise ConfigError(f"recorder_retention_h: expected more than 0, to 8784, got {self.recorder_retention_h:g}")
        if not 0.0 <= self.drain_notice_s <= 600.0:
            raise ConfigError(f"drain_notice_s: expected 0 to 600, got {self.drain_notice_s:g}")
        if not 0.0 <= self.drain_timeout_s <= 3600.0:
            raise ConfigError(f"drain_timeout_s: expected 0 to 3600, got {self.drain_timeout_s:g}")
        if not 1 <= self.cache_max_mb <= 1_000_000:
            raise ConfigError(f"cache_max_mb: expected 1 to 1000000, got {self.cache_max_mb}")
        if self.memory_limit_mb is not None and self.memory_limit_mb < 64:
            raise ConfigError(f"memory_limit_mb: expected 64 or more, got {self.memory_limit_mb}")
        for key in ("log_sample_ratio", "trace_sample_ratio"):
            if not 0.0 <= getattr(self, key) <= 1.0:
                raise ConfigError(f"{key}: expected 0 to 1, got {getattr(self, key):g}")
        if unknown := self.log_omitted - OMITTABLE:
            named = ", ".join(sorted(OMITTABLE))
            raise ConfigError(f"log_omit: {', '.join(sorted(unknown))}: cannot be left out; expected some of {named}")
        if self.otlp_endpoint and not re.fullmatch(r"https?://[^/\s]+(/\S*)?", self.otlp_endpoint):
            raise ConfigError("otlp_endpoint: expected a URL such as http://127.0.0.1:4318/v1/traces")
        if not 0.05 <= self.policy_poll_s <= 60.0:
            raise ConfigError(f"policy_poll_s: expected 0.05 to 60, got {self.policy_poll_s:g}")

    @property
    def log_omitted(self) -> frozenset[str]:
        """`log_omit` as a set."""
        return frozenset(filter(None, (name.strip() for name in self.log_omit.split(","))))

    @property
    def store_address(self) -> StoreAddress:
        """Where the store is."""
        return parse_store(self.store or f"embedded:{self.runtime_dir / DEFAULT_STORE}", ca_file=self.store_ca_file)

    @property
    def admin_is_socket(self) -> bool:
        """Whether operators come through a Unix socket, which only this machine's users reach."""
        if self.admin_listen.startswith("fd:"):
            return all(address.startswith("unix:") for address in inherited_addresses(self.admin_listen))
        return self.admin_listen.startswith("unix:")

    @property
    def inherited_descriptors(self) -> tuple[int, ...]:
        """Numbers of the listening sockets that the parent process handed over."""
        return (*inherited_descriptors(self.public_listen), *inherited_descriptors(self.admin_listen))

    @property
    def recording_dir(self) -> Path:
        """Where recorded requests are."""
        return self.runtime_dir / "recorded"

    @property
    def has_bundled_policy(self) -> bool:
        """Whether nobody has named a document."""
        return self.policy == bundled_policy_path()

    @property
    def keeps_policy_in_store(self) -> bool:
        """Whether the store's newest revision is the policy."""
        return self.policy_source == "store" or (self.policy_source is None and self.has_bundled_policy)

    @property
    def shares_cache(self) -> bool:
        """Whether other gateways find kept answers."""
        return self.store_address.kind != "embedded" if self.cache_shared is None else self.cache_shared

    @property
    def answers_address(self) -> StoreAddress:
        """Where kept answers are: beside an embedded store, so that nothing else waits for its file."""
        address = self.store_address
        if address.kind != "embedded" or address.path is None:
            return address
        return replace(address, path=address.path.with_name(address.path.name + ANSWERS_SUFFIX))

    @property
    def policy_variables(self) -> dict[str, str]:
        """What `${name}` in the policy stands for."""
        return {"runtime_dir": str(self.runtime_dir)}


def load_config(
    path: Path | None, env: Mapping[str, str], flags: Mapping[str, object] | None = None, *, cwd: Path | None = None
) -> GatewayConfig:
    """The settings; later sources win: file, environment, flags (None counts as not given). Raises ConfigError.

    Without `path` the file is `PENSTOCK_CONFIG`, else `penstock.toml` in `cwd` when there is one. Relative paths in
    the file are relative to it, those of other sources to `cwd`.
    """
    here = (cwd or Path.cwd()).resolve()
    named = path or (Path(env[CONFIG_ENV]) if env.get(CONFIG_ENV) else None)
    file = here / named.expanduser() if named is not None else here / DEFAULT_FILE
    found: dict[str, _Found] = {"runtime_dir": _Found(here / "run", "default")}
    if named is not None or file.exists():
        found |= _from_file(file)
    found |= _from_env(env, here)
    for key, value in (flags or {}).items():
        if value is not None:
            found[key] = _Found(_anchored(value, here), f"--{key.replace('_', '-')}")
    try:
        edge = EdgeLimits(**_section(found, "edge."))
    except ValueError as error:  # its message starts with the field
        raise _placed(found, "edge.", error) from error
    try:
        return GatewayConfig(**_section(found, ""), edge=edge)
    except ConfigError as error:
        raise _placed(found, "", error) from error


def variables_of(config: GatewayConfig) -> dict[str, str]:
    """Return the variables that make another process have these very settings and look at no file for them."""
    values = {key: getattr(config, key) for key in _kinds() if "." not in key}
    values |= {f"edge.{item.name}": getattr(config.edge, item.name) for item in fields(EdgeLimits)}
    given = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in values.items()
        if value is not None and value != ""
    }
    return {CONFIG_ENV: os.devnull, **{_variable(key): text for key, text in given.items()}}


def _variable(key: str) -> str:
    return ENV_PREFIX + key.replace(".", "_").upper()


def is_loopback(address: str) -> bool:
    """Whether a listener's address can be reached from this machine only."""
    if address.startswith("unix:"):
        return True
    if address.startswith("fd:"):
        return all(map(is_loopback, inherited_addresses(address)))
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name: where it leads is not known here
        return False


def exposure_problem(config: GatewayConfig) -> str | None:
    """Return what is wrong with the listeners of a gateway whose policy has no key, None when only this machine
    reaches them."""
    for key in ("public_listen", "admin_listen"):
        address = getattr(config, key)
        if not is_loopback(address):
            return (
                f"{key}: {address} is open to other machines and the policy has no tenant with a key; "
                "add one (penstock keys new --tenant NAME prints it) or listen on 127.0.0.1"
            )
    return None


def require_keys_when_exposed(config: GatewayConfig, policy: Policy) -> None:
    """Without any tenant key only loopback listeners are allowed. Raises ConfigError."""
    problem = None if policy.has_keys else exposure_problem(config)
    if problem is not None:
        raise ConfigError(problem)


@dataclass(frozen=True, slots=True)
class _Found:
    """A value and where it was given; kept under its dotted key."""

    value: Any
    place: str


def _from_file(file: Path) -> dict[str, _Found]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_CONFIG_BYTES + 1)
        if len(raw) > MAX_CONFIG_BYTES:
            raise ConfigError(f"{file}: larger than {MAX_CONFIG_BYTES} bytes")
        data = tomllib.loads(raw.decode())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); check --config and {CONFIG_ENV}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from error
    edge = data.pop("edge", {})
    if not isinstance(edge, dict):
        raise ConfigError(f"{file}: edge: expected a table, [edge]")
    kinds, found = _kinds(), {}
    for key, value in {**data, **{f"edge.{key}": value for key, value in edge.items()}}.items():
        place = f"{file}: {key}"
        if key not in kinds:
            raise ConfigError(f"{place}: no such setting{_nearest(key, list(kinds))}")
        found[key] = _Found(_anchored(_typed(kinds[key], value, place, strict=True), file.parent), place)
    return found


def _from_env(env: Mapping[str, str], here: Path) -> dict[str, _Found]:
    kinds, found = _kinds(), {}
    known = {_variable(key): key for key in kinds}
    for name, text in env.items():
        if not name.startswith(ENV_PREFIX) or name == CONFIG_ENV or _SERVICE_LINK.fullmatch(name):
            continue
        if name not in known:
            raise ConfigError(f"{name}: no such setting{_nearest(name, [*known, CONFIG_ENV])}")
        found[known[name]] = _Found(_anchored(_typed(kinds[known[name]], text, name, strict=False), here), name)
    return found


def _kinds() -> dict[str, Any]:
    """Dotted key → type of every setting."""
    kinds = {key: kind for key, kind in get_type_hints(GatewayConfig).items() if kind is not EdgeLimits}
    return kinds | {f"edge.{key}": kind for key, kind in get_type_hints(EdgeLimits).items()}


def _section(found: Mapping[str, _Found], prefix: str) -> dict[str, Any]:
    """The values right under a prefix, by their last name."""
    names = {key: key.removeprefix(prefix) for key in found if key.startswith(prefix)}
    return {name: found[key].value for key, name in names.items() if "." not in name}


def _placed(found: Mapping[str, _Found], prefix: str, error: ValueError) -> ConfigError:
    """An error whose message starts with a key, starting with the place that gave it."""
    key, _, said = str(error).partition(": ")
    given = found.get(prefix + key)
    return ConfigError(f"{given.place}: {said}" if given else f"{prefix}{error}")


def _typed(kind: Any, value: object, place: str, *, strict: bool) -> Any:
    """The value in its setting's type; `strict` refuses text where a number is meant, which variables cannot avoid."""
    if kind in (Path, Path | None):
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{place}: expected a path, got {value!r}")
        return Path(value).expanduser()
    try:
        return msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        said = str(error).replace("`", "").partition(", got ")[0]
        said = f"expected one of {_choices(kind)}" if "enum value" in said else f"{said[0].lower()}{said[1:]}"
        raise ConfigError(f"{place}: {said}, got {value!r}") from error


def _choices(kind: Any) -> str:
    return ", ".join(str(choice) for choice in kind.__args__)


def _nearest(word: str, known: list[str]) -> str:
    near = difflib.get_close_matches(word, [*known, "edge"], n=1, cutoff=0.6)
    return f'; did you mean "{near[0]}"?' if near else f"; known: {', '.join(known)}"


def _anchored(value: Any, base: Path) -> Any:
    if isinstance(value, str) and value.startswith(EMBEDDED) and value != EMBEDDED:
        return EMBEDDED + str(_absolute(base / Path(value.removeprefix(EMBEDDED)).expanduser()))
    return _absolute(base / value) if isinstance(value, Path) else value


def _absolute(path: Path) -> Path:
    """Return the path without `..`; links stay, for a mounted policy changes by one that is swapped."""
    return Path(os.path.abspath(path)) if ".." in path.parts else path.absolute()


def _address_problem(address: str) -> str | None:
    if address.startswith("unix:"):
        return _socket_problem(address.removeprefix("unix:"))
    if address.startswith("fd:"):
        return _inheritance_problem(address)
    host, separator, port = address.rpartition(":")
    if not separator or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        return f'expected host:port, [v6]:port or unix:/path, got "{address}"'
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return f'an IPv6 address goes in brackets: "[{host}]:{port}"'
    return None


def _socket_problem(path: str) -> str | None:
    if not path or "\0" in path:
        return "unix: needs a path, such as unix:/run/penstock/public.sock"
    excess = len(os.fsencode(path)) - MAX_UNIX_PATH_BYTES
    if excess > 0:
        return f"the socket's path is {excess} bytes over the system's {MAX_UNIX_PATH_BYTES}; use a shorter directory"
    return None


def _inheritance_problem(address: str) -> str | None:
    if not re.fullmatch(r"fd:[0-9]{1,6}(,[0-9]{1,6})*", address, re.ASCII):
        return f'expected fd:N with the number of an inherited socket, got "{address}"'
    try:
        inherited_addresses(address)
    except OSError as error:
        return f"{address} is no socket that this process inherited ({error.strerror})"
    return None
