"""The Kustomize base: every object strictly valid, hardened, drained, and in tune with gateway and engine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from engine.config import FrontConfig
from gateway.config.sources import load_config
from routing_policies.loading import load_policy
from tests.deploy.promql import DEPLOY

BASE = DEPLOY / "kubernetes" / "base"
_VERSION = "1.33"


def objects() -> list[dict[str, Any]]:
    """Every object of the base as it is written."""
    resources = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    return [found for name in resources for found in yaml.safe_load_all((BASE / name).read_text())]


def workloads() -> list[dict[str, Any]]:
    return [found for found in objects() if found["kind"] in ("Deployment", "StatefulSet")]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [found for found in objects() if found["kind"] == kind]


@pytest.mark.parametrize("found", objects(), ids=lambda found: f"{found['kind']}-{found['metadata']['name']}")
def test_objects_are_strictly_valid(found: dict[str, Any]) -> None:
    if found["kind"] == "ScaledObject":  # no schema of KEDA's is at hand: hold the fields that scaling hangs on
        assert found["apiVersion"] == "keda.sh/v1alpha1"
        assert found["spec"].keys() == {
            *("scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod"),
            *("fallback", "triggers"),
        }
        return
    kubernetes_validate.validate(found, _VERSION, strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_renders_the_base() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(BASE)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    assert len(rendered) == len(objects()) + 1, "the objects and the policy's ConfigMap"
    for found in rendered:
        assert found["metadata"]["labels"]["app.kubernetes.io/part-of"] == "penstock" or found["kind"] == "ConfigMap"
        if found["kind"] != "ScaledObject":
            kubernetes_validate.validate(found, _VERSION, strict=True)


@pytest.mark.parametrize("workload", workloads(), ids=lambda found: found["metadata"]["name"])
def test_pods_run_without_privileges_and_with_every_probe(workload: dict[str, Any]) -> None:
    pod = workload["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")}
        assert paths == {"startup": "/startupz", "readiness": "/readyz", "liveness": "/livez"}
        assert not container["image"].endswith(":latest")


def test_the_gateways_drain_fits_its_grace_period(tmp_path: Path) -> None:
    (pod,) = (found["spec"]["template"]["spec"] for found in workloads() if found["kind"] == "Deployment")
    env = {item["name"]: item.get("value", "redis://redis:6379/0") for item in pod["containers"][0]["env"]}
    config = load_config(None, env, cwd=tmp_path)
    assert config.process.drain_notice_s > pod["containers"][0]["readinessProbe"]["periodSeconds"] * 2
    assert pod["terminationGracePeriodSeconds"] >= config.process.drain_notice_s + config.process.drain_timeout_s + 10


def test_the_admin_listener_takes_its_tokens_from_a_secret_that_the_base_does_not_hold() -> None:
    (pod,) = (found["spec"]["template"]["spec"] for found in workloads() if found["kind"] == "Deployment")
    (container,) = pod["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    (secret,) = (volume["secret"] for volume in pod["volumes"] if volume["name"] == "tokens")
    (mounted,) = (mount for mount in container["volumeMounts"] if mount["name"] == "tokens")
    command = next(line for line in (BASE / "kustomization.yaml").read_text().splitlines() if "create secret" in line)
    assert f"secret generic {secret['secretName']} " in command
    assert secret["defaultMode"] == 0o440
    assert mounted["readOnly"]
    for name in ("admin.token", "metrics.token"):
        assert f'--from-literal={name}="$(openssl rand -hex 32)"' in command
        assert f"{mounted['mountPath']}/{name}" in env.values()
    assert not of_kind("Secret")


def test_prometheus_sends_the_metrics_token_to_gateways_alone() -> None:
    (pod,) = (found["spec"]["template"] for found in workloads() if found["kind"] == "Deployment")
    assert "annotations" not in pod["metadata"], "a job for annotated pods has no token"
    monitor = yaml.safe_load((BASE.parent / "monitoring" / "podmonitor.yaml").read_text())["spec"]
    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "penstock-admin", "key": "metrics.token"}
    assert endpoint["port"] in {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    jobs = yaml.safe_load((DEPLOY / "prometheus" / "kubernetes.yaml").read_text())["scrape_configs"]
    assert [job["job_name"] for job in jobs if "authorization" in job] == ["penstock-gateway"]


def test_the_engines_drain_fits_their_grace_period() -> None:
    drain_s = FrontConfig(listen="", model_name="").drain_timeout_s
    for workload in workloads():
        if workload["kind"] == "StatefulSet":
            pod = workload["spec"]["template"]["spec"]
            command, seconds = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
            assert command == "sleep"
            assert pod["terminationGracePeriodSeconds"] >= int(seconds) + drain_s + 10


def test_the_policy_names_every_pod_the_scaler_may_start_and_no_other() -> None:
    policy = load_policy((BASE / "policy.yaml").read_text(), source="policy.yaml")
    replicas = {
        item["spec"]["scaleTargetRef"]["name"]: item["spec"]["maxReplicaCount"] for item in of_kind("ScaledObject")
    }
    expected = {f"http://{name}-{n}.{name}:8000" for name, count in replicas.items() for n in range(count)}
    assert {deployment.url for deployment in policy.deployments} == expected
    assert policy.has_keys


def test_whatever_is_scaled_or_protected_exists() -> None:
    names = {(found["kind"], found["metadata"]["name"]) for found in workloads()}
    for scaler in (*of_kind("ScaledObject"), *of_kind("HorizontalPodAutoscaler")):
        target = scaler["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) in names
    labels = [found["spec"]["template"]["metadata"]["labels"] for found in workloads()]
    for guard in (*of_kind("PodDisruptionBudget"), *of_kind("NetworkPolicy"), *of_kind("Service")):
        spec = guard["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        wanted = selector.get("matchLabels", selector)
        assert any(wanted.items() <= found.items() for found in labels), guard["metadata"]["name"]
