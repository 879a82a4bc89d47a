"""Coefficients in files: as trained, or an error that stops the start."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.cli.quality_training import train_from_files
from gateway.config.checks import ConfigError
from gateway.routing.quality_files import load_predictors
from routing_policies.quality.predictor import Predictor
from routing_policies.quality.prompt import Prompt
from tests.routing_policies.quality.prompts import prompt


def write_data(path: Path, *, weak: str = "s", strong: str = "l", num: int = 300) -> Path:
    rng = random.Random(4)
    lines = []
    for number in range(num):
        is_hard = number % 3 == 0
        line: dict[str, Any] = {"outcomes": {weak: 0.0 if is_hard else 1.0, strong: 1.0, "other": 0.5}}
        text = prompt(rng, is_hard=is_hard).text
        if number % 2:
            line["messages"] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
        else:
            line["prompt"] = text
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_damaged_or_missing_folder_of_coefficients_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="quality_dir: "):
        load_predictors(tmp_path / "none")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"quality_dir: .*bad\.json.*train it again"):
        load_predictors(tmp_path)


def test_coefficients_from_a_file_say_the_same_as_those_that_were_trained(tmp_path: Path) -> None:
    model = train_from_files([write_data(tmp_path / "data.jsonl")], "s", "l")
    models = tmp_path / "models"
    models.mkdir()
    (models / "pair.json").write_bytes(msgspec.json.encode(model))
    found = load_predictors(models).find("s", "l")
    assert found is not None
    one = Prompt("Please add 17 and 45.", num_chars=21)
    assert found.judge(one).prediction == Predictor(model).judge(one).prediction
