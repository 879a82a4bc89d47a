"""Containers to probe: what the Kubernetes base states about them."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.images.__main__ import faults, main
from deploy.images.manifest import engine_spec, gateway_spec
from deploy.images.pod import ContainerSpec
from routing_policies.loading import load_policy

CONFIG = {"Entrypoint": ["penstock"], "Cmd": ["gateway"], "Env": ["PATH=/opt/penstock/bin", "A=b=c"]}
ENGINE_CONFIG = {**CONFIG, "Entrypoint": ["penstock", "engine"]}


def healthy(spec: ContainerSpec) -> dict[str, Any]:
    writes = {folder: folder in spec.writable for folder in ("/", "/etc", *spec.writable)}
    return {"writes": writes, "uid": "65532", "capabilities": 0, "no_new_privs": "1", "read_only": True, "exit": 0}


def test_a_gateway_gets_variables_folders_and_files_of_its_manifest() -> None:
    spec = gateway_spec("/root", CONFIG, with_engine=True)
    assert spec.command == ["penstock", "gateway"]
    assert spec.port == 8080
    assert spec.image_env == {"PATH": "/opt/penstock/bin", "A": "b=c"}
    assert spec.writable == ["/var/lib/penstock", "/tmp"]
    assert {spec.env["PENSTOCK_POLICY_DOCUMENT"], spec.env["PENSTOCK_ADMIN_TOKEN_FILE"]} <= spec.files.keys()
    policy = load_policy(spec.files["/etc/penstock/policy.yaml"], source="policy.yaml")
    assert policy.has_keys
    assert spec.key
    (deployment,) = policy.deployments
    engine = engine_spec("/root", ENGINE_CONFIG)
    assert deployment.url == f"http://127.0.0.1:{engine.port}"
    assert f"--name={deployment.model}" in engine.command
    assert engine.command[:2] == ["penstock", "engine"]
    assert not gateway_spec("/root", CONFIG, with_engine=False).ready


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        ({"writes": {"/": True, "/var/lib/penstock": True, "/tmp": True, "/dev/shm": True}}, "writes to"),
        ({"uid": "0"}, "runs as 0"),
        ({"capabilities": 0x20}, "with capabilities 20"),
        ({"no_new_privs": "0"}, "runs as"),
        ({"read_only": False}, "its root is writable"),
        ({"exit": None}, "ends with None after SIGTERM"),
        ({"exit": 137}, "ends with 137"),
    ],
)
def test_whatever_a_kubelet_would_not_allow_is_a_fault(change: dict[str, Any], fault: str | None) -> None:
    spec = engine_spec("/root", ENGINE_CONFIG)
    found = faults([spec], {"engine": healthy(spec) | change})
    assert len(found) == (fault is not None)
    assert fault is None or fault in found[0]


def test_gateway_and_engine_together_have_to_answer() -> None:
    specs = [engine_spec("/root", ENGINE_CONFIG), gateway_spec("/root", CONFIG, with_engine=True)]
    seen: dict[str, Any] = {spec.name: healthy(spec) for spec in specs}
    assert faults(specs, {**seen, "answer": "Hello"}) == []
    assert faults(specs, {**seen, "answer": ""}) == ["the answer through gateway and engine is empty"]


def test_an_unknown_image_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["store"])
    assert "unknown image: store" in capsys.readouterr().err
