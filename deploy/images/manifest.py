"""Containers to probe: an image's own configuration, with arguments, variables and volumes from the Kubernetes base."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from deploy.images.pod import ContainerSpec

_BASE: Final = Path(__file__).resolve().parents[1] / "kubernetes" / "base"
_SERVED: Final = "penstock-small"
_POLICY: Final = f"""\
schema_version: 1
deployments:
  - {{id: local, url: "http://127.0.0.1:8000", model: {_SERVED}, cost_per_mtok: {{prompt: 1, completion: 2}}}}
routes:
  - {{id: probe, match: {{models: [probe]}}, select: {{policy: latency_first, candidates: [local]}}}}
tenants:
  - {{id: probe, keys: [{{id: only, sha256: %s}}]}}
"""


def engine_spec(root: str, config: Mapping[str, Any]) -> ContainerSpec:
    """Return the small engine of the base."""
    container = _container("engines.yaml", "engine-small")
    return _spec("engine", root, config, container, command=container["args"], files={}, ready=True)


def gateway_spec(root: str, config: Mapping[str, Any], *, with_engine: bool) -> ContainerSpec:
    """Return the gateway of the base, with a policy of one deployment and without a Redis."""
    key = secrets.token_urlsafe(32)
    files = {
        "/etc/penstock/policy.yaml": _POLICY % hashlib.sha256(key.encode()).hexdigest(),
        "/run/penstock/admin.token": secrets.token_hex(32),
        "/run/penstock/metrics.token": secrets.token_hex(32),
    }
    container = _container("gateway.yaml", "penstock-gateway")
    return _spec("gateway", root, config, container, command=config["Cmd"], files=files, ready=with_engine, key=key)


def _container(file: str, workload: str) -> dict[str, Any]:
    for found in yaml.safe_load_all((_BASE / file).read_text()):
        if found["metadata"]["name"] == workload and "template" in found.get("spec", {}):
            container: dict[str, Any] = found["spec"]["template"]["spec"]["containers"][0]
            return container
    raise LookupError(f"{file} has no workload {workload}")


def _spec(
    name: str,
    root: str,
    config: Mapping[str, Any],
    container: Mapping[str, Any],
    *,
    command: list[str],
    files: Mapping[str, str],
    ready: bool,
    key: str = "",
) -> ContainerSpec:
    return ContainerSpec(
        name=name,
        root=root,
        command=[*config["Entrypoint"], *command],
        env={item["name"]: item["value"] for item in container.get("env", ()) if "value" in item},
        image_env=dict(line.split("=", 1) for line in config["Env"]),
        port=container["ports"][0]["containerPort"],
        writable=[mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")],
        files=files,
        ready=ready,
        key=key,
    )
