"""The compose stack: valid against the specification, hardened, and in tune with what it mounts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import check_jsonschema.builtin_schemas
import jsonschema
import pytest
import yaml

from gateway.access.file_token import FileToken
from gateway.config.settings import GatewayConfig
from gateway.config.sources import ENV_PREFIX, load_config, variable_of
from routing_policies.loading import load_policy
from tests.deploy.promql import DEPLOY

FOLDER = DEPLOY / "compose"
FILE = FOLDER / "compose.yaml"
_SCHEMA = Path(check_jsonschema.builtin_schemas.__file__).parent / "vendor" / "compose-spec.json"


@pytest.fixture(scope="module")
def stack() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return document


def test_the_file_follows_the_compose_specification(stack: dict[str, Any]) -> None:
    jsonschema.validate(stack, json.loads(_SCHEMA.read_text()))


def test_images_are_pinned_and_services_hardened_and_watched(stack: dict[str, Any]) -> None:
    for name, service in stack["services"].items():
        assert re.search(r":v?\d+\.\d+\.\d+", service["image"]), name
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["healthcheck"]["test"], name


def test_secrets_have_no_defaults() -> None:
    found = re.findall(r"\$\{(\w+)([^}]*)\}", FILE.read_text())
    assert {name for name, _ in found} == {"REDIS_PASSWORD", "GRAFANA_PASSWORD"}
    assert all(rest.startswith(":?") and len(rest) > 10 for _, rest in found)


def test_every_mounted_file_is_there(stack: dict[str, Any]) -> None:
    for service in stack["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in stack["volumes"] or (FOLDER / source).resolve().exists(), source


def test_the_gateways_settings_exist_and_its_drain_fits_the_grace_period(stack: dict[str, Any], tmp_path: Path) -> None:
    service = stack["services"]["gateway"]
    settings = {key: value for key, value in service["environment"].items() if key.startswith(ENV_PREFIX)}
    settings["PENSTOCK_STORE_ADDRESS"] = re.sub(r"\$\{[^}]*\}", "secret", settings["PENSTOCK_STORE_ADDRESS"])
    config: GatewayConfig = load_config(None, settings, cwd=tmp_path)
    grace_s = float(service["stop_grace_period"].removesuffix("s"))
    assert config.process.drain_notice_s + config.process.drain_timeout_s < grace_s


def test_the_policy_names_the_engines_that_are_started(stack: dict[str, Any]) -> None:
    policy = load_policy((FOLDER / "policy" / "policy.yaml").read_text(), source="policy.yaml")
    assert policy.has_keys
    assert {deployment.url for deployment in policy.deployments} == {
        f"http://{name}:8000" for name in stack["services"] if name.startswith("engine-")
    }
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"]
    targets = {
        target.partition(":")[0] for job in scraped for group in job["static_configs"] for target in group["targets"]
    }
    assert targets == {name for name in stack["services"] if name.startswith(("engine-", "gateway"))}


def test_the_first_start_makes_tokens_that_gateway_and_prometheus_read(stack: dict[str, Any], tmp_path: Path) -> None:
    maker, gateway, prometheus = (stack["services"][name] for name in ("tokens", "gateway", "prometheus"))
    script = maker["command"][0].replace("/var/lib/penstock", str(tmp_path))
    stored: dict[str, str] = {}
    for _ in range(2):  # a second start keeps them
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
        made = {path.name: path.read_text() for path in tmp_path.iterdir()}
        assert made.keys() == {"admin.token", "metrics.token"}
        assert len(set(made.values())) == 2
        stored = stored or made
        assert made == stored
    assert (tmp_path / "admin.token").stat().st_mode & 0o777 == 0o600
    assert maker["network_mode"] == "none"
    assert "tokens:/var/lib/penstock" in maker["volumes"]
    for reader in (gateway, prometheus):
        assert "tokens:/run/penstock:ro" in reader["volumes"]
        assert reader["depends_on"]["tokens"] == {"condition": "service_completed_successfully"}
    for kind, setting in (("admin", "admin.token_file"), ("metrics", "admin.metrics_token_file")):
        assert FileToken(tmp_path / f"{kind}.token").matches(made[f"{kind}.token"].strip().encode())
        assert gateway["environment"][variable_of(setting)] == f"/run/penstock/{kind}.token"
    (job,) = (
        job
        for job in yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"]
        if job["job_name"] == "penstock-gateway"
    )
    assert job["authorization"] == {"credentials_file": "/run/penstock/metrics.token"}


def test_grafana_is_given_the_dashboards_where_it_searches_them(stack: dict[str, Any]) -> None:
    provider = yaml.safe_load((FOLDER / "grafana" / "dashboards" / "penstock.yaml").read_text())["providers"][0]
    mounted = [volume.split(":")[1] for volume in stack["services"]["grafana"]["volumes"]]
    assert provider["options"]["path"] in mounted
