"""`penstock engine steps` times what it is called to, wherever it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.__main__ import main
from tests.engine.core.checkpoints import write_checkpoint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_checkpoint(folder)
    return folder


def test_every_shape_gets_its_figures(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--model", str(model), "--device", "cpu", "--threads", "1", "--steps", "2", "--json")

    status = main(["steps", *arguments, "--shape", "1x40", "--shape", "3x20"])

    found = json.loads(capsys.readouterr().out)
    assert (status, found["card"], found["dtype"]) == (0, "cpu", "float32")
    assert [(shape["num_seqs"], shape["context"]) for shape in found["shapes"]] == [(1, 40), (3, 20)]
    for shape in found["shapes"]:
        assert min(shape["queued_ms"], shape["overlapped_ms"], shape["awaited_ms"]) > 0
        assert shape["bound_share"] == pytest.approx(shape["bound_ms"] / shape["queued_ms"])


def test_a_folder_without_a_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["steps", "--model", str(tmp_path), "--device", "cpu"]) == 2
    assert "config.json" in capsys.readouterr().err
