"""Coefficients in files: as trained, or an error that stops the start."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gateway.cli.outcomes.quality_training import read_training_data
from gateway.config.checks import ConfigError
from gateway.routing.quality_files import load_predictors
from routing_policies.quality.predictor import Predictor
from routing_policies.quality.prompt import Prompt
from tests.gateway.test_quality_routing import write_data


def test_a_damaged_or_missing_folder_of_coefficients_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="quality_dir: "):
        load_predictors(tmp_path / "none")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"quality_dir: .*bad\.json.*train it again"):
        load_predictors(tmp_path)


def test_coefficients_from_a_file_are_equal_as_those_that_were_trained(tmp_path: Path) -> None:
    model = read_training_data([write_data(tmp_path / "data.jsonl")], "s", "l").fit()
    models = tmp_path / "models"
    models.mkdir()
    (models / "pair.json").write_bytes(msgspec.json.encode(model))
    found = load_predictors(models).find("s", "l")
    assert found is not None
    one = Prompt("Please add 17 and 45.", num_chars=21)
    assert found.assess(one).prediction == Predictor(model).assess(one).prediction
