"""The command that trains a model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from engine.training.train import main


def test_a_training_of_no_steps_writes_a_checkpoint_and_a_model_and_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = torch.get_num_threads()
    arguments = ["train", "--model", "small", "--out", str(tmp_path), "--steps", "0", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", arguments)
    main()
    first = torch.load(tmp_path / "state.pt", weights_only=True)
    assert first["step"] == 0
    assert AutoConfig.from_pretrained(tmp_path / "model").model_type == "qwen3"
    monkeypatch.setattr(sys, "argv", [*arguments, "--seed", "8", "--resume"])
    main()
    again = torch.load(tmp_path / "state.pt", weights_only=True)
    name = "model.embed_tokens.weight"
    assert torch.equal(again["model"][name], first["model"][name])
    torch.set_num_threads(threads)


@pytest.mark.parametrize("argument", ["--phases=warmup", "--phases=warmup:x", "--model=medium"])
def test_a_wrong_option_is_named(
    argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train", "--model", "small", "--out", str(tmp_path), argument])
    with pytest.raises(SystemExit):
        main()
    assert argument.partition("=")[0] in capsys.readouterr().err
