"""Registry of the supported families, and the choice of one by a checkpoint's config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.models.config.config import (
    ModelConfig,
    ModelTraits,
    read_base_config,
    read_json_object,
    refuse_unsupported,
)
from engine.models.config.config_reader import ConfigReader
from engine.models.families import exaone4, glm4, gpt_oss, granite, llama, mistral, mixtral, olmo2, olmo3, phi3, smollm3
from engine.models.families.gemma import gemma2, gemma3
from engine.models.families.qwen import qwen2, qwen2_moe, qwen3, qwen3_5, qwen3_5_moe, qwen3_moe, qwen3_next


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Architecture name and reader of the traits of one family."""

    architecture: str
    read_traits: Callable[[ConfigReader], ModelTraits]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the text part of a multimodal checkpoint may leave out."""


FAMILIES = {
    "llama": ModelFamily(llama.ARCHITECTURE, llama.read_traits),
    "mistral": ModelFamily(mistral.ARCHITECTURE, mistral.read_traits),
    "qwen2": ModelFamily(qwen2.ARCHITECTURE, qwen2.read_traits),
    "qwen3": ModelFamily(qwen3.ARCHITECTURE, qwen3.read_traits),
    "olmo2": ModelFamily(olmo2.ARCHITECTURE, olmo2.read_traits),
    "phi3": ModelFamily(phi3.ARCHITECTURE, phi3.read_traits),
    "gemma2": ModelFamily(gemma2.ARCHITECTURE, gemma2.read_traits),
    "olmo3": ModelFamily(olmo3.ARCHITECTURE, olmo3.read_traits),
    "smollm3": ModelFamily(smollm3.ARCHITECTURE, smollm3.read_traits),
    "granite": ModelFamily(granite.ARCHITECTURE, granite.read_traits),
    "glm4": ModelFamily(glm4.ARCHITECTURE, glm4.read_traits),
    "gpt_oss": ModelFamily(gpt_oss.ARCHITECTURE, gpt_oss.read_traits),
    "exaone4": ModelFamily(exaone4.ARCHITECTURE, exaone4.read_traits),
    "gemma3_text": ModelFamily(gemma3.ARCHITECTURE, gemma3.read_traits, gemma3.TEXT_DEFAULTS),
    "mixtral": ModelFamily(mixtral.ARCHITECTURE, mixtral.read_traits),
    "qwen2_moe": ModelFamily(qwen2_moe.ARCHITECTURE, qwen2_moe.read_traits),
    "qwen3_5_text": ModelFamily(qwen3_5.ARCHITECTURE, qwen3_5.read_traits),
    "qwen3_5_moe_text": ModelFamily(qwen3_5_moe.ARCHITECTURE, qwen3_5_moe.read_traits),
    "qwen3_moe": ModelFamily(qwen3_moe.ARCHITECTURE, qwen3_moe.read_traits),
    "qwen3_next": ModelFamily(qwen3_next.ARCHITECTURE, qwen3_next.read_traits),
}
"""Supported families by `model_type`."""

MULTIMODAL = {
    "gemma3": "Gemma3ForConditionalGeneration",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "mistral3": "Mistral3ForConditionalGeneration",
}
"""Architectures of multimodal checkpoints whose text part is served, by `model_type`."""

_LLAMA4 = (
    "attention in chunks, queries scaled by position and experts with scaled inputs are not implemented; "
    "the text part of Llama 4 is not served"
)
_REFUSED = {"llama4": _LLAMA4, "llama4_text": _LLAMA4}
"""Reasons why a known `model_type` is not served."""


def read_model_config(model_dir: Path) -> ModelConfig:
    """Read the configuration of the checkpoint in a folder; of a multimodal one, that of its text part.

    Raises:
        ModelConfigError: The config is missing, wrong or of an unsupported family.
    """
    path = model_dir / "config.json"
    values = read_json_object(path)
    reader = ConfigReader(path, values)
    model_type = reader.string("model_type")
    if model_type not in MULTIMODAL:
        family = _family(reader)
        _check_architecture(reader, family.architecture)
        return _read_config(reader, family)
    _check_architecture(reader, MULTIMODAL[model_type])
    text = reader.child("text_config")
    if text is None:
        raise reader.error("text_config", "is required")
    family = _family(text)
    # A part's settings are saved without those that have their default.
    text = ConfigReader(path, {**family.defaults, **values["text_config"]}, "text_config.")
    return _read_config(text, family, reader)


def _family(reader: ConfigReader) -> ModelFamily:
    model_type = reader.string("model_type")
    if model_type in _REFUSED:
        raise reader.error("model_type", f"{model_type!r}: {_REFUSED[model_type]}")
    family = FAMILIES.get(model_type)
    if family is None:
        known = ", ".join([*FAMILIES, *MULTIMODAL])
        raise reader.error("model_type", f"{model_type!r} is not supported; expected one of {known}")
    return family


def _check_architecture(reader: ConfigReader, expected: str) -> None:
    architectures = reader.strings("architectures")
    if architectures and expected not in architectures:
        found = ", ".join(architectures)
        raise reader.error("architectures", f"expected {expected} for {reader.string('model_type')}, got {found}")


def _read_config(reader: ConfigReader, family: ModelFamily, whole: ConfigReader | None = None) -> ModelConfig:
    traits = family.read_traits(reader)
    refuse_unsupported(whole or reader, reader, traits)
    return read_base_config(reader, traits, whole)
