"""A model's sizes, compared with its files before anything is made of such a size."""

from __future__ import annotations

from pathlib import Path

from engine.models.config.checkpoint import Checkpoint, CheckpointError
from engine.models.config.config import ModelConfig
from engine.models.families.registry import read_model_config


def read_checked_config(model_dir: Path) -> ModelConfig:
    """The config, once the vocabulary, the hidden size and the layers it claims are those of the tensors beside it.

    Reads headers only. Raises ModelConfigError for a config that cannot be served, CheckpointError where they differ.
    """
    config, checkpoint = read_model_config(model_dir), Checkpoint(model_dir)
    checkpoint.require("model.embed_tokens.weight", (config.vocab_size, config.hidden_size))
    checkpoint.require("model.norm.weight", (config.hidden_size,))
    last = f"model.layers.{config.num_layers - 1}."
    if checkpoint.first_with(last) is None:
        raise CheckpointError(
            f"{model_dir}: has no tensor {last}*, although config.json claims {config.num_layers} layers"
        )
    return config
