"""Check of a model's sizes against its files, before anything of such a size is allocated."""

from __future__ import annotations

from pathlib import Path

from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.config.config import ModelConfig
from engine.models.families.registry import read_model_config


def read_checked_config(model_dir: Path) -> ModelConfig:
    """Read the config after checking its vocabulary, hidden size and layers against the tensors' headers.

    Raises:
        ModelConfigError: The config cannot be served.
        CheckpointError: Config and tensors differ.
    """
    config = read_model_config(model_dir)
    checkpoint = Checkpoint(model_dir, is_multimodal=config.is_multimodal)
    checkpoint.require("model.embed_tokens.weight", (config.vocab_size, config.hidden_size))
    checkpoint.require("model.norm.weight", (config.hidden_size,))
    last = f"model.layers.{config.num_layers - 1}."
    if checkpoint.first_with(last) is None:
        raise CheckpointError(
            f"{model_dir}: has no tensor {last}*, although config.json has {config.num_layers} layers"
        )
    return config
