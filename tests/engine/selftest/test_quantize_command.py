"""The command that checks what quantization costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.bundled import model_dir
from engine.selftest.quantize_command import main


def test_the_command_passes_a_small_loss_and_ends_with_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Where is my order? It is on its way. " * 30)
    arguments = [
        "--check",
        "--model",
        str(model_dir("small")),
        "--text",
        str(text),
        "--samples",
        "1",
        "--threads",
        "1",
        "--max-accuracy-loss",
        "100",
    ]

    assert main([*arguments, "--max-perplexity-loss", "0.5"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["refused"] is None
    assert result["quantization"] == "int8"
    assert 0 <= result["equal_answers_ratio"] <= 1
    assert main([*arguments, "--max-perplexity-loss", "-0.9"]) == 1
    assert "perplexity" in json.loads(capsys.readouterr().out.splitlines()[-1])["refused"]


def test_models_of_ones_own_need_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--model", str(tmp_path)]) == 2
    assert "--text" in capsys.readouterr().err
