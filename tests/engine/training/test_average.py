"""The mean of checkpoints."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.training.average import average


def checkpoint(folder: Path, value: float, size: int = 3) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    save_file({"w": torch.full((size,), value, dtype=torch.bfloat16)}, folder / "model.safetensors")
    return folder


def test_weights_are_averaged_and_the_rest_is_copied(tmp_path: Path) -> None:
    average(tmp_path / "out", [checkpoint(tmp_path / "a", 1.0), checkpoint(tmp_path / "b", 4.0)])
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert weights["w"].tolist() == [2.5] * 3
    assert weights["w"].dtype == torch.bfloat16
    assert (tmp_path / "out" / "config.json").exists()


def test_checkpoints_of_other_shapes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not of the same shape"):
        average(tmp_path / "out", [checkpoint(tmp_path / "a", 1.0), checkpoint(tmp_path / "b", 1.0, size=4)])
