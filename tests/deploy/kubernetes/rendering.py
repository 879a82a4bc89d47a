"""Everything that the chart renders, read once: Helm's library runs in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from tests.deploy.promql import DEPLOY

FOLDER = DEPLOY / "kubernetes"
SCHEMAS = yaml.safe_load((FOLDER.parents[1] / "tests" / "deploy" / "kubernetes" / "crd_schemas.yaml").read_text())
KUBERNETES_VERSION = "1.34"


@cache
def rendering() -> dict[str, Any]:
    """`files` by path below deploy/kubernetes, and `objects` by profile."""
    command = [sys.executable, "-m", "deploy.kubernetes", "--show"]
    done = subprocess.run(command, cwd=DEPLOY.parent, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


PROFILES = ["base", *sorted(path.stem for path in (FOLDER / "chart" / "profiles").glob("*.yaml"))]


def objects(profile: str, *kinds: str) -> list[dict[str, Any]]:
    """The objects of a profile, of these kinds or of all."""
    return [found for found in rendering()["objects"][profile] if not kinds or found["kind"] in kinds]


def pod_templates(profile: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name of the workload, template of its pods)."""
    for found in objects(profile, "Deployment", "StatefulSet"):
        yield found["metadata"]["name"], found["spec"]["template"]
    for found in objects(profile, "RayService"):
        cluster = found["spec"]["rayClusterConfig"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            yield found["metadata"]["name"], group["template"]


def policy(profile: str) -> str:
    """The policy document that gateways of a profile read."""
    (found,) = objects(profile, "ConfigMap")
    return str(found["data"]["policy.yaml"])


def validate(found: dict[str, Any]) -> None:
    """Raise unless the object has the fields of its kind, and no others."""
    schema = SCHEMAS.get(f"{found['apiVersion']} {found['kind']}")
    if schema is None:
        kubernetes_validate.validate(found, KUBERNETES_VERSION, strict=True)
    else:
        jsonschema.validate(found, schema)
