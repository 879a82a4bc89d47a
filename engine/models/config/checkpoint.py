"""Reader of a safetensors checkpoint, in one file or many, that accounts for every tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.config import EngineConfigError
from engine.models.config.config import read_json_object
from engine.models.config.config_reader import ModelConfigError
from engine.models.config.text_part import text_name

_SINGLE_FILE = "model.safetensors"
_INDEX_FILE = "model.safetensors.index.json"
_MAX_NAMES_SHOWN = 5
_MAX_NAME_SHOWN = 128
"""Maximum length of a name in a message, in characters."""
# Old exporters saved this table, which follows from config.json.
_DERIVED = re.compile(r"rotary_emb\.inv_freq$")


class CheckpointError(EngineConfigError):
    """Missing, surplus, broken or misshapen weights in a checkpoint; the message names them."""


class Checkpoint:
    """Memory-mapped tensors of one model folder; each is taken once."""

    def __init__(self, model_dir: Path, *, is_multimodal: bool = False) -> None:
        """Open a model folder.

        Args:
            model_dir: Folder of the checkpoint.
            is_multimodal: True to find the text part's tensors under the names they have without the other parts.

        Raises:
            CheckpointError: A file is missing, broken or repeats a tensor.
        """
        self._model_dir = model_dir
        self._files: dict[str, Any] = {name: _open(path) for name, path in _find_files(model_dir).items()}
        self._remaining: dict[str, str] = {}
        self._saved_names: dict[str, str] = {}
        num_ignored = 0
        for file_name, file in self._files.items():
            for saved_name in file.keys():  # noqa: SIM118 - a safetensors handle is not a mapping
                name = text_name(saved_name) if is_multimodal else saved_name
                if name is None:
                    num_ignored += 1
                    continue
                if name in self._remaining:
                    raise CheckpointError(f"{model_dir}: {name} is in both {self._remaining[name]} and {file_name}")
                self._remaining[name] = file_name
                self._saved_names[name] = saved_name
        self.num_ignored = num_ignored
        """Number of tensors of other parts than the text."""

    def has(self, name: str) -> bool:
        """Return whether a tensor of this name exists and is not taken yet."""
        return name in self._remaining

    def first_with(self, prefix: str) -> str | None:
        """Return the alphabetically first name with this prefix that is not taken yet."""
        return min((name for name in self._remaining if name.startswith(prefix)), default=None)

    def take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Take a floating-point tensor.

        Returns:
            The memory-mapped tensor; the caller copies what it keeps.

        Raises:
            CheckpointError: The tensor is missing, misshapen or not floating-point.
        """
        tensor = self._take(name, shape)
        if not tensor.is_floating_point():
            raise self._error(name, f"expected floating-point numbers, got {tensor.dtype}")
        return tensor

    def take_integers(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """Take a tensor of integers, such as packed codes.

        Raises:
            CheckpointError: The tensor is missing, misshapen or of another dtype.
        """
        tensor = self._take(name, shape)
        if tensor.dtype != dtype:
            expected = str(dtype).removeprefix("torch.")
            raise self._error(name, f"expected {expected} numbers, got {tensor.dtype}")
        return tensor

    def require(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise CheckpointError unless the tensor exists with this shape; only the file's header is read."""
        found = self.shape(name)
        if found != shape:
            raise self._error(name, f"expected shape {list(shape)}, got {list(found)}")

    def is_zero(self, name: str) -> bool:
        """Return whether an existing tensor holds only zeros; the tensor is not taken."""
        return not self._read(name).any()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor from the file's header. Raises CheckpointError if it is missing."""
        if name not in self._remaining:
            raise CheckpointError(f"{self._model_dir}: missing tensor {name}")
        return tuple(self._files[self._remaining[name]].get_slice(self._saved_names[name]).get_shape())

    def discard(self, name: str) -> None:
        """Leave a tensor unused on purpose; a missing one is ignored."""
        self._remaining.pop(name, None)

    def check_all_taken(self) -> None:
        """Raise CheckpointError with the names of tensors that the model does not use."""
        names = sorted(name for name in self._remaining if not _DERIVED.search(name))
        if names:
            more = f" and {len(names) - _MAX_NAMES_SHOWN} more" if len(names) > _MAX_NAMES_SHOWN else ""
            raise CheckpointError(f"{self._model_dir}: unexpected tensors: {', '.join(names[:_MAX_NAMES_SHOWN])}{more}")

    def _take(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if name not in self._remaining:
            prefix = name.removesuffix(".weight")
            if self.has(f"{prefix}.qweight") or self.has(f"{prefix}.weight_packed"):
                raise self._error(
                    name, "is packed, which is read of projections only; leave it out of the quantization"
                )
            raise CheckpointError(f"{self._model_dir}: missing tensor {name}")
        tensor = self._read(name)
        if tuple(tensor.shape) != shape:
            raise self._error(name, f"expected shape {list(shape)}, got {list(tensor.shape)}")
        del self._remaining[name]
        return tensor

    def dtype(self, name: str) -> torch.dtype:
        """Return the dtype of an existing tensor, which is mapped but not read."""
        return self._read(name).dtype

    def _read(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._files[self._remaining[name]].get_tensor(self._saved_names[name])
        return tensor

    def _error(self, name: str, problem: str) -> CheckpointError:
        return CheckpointError(f"{self._model_dir}: {name}: {problem}")


def _find_files(model_dir: Path) -> dict[str, Path]:
    if (model_dir / _INDEX_FILE).is_file():
        return {name: model_dir / name for name in _shards(model_dir / _INDEX_FILE)}
    if (model_dir / _SINGLE_FILE).is_file():
        return {_SINGLE_FILE: model_dir / _SINGLE_FILE}
    raise CheckpointError(f"{model_dir}: has neither {_SINGLE_FILE} nor {_INDEX_FILE}; other formats are not read")


def _shards(index: Path) -> list[str]:
    try:
        weight_map = read_json_object(index).get("weight_map")
    except ModelConfigError as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(weight_map, Mapping) or not weight_map:
        raise CheckpointError(f"{index}: weight_map: expected an object of tensor names to file names")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        # The index comes with the download: it must not point outside its own directory.
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{index}: weight_map: {name!r} is not the name of a safetensors file beside it")
        if not _is_there(index.parent / name):
            raise CheckpointError(f"{index}: names {name[:_MAX_NAME_SHOWN]}, which is not there")
    return names


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _open(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: is not a readable safetensors file: {error}") from error
