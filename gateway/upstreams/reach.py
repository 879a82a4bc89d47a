"""UpstreamReach: a deployment's address, the TLS that verifies it, and the gateway's credentials."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.upstreams.http1.target import Target, TargetError
from gateway.upstreams.tls import TlsConfigError, client_context
from routing_policies.policy.document import Deployment

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class ReachError(ValueError):
    """Error for an unusable URL, certificate or credential; it names the deployment, never the secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamReach:
    """Everything that a connection to one deployment requires."""

    target: Target
    tls: ssl.SSLContext | None
    """TLS context; None for a deployment without HTTPS."""
    authorization: bytes | None = field(repr=False)
    """Value of the `authorization` header; a secret."""


def reach_of(deployment: Deployment, environment: Mapping[str, str]) -> UpstreamReach:
    """Return the deployment's reach, reading its CA file; raises ReachError."""
    authorization = authorization_of(deployment, environment)
    try:
        target = Target.parse(deployment.url)
    except TargetError as error:
        raise ReachError(f"deployments.{deployment.id}.url: {error}") from error
    ca_file = None if deployment.tls is None else Path(deployment.tls.ca_file)
    try:
        context = client_context(ca_file) if target.is_tls else None
    except TlsConfigError as error:
        raise ReachError(f"deployments.{deployment.id}.tls.ca_file: {error}") from error
    return UpstreamReach(target=target, tls=context, authorization=authorization)


def authorization_of(deployment: Deployment, environment: Mapping[str, str]) -> bytes | None:
    """Return the `authorization` header for this deployment, or None when it requires none; raises ReachError."""
    if deployment.auth is None:
        return None
    name = deployment.auth.bearer_env
    secret = environment.get(name, "").strip()
    if not secret:
        raise ReachError(
            f"deployments.{deployment.id}.auth.bearer_env: the environment variable {name} is not set; "
            "set it for the gateway's process and start it again"
        )
    if not _TOKEN.fullmatch(secret):
        raise ReachError(
            f"deployments.{deployment.id}.auth.bearer_env: the environment variable {name} holds spaces or characters "
            "that no header can carry; it must hold the key alone"
        )
    return b"Bearer " + secret.encode("ascii")
