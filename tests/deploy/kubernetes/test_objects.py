"""Every object of every profile: strictly valid, hardened, drained, and in tune with gateway and engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from engine.__main__ import make_parser
from engine.config import FrontConfig
from gateway.config.sources import load_config
from routing_policies.loading import load_policy
from tests.deploy.kubernetes.rendering import (
    KUBERNETES_VERSION,
    PROFILES,
    objects,
    pod_templates,
    policy,
    validate,
)
from tests.deploy.promql import DEPLOY

EVERY = pytest.mark.parametrize("profile", PROFILES)


@EVERY
def test_objects_are_strictly_valid(profile: str) -> None:
    for found in objects(profile):
        validate(found)
    for name, template in pod_templates(profile):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **template["metadata"]}}
        kubernetes_validate.validate({**pod, "spec": template["spec"]}, KUBERNETES_VERSION, strict=True)


def test_the_profiles_hold_every_kind() -> None:
    kinds = {found["kind"] for profile in PROFILES for found in objects(profile)}
    assert kinds == {
        *(
            "ServiceAccount",
            "Deployment",
            "StatefulSet",
            "Service",
            "ConfigMap",
            "PodDisruptionBudget",
            "NetworkPolicy",
        ),
        *("HorizontalPodAutoscaler", "ScaledObject", "ServiceMonitor", "PrometheusRule"),
        *("HTTPRoute", "InferencePool", "RayService"),
    }


@pytest.mark.parametrize("profile", ["base", "cpu"])
def test_a_cluster_without_operators_takes_them(profile: str) -> None:
    groups = {found["apiVersion"].rpartition("/")[0] for found in objects(profile)}
    assert groups == {"", "apps", "policy", "autoscaling", "networking.k8s.io"}


@EVERY
def test_objects_carry_the_projects_label(profile: str) -> None:
    for found in objects(profile):
        assert found["metadata"]["labels"]["app.kubernetes.io/part-of"] == "penstock", found["metadata"]["name"]


@EVERY
def test_pods_are_hardened_probed_and_bounded(profile: str) -> None:
    for name, template in pod_templates(profile):
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not container["image"].endswith(":latest")
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"]["cpu"]
        if name != "engine-ray":  # KubeRay adds probes of its own
            kinds = ("startup", "readiness", "liveness")
            paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in kinds}
            startup = "/livez" if name == "penstock-gateway" else "/startupz"
            assert paths == {"startup": startup, "readiness": "/readyz", "liveness": "/livez"}
            assert not pod["automountServiceAccountToken"]


@EVERY
def test_the_gateways_drain_fits_its_grace_period(profile: str, tmp_path: Path) -> None:
    (pod,) = (found["spec"]["template"]["spec"] for found in objects(profile, "Deployment"))
    env = {item["name"]: item.get("value", "redis://redis:6379/0") for item in pod["containers"][0]["env"]}
    config = load_config(None, env, cwd=tmp_path)
    assert config.process.drain_notice_s > pod["containers"][0]["readinessProbe"]["periodSeconds"] * 2
    assert pod["terminationGracePeriodSeconds"] >= config.process.drain_notice_s + config.process.drain_timeout_s + 10


@EVERY
def test_the_engines_flags_exist_and_their_drain_fits_the_grace_period(profile: str) -> None:
    for found in objects(profile, "StatefulSet"):
        pod = found["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        flags = make_parser().parse_args(container["args"])
        assert flags.listen.endswith(":8000")
        command, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
        assert command == "sleep"
        assert pod["terminationGracePeriodSeconds"] >= int(seconds) + flags.drain_timeout_s + 10


def test_the_default_drain_is_the_engines_own() -> None:
    assert FrontConfig(listen="", model_name="").drain_timeout_s == 30


def test_the_admin_listener_takes_its_tokens_from_a_secret_that_the_base_does_not_hold() -> None:
    (pod,) = (found["spec"]["template"]["spec"] for found in objects("base", "Deployment"))
    (container,) = pod["containers"]
    env = {item["name"]: item.get("value") for item in container["env"]}
    (secret,) = (volume["secret"] for volume in pod["volumes"] if volume["name"] == "tokens")
    (mounted,) = (mount for mount in container["volumeMounts"] if mount["name"] == "tokens")
    page = (DEPLOY.parent / "docs" / "kubernetes.md").read_text()
    assert f"secret generic {secret['secretName']} " in page
    assert secret["defaultMode"] == 0o440
    assert mounted["readOnly"]
    for name in ("admin.token", "metrics.token"):
        assert f'--from-literal={name}="$(openssl rand -hex 32)"' in page
        assert f"{mounted['mountPath']}/{name}" in env.values()
    assert not objects("base", "Secret")


@pytest.mark.parametrize("profile", ["gpu", "ha", "ray"])
def test_monitors_find_their_service_and_the_token_goes_to_gateways_alone(profile: str) -> None:
    monitors = {found["metadata"]["name"]: found["spec"] for found in objects(profile, "ServiceMonitor")}
    assert monitors.keys() == {"penstock-gateway", *(["penstock-engine"] if profile != "ray" else [])}
    for monitor in monitors.values():
        wanted = monitor["selector"]["matchLabels"]
        services = [
            found for found in objects(profile, "Service") if wanted.items() <= found["metadata"]["labels"].items()
        ]
        assert services
        (endpoint,) = monitor["endpoints"]
        for service in services:
            assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    credentials = {"name": "penstock-admin", "key": "metrics.token"}
    assert monitors["penstock-gateway"]["endpoints"][0]["authorization"]["credentials"] == credentials
    assert all("authorization" not in monitor["endpoints"][0] for name, monitor in monitors.items() if "engine" in name)
    (gateway,) = (template for name, template in pod_templates(profile) if name == "penstock-gateway")
    assert "annotations" not in gateway["metadata"], "a job for annotated pods has no token"
    jobs = yaml.safe_load((DEPLOY / "prometheus" / "kubernetes.yaml").read_text())["scrape_configs"]
    assert [job["job_name"] for job in jobs if "authorization" in job] == ["penstock-gateway"]


def test_the_rules_are_those_of_prometheus() -> None:
    (found,) = objects("ha", "PrometheusRule")
    names = ("recording", "alerts")
    written = [yaml.safe_load((DEPLOY / "prometheus" / f"{name}.yaml").read_text())["groups"] for name in names]
    assert found["spec"]["groups"] == [group for groups in written for group in groups]


@EVERY
def test_the_policy_is_accepted_and_names_every_pod_that_may_be_started_and_no_other(profile: str) -> None:
    loaded = load_policy(policy(profile), source="policy.yaml")
    assert loaded.has_keys
    urls = {deployment.url for deployment in loaded.deployments}
    if profile == "ray":
        assert urls == {"http://engine-ray-serve-svc:8000"}
        return
    count = {found["metadata"]["name"]: found["spec"].get("replicas", 0) for found in objects(profile, "StatefulSet")}
    for found in objects(profile, "ScaledObject"):
        count[found["spec"]["scaleTargetRef"]["name"]] = found["spec"]["maxReplicaCount"]
    assert {f"http://{name}-{n}.{name}:8000" for name, started in count.items() for n in range(started)} <= urls
    if objects(profile, "ScaledObject"):
        assert len(urls) == sum(count.values())


@EVERY
def test_the_policys_models_are_those_that_engines_serve(profile: str) -> None:
    served = {
        argument.removeprefix("--name=")
        for found in objects(profile, "StatefulSet")
        for argument in found["spec"]["template"]["spec"]["containers"][0]["args"]
        if argument.startswith("--name=")
    }
    models = {deployment.model for deployment in load_policy(policy(profile), source="policy.yaml").deployments}
    assert models == served or profile == "ray"


@EVERY
def test_whatever_is_scaled_protected_or_routed_to_exists(profile: str) -> None:
    names = {(found["kind"], found["metadata"]["name"]) for found in objects(profile)}
    for scaler in objects(profile, "ScaledObject", "HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) in names
    labels = [template["metadata"]["labels"] for _, template in pod_templates(profile)]
    for guard in objects(profile, "PodDisruptionBudget", "NetworkPolicy", "Service", "InferencePool"):
        spec = guard["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        wanted = selector.get("matchLabels", selector)
        assert any(wanted.items() <= found.items() for found in labels), guard["metadata"]["name"]
    for route in objects(profile, "HTTPRoute"):
        for rule in route["spec"]["rules"]:
            for backend in rule["backendRefs"]:
                assert (backend.get("kind", "Service"), backend["name"]) in names


@EVERY
def test_every_workload_has_a_disruption_budget(profile: str) -> None:
    budgets = [found["spec"]["selector"]["matchLabels"] for found in objects(profile, "PodDisruptionBudget")]
    for name, template in pod_templates(profile):
        assert any(wanted.items() <= template["metadata"]["labels"].items() for wanted in budgets), name


@EVERY
def test_engines_are_reached_by_gateways_and_monitoring_alone(profile: str) -> None:
    rules: dict[str, Any] = {found["metadata"]["name"]: found["spec"] for found in objects(profile, "NetworkPolicy")}
    (ingress,) = rules["penstock-engine"]["ingress"]
    senders = ingress["from"]
    assert {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "penstock-gateway"}}} in senders
    if not objects(profile, "InferencePool", "RayService"):
        assert len(senders) == 2
        assert ingress["ports"] == [{"port": "http"}]
    admin = [rule for rule in rules["penstock-gateway"]["ingress"] if {"port": "admin"} in rule["ports"]]
    assert all(rule["from"] for rule in admin)


def test_the_ray_service_embeds_the_serve_configuration() -> None:
    (found,) = objects("ray", "RayService")
    config = yaml.safe_load(found["spec"]["serveConfigV2"])
    (application,) = config["applications"]
    assert application["import_path"] == "deploy.ray.app:app"
