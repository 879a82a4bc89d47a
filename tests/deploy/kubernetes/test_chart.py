"""The chart: self-contained, linted by Helm, and strict about values."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.kubernetes.chart import CHART, COPIES, profile_values, profiles
from tests.deploy.kubernetes.rendering import PROFILES, objects, rendering
from tests.deploy.promql import DEPLOY

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


def helm(script: str, *arguments: str) -> str:
    """Run a script over Helm's library, in a process of its own."""
    program = f"import json, sys, helm_python\n{script}"
    command = [sys.executable, "-c", program, str(CHART), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_helm_lints_the_chart() -> None:
    report = json.loads(helm("print(json.dumps(helm_python.lint(sys.argv[1])))"))
    assert not report["errors"]
    assert [found["error"] for found in report["messages"] if found["severity"] > 1] == []


def test_the_schema_knows_every_value_of_the_defaults_and_no_other() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(DEFAULTS, SCHEMA)
    stated = {key for key in SCHEMA["properties"] if key != "global"}
    assert DEFAULTS.keys() == stated
    assert DEFAULTS["engineDefaults"].keys() == SCHEMA["$defs"]["engine"]["properties"].keys()


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"gatway": {}}, "gatway"),
        ({"gateway": {"replicas": {"min": 0}}}, "minimum"),
        ({"gateway": {"image": {"tag": "latest"}}}, "tag"),
        ({"engineDefaults": {"args": ["device=cuda"]}}, "pattern"),
        ({"engines": {"Small_1": {"model": "m", "servedName": "m"}}}, "Small_1"),
        ({"engines": {"third": {"model": "m"}}}, "servedName"),
        ({"keda": {"queueWaitSeconds": 0}}, "queueWaitSeconds"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_helm_refuses_values_that_the_schema_does_not_have(values: dict[str, Any], place: str) -> None:
    script = """
with helm_python.Chart.load(sys.argv[1]) as chart:
    try:
        chart.render(json.loads(sys.argv[2]), name="penstock", namespace="penstock")
    except helm_python.HelmError as error:
        print(error)
"""
    message = helm(script, json.dumps(values))
    assert message.strip(), "rendered"
    assert place in message


def test_the_serve_application_has_the_name_and_the_replicas_of_the_values() -> None:
    script = """
with helm_python.Chart.load(sys.argv[1]) as chart:
    print(chart.render(json.loads(sys.argv[2]), name="penstock", namespace="penstock")["penstock/templates/ray.yaml"])
"""
    ray = {"enabled": True, "servedName": "other-model", "workers": {"replicas": {"min": 2, "max": 9}}}
    service = next(yaml.safe_load_all(helm(script, json.dumps({"ray": ray}))))
    (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    assert application["args"]["model"] == "other-model"
    scaling = application["args"]["scaling"]
    assert (scaling["min_replicas"], scaling["max_replicas"]) == (2, 9)


def test_the_chart_holds_what_other_folders_share_with_it() -> None:
    for name, source in COPIES.items():
        assert (CHART / "files" / name).read_text() == source.read_text(), "run `python -m deploy.kubernetes`"


def test_versions_are_the_projects_own() -> None:
    version = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    tags = {DEFAULTS[part]["image"]["tag"] for part in ("gateway", "engineDefaults", "ray")}
    assert tags == {version}


def test_profiles_combine() -> None:
    script = """
values = {}
def lay(under, over):
    return {**under, **{k: lay(under[k], v) if isinstance(v, dict) and isinstance(under.get(k), dict) else v
                        for k, v in over.items()}}
for text in sys.argv[2:]:
    values = lay(values, json.loads(text))
with helm_python.Chart.load(sys.argv[1]) as chart:
    print("\\n---\\n".join(chart.render(values, name="penstock", namespace="penstock").values()))
"""
    text = helm(script, *(json.dumps(profile_values(name)) for name in ("gpu", "ha")))
    found = [item for item in yaml.safe_load_all(text) if item is not None]
    (engine,) = (item for item in found if (item["kind"], item["metadata"]["name"]) == ("StatefulSet", "engine-small"))
    pod = engine["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert pod["topologySpreadConstraints"][0]["topologyKey"] == "topology.kubernetes.io/zone"


def test_every_profile_is_an_overlay() -> None:
    assert ["base", *profiles()] == PROFILES
    assert rendering()["objects"].keys() == set(PROFILES)
    assert all(objects(profile) for profile in PROFILES)
