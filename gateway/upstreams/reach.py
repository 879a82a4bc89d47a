"""UpstreamReach: a deployment's address, the way to it, the TLS that verifies it, and the headers that it requires."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gateway.upstreams.http1.target import Target, TargetError
from gateway.upstreams.proxy import Proxy, ProxyError, environment_proxy
from gateway.upstreams.tls import TlsConfigError, client_context
from routing_policies.policy.deployment import Deployment

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_TEXT: Final = re.compile(r"[\x20-\x7e]+")


class ReachError(ValueError):
    """Error for an unusable URL, certificate or credential; it names the deployment, never the secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamHeaders:
    """Headers that the policy adds to every request to a deployment, credentials included."""

    sent: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    """Values from the environment, which no answer to a client may repeat."""
    resume_key: bytes | None = field(default=None, repr=False)
    """Key that signs orders to resume streams; None where the deployment takes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamReach:
    """Everything that a connection to one deployment requires."""

    target: Target
    tls: ssl.SSLContext | None
    """TLS context; None for a deployment without HTTPS."""
    headers: UpstreamHeaders
    proxy: Proxy | None = None
    """Forward proxy; None for a direct connection."""


MakeContext = Callable[[Path | None], ssl.SSLContext]
"""Maker of the context for a CA file."""


def reach_of(
    deployment: Deployment, environment: Mapping[str, str], make_context: MakeContext = client_context
) -> UpstreamReach:
    """Return the deployment's reach; `make_context` reads its CA file. Raises ReachError."""
    headers = headers_of(deployment, environment)
    try:
        target = _named(Target.parse(deployment.url), deployment)
    except TargetError as error:
        raise ReachError(f"deployments.{deployment.id}.url: {error}") from error
    ca_file = None if deployment.tls is None else Path(deployment.tls.ca_file)
    try:
        context = make_context(ca_file) if target.is_tls else None
    except TlsConfigError as error:
        raise ReachError(f"deployments.{deployment.id}.tls.ca_file: {error}") from error
    return UpstreamReach(target=target, tls=context, headers=headers, proxy=_proxy_of(deployment, target, environment))


def _named(target: Target, deployment: Deployment) -> Target:
    """Return a member's target with the name that its certificate has, where its group states or implies one."""
    found = deployment.discover
    name = None if found is None or not target.is_tls else found.tls_name or found.dns
    return target if name is None else replace(target, tls_name=name)


def headers_of(deployment: Deployment, environment: Mapping[str, str]) -> UpstreamHeaders:
    """Return the headers for this deployment with their secret values; raises ReachError."""
    sent: list[tuple[bytes, bytes]] = []
    secrets: list[bytes] = []
    place, auth = f"deployments.{deployment.id}", deployment.auth
    if auth is not None and auth.bearer_env is not None:
        secret = _secret(f"{place}.auth.bearer_env", auth.bearer_env, environment, _TOKEN)
        sent.append((b"authorization", b"Bearer " + secret))
        secrets.append(secret)
    elif auth is not None and auth.header is not None and auth.value_env is not None:
        secret = _secret(f"{place}.auth.value_env", auth.value_env, environment, _TEXT)
        sent.append((auth.header.encode("ascii"), secret))
        secrets += secret.split(b" ")  # the last part of "Basic ..." is the secret itself
    for name, value in deployment.headers.items():
        if isinstance(value, str):
            sent.append((name.encode("ascii"), value.encode("ascii")))
        else:
            secret = _secret(f"{place}.headers.{name}.value_env", value.value_env, environment, _TEXT)
            sent.append((name.encode("ascii"), secret))
            secrets.append(secret)
    key = deployment.resume_key_env
    resume_key = None if key is None else _secret(f"{place}.resume_key_env", key, environment, _TOKEN)
    return UpstreamHeaders(sent=tuple(sent), secrets=tuple(secrets), resume_key=resume_key)


def _proxy_of(deployment: Deployment, target: Target, environment: Mapping[str, str]) -> Proxy | None:
    place, proxy = f"deployments.{deployment.id}.proxy", deployment.proxy
    if proxy == "none" or target.socket_path is not None:
        return None
    try:
        if proxy is None:
            return environment_proxy(target, environment)
        if isinstance(proxy, str):
            return Proxy.parse(proxy)
        place = f"{place}.url_env"
        return Proxy.parse(_secret(place, proxy.url_env, environment, _TOKEN).decode("ascii"))
    except ProxyError as error:
        raise ReachError(f"{place}: {error}") from None


def _secret(place: str, name: str, environment: Mapping[str, str], form: re.Pattern[str]) -> bytes:
    """Return the value of an environment variable; raises ReachError, which never contains it."""
    secret = environment.get(name, "").strip()
    if not secret:
        raise ReachError(
            f"{place}: the environment variable {name} is not set; set it for the gateway's process and start it again"
        )
    if not form.fullmatch(secret):
        raise ReachError(
            f"{place}: the environment variable {name} holds {'spaces or ' if form is _TOKEN else ''}characters "
            "that no header can carry; it must hold the key alone"
        )
    return secret.encode("ascii")
