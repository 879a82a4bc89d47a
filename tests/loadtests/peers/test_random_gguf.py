"""A GGUF file of a published shape: the engine reads it as the model that it states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.models.gguf.folder import prepare_folder
from loadtests.peers.random_gguf import main
from tests.engine.models.gguf.vocabularies import write_byte_level


@pytest.mark.parametrize("weight_type", ["F16", "Q8_0", "Q4_0"])
def test_the_file_has_the_published_shape_and_the_other_files_tokenizer(tmp_path: Path, weight_type: str) -> None:
    write_byte_level(tmp_path / "like.gguf")
    out = tmp_path / "random.gguf"
    arguments = ["--like", str(tmp_path / "like.gguf"), "--out", str(out), "--type", weight_type, "--layers", "1"]
    assert main(arguments) == 0
    folder = prepare_folder(out, tmp_path / "prepared")
    config = json.loads((folder / "config.json").read_text())
    assert (config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]) == (2048, 8192, 1)
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (32, 8)
    tokens = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert "hello" in tokens
    assert config["vocab_size"] == len(tokens)
