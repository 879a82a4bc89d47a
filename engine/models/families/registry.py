"""Registry of the supported families, and the choice of one by a checkpoint's config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.models.config.config import (
    ModelConfig,
    ModelTraits,
    read_base_config,
    read_json_object,
    refuse_unsupported,
)
from engine.models.config.config_reader import ConfigReader
from engine.models.families import (
    gemma2,
    gemma3,
    llama,
    mistral,
    mixtral,
    olmo2,
    phi3,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
)


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Architecture name and reader of the traits of one family."""

    architecture: str
    read_traits: Callable[[ConfigReader], ModelTraits]


FAMILIES = {
    "llama": ModelFamily(llama.ARCHITECTURE, llama.read_traits),
    "mistral": ModelFamily(mistral.ARCHITECTURE, mistral.read_traits),
    "qwen2": ModelFamily(qwen2.ARCHITECTURE, qwen2.read_traits),
    "qwen3": ModelFamily(qwen3.ARCHITECTURE, qwen3.read_traits),
    "olmo2": ModelFamily(olmo2.ARCHITECTURE, olmo2.read_traits),
    "phi3": ModelFamily(phi3.ARCHITECTURE, phi3.read_traits),
    "gemma2": ModelFamily(gemma2.ARCHITECTURE, gemma2.read_traits),
    "gemma3_text": ModelFamily(gemma3.ARCHITECTURE, gemma3.read_traits),
    "mixtral": ModelFamily(mixtral.ARCHITECTURE, mixtral.read_traits),
    "qwen2_moe": ModelFamily(qwen2_moe.ARCHITECTURE, qwen2_moe.read_traits),
    "qwen3_moe": ModelFamily(qwen3_moe.ARCHITECTURE, qwen3_moe.read_traits),
}
"""Supported families by `model_type`."""


def read_model_config(model_dir: Path) -> ModelConfig:
    """Read the configuration of the checkpoint in a folder.

    Raises:
        ModelConfigError: The config is missing, wrong or of an unsupported family.
    """
    path = model_dir / "config.json"
    reader = ConfigReader(path, read_json_object(path))
    model_type = reader.string("model_type")
    family = FAMILIES.get(model_type)
    if family is None:
        raise reader.error("model_type", f"{model_type!r} is not supported; expected one of {', '.join(FAMILIES)}")
    architectures = reader.strings("architectures")
    if architectures and family.architecture not in architectures:
        raise reader.error(
            "architectures", f"expected {family.architecture} for {model_type}, got {', '.join(architectures)}"
        )
    traits = family.read_traits(reader)
    refuse_unsupported(reader, traits)
    return read_base_config(reader, traits)
