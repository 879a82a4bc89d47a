"""Configuration of an adapter: `adapter_config.json` as PEFT writes it, parsed strictly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.models.config.config import read_json_object
from engine.models.config.config_reader import ModelConfigError

CONFIG_FILE: Final = "adapter_config.json"
_MAX_CONFIG_BYTES: Final = 1 << 20
_MAX_SHOWN: Final = 128
"""Maximum length of a value in a message, in characters."""
_MAX_ALPHA: Final = 3.4e38
"""Largest magnitude of `lora_alpha`: weights are float32."""
_INERT: Final = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "eva_config",
        "exclude_modules",
        "inference_mode",
        "layers_pattern",
        "layers_to_transform",
        "lora_alpha",
        "lora_dropout",
        "megatron_core",
        "peft_type",
        "peft_version",
        "qalora_group_size",
        "r",
        "revision",
        "runtime_config",
        "target_modules",
        "use_rslora",
    }
)
"""Options that are read here, or that change nothing about the product of a trained adapter."""
_PLAIN_VALUES: Final[dict[str, tuple[object, ...]]] = {
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),
    "task_type": ("CAUSAL_LM",),
}
"""Accepted values of options of which others are refused; null and absent options are accepted too."""
_OFF: Final[tuple[object, ...]] = (None, False, [], {}, "")


class AdapterError(ValueError):
    """An adapter that cannot be served; the message names the file and the part at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """Rank and scale of an adapter."""

    rank: int
    scale: float
    """Factor of the product B(A x)."""
    base_model: str | None
    """Name of the model that the adapter was trained on."""
    covers_all_layers: bool
    """True if every layer must have weights in the adapter's file."""


def read_adapter_config(folder: Path, max_rank: int) -> AdapterConfig:
    """Read the configuration of the adapter in a folder.

    Raises:
        AdapterError: The file is missing or broken, the rank is too high, or an option is not supported.
    """
    path = folder / CONFIG_FILE
    content = _content(path)
    kind = content.get("peft_type")
    if kind != "LORA":
        raise AdapterError(f"{path}: peft_type: {_shown(kind)} is not supported; expected 'LORA'")
    for name, value in content.items():
        _check_option(path, name, value)
    rank = content.get("r")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= max_rank:
        raise AdapterError(
            f"{path}: r: expected a rank from 1 to max_lora_rank, which is {max_rank}; got {_shown(rank)}"
        )
    alpha = content.get("lora_alpha")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not abs(alpha) <= _MAX_ALPHA:
        raise AdapterError(
            f"{path}: lora_alpha: expected a number from -{_MAX_ALPHA:g} to {_MAX_ALPHA:g}, got {_shown(alpha)}"
        )
    is_stabilized = content.get("use_rslora") or False
    if not isinstance(is_stabilized, bool):
        raise AdapterError(f"{path}: use_rslora: expected true or false, got {_shown(is_stabilized)}")
    base_model = content.get("base_model_name_or_path")
    return AdapterConfig(
        rank=rank,
        scale=alpha / (math.sqrt(rank) if is_stabilized else rank),
        base_model=base_model[:_MAX_SHOWN] if isinstance(base_model, str) else None,
        covers_all_layers=content.get("layers_to_transform") is None,
    )


def _content(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise AdapterError(f"{path}: no such file; expected a folder that PEFT saved")
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise AdapterError(f"{path}: has more than {_MAX_CONFIG_BYTES} bytes")
        return read_json_object(path)
    except ModelConfigError as error:
        raise AdapterError(str(error)) from error
    except (OSError, ValueError) as error:  # also a path that no file can have
        if isinstance(error, AdapterError):
            raise
        raise AdapterError(f"{CONFIG_FILE}: cannot be read: {error}") from error


def _check_option(path: Path, name: str, value: object) -> None:
    """Refuse an option that would change the adapter's product. Options with a value of "off" never do."""
    if name in _INERT or value in _OFF:
        return
    plain = _PLAIN_VALUES.get(name)
    if plain is None:
        raise AdapterError(f"{path}: {name[:_MAX_SHOWN]}: {_shown(value)} is not supported; expected it to be off")
    if value not in plain:
        raise AdapterError(f"{path}: {name}: {_shown(value)} is not supported; expected {_listed(plain)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _listed(values: tuple[object, ...]) -> str:
    return " or ".join(repr(value) for value in values)
