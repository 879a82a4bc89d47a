"""Coefficients of predictors on disk: those of the package, and an operator's own."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from gateway.config.checks import ConfigError
from gateway.util.regular_file import read_regular_file
from routing_policies.quality.model import PairModel
from routing_policies.quality.predictor import BadModel, Predictors, decode_model


def load_predictors(folder: Path | None = None) -> Predictors:
    """Load the bundled predictors, and every `*.json` of the folder, which override them.

    Raises:
        ConfigError: A file is invalid.
    """
    try:
        return Predictors([*bundled_models(), *(_models_in(folder) if folder is not None else [])])
    except (BadModel, OSError) as error:
        raise ConfigError(f"policy.quality_dir: {error}") from error


def bundled_models() -> list[PairModel]:
    """Return the quality models that are part of the package."""
    found = files("routing_policies") / "data"
    names = sorted(entry.name for entry in found.iterdir() if entry.name.endswith(".json"))
    return [decode_model((found / name).read_bytes(), name) for name in names]


def _models_in(folder: Path) -> list[PairModel]:
    found = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    return [decode_model(read_regular_file(path), str(path)) for path in found]
